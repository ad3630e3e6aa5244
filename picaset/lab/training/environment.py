"""What a result depends on beside its experiment: code, versions, hardware, data."""

import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import picaset

PACKAGES = ("picaset", "torch", "numpy", "safetensors", "lightning-fabric", "torchmetrics", "scikit-learn")


def describe_environment(*, data: str, devices: int, threads: int | None = None) -> dict[str, Any]:
    """Everything but the experiment itself, as JSON values; ``threads`` where they are not those of this process."""
    threads = threads or torch.get_num_threads()
    return {
        "commit": commit(),
        "python": platform.python_version(),
        "versions": {name: found for name in PACKAGES if (found := installed(name))},
        "hardware": f"{processor()}, {threads} thread{'s' * (threads > 1)}",
        "devices": devices,
        "data": data,
    }


def commit() -> str:
    """Of the source that this runs from; a mark where it was changed since."""
    root = Path(picaset.__file__).parents[1]
    if not (root / ".git").exists():  # installed, perhaps inside somebody else's repository
        return "not a repository"
    command = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    try:
        described = subprocess.run(command, cwd=root, capture_output=True, text=True)
    except OSError:
        return "git is not installed"
    return described.stdout.strip() if described.returncode == 0 else "not a repository"


def installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def processor() -> str:
    """What the processor calls itself, where the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
