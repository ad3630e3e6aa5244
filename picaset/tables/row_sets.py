"""Rows of a table grouped into sets by the values of one column."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from picaset.tables.table import Table, numeric_columns

ALL_ROWS = "all"
"""Name of the only set of a table that has no set column."""


@dataclass(frozen=True)
class RowSets:
    """Rows without missing values, and the sets that they form."""

    columns: Sequence[str]
    """Names of the features."""
    rows: NDArray[np.int64]
    """Indices of the rows in the table, ascending."""
    points: NDArray[np.float64]
    """Features of these rows, (n, D)."""
    names: Sequence[str]
    """Name of each set, in the order of first appearance."""
    members: Sequence[NDArray[np.int64]]
    """Indices into ``points`` for each set."""

    def arrays(self) -> list[NDArray[np.float64]]:
        """Return the features of each set."""
        return [self.points[members] for members in self.members]


def group_rows(
    table: Table, *, columns: Sequence[str] = (), set_column: str | None, drop_missing: bool = False, hint: str
) -> RowSets:
    """Group the rows of a table into sets.

    Args:
        table: The rows.
        columns: Features; empty for all numeric columns.
        set_column: Column whose value names the set of a row; None for one set of all rows.
        drop_missing: Whether to drop rows with missing values instead of raising an error.
        hint: Ends the error message for a missing value: what the user can do about it.
    """
    names = list(columns) or numeric_columns(table, exclude=set_column)
    values = table.numbers(names)
    missing = np.isnan(values).any(axis=1)
    if set_column is not None:
        missing |= table.is_missing(set_column)
    if missing.any() and not drop_missing:
        raise ValueError(
            f"{table.path}, {table.locations[int(missing.argmax())]}: a value is missing (as in {int(missing.sum())} "
            f"of {table.num_rows} rows); {hint}."
        )
    rows = np.flatnonzero(~missing)
    if len(rows) == 0:
        raise ValueError(f"{table.path}: every row has a missing value; fill some in.")
    labels = [ALL_ROWS] * len(rows) if set_column is None else map(str, table.column(set_column)[rows].tolist())
    index_by_name = dict[str, int]()
    owners = np.array([index_by_name.setdefault(label, len(index_by_name)) for label in labels])
    members = np.split(np.argsort(owners, kind="stable"), np.cumsum(np.bincount(owners))[:-1])
    return RowSets(names, rows, values[rows], list(index_by_name), members)
