"""Does the memory of streaming stay constant as the set grows, and how much time does it cost?

A PicasoPool of three steps, D = 16, H = 4, K = 4, on temporary files. Expected: time linear in N for all forms; memory
linear for the forms that load the set and constant for the streamed one, which takes at most 1.3 times as long as
absorbed attention in memory. The limit is the time to read the elements once per step or to do the necessary
multiplications, whichever is longer, at the rates of one thread, in processor time.
Reported: the best of several calls with a warm page cache, each form in a separate process, in wall-clock time and in
processor time, which is more reliable on a busy machine (it includes the reading thread); the peak of anonymous memory.

    python -m benchmarks.streaming
    python -m benchmarks.streaming --elements 100000000 --folder /var/tmp
    python -m benchmarks.streaming --train 10000000       # train a network on one set, in constant memory

Prints a table, then one JSON line; commit it under ``results/``. ``--figure`` draws it.
"""

import argparse
import multiprocessing
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from benchmarks.measure import record
from benchmarks.textbook import TextbookCascade
from picaset import Picaso, PicasoPool, stream

DIM, HEADS, TEMPLATES, STEPS = 16, 4, 4, 3
MAX_ELEMENTS = {"textbook": 2_000_000, "absorbed": 20_000_000, "streamed": 10**12}
"""Largest set on which each form is measured."""


def write_set(path: Path, count: int) -> None:
    """Write a set of normally distributed elements, chunk by chunk."""
    generator = np.random.default_rng(0)
    array = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(count, DIM))
    for start in range(0, count, 2**20):
        part = array[start : start + 2**20]
        part[...] = generator.standard_normal(part.shape, dtype=np.float32)
    array.flush()


def processor_limits() -> dict[str, float]:
    """Return the rates of this machine in large matrix products and in reading memory, by processor time."""
    left, vector = torch.randn(1024, 1024), torch.randn(16 * 2**20)

    def processor_time(call: Callable[[], object]) -> float:
        start = time.process_time()
        call()
        return time.process_time() - start

    multiplying, reading = (min(processor_time(call) for _ in range(8)) for call in (lambda: left @ left, vector.sum))
    return {"flops": 2 * 1024**3 / multiplying, "bytes_per_second": 4 * vector.numel() / reading}


def build_call(form: str, path: Path) -> Callable[[], object]:
    """Return a forward pass of one form on the set in a file."""
    torch.manual_seed(0)
    pool = PicasoPool(DIM, num_templates=TEMPLATES, num_heads=HEADS, num_steps=STEPS, form="authors")
    if form == "streamed":
        return lambda: stream(pool, path)
    elements = torch.from_numpy(np.load(path))[None]
    module = pool if form == "absorbed" else TextbookCascade(DIM, TEMPLATES, HEADS, STEPS)
    return lambda: module(elements)


def anonymous_bytes() -> int:
    """Return the anonymous memory of this process in bytes."""
    status = Path("/proc/self/status").read_text()
    return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon"))


class Peak(threading.Thread):
    """A thread that samples the anonymous memory of this process a hundred times a second and keeps the maximum."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.largest, self.stopped = anonymous_bytes(), threading.Event()

    def run(self) -> None:
        while not self.stopped.wait(0.01):
            self.largest = max(self.largest, anonymous_bytes())


def measure(sender: object, form: str, path: Path, threads: int, repeats: int) -> None:
    """Measure one form in this process and send the best times and the peak of anonymous memory."""
    torch.set_num_threads(threads)
    peak = Peak()
    peak.start()
    with torch.no_grad():
        call = build_call(form, path)
        times, busy = list[float](), list[float]()
        for _ in range(repeats):
            start, worked = time.perf_counter(), time.process_time()
            call()
            times.append(time.perf_counter() - start)
            busy.append(time.process_time() - worked)
    peak.stopped.set()
    sender.send((min(times), min(busy), peak.largest))  # type: ignore[attr-defined]


def in_a_process(function: Callable[..., None], *arguments: object) -> tuple[object, ...]:
    """Run a function in a new process and return what it sends."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=function, args=(sender, *arguments))
    process.start()
    sender.close()
    result = receiver.recv()
    process.join()
    return result


