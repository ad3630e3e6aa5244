"""Anomaly scores for the rows of a table, which form sets by the values of one column."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from picaset.estimators.set_anomaly_detector import SetAnomalyDetector
from picaset.tables.table import Table, group_rows


@dataclass(frozen=True)
class SuspiciousRows:
    """Sets of rows with an anomaly score for each row."""

    table: Table
    columns: Sequence[str]
    """Names of the features."""
    sets: Sequence[str]
    """Names of the sets."""
    rows: Sequence[NDArray[np.int64]]
    """Indices of the rows of each set."""
    scores: Sequence[NDArray[np.float64]]
    odd: Sequence[NDArray[np.bool_]]
    """Whether each row of each set is predicted to be an anomaly."""

    def most_suspicious(self) -> list[dict[str, Any]]:
        """Return the row with the highest score of every set, in descending order of the scores."""
        entries = list[dict[str, Any]]()
        for name, rows, scores, odd in zip(self.sets, self.rows, self.scores, self.odd, strict=True):
            first = int(scores.argmax())
            entry = {"set": name, "rows": len(rows), "place": self.table.locations[int(rows[first])]}
            entries.append(entry | {"score": float(scores[first]), "odd": bool(odd[first]), "all_odd": int(odd.sum())})
        return sorted(entries, key=lambda entry: -entry["score"])

    def write(self, path: Path) -> None:
        """Write the table as CSV, with the score of each row and 1 for anomalies."""
        order = np.argsort(np.concatenate(self.rows))
        scores, odd = np.concatenate(self.scores)[order], np.concatenate(self.odd)[order]
        extra = {"score": [f"{score:.4f}" for score in scores], "odd": odd.astype(int).tolist()}
        self.table.write_csv(path, extra)


def find_suspicious_rows(
    table: Table, detector: SetAnomalyDetector, *, set_column: str, columns: Sequence[str] = (), fitted: bool = False
) -> SuspiciousRows:
    """Score the rows of every set, after fitting the detector to them unless it is already fitted to other sets.

    ``set_column`` and ``columns`` are those of :func:`group_rows`.
    """
    groups = group_rows(table, columns=columns, set_column=set_column, hint="fill it in or remove the row")
    sets = groups.arrays()
    if not fitted:
        detector.fit(sets)
    scores = detector.score_elements(sets)
    odd = [values > detector.threshold_ for values in scores]
    return SuspiciousRows(table, groups.columns, groups.names, groups.members, scores, odd)
