"""Measuring functions of all benchmarks: median times, peak memory in a separate process, and limits of the machine."""

import json
import multiprocessing
import os
import platform
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
clock = CLOCKS["wall"]
"""Clock of all times; that of the processor leaves out what other programs take on a busy machine."""


def use_cpu_time() -> None:
    """Measure the time of the processor, on one thread, instead of the time that passes."""
    global clock
    clock = CLOCKS["cpu"]
    torch.set_num_threads(1)


def median_seconds(call: Callable[[], object], *, repeats: int = 20, warmups: int = 3, at_most: float = 20.0) -> float:
    """Return the median time of ``repeats`` calls after ``warmups``; two calls or more if they exceed ``at_most``."""
    for _ in range(warmups):
        call()
    samples = list[float]()
    began = time.perf_counter()
    while len(samples) < repeats and (len(samples) < 2 or time.perf_counter() - began < at_most):
        start = clock()
        call()
        synchronize()
        samples.append(clock() - start)
    return statistics.median(samples)


def medians_together(
    calls: Sequence[Callable[[], object]], *, turns: int = 5, at_least: float = 1.0, at_most: float = 40.0
) -> list[float]:
    """Return the median time of each call, measured in turns, so that other load on the machine affects all alike.

    A turn is one warm-up call, because the other calls have filled the caches, and four that are measured. There are
    more than ``turns`` if they take less than ``at_least`` seconds in total, and fewer after ``at_most`` seconds.
    """
    samples = [list[float]() for _ in calls]
    began = time.perf_counter()
    while (spent := time.perf_counter() - began) < at_least or (len(samples[0]) < 4 * turns and spent < at_most):
        for call, times in zip(calls, samples, strict=True):
            call()
            for _ in range(4):
                start = clock()
                call()
                synchronize()
                times.append(clock() - start)
    return [statistics.median(times) for times in samples]


def synchronize() -> None:
    """Wait until a GPU, if there is one, has finished."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def forward_and_backward(module: torch.nn.Module, *inputs: object) -> dict[str, Callable[[], object]]:
    """Return the two calls that are timed: the forward pass, and the forward and backward pass with all gradients."""
    tensors = [value for value in inputs if isinstance(value, torch.Tensor) and value.is_floating_point()]
    tensors += module.parameters()  # listed once, as an optimizer does

    def forward() -> None:
        with torch.no_grad():
            module(*inputs)

    def forward_backward() -> None:
        for tensor in tensors:
            tensor.grad = None
        module(*inputs).sum().backward()

    return {"forward": forward, "forward+backward": forward_backward}


def peak_bytes(build: Callable[..., Callable[[], object]], *arguments: object) -> int:
    """Return by how much the call that ``build(*arguments)`` returns raises the peak of resident memory.

    The call runs in a new process.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=report_peak, args=(sender, build, arguments))
    process.start()
    sender.close()
    peak = receiver.recv()
    process.join()
    return peak


def report_peak(sender: object, build: Callable[..., Callable[[], object]], arguments: tuple[object, ...]) -> None:
    """Build and run a call, and send the rise of the peak of resident memory in bytes."""
    call = build(*arguments)
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = resident_peak()
    call()
    sender.send(resident_peak() - before)  # type: ignore[attr-defined]


def resident_peak() -> int:
    """Return the peak of resident memory of this process since its last reset, in bytes."""
    status = Path("/proc/self/status").read_text()
    return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))


def machine_limits() -> dict[str, float]:
    """Return the rates of this machine in large matrix products and in reading memory."""
    left, right = torch.randn(2048, 2048), torch.randn(2048, 2048)
    seconds = median_seconds(lambda: left @ right, repeats=10)
    vector = torch.randn(64 * 2**20)
    reading = median_seconds(vector.sum, repeats=10)
    return {"flops": 2 * 2048**3 / seconds, "bytes_per_second": 4 * vector.numel() / reading}


def processor_name() -> str:
    return next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.processor(),
    )


def describe_run(name: str, limits: dict[str, float]) -> dict[str, object]:
    """Return what is needed to repeat a benchmark: command, commit, versions and hardware."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    native = os.environ.get("PICASET_NATIVE")
    setting = "" if native is None else f"PICASET_NATIVE={native} "
    return {
        "benchmark": name,
        "command": setting + f"python -m benchmarks.{name} " + shlex.join(sys.argv[1:]),
        "commit": commit,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "hardware": f"{processor_name()}, {torch.get_num_threads()} threads",
        "clock": next(name for name, function in CLOCKS.items() if function is clock),
        "limits": limits,
    }


def record(name: str, rows: list[dict[str, object]], limits: dict[str, float]) -> None:
    """Print one JSON line with the rows and the description of the run."""
    print(json.dumps({**describe_run(name, limits), "rows": rows}))
