"""Launch options of a run, which are not part of the experiment, and coordination of its processes.

A run may use several processes on several machines. The first process writes; SIGINT and SIGTERM stop a run after the
current step.
"""

import os
import signal
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypedDict

from picaset.extras import require
from picaset.lab.training.experiment import Experiment


class Launch(TypedDict, total=False):
    """Launch options of a run."""

    devices: int
    """Number of processes on each machine."""
    nodes: int
    """Number of machines; with more than one, torchrun starts the processes."""
    accelerator: str
    """Accelerator of Lightning Fabric."""
    threads: int | None
    """Number of threads of each process."""
    silent: bool
    """Whether to print no progress."""
    tensorboard: bool
    """Whether to write losses and scores for TensorBoard."""


def check_launch(experiment: Experiment, launch: Launch) -> None:
    """Check launch options before anything is written."""
    require("lightning_fabric", extra="experiments", purpose="training")
    if launch.get("tensorboard"):
        require("tensorboard", extra="all", purpose="writing for TensorBoard")
    batch_size, devices, nodes = experiment.training.batch_size, launch.get("devices", 1), launch.get("nodes", 1)
    if min(devices, nodes) < 1 or batch_size % (devices * nodes):
        on = f" on each of {nodes} machines" if nodes > 1 else ""
        raise ValueError(f"batch_size must be a multiple of the number of devices; got {batch_size} and {devices}{on}.")
    if nodes > 1 and "TORCHELASTIC_RUN_ID" not in os.environ:
        raise ValueError(
            f"{nodes} machines need torchrun on each of them: torchrun --nnodes {nodes} --nproc-per-node {devices} "
            "--rdzv-backend c10d --rdzv-endpoint HOST:29500 -m picaset train ..."
        )


def is_first_process() -> bool:
    """Return whether this is the first of the processes that torchrun started, or the only one."""
    return int(os.environ.get("RANK", "0")) == 0


def num_processes(launch: Launch) -> int:
    """Return the number of processes that share a batch."""
    return launch.get("devices", 1) * launch.get("nodes", 1)


def wait_for(path: Path, *, seconds: float = 3600.0) -> None:
    """Wait until the first process has created a file."""
    deadline = time.monotonic() + seconds
    while not path.is_file():
        if time.monotonic() > deadline:
            raise ValueError(
                f"{path} was not created by the first process within {seconds:g} s; see the output of that process."
            )
        time.sleep(0.1)


@contextmanager
def stop_signals() -> Generator[threading.Event]:
    """Yield an event that the first SIGINT or SIGTERM sets; the second one has its usual effect."""
    stop_request = threading.Event()
    previous: dict[int, Any] = {}

    def restore() -> None:
        for number, handler in previous.items():
            signal.signal(number, handler)

    def handle(number: int, frame: object) -> None:
        stop_request.set()
        restore()

    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            previous[number] = signal.signal(number, handle)
    except ValueError:  # only the main thread can install signal handlers
        pass
    try:
        yield stop_request
    finally:
        restore()
