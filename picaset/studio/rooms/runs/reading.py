"""Reading run directories that others may be writing, have broken, or have filled with something else.

What the page gets of runs, typed.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from picaset.lab.reports.records import Record, read_record
from picaset.lab.reports.reproduction import tables_of
from picaset.lab.training.run_directory import RunDirectory


class RunSummary(BaseModel):
    """A run in the list."""

    name: str
    """Of its folder."""
    kind: str
    finished: bool
    step: int
    steps: int
    score: float | None
    """The last one."""
    version: str
    """Changes when the run does."""
    problem: str | None = None
    """Why it cannot be read."""


class RunList(BaseModel):
    """Everything in the folder."""

    folder: str
    runs: list[RunSummary]
    version: str
    """Changes when any run does."""


class Setting(BaseModel):
    """One entry of a run's configuration."""

    name: str
    value: str


class RunDetail(BaseModel):
    """A run with its curves and its configuration."""

    name: str
    version: str
    curves: dict[str, list[float | None]]
    """Each measure, as long as ``curves["step"]``."""
    settings: list[Setting]


class TableCell(BaseModel):
    """What was found, and what was published."""

    found: str
    published: str
    best: bool


class TableOfPaper(BaseModel):
    """A table with ours beside theirs."""

    title: str
    columns: list[str]
    rows: list[list[TableCell]]
    notes: list[str]


class Tables(BaseModel):
    """All that the finished runs allow."""

    about: str
    tables: list[TableOfPaper]


MOST_RUNS = 500
MOST_CURVE_POINTS = 2000
LARGEST_FILE = 20_000_000
FILES = ("config.json", "environment.json", "metrics.jsonl", "result.json")
Found = TypeVar("Found")
TRIAL = ": a few steps each, to see that everything works. What they scored says nothing about the methods."


def run_folders(folder: Path) -> dict[str, Path]:
    """The run directories by name; the browser chooses among these names, and no other path is opened."""
    try:
        found = sorted(path for path in folder.iterdir() if (path / "config.json").is_file())
    except OSError:
        return {}
    return {path.name: path for path in found[:MOST_RUNS]}


def version_of(path: Path) -> str:
    """Changes whenever one of the run's files does."""
    stamps = list[int]()
    for name in FILES:
        try:
            found = (path / name).stat()
            stamps += [found.st_mtime_ns, found.st_size]
        except OSError:
            stamps += [0, 0]
    return f"{hash(tuple(stamps)) & 0xFFFFFFFFFFFF:012x}"


def explained(read: Callable[[], Found], path: Path) -> tuple[Found | None, str | None]:
    """What was read, or why it could not be, without the path to the folder."""
    try:
        for name in FILES:
            if (path / name).is_file() and (path / name).stat().st_size > LARGEST_FILE:
                raise ValueError(f"{name} is larger than {LARGEST_FILE / 1e6:.0f} MB; this is not a run of picaset.")
        return read(), None
    except OSError as error:
        return None, f"{Path(str(error.filename or path)).name}: {error.strerror or error}"
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        said = str(error) if isinstance(error, ValueError) else f"something in it is not what it should be ({error!r})"
        return None, said.replace(f"{path}/", "").replace(str(path), path.name)


def list_runs(folder: Path) -> RunList:
    runs = [summary_of(path, version_of(path)) for path in run_folders(folder).values()]
    version = f"{hash(tuple(run.version for run in runs)) & 0xFFFFFFFFFFFF:012x}"
    return RunList(folder=str(folder), runs=runs, version=version)


@lru_cache(maxsize=2 * MOST_RUNS)
def summary_of(path: Path, version: str) -> RunSummary:
    """A run in the list; read again when it has changed."""

    def read() -> RunSummary:
        directory = RunDirectory.open(path)
        experiment, metrics = directory.experiment, directory.metrics
        last = metrics[-1] if metrics else {}
        finished = directory.result is not None
        return RunSummary(
            name=path.name,
            kind=experiment.kind,
            finished=finished,
            step=experiment.training.steps if finished else int(last.get("step", 0)),
            steps=experiment.training.steps,
            score=number(last.get("score")),
            version=version,
        )

    found, problem = explained(read, path)
    if found is None:
        return RunSummary(
            name=path.name, kind="", finished=False, step=0, steps=0, score=None, version=version, problem=problem
        )
    return found


def detail_of(path: Path) -> tuple[RunDetail | None, str | None]:
    """Curves and settings, or why there are none."""
    return explained(lambda: read_detail(path), path)


def read_detail(path: Path) -> RunDetail:
    version = version_of(path)
    directory = RunDirectory.open(path)
    metrics = [entry for entry in directory.metrics if number(entry.get("step")) is not None]
    kept = metrics[:: max(1, math.ceil(len(metrics) / MOST_CURVE_POINTS))]
    if metrics and kept[-1] is not metrics[-1]:
        kept.append(metrics[-1])
    names = dict.fromkeys(name for entry in kept for name, value in entry.items() if number(value) is not None)
    described = directory.experiment.to_json()
    environment = directory.environment if (path / "environment.json").is_file() else {}
    settings = {
        **{name: described[name] for name in ("name", "profile", "kind")},
        **described["task"],
        **{f"training: {name}": value for name, value in described["training"].items()},
        **{name: environment[name] for name in ("commit", "hardware", "data") if name in environment},
    }
    return RunDetail(
        name=path.name,
        version=version,
        curves={name: [number(entry.get(name)) for entry in kept] for name in names},
        settings=[Setting(name=name, value=in_words(value)) for name, value in settings.items()],
    )


def number(value: Any) -> float | None:
    """A finite number, or None."""
    usable = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if usable else None


def in_words(value: Any) -> str:
    """A setting as it is read.

    Example:
        >>> in_words(True), in_words([300, 600]), in_words(0.001)
        ('yes', '300, 600', '0.001')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(in_words, value))  # pyright: ignore[reportUnknownArgumentType]
    return f"{value:g}" if isinstance(value, float) else str(value)


def tables_from(folders: Sequence[Path]) -> Tables:
    """The paper's tables, from the largest profile that has finished runs; broken runs are left out."""
    records = dict[tuple[str, str, int], Record]()
    for folder in folders:
        for path in run_folders(folder).values():
            record, _ = explained(lambda path=path: read_record(path), path)
            if record is not None:
                records.setdefault(record.key, record)
    for profile in ("paper", "quick", "smoke"):
        used = [record for record in records.values() if record.experiment.profile == profile]
        if not used:
            continue
        tables, problem = explained(lambda used=used: tables_of(used, folders), folders[0])
        if tables:
            is_trial = profile == "smoke"
            about = f"From {len(used)} finished runs, profile {profile}" + (TRIAL if is_trial else ".")
            return Tables(about=about, tables=[shown(table, judged=not is_trial) for table in tables])
        if problem:
            return Tables(about=f"The tables could not be made: {problem}", tables=[])
    return Tables(about="There is no finished run to make a table of.", tables=[])


def shown(table: Any, *, judged: bool) -> TableOfPaper:
    """A table for the page; where nothing in it can be judged, nothing is the best."""
    return TableOfPaper(
        title=table.title,
        columns=list(table.columns),
        rows=[
            [TableCell(found=cell.found, published=cell.published, best=cell.best and judged) for cell in row]
            for row in table.rows
        ],
        notes=list(table.notes),
    )
