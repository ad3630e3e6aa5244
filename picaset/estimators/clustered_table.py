"""Clustering of the rows of a table: a mixture for each set of rows, or one for a file that is larger than memory."""

import csv
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from picaset.estimators.amortized_mixture import AmortizedMixture
from picaset.files import atomic_write
from picaset.tables.table import ALL_ROWS, LargeTable, Table, group_rows

Floats = NDArray[np.float64]
MAX_PLOTTED = 20_000
"""Approximate number of rows of a large file that a figure shows."""


@dataclass(frozen=True, kw_only=True)
class Clustering:
    """A mixture for each set of rows."""

    columns: Sequence[str]
    """Names of the coordinates."""
    points: Floats
    """Coordinates of the rows without missing values; a sample of them for a large file."""
    sets: Sequence[str]
    """Names of the sets."""
    members: Sequence[NDArray[np.int64]]
    """Indices into ``points`` for each set."""
    mixtures: Sequence[AmortizedMixture]
    sizes: Sequence[int]
    """Number of rows of each set."""
    num_dropped: int
    """Number of rows with missing values."""
    seconds: float
    """Duration of the fit."""

    @property
    def num_points(self) -> int:
        return sum(self.sizes)

    def points_of_set(self, index: int) -> Floats:
        """Return the points of one set."""
        return self.points[self.members[index]]

    @cached_property
    def labels(self) -> tuple[NDArray[np.int64], Floats]:
        """Component of every point, counted within its set, and the probability of this component."""
        labels, probabilities = np.zeros(len(self.points), dtype=np.int64), np.zeros(len(self.points))
        for members, mixture in zip(self.members, self.mixtures, strict=True):
            labels[members], probabilities[members] = most_likely(mixture, self.points[members])
        return labels, probabilities

    def parameters(self) -> list[dict[str, Any]]:
        """Return one entry for each component of each set, as JSON values."""
        entries = list[dict[str, Any]]()
        for name, size, mixture in zip(self.sets, self.sizes, self.mixtures, strict=True):
            variances = mixture.variances_by_coordinate()
            for component, weight in enumerate(mixture.weights_.tolist()):
                entry: dict[str, Any] = {"set": name, "points": size, "component": component, "weight": weight}
                moments = zip(self.columns, mixture.means_[component], variances[component], strict=True)
                for column, mean, variance in moments:
                    entry |= {f"mean {column}": float(mean), f"variance {column}": float(variance)}
                entries.append(entry | {"log-likelihood of the set": mixture.lower_bound_})
        return entries

    def write_parameters(self, path: Path) -> None:
        """Write ``parameters`` as JSON or CSV; the suffix decides."""
        entries = self.parameters()
        with atomic_write(path) as unfinished, unfinished.open("w", newline="") as file:
            if path.suffix == ".json":
                file.write(json.dumps(entries, indent=2) + "\n")
            else:
                writer = csv.DictWriter(file, fieldnames=list(entries[0]))
                writer.writeheader()
                writer.writerows(entries)


@dataclass(frozen=True, kw_only=True)
class ClusteredTable(Clustering):
    """A mixture for each set of rows of a table in memory."""

    table: Table
    rows: NDArray[np.int64]
    """Index in the table of each point."""

    def write_labels(self, path: Path) -> None:
        """Write the table as CSV, with the component of each row and its probability; both empty for dropped rows."""
        labels, probabilities = ([""] * self.table.num_rows for _ in range(2))
        for row, label, probability in zip(self.rows.tolist(), *self.labels, strict=True):
            labels[row], probabilities[row] = str(label), f"{probability:.4f}"
        self.table.write_csv(path, {"component": labels, "probability": probabilities})


@dataclass(frozen=True, kw_only=True)
class ClusteredFile(Clustering):
    """One mixture of all rows of a file that is read in chunks."""

    table: LargeTable

    def write_labels(self, path: Path) -> None:
        """Write the coordinates of all rows as CSV, with the component of each row and its probability."""
        with atomic_write(path) as unfinished, unfinished.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow([*self.columns, "component", "probability"])
            for points in self.table.chunks():
                labels, probabilities = most_likely(self.mixtures[0], points)
                rows = zip(points.tolist(), labels.tolist(), probabilities.tolist(), strict=True)
                writer.writerows([*point, label, f"{probability:.4f}"] for point, label, probability in rows)


def most_likely(mixture: AmortizedMixture, points: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Return the most likely component of every point and its probability."""
    probabilities = mixture.predict_proba(points)
    return probabilities.argmax(axis=1), probabilities.max(axis=1)


def cluster_table(
    table: Table,
    estimator: AmortizedMixture,
    *,
    columns: Sequence[str] = (),
    set_column: str | None = None,
    drop_missing: bool = False,
) -> ClusteredTable:
    """Fit a mixture to every set of rows; see :func:`group_rows` for the keyword arguments."""
    hint = "fill it in, or drop such rows with --drop-missing"
    groups = group_rows(table, columns=columns, set_column=set_column, drop_missing=drop_missing, hint=hint)
    sizes = list(map(len, groups.members))
    for name, size in zip(groups.names, sizes, strict=True):
        check_size(size, estimator, source=f"{table.path}" if set_column is None else f"{table.path}: set {name!r}")
    start = time.perf_counter()
    mixtures = estimator.fit_many(groups.arrays())
    return ClusteredTable(
        columns=groups.columns,
        points=groups.points,
        sets=groups.names,
        members=groups.members,
        mixtures=mixtures,
        sizes=sizes,
        num_dropped=table.num_rows - len(groups.rows),
        seconds=time.perf_counter() - start,
        table=table,
        rows=groups.rows,
    )


def cluster_file(table: LargeTable, estimator: AmortizedMixture, *, progress: bool = False) -> ClusteredFile:
    """Fit the estimator to all rows of a file, which is read in chunks."""
    check_size(table.num_rows, estimator, source=f"{table.path}")
    start = time.perf_counter()
    estimator.fit_stream(table.chunks, progress=progress)
    seconds = time.perf_counter() - start
    every = max(1, table.num_rows // MAX_PLOTTED)
    sample = np.concatenate([points[::every] for points in table.chunks()])
    return ClusteredFile(
        columns=table.columns,
        points=sample,
        sets=[ALL_ROWS],
        members=[np.arange(len(sample))],
        mixtures=[estimator],
        sizes=[table.num_rows],
        num_dropped=table.num_dropped,
        seconds=seconds,
        table=table,
    )


def check_size(size: int, estimator: AmortizedMixture, *, source: str) -> None:
    required = max(2, estimator.n_components) if isinstance(estimator.n_components, int) else 2
    if size < required:
        raise ValueError(f"{source} has {size} points; at least {required} are needed.")
