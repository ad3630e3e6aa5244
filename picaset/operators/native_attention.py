"""Absorbed attention on the CPU in C: ``native_attention.c``, compiled on this machine and called through ctypes.

    mean = softmax(Q X^T) X

The first call with a set that is large enough (``pays_natively``) compiles it for this processor, if there is a C
compiler and the kernel was measured to be faster on such processors, checks it against the plain equation, and hooks it
in as the kernel of the CPU for such sets. If anything fails, the kernels of ``attention.py`` serve them, as they serve
all others. ``PICASET_NATIVE=0`` turns it off. ``PICASET_NATIVE=1``, or ``enable()``, uses it for all problems whose
weights are not stored, and raises an error if it cannot. It serves float32 elements whose width is a multiple of 16.

The library is kept in the folder of the user's cache, and only loaded if nobody else could have written it.

Dimensions:  B sets   N elements   M queries   E features   P jobs: ranges of rows of one set
"""

import ctypes
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import Parameter

from picaset.operators import attention
from picaset.operators.attention import DeviceKernel, additive_mask, largest_error

SOURCE = Path(__file__).with_suffix(".c")
FLAGS = ("-O3", "-march=native", "-ffp-contract=fast", "-fno-math-errno", "-shared", "-fPIC", "-pthread")
WORK_OF_A_THREAD = 2**21
"""Multiplications for which another thread pays."""
WIDTH = 16
"""The number of features must be a multiple of this."""
LARGEST_ERROR = 1e-4
"""Largest difference to the plain equation that the kernel may have, relative to the largest value."""


TIME_LIMIT = 60
"""Seconds that the compiler may take."""


def enable() -> None:
    """Compile the kernel, check it, and use it for attention on the CPU from now on.

    Raises:
        RuntimeError: If there is no C compiler, the kernel does not compile or is wrong on this machine, or others may
            write to the folder of the cache.
        OSError: If the cache cannot be written.
    """
    check()
    attention.DEVICE_KERNELS["cpu"] = DeviceKernel(forward, backward, serves, large_only=True)


@cache
def enable_if_possible() -> None:
    """Compile the kernel and use it for large sets from now on, on processors on which it is faster; once.

    Nothing changes if that fails, or if ``PICASET_NATIVE=0``.
    """
    if os.environ.get("PICASET_NATIVE") == "0" or not is_fast_here():
        return
    try:
        with ThreadPoolExecutor(1) as thread:  # where no mode of the caller is active, such as inference mode
            thread.submit(check).result()
    except (OSError, RuntimeError, subprocess.SubprocessError):
        return
    pays = attention.pays_natively
    attention.DEVICE_KERNELS["cpu"] = DeviceKernel(forward, backward, serves, pays, large_only=True)


def is_fast_here() -> bool:
    """Whether the kernel was measured to be faster on such processors: Linux, with AVX-512."""
    return sys.platform == "linux" and " avx512f " in read_processor()


def check() -> None:
    """Compile the kernel, or load it, and raise an error unless it equals the plain equation."""
    load()
    error = largest_error(forward, backward, torch.device("cpu"), torch.float32, 4 * WIDTH)
    if not error <= LARGEST_ERROR:
        raise RuntimeError(
            f"picaset's native kernel must equal the plain equation; it differs by {error:.1e} of the largest value. "
            "Unset PICASET_NATIVE, and please report the processor and the compiler."
        )


def serves(elements: Tensor) -> bool:
    """Return whether the kernel supports elements of this dtype and width, and reads them where they are."""
    if type(elements) not in (Tensor, Parameter) or not elements.is_contiguous():
        return False
    return elements.dtype is torch.float32 and elements.shape[-1] % WIDTH == 0 and elements.shape[-1] > 0


