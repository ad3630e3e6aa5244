"""Read run directories, including directories that are being written, are damaged, or hold something else."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import BaseModel

from picaset.lab.reports.page import Cell, Table
from picaset.lab.reports.records import Record, read_record, reason_of
from picaset.lab.reports.reproduction import DAMAGED, all_tables, check_reportable
from picaset.lab.training.run_directory import RunDirectory

Result = TypeVar("Result")
MAX_RUNS = 500
MAX_CURVE_POINTS = 2000
MAX_FILE_BYTES = 20_000_000
FILES = ("config.json", "environment.json", "metrics.jsonl", "result.json")
SMOKE_NOTE = ": a few training steps each, to test that everything works. Their scores say nothing about the methods."


class RunSummary(BaseModel):
    """A run in the list."""

    name: str
    """Name of its directory."""
    kind: str
    """The task."""
    finished: bool
    step: int
    steps: int
    score: float | None
    """The last score."""
    version: str
    """Changes whenever the run does."""
    problem: str | None = None
    """Reason why the run cannot be read."""


class RunList(BaseModel):
    """All runs of a folder."""

    folder: str
    runs: list[RunSummary]
    version: str
    """Changes whenever a run does."""


class Setting(BaseModel):
    """One entry of a run's configuration."""

    name: str
    value: str


class RunDetail(BaseModel):
    """A run with its curves and its configuration."""

    name: str
    version: str
    curves: dict[str, list[float | None]]
    """Values of each metric at ``curves["step"]``."""
    settings: list[Setting]


class PaperTables(BaseModel):
    """All tables for which there are finished runs."""

    about: str
    tables: list[Table]


def find_runs(folder: Path) -> dict[str, Path]:
    """Return the run directories by name; the page can refer to these names only."""
    try:
        paths = sorted(path for path in folder.iterdir() if (path / "config.json").is_file())
    except OSError:
        return {}
    return {path.name: path for path in paths[:MAX_RUNS]}


def version_of(path: Path) -> str:
    """Return a string that changes whenever one of the run's files does."""
    stamps = list[int]()
    for name in FILES:
        try:
            status = (path / name).stat()
            stamps += [status.st_mtime_ns, status.st_size]
        except OSError:
            stamps += [0, 0]
    return hash_of(stamps)


def hash_of(values: Iterable[object]) -> str:
    return f"{hash(tuple(values)) & 0xFFFFFFFFFFFF:012x}"


def read_or_explain(read: Callable[[], Result], path: Path) -> tuple[Result | None, str | None]:
    """Return the result of ``read``, or the reason why it failed, without the path to the folder."""
    try:
        for name in FILES:
            if (path / name).is_file() and (path / name).stat().st_size > MAX_FILE_BYTES:
                raise ValueError(f"{name} is larger than {MAX_FILE_BYTES / 1e6:.0f} MB; this is not a run of picaset.")
        return read(), None
    except (OSError, *DAMAGED) as error:
        return None, reason_of(error, path)


def list_runs(folder: Path) -> RunList:
    runs = [read_summary(path, version_of(path)) for path in find_runs(folder).values()]
    return RunList(folder=str(folder), runs=runs, version=hash_of(run.version for run in runs))


@lru_cache(maxsize=2 * MAX_RUNS)
def read_summary(path: Path, version: str) -> RunSummary:
    """Summarize a run; ``version`` makes the cache read it again when it has changed."""

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
            score=finite_number(last.get("score")),
            version=version,
        )

    summary, problem = read_or_explain(read, path)
    return summary or RunSummary(
        name=path.name, kind="", finished=False, step=0, steps=0, score=None, version=version, problem=problem
    )


def read_detail(path: Path) -> RunDetail:
    """Read curves and settings; long curves are thinned."""
    version = version_of(path)
    directory = RunDirectory.open(path)
    metrics = [entry for entry in directory.metrics if finite_number(entry.get("step")) is not None]
    sample = metrics[:: max(1, math.ceil(len(metrics) / MAX_CURVE_POINTS))]
    if metrics and sample[-1] is not metrics[-1]:
        sample.append(metrics[-1])
    names = dict.fromkeys(name for entry in sample for name, value in entry.items() if finite_number(value) is not None)
    experiment = directory.experiment.to_json()
    environment = directory.environment if (path / "environment.json").is_file() else {}
    settings = {
        **{name: experiment[name] for name in ("name", "profile", "kind")},
        **flatten(experiment["task"]),
        **{f"training: {name}": value for name, value in experiment["training"].items()},
        **{name: environment[name] for name in ("commit", "hardware", "data") if name in environment},
    }
    return RunDetail(
        name=path.name,
        version=version,
        curves={name: [finite_number(entry.get(name)) for entry in sample] for name in names},
        settings=[Setting(name=name, value=format_value(value)) for name, value in settings.items()],
    )


