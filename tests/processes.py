"""Several ranks on one machine: each test function runs in processes of its own, over gloo."""

import datetime
import os
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as processes


def run_ranks(function: Callable[..., Any], size: int, *arguments: object, seconds: float = 120.0) -> list[Any]:
    """``function(rank, size, *arguments)`` on every rank; what each returned, or the text of what it raised."""
    with tempfile.TemporaryDirectory() as folder:
        # Forked from a process that has imported everything and done nothing: importing takes longer than the tests.
        context = processes.get_context("forkserver")
        context.set_forkserver_preload(["tests.test_sharding"])
        started = [
            context.Process(target=one_rank, args=(function, rank, size, folder, arguments)) for rank in range(size)
        ]
        for process in started:
            process.start()
        for process in started:
            process.join(seconds)
        hanging = [rank for rank, process in enumerate(started) if process.is_alive()]
        for rank in hanging:
            started[rank].kill()
        assert not hanging, f"ranks {hanging} hang"
        return [read(Path(folder) / f"{rank}.pt") for rank in range(size)]


def read(path: Path) -> Any:
    return torch.load(path) if path.exists() else "died"


def one_rank(function: Callable[..., Any], rank: int, size: int, folder: str, arguments: tuple[object, ...]) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    try:
        dist.init_process_group(
            "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=size,
            timeout=datetime.timedelta(seconds=60),
        )  # fmt: skip
        result = function(rank, size, *arguments)
    except Exception as error:
        result = f"{type(error).__name__}: {error}" if "Error" in type(error).__name__ else traceback.format_exc()
    torch.save(result, f"{folder}/{rank}.part")
    os.rename(f"{folder}/{rank}.part", f"{folder}/{rank}.pt")
    os._exit(0)  # whatever the others do
