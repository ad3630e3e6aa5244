"""A run directory: complete, portable, and whole at every moment.

    config.json         the experiment
    environment.json    commit, versions, hardware, data used
    metrics.jsonl       one line for each score
    checkpoints/        step-00000500/ (tensors.safetensors, state.json), the last two; best/ and final/ networks
    result.json         what the finished run is worth

Everything is written under another name, synced and renamed. No pickle anywhere, so that a stranger's run can be read.
"""

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from safetensors import SafetensorError
from safetensors.torch import load_file, save  # pyright: ignore[reportUnknownVariableType]
from torch import Tensor

from picaset.files import made_folder, replacing
from picaset.lab.training.experiment import Experiment

KEPT = 2
"""Checkpoints that are kept."""


@dataclass(frozen=True)
class Checkpoint:
    """Where a run stood after so many steps."""

    step: int
    tensors: dict[str, Tensor]
    state: dict[str, Any]


@dataclass(frozen=True)
class RunDirectory:
    """One run on disk; holds nothing but its path."""

    path: Path

    @classmethod
    def create(cls, path: Path, experiment: Experiment, environment: dict[str, Any]) -> "RunDirectory":
        """A new run; a folder that holds something else is left alone."""
        cls.check_new(path)
        directory = cls(made_folder(path))
        directory.write_json("environment.json", environment)
        directory.write_json("config.json", experiment.to_json())
        return directory

    @staticmethod
    def check_new(path: Path) -> None:
        """Refuse a file, and a folder that holds something."""
        if path.is_file():
            raise ValueError(f"{path} is a file; a run is a folder. Choose another place by --out.")
        if path.is_dir() and any(path.iterdir()):
            raise ValueError(
                f"{path} is not empty; resume it with: picaset train --resume {path}, or choose another place by --out."
            )

    @classmethod
    def open(cls, path: Path, *, kind: str | None = None) -> "RunDirectory":
        """A run that exists; with ``kind``, of that task."""
        if path.is_file():
            raise ValueError(f"{path} is a file; a run is a folder with a config.json in it.")
        if not (path / "config.json").is_file():
            raise ValueError(f"{path} is not a run directory: it has no config.json.")
        directory = cls(path)
        found = directory.experiment.kind
        if kind is not None and found != kind:
            raise ValueError(f"{path} is a run of the task {found!r}; expected one of {kind!r}.")
        return directory

    @property
    def experiment(self) -> Experiment:
        return Experiment.read(self.path / "config.json")

    @property
    def environment(self) -> dict[str, Any]:
        return self.read_json("environment.json")

    @property
    def result(self) -> dict[str, Any] | None:
        """What the run is worth; None until it has finished."""
        return self.read_json("result.json") if (self.path / "result.json").is_file() else None

    @property
    def metrics(self) -> list[dict[str, Any]]:
        path = self.path / "metrics.jsonl"
        lines = path.read_text().splitlines() if path.is_file() else []
        whole = list[dict[str, Any]]()
        for line in lines:
            try:
                whole.append(json.loads(line))
            except ValueError:  # the last line of a run that was killed while writing it
                break
        return whole

    def write_json(self, name: str, values: dict[str, Any]) -> None:
        with replacing(self.path / name) as unfinished:
            unfinished.write_text(json.dumps(values, indent=None if name == "result.json" else 1) + "\n")

    def read_json(self, name: str) -> dict[str, Any]:
        path = self.path / name
        try:
            found = json.loads(path.read_text())
        except ValueError as error:
            raise ValueError(f"{path} is not JSON ({error}); was it cut short?") from None
        if not isinstance(found, dict):
            raise ValueError(f"{path} must hold a JSON object.")
        return cast(dict[str, Any], found)

    def add_metrics(self, record: dict[str, Any]) -> None:
        with (self.path / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(record) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def forget_metrics_after(self, step: int) -> None:
        """What a run wrote beyond its last checkpoint will be written again."""
        kept = [record for record in self.metrics if record["step"] <= step]
        with replacing(self.path / "metrics.jsonl") as unfinished:
            unfinished.write_text("".join(json.dumps(record) + "\n" for record in kept))

    def network(self, which: str) -> Path:
        """Where the ``best`` or the ``final`` network is."""
        return self.path / "checkpoints" / which

    def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Whole or not at all; older ones are removed once it is there."""
        target = self.path / "checkpoints" / f"step-{checkpoint.step:08d}"
        unfinished = target.with_name(f".{target.name}.tmp")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        try:
            tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in checkpoint.tensors.items()}
            synced_write(unfinished / "tensors.safetensors", save(tensors))
            synced_write(unfinished / "state.json", json.dumps(checkpoint.state).encode())
            shutil.rmtree(target, ignore_errors=True)
            unfinished.rename(target)
            sync_folder(target.parent)
        except OSError as error:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise OSError(
                error.errno,
                f"{error.strerror or error}; the checkpoint was not written, earlier ones are whole",
                str(target),
            ) from None
        for old in self.checkpoints()[:-KEPT]:
            shutil.rmtree(old, ignore_errors=True)

    def remove_unfinished(self) -> None:
        """What a run left behind that was killed while writing."""
        for path in [*self.path.glob(".*.tmp"), *(self.path / "checkpoints").glob(".step-*.tmp")]:
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def checkpoints(self) -> list[Path]:
        """The oldest first."""
        return sorted((self.path / "checkpoints").glob("step-*"))

    def last_checkpoint(self) -> tuple[Checkpoint | None, list[str]]:
        """The newest checkpoint that can be read, and what is wrong with newer ones."""
        problems = list[str]()
        for path in reversed(self.checkpoints()):
            try:
                return read_checkpoint(path), problems
            except (OSError, ValueError, SafetensorError) as error:
                problems.append(f"{path} is damaged ({error})")
        if problems:
            raise ValueError(f"{problems[0]}, and there is no older one; start again in another folder.")
        return None, problems


def read_checkpoint(path: Path) -> Checkpoint:
    found = json.loads((path / "state.json").read_text())
    state = cast(dict[str, Any], found) if isinstance(found, dict) else {}
    if not {"best", "seconds"} <= state.keys():
        raise ValueError("state.json lacks what the run was worth so far")
    return Checkpoint(int(path.name.removeprefix("step-")), load_file(path / "tensors.safetensors"), state)


def sync_folder(path: Path) -> None:
    """Make the names in a folder last, as its files do."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def synced_write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def run_name(name: str, profile: str, seed: int) -> str:
    """The folder of a run, below a folder of runs."""
    return f"{name}-{profile}-seed{seed}"