def compare(counts: list[int], folder: Path, limits: dict[str, float], repeats: int) -> list[dict[str, object]]:
    """Measure every form on sets of all sizes."""
    rows = list[dict[str, object]]()
    print(f"{'':12} {'':10} {'':9} {'ns/element of':>23} {'':13} {'of the':>8}")
    print(f"{'elements':>12} {'form':10} {'seconds':>9} {'clock':>11} {'processor':>11} {'anonymous MB':>13} "
          f"{'limit':>8}")  # fmt: skip
    for count in counts:
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            path = Path(temporary) / "set.npy"
            write_set(path, count)
            multiplying = 4 * STEPS * TEMPLATES * HEADS * DIM * count / limits["flops"]
            limit = max(multiplying, 4 * STEPS * DIM * count / limits["bytes_per_second"])
            for form, largest in MAX_ELEMENTS.items():
                if count <= largest:
                    num_calls = max(min(repeats, 3 * 10**8 // count), 3)
                    seconds, busy, peak = in_a_process(measure, form, path, torch.get_num_threads(), num_calls)
                    each = f"{1e9 * seconds / count:11.1f} {1e9 * busy / count:11.1f}"
                    reached = f"{limit / busy:8.0%}"
                    print(f"{count:12,} {form:10} {seconds:9.3f} {each} {peak / 2**20:13.0f} {reached}", flush=True)
                    rows.append(
                        dict(elements=count, form=form, seconds=seconds, processor_seconds=busy, anonymous_bytes=peak,
                             limit=limit)
                    )  # fmt: skip
    return rows


def train(sender: object, path: Path, steps: int, threads: int) -> None:
    """Train a network to predict a constant for one set, and send losses, seconds and the peak of anonymous memory."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    peak = Peak()
    peak.start()
    network = Picaso(DIM, DIM, dim=16, num_heads=2, num_inducing=4, num_encoder_blocks=1, num_steps=2)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
    losses, began = list[float](), time.perf_counter()
    for _ in range(steps):
        loss = (stream(network, path) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
        print(f"step {len(losses)}: loss {losses[-1]:.4f}, {time.perf_counter() - began:.0f} s", flush=True)
    peak.stopped.set()
    sender.send((losses, time.perf_counter() - began, peak.largest))  # type: ignore[attr-defined]


def train_on_one_set(count: int, steps: int, folder: Path) -> list[dict[str, object]]:
    """Train on one set in a new process."""
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        write_set(Path(temporary) / "set.npy", count)
        path = Path(temporary) / "set.npy"
        losses, seconds, peak = in_a_process(train, path, steps, torch.get_num_threads())
    print(f"{count:,} elements, {steps} steps in {seconds:.0f} s, loss {losses[0]:.4f} to {losses[-1]:.4f}, "
          f"anonymous memory {peak / 2**20:.0f} MB")  # fmt: skip
    return [dict(kind="training", elements=count, losses=losses, seconds=seconds, anonymous_bytes=peak)]


def draw(rows: list[dict[str, object]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    times, memory = figure.subplots(1, 2)
    for form, colour in (("textbook", "#d55e00"), ("absorbed", "#009e73"), ("streamed", "#0072b2")):
        chosen = [row for row in rows if row["form"] == form]
        counts = [row["elements"] for row in chosen]
        times.plot(counts, [row["seconds"] for row in chosen], marker="o", color=colour, label=form)
        memory.plot(counts, [row["anonymous_bytes"] / 2**20 for row in chosen], marker="o", color=colour)
    times.set(xlabel="elements", ylabel="seconds", xscale="log", yscale="log")
    memory.set(xlabel="elements", ylabel="anonymous memory, MB", xscale="log", yscale="log")
    memory.set_yticks([100, 200, 400, 800], labels=["100", "200", "400", "800"])
    memory.minorticks_off()
    for axis in (times, memory):
        axis.grid(color="#eeeeee")
    times.legend(frameon=False)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elements", type=int, nargs="+", default=[10**5, 10**6, 10**7])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="folder for temporary sets")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--repeats", type=int, default=30, help="largest number of calls; fewer for large sets")
    parser.add_argument(
        "--train", type=int, metavar="ELEMENTS", help="train a network on one set instead of comparing forms"
    )
    parser.add_argument("--steps", type=int, default=8, help="training steps")
    parser.add_argument("--figure", type=Path, help="path of a figure of time and memory")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    limits = processor_limits()
    if arguments.train:
        record("streaming", train_on_one_set(arguments.train, arguments.steps, arguments.folder), limits)
    else:
        rows = compare(arguments.elements, arguments.folder, limits, arguments.repeats)
        if arguments.figure:
            draw(rows, arguments.figure)
        record("streaming", rows, limits)
