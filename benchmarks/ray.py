"""What does one set on two Ray workers cost, against ``stream`` in one process, and what is sent?

A PicasoPool of three steps, D = 16, H = 4, K = 4, one thread for each process. Expected: two workers take half the time
of one process and a few milliseconds per pass; driver memory and the bytes that a pass returns do not depend on N.

    python -m benchmarks.ray --elements 10000000 100000000

The elements are generated in Ray's object store (materialized), and for one process in a .npy file. Reported: the best
of several calls; the rise of anonymous memory of the driver during the calls; tasks and bytes of the last pass. ``map``
is the time of a pass that only looks at one element of each block: what Ray itself takes; ``convert`` that of a pass
that makes arrays of the blocks, and ``checksum`` that of a pass that also adds up their bits, by which a dataset that
changes is refused. Prints a table, then one JSON line; commit it under ``results/``.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import ray
import torch

from benchmarks.measure import record
from benchmarks.streaming import DIM, HEADS, STEPS, TEMPLATES, Peak, anonymous_bytes, processor_limits, write_set
from picaset import PicasoPool, stream
from picaset.integrations.ray import RayDataset, from_dataset
from picaset.large.partitions import PartResult, checksum_in_any_order
from picaset.large.sources import stack_columns

ROWS_PER_BLOCK = 2**20


def generate(batch: dict[str, Any]) -> dict[str, Any]:
    """Return a block of normally distributed elements for each seed."""
    (seed,) = batch["id"]
    return {"x": np.random.default_rng(seed).standard_normal((ROWS_PER_BLOCK, DIM), dtype=np.float32)}


def best_seconds(call: Callable[[], object], repeats: int) -> float:
    times = list[float]()
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def look(tables: Any) -> PartResult:
    return PartResult(sum(float(table["x"][0, 0]) for table in tables))


def convert(tables: Any) -> PartResult:
    return PartResult(sum(len(stack_columns(table, slice(None), ["x"], "the Ray dataset")) for table in tables))


def checksum(tables: Any) -> PartResult:
    arrays = (stack_columns(table, slice(None), ["x"], "the Ray dataset") for table in tables)
    return PartResult(sum(checksum_in_any_order(rows) for rows in arrays))


def add(left: PartResult | None, right: PartResult | None) -> PartResult | None:
    return right if left is None or right is None else PartResult(left.value + right.value)


def measure(pool: PicasoPool, count: int, folder: Path, repeats: int) -> dict[str, object]:
    """Measure one process and the cluster on sets of ``count`` elements."""
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        path = Path(temporary) / "set.npy"
        write_set(path, count)
        one = best_seconds(lambda: stream(pool, path), repeats)
    blocks = -(-count // ROWS_PER_BLOCK)
    began = time.perf_counter()
    dataset = ray.data.range(blocks, override_num_blocks=blocks).map_batches(generate, batch_size=1).materialize()
    generating = time.perf_counter() - began
    source = from_dataset(dataset)
    assert isinstance(source, RayDataset)
    stream(pool, source)  # starts the workers
    before, peak = anonymous_bytes(), Peak()
    peak.start()
    cluster = best_seconds(lambda: stream(pool, source), repeats)
    peak.stopped.set()
    sent, tasks, function = source.bytes_sent, source.num_tasks, source.bytes_of_function
    mapping, converting, checking = (
        best_seconds(partial(source.run, way, add), 5) for way in (look, convert, checksum)
    )
    return dict(
        elements=blocks * ROWS_PER_BLOCK, elements_of_one_process=count, blocks=blocks, one_process=one, ray=cluster,
        pass_of_ray_alone=mapping, pass_of_conversion=converting, pass_of_checksum=checking,
        generating=generating, driver_rise_bytes=peak.largest - before,
        driver_bytes=peak.largest, tasks=tasks, bytes_returned_per_pass=sent, bytes_of_function=function,
    )  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elements", type=int, nargs="+", default=[10**7])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="folder for temporary sets")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2, help="CPUs of the local cluster")
    parser.add_argument("--store", type=float, default=8.5, help="object store in GB")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 - as the process that they are compared with
    limits = processor_limits()
    ray.init(
        num_cpus=arguments.workers,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=int(arguments.store * 1e9),
    )
    ray.data.DataContext.get_current().enable_progress_bars = False
    torch.manual_seed(0)
    pool = PicasoPool(DIM, num_templates=TEMPLATES, num_heads=HEADS, num_steps=STEPS, form="authors")
    rows = list[dict[str, object]]()
    print(f"{'elements':>12} {'one process':>12} {'workers':>10} {'ratio':>6} {'Ray alone, a pass':>18} "
          f"{'convert':>8} {'checksum':>9} {'tasks':>6} "
          f"{'bytes a pass':>13} {'driver rise, MB':>16}")  # fmt: skip
    with torch.no_grad():
        for count in arguments.elements:
            row: Any = measure(pool, count, arguments.folder, arguments.repeats)
            rows.append(row)
            per_element = row["one_process"] / count, row["ray"] / row["elements"]
            driver = row["driver_rise_bytes"] / 2**20
            print(f"{row['elements']:12,} {row['one_process']:11.2f}s {row['ray']:9.2f}s "
                  f"{per_element[0] / per_element[1]:5.2f}x {1e3 * row['pass_of_ray_alone']:16.0f}ms "
                  f"{1e3 * row['pass_of_conversion']:6.0f}ms {1e3 * row['pass_of_checksum']:7.0f}ms {row['tasks']:6} "
                  f"{row['bytes_returned_per_pass']:13,} {driver:16.1f}", flush=True)  # fmt: skip
    ray.shutdown()
    record("ray", rows, limits)
