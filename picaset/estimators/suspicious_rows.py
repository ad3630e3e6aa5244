"""Anomaly scores for the rows of a table, which form sets by the values of one column."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from picaset.estimators.set_anomaly_detector import SetAnomalyDetector
from picaset.estimators.synthetic_anomalies import MIN_SIZE
from picaset.tables.table import RowSets, Table, group_rows


@dataclass(frozen=True)
class SuspiciousRows:
    """Sets of rows with an anomaly score for each row."""

    table: Table
    groups: RowSets
    scores: Sequence[NDArray[np.float64]]
    odd: Sequence[NDArray[np.bool_]]
    """Whether each row of each set is predicted to be an anomaly."""

    def most_suspicious(self) -> list[dict[str, Any]]:
        """Return the row with the highest score of every set, in descending order of the scores."""
        entries = list[dict[str, Any]]()
        for name, members, scores, odd in zip(
            self.groups.names, self.groups.members, self.scores, self.odd, strict=True
        ):
            first = int(scores.argmax())
            places = [self.table.locations[int(row)] for row in self.groups.rows[members]]
            entry = {"set": name, "rows": len(members), "place": places[first], "score": float(scores[first])}
            entry |= {"odd": bool(odd[first]), "all_odd": int(odd.sum())}
            entry |= {"odd_places": [place for place, is_odd in zip(places, odd, strict=True) if is_odd]}
            entries.append(entry | self.most_unusual_value(members, first))
        return sorted(entries, key=lambda entry: -entry["score"])

    def most_unusual_value(self, members: NDArray[np.int64], first: int) -> dict[str, Any]:
        """Return the feature in which a row is furthest from the others of its set, and the typical range of these."""
        values = self.groups.points[members]
        others = np.delete(values, first, axis=0) if len(values) > 1 else values
        low, middle, high = np.quantile(others, (0.1, 0.5, 0.9), axis=0)
        column = int((np.abs(values[first] - middle) / np.maximum(high - low, 1e-9 + 1e-9 * np.abs(middle))).argmax())
        usual = [float(low[column]), float(high[column])]
        return {"feature": self.groups.columns[column], "value": float(values[first, column]), "usual": usual}

    def notes(self) -> list[str]:
        """Return remarks on the table for the user."""
        used = len(self.groups.rows)
        dropped, small = self.table.num_rows - used, sum(len(members) < MIN_SIZE for members in self.groups.members)
        ignored = [name for name in self.table.columns if name not in self.groups.columns]
        notes = list[str]()
        if dropped:
            notes.append(f"{dropped} rows with missing values are left out")
        if small:
            notes.append(f"{small} sets have fewer than {MIN_SIZE} rows, too few to say which is odd")
        if len(ignored) > 1:
            notes.append(f"columns that are not features: {', '.join(ignored)}")
        return notes

    def write(self, path: Path) -> None:
        """Write the table as CSV, with the score of each row and 1 for anomalies; empty where values are missing."""
        scores, odd = ([""] * self.table.num_rows for _ in range(2))
        for members, values, labels in zip(self.groups.members, self.scores, self.odd, strict=True):
            for row, score, is_odd in zip(self.groups.rows[members].tolist(), values, labels, strict=True):
                scores[row], odd[row] = f"{score:.4f}", str(int(is_odd))
        self.table.write_csv(path, {"score": scores, "odd": odd})


def find_suspicious_rows(
    table: Table,
    detector: SetAnomalyDetector,
    *,
    set_column: str,
    columns: Sequence[str] = (),
    drop_missing: bool = False,
    fitted: bool = False,
) -> SuspiciousRows:
    """Score the rows of every set, after fitting the detector to them unless it is already fitted to other sets.

    ``set_column``, ``columns`` and ``drop_missing`` are those of :func:`group_rows`. A fitted detector that knows the
    names of its features reads these columns, in their order.
    """
    if fitted and hasattr(detector, "feature_names_in_"):
        names = [str(name) for name in detector.feature_names_in_]
        if columns and list(columns) != names:
            raise ValueError(f"the detector was fitted to the columns {', '.join(names)}; got {', '.join(columns)}.")
        if missing := [name for name in names if name not in table.columns]:
            raise ValueError(
                f"the detector was fitted to the columns {', '.join(names)}; the table has no {', '.join(missing)}."
            )
        columns = names
    groups = group_rows(
        table,
        columns=columns,
        set_column=set_column,
        drop_missing=drop_missing,
        hint="fill it in, or use --drop-missing",
    )
    sets = groups.arrays()
    if fitted:
        scores = detector.score_elements(sets)
    else:
        scores = detector.fit(sets).decision_scores_
        detector.feature_names_in_ = np.array(list(groups.columns), dtype=object)
    return SuspiciousRows(table, groups, scores, [values > detector.threshold_ for values in scores])
