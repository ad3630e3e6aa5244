"""Tables as people have them: CSV with or without a header, Parquet, NPY.

A column becomes numbers only when it is asked for, so that a mistake is told with its line.
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from picaset.extras import require

MISSING = {"", "na", "n/a", "nan", "null", "none"}
"""What stands for a missing value, in any case."""
DELIMITERS = ",;\t|"


@dataclass(frozen=True)
class Table:
    """Named columns of equal length; numbers where the file has numbers, text where it has text."""

    path: Path
    columns: dict[str, NDArray[Any]]
    places: Sequence[str]
    """Where in the file each row stands, in words."""

    @property
    def num_rows(self) -> int:
        return len(self.places)

    def column(self, name: str) -> NDArray[Any]:
        if name not in self.columns:
            raise ValueError(f"{self.path} has no column {name!r}; its columns are {', '.join(self.columns)}.")
        return self.columns[name]

    def is_missing(self, name: str) -> NDArray[np.bool_]:
        """Where a column has no value."""
        column = self.column(name)
        if column.dtype.kind in "iufb":
            return np.isnan(column.astype(np.float64))
        return np.array([str(value).strip().lower() in MISSING for value in column])

    def is_number(self, name: str) -> NDArray[np.bool_]:
        """Where a column has a number, or nothing."""
        column = self.column(name)
        if column.dtype.kind in "iufb":
            return np.ones(len(column), dtype=np.bool_)
        return self.is_missing(name) | np.array([reads_as_number(str(value)) for value in column])

    def numbers(self, names: Sequence[str]) -> NDArray[np.float64]:
        """Columns as numbers, (rows, columns), NaN where missing; refuses text and infinity, naming the line."""
        read = list[NDArray[np.float64]]()
        for name in names:
            column, wrong = self.column(name), ~self.is_number(name)
            if wrong.any():
                self.refuse(name, int(wrong.argmax()), "is not a number")
            missing = self.is_missing(name)
            values = np.full(len(column), np.nan)
            values[~missing] = column[~missing].astype(np.float64)
            if np.isinf(values).any():
                self.refuse(name, int(np.isinf(values).argmax()), "is not finite")
            read.append(values)
        return np.stack(read, axis=1)

    def refuse(self, name: str, row: int, reason: str) -> None:
        raise ValueError(
            f"{self.path}, {self.places[row]}: column {name} has {str(self.column(name)[row])!r}, which {reason}."
        )


def read_table(path: Path) -> Table:
    """Read a file by its suffix: .csv, .tsv, .txt, .parquet or .npy."""
    readers = {".csv": read_csv, ".tsv": read_csv, ".txt": read_csv, ".parquet": read_parquet, ".npy": read_npy}
    if path.suffix.lower() not in readers:
        raise ValueError(f"{path} must end in one of {', '.join(readers)}; got {path.suffix or 'no suffix'!r}.")
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist.")
    table = readers[path.suffix.lower()](path)
    if table.num_rows == 0:
        raise ValueError(f"{path} has no rows.")
    return table


def read_csv(path: Path) -> Table:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not text in UTF-8 ({error.reason} at byte {error.start}).") from None
    if not text.strip():
        raise ValueError(f"{path} is empty.")
    first = text.lstrip("\n").partition("\n")[0]
    delimiter = max(DELIMITERS, key=first.count) if any(mark in first for mark in DELIMITERS) else ","
    try:
        numbered = [(number, row) for number, row in numbered_rows(text, delimiter) if any(map(str.strip, row))]
    except csv.Error as error:
        raise ValueError(f"{path} is not CSV: {error}.") from None
    (number, head), body = numbered[0], numbered[1:]
    if all(reads_as_number(value) or value.strip().lower() in MISSING for value in head):
        names, body = [f"column{index + 1}" for index in range(len(head))], numbered
    else:
        names = [value.strip() for value in head]
    for index, name in enumerate(names):
        if not name or name in names[:index]:
            raise ValueError(f"{path}, line {number}: column {index + 1} must have a name of its own; got {name!r}.")
    for number, row in body:
        if len(row) != len(names):
            raise ValueError(f"{path}, line {number}: expected {len(names)} values; got {len(row)}.")
    columns = {name: np.array([row[index] for _, row in body], dtype=object) for index, name in enumerate(names)}
    return Table(path, columns, [f"line {number}" for number, _ in body])


def numbered_rows(text: str, delimiter: str) -> list[tuple[int, list[str]]]:
    reader = csv.reader(text.splitlines(keepends=True), delimiter=delimiter, strict=True)
    return [(reader.line_num, row) for row in reader]


def read_parquet(path: Path) -> Table:
    arrow: Any = require("pyarrow", extra="all", purpose="reading Parquet")
    parquet: Any = require("pyarrow.parquet", extra="all", purpose="reading Parquet")
    try:
        found: Any = parquet.read_table(path)
    except (arrow.ArrowException, OSError) as error:
        raise ValueError(f"{path} is not a Parquet file: {str(error).splitlines()[0]}") from None
    names: list[str] = found.column_names
    columns = {name: np.asarray(found[name].to_numpy()) for name in names}
    return Table(path, columns, numbered(found.num_rows))


def read_npy(path: Path) -> Table:
    try:
        array: NDArray[Any] = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path} is not an array of numbers in NumPy's format: {error}") from None
    if array.ndim != 2 or array.dtype.kind not in "iufb":
        raise ValueError(f"{path} must hold numbers of shape (rows, columns); got {array.dtype} of {array.shape}.")
    columns = {f"column{index + 1}": array[:, index] for index in range(array.shape[1])}
    return Table(path, columns, numbered(len(array)))


def numbered(num_rows: int) -> list[str]:
    return [f"row {index + 1}" for index in range(num_rows)]


def reads_as_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
