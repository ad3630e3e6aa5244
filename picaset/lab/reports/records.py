"""Finished runs, read from folders of run directories."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import picaset
from picaset.lab.training.experiment import Experiment
from picaset.lab.training.run_directory import RunDirectory

HERE = Path("results/runs")
"""Folder of the records that are committed with the source, relative to a clone."""


def committed_records() -> Path:
    """Return the folder of the committed records: in the working directory, or in the clone that is imported."""
    clone = Path(picaset.__file__).parent.parent / HERE
    return clone if clone.is_dir() and not HERE.is_dir() else HERE


OnSkip = Callable[[str], None]
"""Receives one line for each run directory that is skipped: its path and the reason."""

TaskType = TypeVar("TaskType")


@dataclass(frozen=True)
class Record:
    """Everything that a finished run has written, except its network."""

    path: Path
    experiment: Experiment
    environment: dict[str, Any]
    result: dict[str, Any]
    metrics: list[dict[str, Any]]

    @property
    def key(self) -> tuple[str, str, int]:
        """Name, profile and seed, which identify a run."""
        return self.experiment.name, self.experiment.profile, self.experiment.training.seed

    def curve(self, metric: str) -> dict[int, float]:
        """Return a metric that was logged during training, by step."""
        return {entry["step"]: entry[metric] for entry in self.metrics if metric in entry}

    def task_as(self, kind: type[TaskType]) -> TaskType:
        """Return the task, which must be of the class ``kind``."""
        task = self.experiment.task
        assert isinstance(task, kind)
        return task


def find_records(folders: Iterable[Path], *, on_skip: OnSkip = lambda line: None) -> list[Record]:
    """Read the finished runs in the folders, one for each name, profile and seed; earlier folders take precedence.

    Unfinished runs are ignored. A directory that is damaged or was written by another program is skipped.
    """
    records = dict[tuple[str, str, int], Record]()
    for folder in folders:
        for config in sorted(folder.glob("*/config.json")):
            path = config.parent
            try:
                record = read_record(path)
            except (OSError, ValueError) as error:
                on_skip(f"skipped {path}: {reason_of(error, path)}")
                continue
            if record is None:
                continue
            first = records.setdefault(record.key, record)
            if first is not record and first.path.parent == path.parent:
                on_skip(f"skipped {path}: {first.path} has the same name, profile and seed")
    return list(records.values())


def read_record(path: Path) -> Record | None:
    """Read a run; return None if it is not finished."""
    directory = RunDirectory.open(path)
    result = directory.result
    if result is None:
        return None
    return Record(path, directory.experiment, directory.environment, result, directory.metrics)


def reason_of(error: Exception, path: Path) -> str:
    """Return the reason for an error in one line, without the path of the run directory."""
    if isinstance(error, OSError):
        return f"{Path(str(error.filename or path)).name}: {error.strerror or error}"
    if not isinstance(error, ValueError):
        return f"a file has an unexpected structure ({error!r})"
    return " ".join(str(error).replace(f"{path}/", "").replace(str(path), path.name).split())


def describe_origin(records: Sequence[Record], *, committed: Path | None = None) -> str:
    """Say in one sentence which runs are shown, from which folders, and in which profiles."""
    committed = committed or committed_records()
    counts = dict[Path, int]()
    for record in records:
        counts[record.path.parent] = counts.get(record.path.parent, 0) + 1
    own_folders = [folder for folder in counts if folder.resolve() != committed.resolve()]
    parts = list[str]()
    for folder in sorted(counts, key=lambda folder: folder not in own_folders):
        kind = "run" if folder in own_folders else "committed record"
        parts.append(f"{counts[folder]} {kind}{'s' * (counts[folder] > 1)} in {folder}/")
    profiles = profiles_of(records)
    named = f"profile{'s' * (len(profiles) > 1)} {' and '.join(profiles)}"
    return f"Shown from {' and '.join(parts)}, {named}{'' if own_folders else '; nothing was trained now'}."


def profiles_of(records: Iterable[Record]) -> list[str]:
    """Return the profiles that occur: paper, quick, smoke, then any others by name."""
    known = ("paper", "quick", "smoke")
    profiles = {record.experiment.profile for record in records}
    return sorted(profiles, key=lambda profile: (known.index(profile) if profile in known else len(known), profile))


def runs_named(records: Iterable[Record], name: str) -> list[Record]:
    """Return the runs of the experiment ``name``, one for each seed."""
    return [record for record in records if record.experiment.name == name]


def all_runs(rows: Mapping[str, Sequence[Record]]) -> list[Record]:
    """Return the runs of all rows of a table."""
    return [record for runs in rows.values() for record in runs]


def alternatives(values: Iterable[str]) -> str:
    """Join the distinct values.

    Example:
        >>> alternatives(["two", "one", "two"])
        'one or two'
    """
    return " or ".join(sorted(set(values)))


def hardware_of(records: Iterable[Record]) -> str:
    return alternatives(record.environment["hardware"] for record in records)


def training_time(records: Iterable[Record]) -> str:
    """Return the range of training times, rounded to minutes."""
    minutes = sorted({round(record.result["seconds"] / 60) for record in records})
    if minutes[-1] == 0:
        return "less than a minute"
    return f"{minutes[0]} to {minutes[-1]} minutes" if len(minutes) > 1 else f"{minutes[0]} minutes"


def mean_minutes(records: Sequence[Record]) -> float:
    return sum(record.result["seconds"] for record in records) / len(records) / 60


def training_command(experiment: Experiment) -> str:
    """Return the command that trains the experiment again."""
    training, profile = experiment.training, experiment.profile
    base = profile.removesuffix(f"-{training.steps}-steps")
    options = [
        *([f"--profile {base}"] if base != "quick" else []),
        *([f"--steps {training.steps}"] if base != profile else []),
        *([f"--seed {training.seed}"] if training.seed else []),
    ]
    return " ".join(["picaset train", experiment.name, *options])