def flatten(settings: dict[str, Any]) -> dict[str, Any]:
    """Return nested settings as one dictionary; a module is its class name, followed by its arguments.

    Example:
        >>> flatten({"network": {"class": "DeepSets", "arguments": {"dim": 16}}, "stereo": True})
        {'network': 'DeepSets', 'network: dim': 16, 'stereo': True}
    """
    flat = dict[str, Any]()
    for name, value in settings.items():
        if not isinstance(value, dict):
            flat[name] = value
            continue
        nested = cast(dict[str, Any], value)
        if "class" in nested:
            flat[name], nested = nested["class"], nested["arguments"]
        flat.update({f"{name}: {key}": item for key, item in flatten(nested).items()})
    return flat


def finite_number(value: Any) -> float | None:
    """Return a finite number as float, and None for anything else."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if is_number else None


def format_value(value: Any) -> str:
    """Format the value of a setting.

    Example:
        >>> format_value(True), format_value([300, 600]), format_value(0.001)
        ('yes', '300, 600', '0.001')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(format_value, value))  # pyright: ignore[reportUnknownArgumentType]
    return f"{value:g}" if isinstance(value, float) else str(value)


def build_tables(folders: Sequence[Path]) -> PaperTables:
    """Build the paper's tables from readable finished runs; smoke runs are used if there are no others."""
    records = dict[tuple[str, str, int], Record]()
    for folder in folders:
        for path in find_runs(folder).values():
            record, problem = read_or_explain(lambda path=path: read_record(path), path)
            if record is not None:
                _, problem = read_or_explain(lambda record=record: check_reportable(record), path)
            if record is not None and problem is None:
                records.setdefault(record.key, record)
    trained = [record for record in records.values() if not record.experiment.profile.startswith("smoke")]
    used = trained or list(records.values())
    tables, problem = read_or_explain(lambda: all_tables(used, folders), folders[0]) if used else (None, None)
    if problem:
        return PaperTables(about=f"The tables could not be built: {problem}", tables=[])
    if not tables:
        return PaperTables(about="There are no finished runs to build a table from.", tables=[])
    about = f"From {len(used)} finished run{'s' * (len(used) > 1)}{'.' if trained else SMOKE_NOTE}"
    return PaperTables(about=about, tables=[for_page(table, mark_best=bool(trained)) for table in tables])


def for_page(table: Table, *, mark_best: bool) -> Table:
    """Return a table with the rows in plain words, and with or without marks of the highest numbers."""
    rows = [
        [row_name(name.measured), *(replace(cell, best=cell.best and mark_best) for cell in cells)]
        for name, *cells in table.rows
    ]
    return replace(table, rows=rows)


BLOCKS = {
    "SA": "self-attention",
    "AE": "induced attention",
    "AE16": "induced attention (16 points)",
    "AE32": "induced attention (32 points)",
    "PMA": "attention pooling",
    "PB": "PICASO",
    "PB1": "PICASO, 1 step",
    "PB2": "PICASO, 2 steps",
    "PB3": "PICASO, 3 steps",
    "GPB": "generalized PICASO",
}
"""Blocks of the paper's networks in plain words."""


def row_name(label: str) -> Cell:
    """Describe a row that the paper names by its blocks, with the paper's name below.

    Example:
        >>> row_name("AE32 + PB + SA").measured
        'induced attention (32 points) → PICASO → self-attention'
        >>> row_name("SA + GPB, the authors' loss").measured
        "self-attention → generalized PICASO, the authors' loss"
        >>> row_name("DeepSet, mean").measured
        'DeepSet, mean'
    """
    blocks, comma, rest = label.partition(",")
    names = blocks.split(" + ")
    if not all(name in BLOCKS for name in names):
        return Cell(label)
    plain = " → ".join(BLOCKS[name] for name in names)
    return Cell(f"{plain}{comma}{rest}", f"paper: {blocks}")
