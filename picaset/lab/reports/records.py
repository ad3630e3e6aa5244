"""Finished runs, from wherever they lie: a user's own first, then the records that are committed with the source."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from picaset.lab.training.experiment import Experiment
from picaset.lab.training.run_directory import RunDirectory


@dataclass(frozen=True)
class Record:
    """A finished run, read."""

    path: Path
    experiment: Experiment
    environment: dict[str, Any]
    result: dict[str, Any]
    metrics: list[dict[str, Any]]

    @property
    def key(self) -> tuple[str, str, int]:
        return self.experiment.name, self.experiment.profile, self.experiment.training.seed


def find_records(folders: Iterable[Path]) -> list[Record]:
    """Every finished run below the folders, one for each name, profile and seed; earlier folders come first."""
    found = dict[tuple[str, str, int], Record]()
    for folder in folders:
        for config in sorted(folder.glob("*/config.json")):
            record = read_record(config.parent)
            if record is not None:
                found.setdefault(record.key, record)
    return list(found.values())


def read_record(path: Path) -> Record | None:
    """A run, or None while it is not finished."""
    directory = RunDirectory.open(path)
    result = directory.result
    if result is None:
        return None
    return Record(path, directory.experiment, directory.environment, result, directory.metrics)


def time_taken(records: Sequence[Record]) -> str:
    """From the shortest run to the longest, in words."""
    minutes = sorted({round(record.result["seconds"] / 60) for record in records})
    if minutes[-1] == 0:
        return "less than a minute"
    return f"{minutes[0]} to {minutes[-1]} minutes" if len(minutes) > 1 else f"{minutes[0]} minutes"
