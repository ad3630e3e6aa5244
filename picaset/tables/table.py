"""Tables as people have them: CSV with or without a header, Parquet, NPY.

A column becomes numbers only when it is asked for, so that a mistake is told with its line.
"""

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import StringIO, TextIOBase
from itertools import chain, count, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from picaset.extras import require

MISSING = {"", "na", "n/a", "nan", "null", "none"}
"""What stands for a missing value, in any case."""
DELIMITERS = ",;\t|"
DECIMAL_COMMA = re.compile(r"\s*[+-]?\d*,\d+([eE][+-]?\d+)?\s*")
LOOKED_AT = 100
"""Lines by which it is decided how a file separates its values."""


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
        return np.array([str(value).strip().lower() in MISSING for value in column], dtype=np.bool_)

    def is_number(self, name: str) -> NDArray[np.bool_]:
        """Where a column has a number, or nothing."""
        column = self.column(name)
        if column.dtype.kind in "iufb":
            return np.ones(len(column), dtype=np.bool_)
        return self.is_missing(name) | np.array([reads_as_number(str(value)) for value in column], dtype=np.bool_)

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
    (table,) = table_parts(path, None)
    if table.num_rows == 0:
        raise ValueError(f"{path} has no rows.")
    return table


def table_parts(path: Path, most: int | None) -> Iterator[Table]:
    """A table in parts of at most so many rows, at least one part; None makes one part of all."""
    readers = {".csv": csv_parts, ".tsv": csv_parts, ".txt": csv_parts, ".parquet": parquet_parts, ".npy": npy_parts}
    if path.suffix.lower() not in readers:
        raise ValueError(f"{path} must end in one of {', '.join(readers)}; got {path.suffix or 'no suffix'!r}.")
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist.")
    return readers[path.suffix.lower()](path, most)


def csv_parts(path: Path, most: int | None) -> Iterator[Table]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield from parts_of_csv(path, file, most)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not text in UTF-8 ({error.reason} at byte {error.start}).") from None


def table_of_csv(text: str, path: Path) -> Table:
    """The table that a text holds; mistakes are told under the name of ``path``, which is not opened.

    Example:
        >>> table_of_csv("x,y\\n1,2\\n3,4\\n", Path("two points")).numbers(["x", "y"]).tolist()
        [[1.0, 2.0], [3.0, 4.0]]
    """
    (table,) = parts_of_csv(path, StringIO(text, newline=""), None)
    return table


def parts_of_csv(path: Path, file: TextIOBase, most: int | None) -> Iterator[Table]:
    lines = list(islice((line.strip("\r\n") for line in file if line.strip()), LOOKED_AT))
    if not lines:
        raise ValueError(f"{path} is empty.")
    file.seek(0)
    delimiter = delimiter_of(lines)
    with_comma = delimiter == ";" and has_decimal_commas(lines)
    by_spaces = delimiter == " "
    reader = csv.reader(
        map(str.strip, file) if by_spaces else file, delimiter=delimiter, skipinitialspace=by_spaces, strict=True
    )
    rows = ((reader.line_num, row) for row in reader if any(map(str.strip, row)))
    if with_comma:
        rows = ((line, [with_point(value) for value in row]) for line, row in rows)
    try:
        yield from rows_to_tables(path, rows, most)
    except csv.Error as error:
        raise ValueError(f"{path} is not CSV: {error}.") from None


def delimiter_of(lines: Sequence[str]) -> str:
    """What separates the values of a table that begins so.

    Example:
        >>> delimiter_of(["x,y"]), delimiter_of(["1,5;2,5"]), delimiter_of(["x y", "1  2"]), delimiter_of(["a b", "c"])
        (',', ';', ' ', ',')
    """
    first = lines[0]
    if not any(mark in first for mark in DELIMITERS):
        # Words in the first line may be one name; numbers in the next line, as many, are not.
        numbers = first.split() if all(map(stands_for_number, first.split())) else (lines[1:2] or [""])[0].split()
        by_spaces = len(numbers) > 1 and len(numbers) == len(first.split()) and all(map(stands_for_number, numbers))
        return " " if by_spaces else ","
    if ";" in first and all(stands_for_number(with_point(value)) for value in first.split(";")):
        return ";"  # the commas are decimal ones
    return max(DELIMITERS, key=first.count)


