"""Cluster the rows of a file that does not fit into memory: one mixture of all of them."""

import csv
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from picaset.estimators.amortized_mixture import AmortizedMixture
from picaset.estimators.clustered_table import EVERYTHING, described, write_entries
from picaset.files import replacing
from picaset.tables.large_table import LargeTable

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
