"""How much faster are two processes than one on the same set, and how many bytes do they exchange?

A PicasoPool of three steps, D = 64, H = 4, K = 4, forward and backward, one thread per process, gloo. Expected: almost
twice as fast, because the number of bytes does not depend on the number of elements. Reported: medians of the slower
rank.

    python -m benchmarks.sharding

Prints a table, then one JSON line; commit it under ``results/``. Needs one idle core per process.
"""

import argparse
import multiprocessing
import os
import statistics
import tempfile
import time

import torch
import torch.distributed as dist

from benchmarks.measure import machine_limits, record
from picaset import PicasoPool, shard

DIM, HEADS, TEMPLATES, STEPS = 64, 4, 4, 3


def work(sender: object, rank: int, size: int, meeting: str, count: int, repeats: int) -> None:
    """Join a group of processes, measure on this rank, and send the median times and the bytes sent in a call."""
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=size)
    torch.manual_seed(0)
    pool = shard(PicasoPool(DIM, num_templates=TEMPLATES, num_heads=HEADS, num_steps=STEPS, form="authors"))
    part = torch.randn(count // size, DIM)
    times = {"forward": list[float](), "forward+backward": list[float]()}
    sent = 0
    for _ in range(repeats + 1):
        dist.barrier()
        start = time.perf_counter()
        with torch.no_grad():
            before = pool.ranks.bytes
            pool(part)
            sent = pool.ranks.bytes - before
        times["forward"].append(time.perf_counter() - start)
        dist.barrier()
        start = time.perf_counter()
        pool(part).sum().backward()
        times["forward+backward"].append(time.perf_counter() - start)
    sender.send({kind: statistics.median(samples[1:]) for kind, samples in times.items()} | {"bytes": sent})  # type: ignore
    dist.destroy_process_group()


def measure(size: int, count: int, repeats: int) -> dict[str, float]:
    """Start the processes and return the times of the slowest rank."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        pipes, processes = [context.Pipe(duplex=False) for _ in range(size)], list[multiprocessing.Process]()
        for rank, (_, sender) in enumerate(pipes):
            arguments = (sender, rank, size, f"{folder}/meeting", count, repeats)
            processes.append(context.Process(target=work, args=arguments))
            processes[-1].start()
        results = [receiver.recv() for receiver, _ in pipes]
        for process in processes:
            process.join()
    return {key: max(result[key] for result in results) for key in results[0]}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elements", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    rows = list[dict[str, object]]()
    print(f"{'elements':>12} {'pass':17} {'one':>9} {f'{arguments.ranks} ranks':>9} {'ratio':>6} {'bytes a pass':>13}")
    for count in arguments.elements:
        alone, together = (measure(size, count, arguments.repeats) for size in (1, arguments.ranks))
        for kind in ("forward", "forward+backward"):
            ratio, sent = alone[kind] / together[kind], together["bytes"] / STEPS
            times = f"{1e3 * alone[kind]:7.1f}ms {1e3 * together[kind]:7.1f}ms"
            print(f"{count:12,} {kind:17} {times} {ratio:5.2f}x {sent:13.0f}", flush=True)
            rows.append(dict(elements=count, kind=kind, one=alone[kind], ranks=together[kind], ratio=ratio, sent=sent))
    torch.set_num_threads(1)
    record("sharding", rows, machine_limits())
