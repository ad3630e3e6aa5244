"""Where and how a run takes place: on how many processes, of how many machines, and which of them writes.

Ctrl-C and SIGTERM, asked politely.
"""

import os
import signal
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypedDict

from picaset.extras import require
from picaset.lab.training.experiment import Experiment


class Stopping:
    """Whether the run was asked to stop."""

    now: bool = False


@contextmanager
def stop_signals() -> Generator[Stopping]:
    """Ctrl-C and SIGTERM let the step finish; asked twice, they end it at once."""
    stopping = Stopping()
    before: dict[int, Any] = {}

    def ask(number: int, frame: object) -> None:
        stopping.now = True
        for name, handler in before.items():
            signal.signal(name, handler)

    try:
        for name in (signal.SIGINT, signal.SIGTERM):
            before[name] = signal.signal(name, ask)
    except ValueError:  # not the main thread, which alone may listen
        pass
    try:
        yield stopping
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


class Launch(TypedDict, total=False):
    """Where and how a run takes place; nothing of it is part of the experiment."""

    devices: int
    """Processes of each machine that share each batch."""
    nodes: int
    """Machines; with more than one, torchrun starts the processes."""
    accelerator: str
    """As Lightning Fabric names it."""
    threads: int | None
    """Threads of each process."""
    silent: bool
    tensorboard: bool


def check_launch(experiment: Experiment, launch: Launch) -> None:
    """What can be known to go wrong before anything is written."""
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


def is_first() -> bool:
    """Whether this is the process that writes, of those that torchrun started."""
    return int(os.environ.get("RANK", "0")) == 0


def processes(launch: Launch) -> int:
    """That share each batch."""
    return launch.get("devices", 1) * launch.get("nodes", 1)


def wait_for(path: Path, *, seconds: float = 3600.0) -> None:
    deadline = time.monotonic() + seconds
    while not path.is_file():
        if time.monotonic() > deadline:
            raise ValueError(
                f"{path} was not made by the first process within {seconds:.0f} s; see what that one says."
            )
        time.sleep(0.1)
