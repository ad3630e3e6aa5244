"""The rows of a table, set by set, with a score that says how little each fits its set."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from picaset.estimators.clustered_table import in_order_of_appearance
from picaset.estimators.set_anomaly_detector import SetAnomalyDetector
from picaset.files import replacing
from picaset.tables.table import Table, columns_of_numbers


@dataclass(frozen=True)
class SuspiciousRows:
    """Sets of rows, and the score of every row."""

    table: Table
    columns: Sequence[str]
    sets: Sequence[str]
    rows: Sequence[NDArray[np.int64]]
    """Of each set, in the order of the table."""
    scores: Sequence[NDArray[np.float64]]
    odd: Sequence[NDArray[np.bool_]]

    def most_suspicious(self) -> list[dict[str, Any]]:
        """Of every set the row that fits least, the most suspicious set first."""
        found = list[dict[str, Any]]()
        for name, rows, scores, odd in zip(self.sets, self.rows, self.scores, self.odd, strict=True):
            first = int(scores.argmax())
            entry = {"set": name, "rows": len(rows), "place": self.table.places[int(rows[first])]}
            found.append(entry | {"score": float(scores[first]), "odd": bool(odd[first]), "all_odd": int(odd.sum())})
        return sorted(found, key=lambda entry: -entry["score"])

    def write(self, path: Path) -> None:
        """The table as CSV, with the score of each row and whether it is called odd."""
        order = np.argsort(np.concatenate(self.rows))
        scores, odd = np.concatenate(self.scores)[order], np.concatenate(self.odd)[order]
        values = [column.tolist() for column in self.table.columns.values()]
        with replacing(path) as unfinished, unfinished.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow([*self.table.columns, "score", "odd"])
            for entries, score, is_odd in zip(zip(*values, strict=True), scores, odd, strict=True):
                writer.writerow([*entries, f"{score:.4f}", int(is_odd)])


def find_suspicious(
    table: Table, detector: SetAnomalyDetector, *, set_column: str, columns: Sequence[str] = (), fitted: bool = False
) -> SuspiciousRows:
    """Score the rows of every set, after learning from them unless the detector is fitted.

    Args:
        table: The rows.
        detector: What learns and scores.
        set_column: Says which set a row belongs to.
        columns: Features; all columns of numbers if none is named.
        fitted: Whether the detector has learned already, from other sets.
    """
    chosen = list(columns) or columns_of_numbers(table, but=set_column)
    values = table.numbers(chosen)
    missing = np.isnan(values).any(axis=1) | table.is_missing(set_column)
    if missing.any():
        raise ValueError(
            f"{table.path}, {table.places[int(missing.argmax())]}: a value is missing (as in {int(missing.sum())} of "
            f"{table.num_rows} rows); fill it in or take the row out."
        )
    names, owners = in_order_of_appearance(table.column(set_column))
    order = np.argsort(owners, kind="stable")
    rows = np.split(order, np.cumsum(np.bincount(owners))[:-1])
    sets = [values[one] for one in rows]
    if not fitted:
        detector.fit(sets)
    scores = detector.score_elements(sets)
    return SuspiciousRows(table, chosen, names, rows, scores, [one > detector.threshold_ for one in scores])
