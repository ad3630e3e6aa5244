"""Run directories: complete, portable, and consistent at every moment.

    config.json         the experiment
    environment.json    commit, package versions, hardware and data, on which the result depends
    metrics.jsonl       one line for each evaluation during training
    checkpoints/        step-00000500/ (tensors.safetensors, state.json), the last two; best/ and final/ networks
    result.json         results of the finished run

Files are written under a temporary name, synced and renamed, so that every prefix of the writes is a run that can be
read and resumed (``tests/test_durability.py``). Nothing is pickled, symbolic links are refused, and every file is
checked against a schema, so that runs of others can be read safely.
"""

import json
import platform
import shutil
import subprocess
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypedDict

import torch
from safetensors.torch import save  # pyright: ignore[reportUnknownVariableType]
from torch import Tensor

import picaset
from picaset.files import (
    MAX_JSON_BYTES,
    Measured,
    atomic_write,
    check_no_links,
    create_folder,
    parse_json,
    read_json,
    read_value,
    sync_folder,
    synced_write,
)
from picaset.lab.training.experiment import Experiment
from picaset.pretrained import read_weights

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


NUM_CHECKPOINTS = 2
"""Number of checkpoints that are kept."""


class Environment(TypedDict):
    """Fields of ``environment.json`` that reports use."""

    commit: str
    hardware: str
    data: str


class Result(TypedDict):
    """Fields of ``result.json`` that every task has."""

    parameters: int
    seconds: float
    steps: int
    best_score: Measured | None


class CheckpointState(TypedDict):
    """Content of ``state.json``."""

    step: int
    best: Measured | None
    seconds: float


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run after a step."""

    step: int
    tensors: dict[str, Tensor]
    state: dict[str, Any]


@dataclass(frozen=True)
class RunDirectory:
    """A run on disk; an instance holds nothing but the path."""

    path: Path

    @classmethod
    def create(cls, path: Path, experiment: Experiment, environment: dict[str, Any]) -> "RunDirectory":
        """Create the directory of a new run; ``path`` must not exist or be an empty folder."""
        cls.check_new(path)
        directory = cls(create_folder(path))
        directory.write_json("environment.json", environment)
        directory.write_json("config.json", experiment.to_json())
        return directory

    @staticmethod
    def check_new(path: Path) -> None:
        """Raise an error if a path is a file or a folder that is not empty."""
        if path.is_file():
            raise ValueError(f"{path} is a file; a run is a folder. Choose another place by --out.")
        if path.is_dir() and any(path.iterdir()):
            raise ValueError(
                f"{path} is not empty; resume it with: picaset train --resume {path}, or choose another place by --out."
            )

    @classmethod
    def open(cls, path: Path) -> "RunDirectory":
        """Open the directory of an existing run."""
        if path.is_file():
            raise ValueError(f"{path} is a file; a run is a folder with a config.json in it.")
        if not (path / "config.json").is_file():
            raise ValueError(f"{path} is not a run directory: it has no config.json.")
        check_no_links(path)
        return cls(path)

    @property
    def experiment(self) -> Experiment:
        return Experiment.read(self.path / "config.json")

    @property
    def environment(self) -> dict[str, Any]:
        return self.read("environment.json", Environment)

    @property
    def result(self) -> dict[str, Any] | None:
        """Results of the run; None until it has finished."""
        return self.read("result.json", Result) if (self.path / "result.json").is_file() else None

    def read(self, name: str, schema: Any) -> dict[str, Any]:
        """Read a JSON file of the run and check it against a schema."""
        return read_value(read_json(self.path / name), schema, where=str(self.path / name), name="")

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """Metrics of the evaluations during training, in the order of the steps."""
        path = self.path / "metrics.jsonl"
        if not path.is_file():
            return []
        if path.stat().st_size > MAX_JSON_BYTES:
            raise ValueError(f"{path} must have at most {MAX_JSON_BYTES} bytes; was it written by another program?")
        records = list[dict[str, Any]]()
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
            try:
                record = parse_json(line)
            except ValueError:  # the last line of a run that was killed while writing it
                break
            values = read_value(record, dict[str, Measured], where=str(path), name=f"line {number}")
            step = read_value(record.get("step"), int, where=str(path), name=f"line {number}, step")
            records.append(values | {"step": step})
        return records

    def write_json(self, name: str, values: dict[str, Any]) -> None:
        with atomic_write(self.path / name) as temporary:
            temporary.write_text(json.dumps(values, indent=None if name == "result.json" else 1) + "\n")

    def add_metrics(self, record: dict[str, Any]) -> None:
        synced_write(self.path / "metrics.jsonl", (json.dumps(record) + "\n").encode(), mode="ab")

    def remove_metrics_after(self, step: int) -> None:
        """Remove the metrics of later steps, which a resumed run writes again."""
        records = [record for record in self.metrics if record["step"] <= step]
        with atomic_write(self.path / "metrics.jsonl") as temporary:
            temporary.write_text("".join(json.dumps(record) + "\n" for record in records))

    def network(self, which: str) -> Path:
        """Return the folder of the ``best`` or the ``final`` network."""
        return self.path / "checkpoints" / which

    def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint under a temporary name, rename it, and then remove old ones."""
        target = self.path / "checkpoints" / f"step-{checkpoint.step:08d}"
        temporary = target.with_name(f".{target.name}.tmp")
        shutil.rmtree(temporary, ignore_errors=True)
        create_folder(target.parent)
        temporary.mkdir()
        try:
            tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in checkpoint.tensors.items()}
            synced_write(temporary / "tensors.safetensors", save(tensors))
            synced_write(temporary / "state.json", json.dumps(checkpoint.state).encode())
            shutil.rmtree(target, ignore_errors=True)
            temporary.rename(target)
            sync_folder(target.parent)
        except OSError as error:
            shutil.rmtree(temporary, ignore_errors=True)
            raise OSError(
                error.errno,
                f"{error.strerror or error}; the checkpoint was not written, earlier ones are intact",
                str(target),
            ) from None
        for old in self.checkpoints()[:-NUM_CHECKPOINTS]:
            shutil.rmtree(old, ignore_errors=True)

    def remove_temporary(self) -> None:
        """Remove temporary files that a killed run has left."""
        for path in sorted(self.path.rglob(".*.tmp")):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)

    def checkpoints(self) -> list[Path]:
        """Return the folders of the checkpoints, oldest first."""
        return sorted((self.path / "checkpoints").glob("step-*"))

    def last_checkpoint(self) -> tuple[Checkpoint | None, list[str]]:
        """Return the newest checkpoint that can be read, and descriptions of newer, damaged ones."""
        problems = list[str]()
        for path in reversed(self.checkpoints()):
            try:
                return read_checkpoint(path), problems
            except (OSError, ValueError) as error:
                problems.append(f"{path} is damaged ({error})")
        if problems:
            raise ValueError(f"{problems[0]}, and there is no older one; start again in another folder.")
        return None, problems


def read_checkpoint(path: Path) -> Checkpoint:
    number = int(path.name.removeprefix("step-"))
    state = read_value(read_json(path / "state.json"), CheckpointState, where="state.json", name="")
    if state["step"] != number:
        raise ValueError(f"state.json is that of step {state['step']}")
    return Checkpoint(number, read_weights(path / "tensors.safetensors"), state)


def run_name(name: str, profile: str, seed: int) -> str:
    """Return the name of the folder of a run."""
    return f"{name}-{profile}-seed{seed}"
