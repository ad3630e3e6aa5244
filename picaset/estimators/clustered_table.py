"""Clustering of the rows of a table: a mixture for each set of rows, or one for a file that is larger than memory."""

import csv
import json
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from picaset.estimators.amortized_mixture import AmortizedMixture
from picaset.files import atomic_write, open_output
from picaset.tables.table import ALL_ROWS, LargeTable, Table, group_rows

Floats = NDArray[np.float64]
MAX_COLUMNS, MAX_DIAGONAL_COLUMNS = 100, 1000
"""Largest number of columns of a mixture with any covariances, and with diagonal ones."""
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
    notes: Sequence[str] = ()
    """Remarks for the user on the table and on the mixtures."""

    @property
    def num_points(self) -> int:
        return sum(self.sizes)

    def points_of_set(self, index: int) -> Floats:
        """Return the points of one set."""
        return self.points[self.members[index]]

    def is_constant(self, index: int) -> NDArray[np.bool_]:
        """Return for each column whether all points of one set have the same value."""
        points = self.points_of_set(index)
        return np.fmin.reduce(points, axis=0) == np.fmax.reduce(points, axis=0)

    @cached_property
    def labels(self) -> tuple[NDArray[np.int64], Floats]:
        """Component of every point, counted within its set, and the probability of this component."""
        labels, probabilities = np.zeros(len(self.points), dtype=np.int64), np.zeros(len(self.points))
        for members, mixture in zip(self.members, self.mixtures, strict=True):
            labels[members], probabilities[members] = most_likely(mixture, self.points[members])
        return labels, probabilities

    def parameters(self) -> list[dict[str, Any]]:
        """Return one entry for each component of each set, as JSON values."""
        has_covariances = any(mixture.covariance_type_ in ("tied", "full") for mixture in self.mixtures)
        pairs = list(combinations(range(len(self.columns)), 2)) if has_covariances else []
        entries = list[dict[str, Any]]()
        for name, size, mixture in zip(self.sets, self.sizes, self.mixtures, strict=True):
            variances = mixture.variances_by_coordinate()
            covariances = mixture.covariance_matrices() if pairs else variances
            about = {"covariance type": mixture.covariance_type_, "log-likelihood of the set": mixture.lower_bound_}
            if mixture.noise:
                about["noise weight of the set"] = mixture.noise_weight_
            for component, weight in enumerate(mixture.weights_.tolist()):
                entry: dict[str, Any] = {"set": name, "points": size, "component": component, "weight": weight}
                moments = zip(self.columns, mixture.means_[component], variances[component], strict=True)
                for column, mean, variance in moments:
                    entry |= {f"mean {column}": float(mean), f"variance {column}": float(variance)}
                for first, second in pairs:
                    key = f"covariance {self.columns[first]} {self.columns[second]}"
                    entry[key] = float(covariances[component, first, second])
                entries.append(entry | about)
        return entries

    def write_parameters(self, path: Path) -> None:
        """Write ``parameters`` as JSON or CSV; the suffix decides."""
        entries = self.parameters()
        with atomic_write(path) as unfinished, open_output(unfinished) as file:
            if path.suffix.lower() == ".json":
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
        with atomic_write(path) as unfinished, open_output(unfinished) as file:
            writer = csv.writer(file)
            writer.writerow([*self.columns, "component", "probability"])
            for points in self.table.chunks():
                labels, probabilities = most_likely(self.mixtures[0], points)
                rows = zip(points.tolist(), labels.tolist(), probabilities.tolist(), strict=True)
                writer.writerows([*point, label, f"{probability:.4f}"] for point, label, probability in rows)


def most_likely(mixture: AmortizedMixture, points: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Return the most likely component of every point, -1 for noise, and its probability."""
    labels, probabilities = mixture.predict(points), mixture.predict_proba(points)
    of_noise = np.clip(1 - probabilities.sum(axis=1), 0, 1)
    return labels, np.where(labels < 0, of_noise, probabilities[np.arange(len(points)), labels])


def mixture_notes(names: Sequence[str], mixtures: Sequence[AmortizedMixture]) -> list[str]:
    """Return the notes of the mixtures: each text once, with the number of sets that it concerns."""
    sets_by_note = dict[str, list[str]]()
    for name, mixture in zip(names, mixtures, strict=True):
        if mixture.note_:
            sets_by_note.setdefault(mixture.note_, []).append(name)
    if len(mixtures) == 1:
        return list(sets_by_note)
    return [f"{note} ({describe_sets(sets)})" for note, sets in sets_by_note.items()]


def describe_sets(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more set{'s' * (len(names) > 4)}" if len(names) > 3 else ""
    return f"{'set' if len(names) == 1 else 'sets'} {', '.join(names[:3])}{more}"


def cluster_table(
    table: Table,
    estimator: AmortizedMixture,
    *,
    columns: Sequence[str] = (),
    set_column: str | None = None,
    drop_missing: bool = False,
) -> ClusteredTable:
    """Fit a mixture to every set of rows; see :func:`group_rows` for the keyword arguments."""
    groups = group_rows(
        table,
        columns=columns,
        set_column=set_column,
        drop_missing=drop_missing,
        keep_missing=estimator.missing == "marginalize",
        hint="fill it in, drop such rows with --drop-missing, or integrate over such values with --keep-missing",
    )
    check_width(len(groups.columns), estimator, source=table.path)
    start = time.perf_counter()
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # they are the notes
        mixtures = estimator.fit_many(groups.arrays())
    return ClusteredTable(
        columns=groups.columns,
        points=groups.points,
        sets=groups.names,
        members=groups.members,
        mixtures=mixtures,
        sizes=list(map(len, groups.members)),
        num_dropped=table.num_rows - len(groups.rows),
        seconds=time.perf_counter() - start,
        notes=[*groups.notes, *mixture_notes(groups.names, mixtures)],
        table=table,
        rows=groups.rows,
    )


def cluster_file(table: LargeTable, estimator: AmortizedMixture, *, progress: bool = False) -> ClusteredFile:
    """Fit the estimator to all rows of a file, which is read in chunks."""
    check_width(len(table.columns), estimator, source=table.path)
    start = time.perf_counter()
    with warnings.catch_warnings(action="ignore", category=UserWarning):
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
        notes=[*table.notes, *mixture_notes([ALL_ROWS], [estimator])],
        table=table,
    )


def check_width(num_columns: int, estimator: AmortizedMixture, *, source: Path) -> None:
    """Raise an error if a mixture of so many columns would take minutes or more."""
    is_diagonal = estimator.covariance_type in ("spherical", "diag")
    limit = MAX_DIAGONAL_COLUMNS if is_diagonal else MAX_COLUMNS
    if num_columns > limit:
        hint = "" if is_diagonal else f", or pass --covariance diag, which takes up to {MAX_DIAGONAL_COLUMNS}"
        raise ValueError(
            f"{source} has {num_columns} columns of numbers; at most {limit} can be clustered. Choose some with "
            f"--columns{hint}."
        )
