"""The environment of a run, on which its result depends: commit, package versions, hardware, data."""

import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import picaset

PACKAGES = ("picaset", "torch", "numpy", "safetensors", "lightning-fabric", "torchmetrics", "scikit-learn")


def describe_environment(*, data: str, devices: int, threads: int | None = None) -> dict[str, Any]:
    """Return the environment as JSON values; ``threads`` defaults to the number of threads of this process."""
    threads = threads or torch.get_num_threads()
    return {
        "commit": commit(),
        "python": platform.python_version(),
        "versions": {name: number for name in PACKAGES if (number := installed_version(name))},
        "hardware": f"{processor()}, {threads} thread{'s' * (threads > 1)}",
        "devices": devices,
        "data": data,
    }


def commit() -> str:
    """Return the commit of the source of this package, marked as dirty if the source has uncommitted changes."""
    root = Path(picaset.__file__).parents[1]
    if not (root / ".git").exists():  # installed, possibly inside another repository
        return "not a repository"
    command = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    try:
        described = subprocess.run(command, cwd=root, capture_output=True, text=True)
    except OSError:
        return "git is not installed"
    return described.stdout.strip() if described.returncode == 0 else "not a repository"


def installed_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def processor() -> str:
    """Return the model name of the processor, or the architecture if the system does not report it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
