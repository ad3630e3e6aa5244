"""Cluster the rows of a table, all together or set by set, and write what came out.

Cluster the rows of a file that does not fit into memory: one mixture of all of them.
"""

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
from picaset.files import replacing
from picaset.tables.large_table import LargeTable
from picaset.tables.table import Table, columns_of_numbers

EVERYTHING = "all"
"""The name of the set where no column says which set a row belongs to."""


@dataclass(frozen=True)
class ClusteredTable:
    """The rows that were clustered, and the mixture of each set."""

    table: Table
    columns: Sequence[str]
    rows: NDArray[np.int64]
    """Of the table, in its order; those with missing values are left out."""
    points: NDArray[np.float64]
    sets: Sequence[str]
    members: Sequence[NDArray[np.int64]]
    """For each set, which of the points are its own."""
    mixtures: Sequence[AmortizedMixture]
    seconds: float

    @property
    def num_points(self) -> int:
        return len(self.points)

    @property
    def num_dropped(self) -> int:
        return self.table.num_rows - len(self.rows)

    def of_set(self, index: int) -> NDArray[np.float64]:
        return self.points[self.members[index]]

    @cached_property
    def labels(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The component of every row, counted within its set, and how likely it is."""
        labels, likely = np.zeros(len(self.rows), dtype=np.int64), np.zeros(len(self.rows))
        for mine, mixture in zip(self.members, self.mixtures, strict=True):
            probabilities = mixture.predict_proba(self.points[mine])
            labels[mine], likely[mine] = probabilities.argmax(axis=1), probabilities.max(axis=1)
        return labels, likely

    def parameters(self) -> list[dict[str, Any]]:
        """One entry for each component of each set, as JSON values."""
        each = zip(self.sets, self.members, self.mixtures, strict=True)
        return [entry for name, mine, mixture in each for entry in described(name, len(mine), mixture, self.columns)]

    def write_labels(self, path: Path) -> None:
        """The table as CSV, with the component of each row and how likely it is; left-out rows have neither."""
        labels, likely = self.labels
        given = {
            int(row): (str(label), f"{share:.4f}") for row, label, share in zip(self.rows, labels, likely, strict=True)
        }
        values = [column.tolist() for column in self.table.columns.values()]
        with replacing(path) as unfinished, unfinished.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow([*self.table.columns, "component", "probability"])
            for row, entries in enumerate(zip(*values, strict=True)):
                writer.writerow([*entries, *given.get(row, ("", ""))])

    def write_parameters(self, path: Path) -> None:
        """As JSON or as CSV, by the suffix."""
        write_entries(self.parameters(), path)


def described(name: str, num_points: int, mixture: AmortizedMixture, columns: Sequence[str]) -> list[dict[str, Any]]:
    """One entry for each component of a mixture, as JSON values."""
    found, variances = list[dict[str, Any]](), mixture.variances_by_coordinate()
    for component in range(mixture.n_components_):
        entry: dict[str, Any] = {"set": name, "points": num_points, "component": component}
        entry["weight"] = float(mixture.weights_[component])
        for column, mean, variance in zip(columns, mixture.means_[component], variances[component], strict=True):
            entry |= {f"mean {column}": float(mean), f"variance {column}": float(variance)}
        found.append(entry | {"log-likelihood of the set": mixture.lower_bound_})
    return found


def write_entries(entries: list[dict[str, Any]], path: Path) -> None:
    """As JSON or as CSV, by the suffix."""
    with replacing(path) as unfinished, unfinished.open("w", newline="") as file:
        if path.suffix == ".json":
            file.write(json.dumps(entries, indent=2) + "\n")
        else:
            writer = csv.DictWriter(file, fieldnames=list(entries[0]))
            writer.writeheader()
            writer.writerows(entries)


def cluster_table(
    table: Table,
    estimator: AmortizedMixture,
    *,
    columns: Sequence[str] = (),
    set_column: str | None = None,
    drop_missing: bool = False,
) -> ClusteredTable:
    """Fit a mixture to every set of rows.

    Args:
        table: The rows.
        estimator: How to fit.
        columns: Coordinates; all columns of numbers if none is named.
        set_column: Says which set a row belongs to; None puts all rows in one.
        drop_missing: Leave rows with missing values out, instead of refusing them.
    """
    chosen = list(columns) or columns_of_numbers(table, but=set_column)
    values = table.numbers(chosen)
    missing = np.isnan(values).any(axis=1)
    if set_column is not None:
        missing |= table.is_missing(set_column)
    if missing.any() and not drop_missing:
        raise ValueError(
            f"{table.path}, {table.places[int(missing.argmax())]}: a value is missing (as in {int(missing.sum())} of "
            f"{table.num_rows} rows); fill it in, or leave such rows out with --drop-missing."
        )
    rows = np.flatnonzero(~missing)
    if len(rows) == 0:
        raise ValueError(f"{table.path}: every row has a missing value; nothing is left to cluster.")
    names, owners = [EVERYTHING], np.zeros(len(rows), dtype=np.int64)
    if set_column is not None:
        names, owners = in_order_of_appearance(table.column(set_column)[rows])
    members = np.split(np.argsort(owners, kind="stable"), np.cumsum(np.bincount(owners))[:-1])
    used = values[rows]
    sets = [used[mine] for mine in members]
    for name, points in zip(names, sets, strict=True):
        needed = max(2, estimator.n_components) if isinstance(estimator.n_components, int) else 2
        if len(points) < needed:
            which = table.path if set_column is None else f"{table.path}: set {name!r}"
            raise ValueError(f"{which} has {len(points)} points; at least {needed} are needed.")
    began = time.perf_counter()
    mixtures = estimator.fit_many(sets)
    return ClusteredTable(table, chosen, rows, used, names, members, mixtures, seconds=time.perf_counter() - began)


def in_order_of_appearance(values: NDArray[Any]) -> tuple[list[str], NDArray[np.int64]]:
    """The different values as text, and for each entry the index of its value."""
    index = dict[str, int]()
    owners = np.array([index.setdefault(str(value), len(index)) for value in values.tolist()])
    return list(index), owners


SHOWN = 20_000
"""Points that a figure shows."""


@dataclass(frozen=True)
class ClusteredFile:
    """What came out, with the same face as a clustered table; its points are a sample."""

    table: LargeTable
    mixture: AmortizedMixture
    points: NDArray[np.float64]
    seconds: float

    @property
    def columns(self) -> Sequence[str]:
        return self.table.columns

    @property
    def sets(self) -> list[str]:
        return [EVERYTHING]

    @property
    def mixtures(self) -> list[AmortizedMixture]:
        return [self.mixture]

    @property
    def members(self) -> list[NDArray[np.int64]]:
        return [np.arange(len(self.points))]

    @property
    def num_points(self) -> int:
        return self.table.num_rows

    @property
    def num_dropped(self) -> int:
        return self.table.num_dropped

    @property
    def labels(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The component of every point of the sample, and how likely it is."""
        probabilities = self.mixture.predict_proba(self.points)
        return probabilities.argmax(axis=1), probabilities.max(axis=1)

    def parameters(self) -> list[dict[str, Any]]:
        """One entry for each component, as JSON values."""
        return described(EVERYTHING, self.num_points, self.mixture, self.columns)

    def write_labels(self, path: Path) -> None:
        """The coordinates of all rows as CSV, with the component of each and how likely it is, chunk by chunk."""
        with replacing(path) as unfinished, unfinished.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow([*self.columns, "component", "probability"])
            for points in self.table.chunks():
                probabilities = self.mixture.predict_proba(points)
                labels, likely = probabilities.argmax(axis=1), probabilities.max(axis=1)
                rows = zip(points.tolist(), labels.tolist(), likely.tolist(), strict=True)
                writer.writerows([*point, label, f"{share:.4f}"] for point, label, share in rows)

    def write_parameters(self, path: Path) -> None:
        """As JSON or as CSV, by the suffix."""
        write_entries(self.parameters(), path)


def cluster_file(table: LargeTable, estimator: AmortizedMixture, *, progress: bool = False) -> ClusteredFile:
    """Fit one mixture to all rows of a file, read in chunks."""
    needed = max(2, estimator.n_components) if isinstance(estimator.n_components, int) else 2
    if table.num_rows < needed:
        raise ValueError(f"{table.path} has {table.num_rows} rows; at least {needed} are needed.")
    began = time.perf_counter()
    estimator.fit_stream(table.chunks, progress=progress)
    seconds = time.perf_counter() - began
    every = max(1, table.num_rows // SHOWN)
    shown = np.concatenate([points[::every] for points in table.chunks()])
    return ClusteredFile(table, estimator, shown, seconds)