@cache
def load() -> ctypes.CDLL:
    """Return the compiled library, from the folder of the user's cache if it was compiled for this processor before."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        raise RuntimeError(
            "picaset's native kernel needs a C compiler; found neither cc nor $CC. "
            "Install one, or unset PICASET_NATIVE."
        )
    folder = Path(os.environ.get("PICASET_CACHE") or Path.home() / ".cache" / "picaset")
    processor = next((line for line in read_processor().splitlines() if line.startswith(("flags", "Features"))), "")
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, timeout=TIME_LIMIT).stdout
    parts = (SOURCE.read_text(), *FLAGS, version, platform.machine(), processor)
    library = folder / f"native-{hashlib.sha256(repr(parts).encode()).hexdigest()[:16]}.so"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_private(folder)
    if not library.exists():
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            built = Path(scratch) / "native.so"
            command = [compiler, *FLAGS, "-o", str(built), str(SOURCE), "-lm"]
            finished = subprocess.run(command, capture_output=True, text=True, timeout=TIME_LIMIT)
            if finished.returncode:
                raise RuntimeError(
                    f"picaset's native kernel must compile; {' '.join(command)} failed:\n{finished.stderr.strip()}\n"
                    "Set CC to another compiler, or unset PICASET_NATIVE."
                )
            built.chmod(0o700)
            os.replace(built, library)  # other processes may be doing the same
    check_private(library)
    return ctypes.CDLL(str(library))


def check_private(path: Path) -> None:
    """Raise an error unless a file or folder belongs to this user, and nobody else may write to it."""
    if not hasattr(os, "getuid"):  # Windows, where it is in the folder of the user
        return
    status = path.stat()
    if status.st_uid != os.getuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise RuntimeError(
            f"picaset's native kernel must be in a folder that only this user may write to; got {path}, which belongs "
            f"to user {status.st_uid} with the mode {stat.filemode(status.st_mode)}. Change it, or set PICASET_CACHE "
            "to another folder."
        )


def read_processor() -> str:
    """Return the description of the processor, if the system has one."""
    path = Path("/proc/cpuinfo")
    return path.read_text() if path.exists() else platform.processor()


class Problem(ctypes.Structure):
    """Arguments of both passes, as in the C file."""

    _fields_ = (
        *[(name, ctypes.c_void_p) for name in ("queries", "elements", "bias", "jobs")],
        *[(name, ctypes.c_long) for name in ("num_jobs", "num_queries", "features")],
        *[(name, ctypes.c_void_p) for name in ("means", "logs", "set_logs", "corrections", "grad_means")],
        ("grad_elements", ctypes.c_void_p),
        *[(name, ctypes.c_int) for name in ("accumulate", "threads")],
    )


def plan_jobs(elements: Tensor, offsets: Tensor | None, num_queries: int) -> tuple[Tensor, int]:
    """Return the jobs (P, 3): set, first row, row after the last; and the number of threads.

    Sets larger than the share of a thread are divided, so that every thread has about as many rows.
    """
    if offsets is None:
        sets, count = elements.shape[:2]
        total, bounds = sets * count, [(index * count, (index + 1) * count) for index in range(sets)]
    else:
        ends = cast(list[int], cast(Any, offsets).tolist())
        total, bounds = len(elements), list(pairwise(ends))
    work = total * num_queries * elements.shape[-1]
    threads = max(min(torch.get_num_threads(), work // WORK_OF_A_THREAD), 1)
    size = max(-(-total // threads), 1)
    jobs = [
        (index, first, min(first + size, end))
        for index, (begin, end) in enumerate(bounds)
        for first in range(begin, max(end, begin + 1), size)
    ]
    return torch.tensor(jobs, dtype=torch.int64).reshape(-1, 3), threads


def run(problem: Problem) -> None:
    """Run all jobs."""
    if load().run(ctypes.byref(problem)):
        raise MemoryError("picaset's native kernel could not allocate memory. Free memory, or set PICASET_NATIVE=0.")


def forward(
    queries: Tensor, elements: Tensor, mask: Tensor | None, offsets: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the attention-weighted mean (B, M, E) of the elements, and the log of its denominator (B, M).

    ``elements`` are (B, N, E), or (total, E) with the ``offsets`` of packed sets; ``mask`` has their shape without the
    features: True or a positive weight where an element is present.
    """
    queries, elements = queries.contiguous(), elements.contiguous()
    sets, num_queries, features = queries.shape
    jobs, threads = plan_jobs(elements, offsets, num_queries)
    bias = additive_mask(None if mask is None else mask.contiguous(), queries)
    means, logs = queries.new_empty(len(jobs), num_queries, features), queries.new_empty(len(jobs), num_queries)
    problem = Problem(
        queries.data_ptr(), elements.data_ptr(), None if bias is None else bias.data_ptr(), jobs.data_ptr(),
        len(jobs), num_queries, features, means.data_ptr(), logs.data_ptr(), threads=threads,
    )  # fmt: skip
    run(problem)
    mean, log = torch.empty_like(queries), queries.new_empty(sets, num_queries)
    load().merge(ctypes.byref(problem), *(ctypes.c_void_p(part.data_ptr()) for part in (mean, log)), sets)
    return mean, log


def backward(
    queries: Tensor,
    elements: Tensor,
    mask: Tensor | None,
    mean: Tensor,
    log: Tensor,
    grad_mean: Tensor,
    grad_elements: Tensor | None,
    *,
    accumulate: bool,
    offsets: Tensor | None = None,
) -> Tensor:
    """Return the gradient of the queries; that of the elements is written into ``grad_elements``, or added to it."""
    if grad_elements is not None and not grad_elements.is_contiguous():
        written = torch.empty_like(grad_elements, memory_format=torch.contiguous_format)
        grad = backward(queries, elements, mask, mean, log, grad_mean, written, accumulate=False, offsets=offsets)
        _ = grad_elements.add_(written) if accumulate else grad_elements.copy_(written)
        return grad
    queries, elements, log, grad_mean = (part.contiguous() for part in (queries, elements, log, grad_mean))
    num_queries, features = queries.shape[1:]
    jobs, threads = plan_jobs(elements, offsets, 2 * num_queries)
    bias = additive_mask(None if mask is None else mask.contiguous(), queries)
    corrections = (grad_mean * mean).sum(dim=-1).contiguous()
    grads = queries.new_empty(len(jobs), num_queries, features)
    problem = Problem(
        queries.data_ptr(), elements.data_ptr(), None if bias is None else bias.data_ptr(), jobs.data_ptr(),
        len(jobs), num_queries, features, grads.data_ptr(), None, log.data_ptr(), corrections.data_ptr(),
        grad_mean.data_ptr(), None if grad_elements is None else grad_elements.data_ptr(), accumulate, threads,
    )  # fmt: skip
    run(problem)
    grad_queries = torch.empty_like(queries)
    pointer = ctypes.c_void_p(grad_queries.data_ptr())
    load().merge(ctypes.byref(problem), pointer, ctypes.c_void_p(None), queries.shape[0])
    return grad_queries
