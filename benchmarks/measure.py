"""How everything here is measured: medians of repeated calls in one process, peak memory in a process of its own, and
the machine's own limits.
"""

import json
import multiprocessing
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch


def median_seconds(call: Callable[[], object], *, repeats: int = 20, warmups: int = 3, at_most: float = 20.0) -> float:
    """The median of ``repeats`` calls after ``warmups``; fewer where they take longer than ``at_most`` seconds."""
    for _ in range(warmups):
        call()
    samples = list[float]()
    began = time.perf_counter()
    while len(samples) < repeats and (len(samples) < 3 or time.perf_counter() - began < at_most):
        start = time.perf_counter()
        call()
        samples.append(time.perf_counter() - start)
    return statistics.median(samples)


def medians_together(
    calls: Sequence[Callable[[], object]], *, turns: int = 5, at_least: float = 1.0, at_most: float = 40.0
) -> list[float]:
    """The median of each call, taken in turns, so that what disturbs the machine disturbs all of them alike.

    A turn is one call that is not counted, since the others have left the caches cold, and four that are. More than
    ``turns`` where they would take less than ``at_least`` seconds in all, fewer where ``at_most`` is over.
    """
    samples = [list[float]() for _ in calls]
    began = time.perf_counter()
    while (spent := time.perf_counter() - began) < at_least or (len(samples[0]) < 4 * turns and spent < at_most):
        for call, times in zip(calls, samples, strict=True):
            call()
            for _ in range(4):
                start = time.perf_counter()
                call()
                times.append(time.perf_counter() - start)
    return [statistics.median(times) for times in samples]


def forward_and_backward(module: torch.nn.Module, *inputs: object) -> dict[str, Callable[[], object]]:
    """The two things that are timed of a module: its result, and its result with all gradients."""
    tensors = [one for one in inputs if isinstance(one, torch.Tensor) and one.is_floating_point()]

    def forward() -> None:
        with torch.no_grad():
            module(*inputs)

    def both() -> None:
        module.zero_grad()
        for tensor in tensors:
            tensor.grad = None
        module(*inputs).sum().backward()

    return {"forward": forward, "forward+backward": both}


def peak_bytes(build: Callable[..., Callable[[], object]], *arguments: object) -> int:
    """How far a call, made by ``build(*arguments)`` in a fresh process, raises the peak of resident memory."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=report_peak, args=(sender, build, arguments))
    process.start()
    sender.close()
    peak = receiver.recv()
    process.join()
    return peak


def report_peak(sender: object, build: Callable[..., Callable[[], object]], arguments: tuple[object, ...]) -> None:
    call = build(*arguments)
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
    before = resident_peak()
    call()
    sender.send(resident_peak() - before)  # type: ignore[attr-defined]


def resident_peak() -> int:
    """The most memory this process has held since the peak was last forgotten, in bytes."""
    status = Path("/proc/self/status").read_text()
    return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))


def machine_limits() -> dict[str, float]:
    """What this machine can do at best: multiplying large matrices, and reading memory."""
    left, right = torch.randn(2048, 2048), torch.randn(2048, 2048)
    seconds = median_seconds(lambda: left @ right, repeats=10)
    vector = torch.randn(64 * 2**20)
    reading = median_seconds(vector.sum, repeats=10)
    return {"flops": 2 * 2048**3 / seconds, "bytes_per_second": 4 * vector.numel() / reading}


def record(name: str, rows: list[dict[str, object]], limits: dict[str, float]) -> None:
    """Print one JSON line with everything needed to trust or repeat a result."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    processor = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.processor(),
    )
    described = {
        "benchmark": name,
        "command": f"python -m benchmarks.{name} " + " ".join(sys.argv[1:]),
        "commit": commit,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "hardware": f"{processor}, {torch.get_num_threads()} threads",
        "limits": limits,
        "rows": rows,
    }
    print(json.dumps(described))
