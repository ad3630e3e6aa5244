"""How many files of the package does a reader open to follow a call?

Counts the files of picaset whose functions run, by a profiler and without imports, for the journeys of
docs/architecture.md.

    python -m benchmarks.journeys

Prints a line for each journey, and one for the files of a training and its report together.
"""

import contextlib
import importlib
import io
import os
import pkgutil
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import picaset
from picaset import Picaso, PicasoPool, SetBatch, stream
from picaset.cli import main as command

ROOT = str(Path(picaset.__file__).parent)


def files_of(call: Callable[[], Any]) -> set[str]:
    """Return the files of the package whose functions run in a call."""
    files = set[str]()

    def record(frame: Any, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(ROOT) and code.co_name != "<module>":
            files.add(code.co_filename)

    threading.setprofile(record)
    sys.setprofile(record)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return files


def main() -> None:
    for module in pkgutil.walk_packages([ROOT], "picaset."):  # before the journeys, so that imports do not count
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    os.chdir(tempfile.mkdtemp())
    generator = np.random.default_rng(0)
    np.savetxt("points.csv", generator.normal(size=(400, 2)), delimiter=",", header="x,y", comments="")
    np.save("file.npy", generator.normal(size=(5000, 16)).astype("float32"))
    pool = PicasoPool(16, num_templates=4, num_heads=2)
    mask = torch.arange(10) < torch.tensor([[10], [3]])
    sets = SetBatch.from_list([torch.randn(700, 16), torch.randn(5, 16)])
    network = Picaso(16, 3, dim=16, num_heads=2, num_inducing=4)
    journeys: dict[str, Callable[[], Any]] = {
        "pool(elements, mask)": lambda: pool(torch.randn(2, 10, 16), mask),
        "pool(sets)": lambda: pool(sets),
        "picaset cluster points.csv": lambda: command(["cluster", "points.csv"]),
        "picaset train": lambda: command(["train", "clustering-ours", "--profile", "smoke"]),
        "picaset report": lambda: command(["report", "--out", "report"]),
        "stream(network, 'file.npy')": lambda: stream(network, "file.npy"),
    }
    files = {name: files_of(call) for name, call in journeys.items()}
    for name, opened in files.items():
        print(f"{name}: {len(opened)} files")
    print(f"picaset train and report together: {len(files['picaset train'] | files['picaset report'])} files")


if __name__ == "__main__":
    main()