def has_decimal_commas(lines: Sequence[str]) -> bool:
    """Whether a table separated by semicolons writes 1,5 for one and a half; not where it also writes 1.5."""
    values = [value for line in lines for value in line.split(";")]
    return any(map(DECIMAL_COMMA.fullmatch, values)) and not any(
        "." in value and reads_as_number(value) for value in values
    )


def with_point(value: str) -> str:
    return value.replace(",", ".") if DECIMAL_COMMA.fullmatch(value) else value


def rows_to_tables(path: Path, rows: Iterator[tuple[int, list[str]]], most: int | None) -> Iterator[Table]:
    """Tables of rows that come with the numbers of their lines; the first row may name the columns."""
    number, head = next(rows, (0, list[str]()))
    if not head:
        raise ValueError(f"{path} is empty.")
    if all(map(stands_for_number, head)):
        names, rows = [f"column{index + 1}" for index in range(len(head))], chain([(number, head)], rows)
    else:
        names = [value.strip() for value in head]
    for index, name in enumerate(names):
        if not name or name in names[:index]:
            raise ValueError(f"{path}, line {number}: column {index + 1} must have a name of its own; got {name!r}.")
    for part in count():
        body = list(islice(rows, most))
        for number, row in body:
            if len(row) != len(names):
                raise ValueError(f"{path}, line {number}: expected {len(names)} values; got {len(row)}.")
        if part and not body:
            return
        columns = {name: np.array([row[index] for _, row in body], dtype=object) for index, name in enumerate(names)}
        yield Table(path, columns, [f"line {number}" for number, _ in body])


def parquet_parts(path: Path, most: int | None) -> Iterator[Table]:
    arrow: Any = require("pyarrow", extra="all", purpose="reading Parquet")
    parquet: Any = require("pyarrow.parquet", extra="all", purpose="reading Parquet")
    try:
        file: Any = parquet.ParquetFile(path)
        start = 0
        for found in [file.read()] if most is None else file.iter_batches(batch_size=most):
            names: list[str] = found.schema.names
            columns = {name: np.asarray(found[name].to_numpy(zero_copy_only=False)) for name in names}
            yield Table(path, columns, numbered(start, found.num_rows))
            start += found.num_rows
    except (arrow.ArrowException, OSError) as error:
        raise ValueError(f"{path} is not a Parquet file: {str(error).splitlines()[0]}") from None


def npy_parts(path: Path, most: int | None) -> Iterator[Table]:
    try:
        array: NDArray[Any] = np.load(path, allow_pickle=False, mmap_mode=None if most is None else "r")
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path} is not an array of numbers in NumPy's format: {error}") from None
    if array.ndim != 2 or array.dtype.kind not in "iufb":
        raise ValueError(f"{path} must hold numbers of shape (rows, columns); got {array.dtype} of {array.shape}.")
    for start in range(0, max(len(array), 1), most or max(len(array), 1)):
        part = array[start:][:most]
        columns = {f"column{index + 1}": part[:, index] for index in range(array.shape[1])}
        yield Table(path, columns, numbered(start, len(part)))


def numbered(start: int, num_rows: int) -> list[str]:
    return [f"row {index + 1}" for index in range(start, start + num_rows)]


def columns_of_numbers(table: Table, *, but: str | None) -> list[str]:
    """Columns that hold numbers; one that holds both numbers and text is refused, one of text alone is not meant."""
    found = list[str]()
    for name in (name for name in table.columns if name != but):
        numbers = table.is_number(name) & ~table.is_missing(name)
        if numbers.any():
            table.numbers([name])
            found.append(name)
    if not found:
        raise ValueError(f"{table.path} has no column of numbers; its columns are {', '.join(table.columns)}.")
    return found


def stands_for_number(text: str) -> bool:
    """A number, or what stands for a missing one."""
    return reads_as_number(text) or text.strip().lower() in MISSING


def reads_as_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
