"""Tables from CSV (with or without a header), Parquet and NPY files, in memory or in chunks, and their rows as sets.

read_table          a table in memory; text becomes numbers only in the columns that are used, so that an error
                    names the line and the column
group_rows          the rows grouped into sets by the values of one column
open_large_table    the numeric columns of a table larger than memory, parsed once into an unnamed temporary file
"""

import csv
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO, TextIOBase
from itertools import chain, count, islice
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from picaset.extras import require
from picaset.files import atomic_write

MISSING = {"", "na", "n/a", "nan", "null", "none"}
"""Text that stands for a missing value, in lower case."""
DELIMITERS = ",;\t|"
DECIMAL_COMMA = re.compile(r"\s*[+-]?\d*,\d+([eE][+-]?\d+)?\s*")
SNIFFED_LINES = 100
"""Number of lines from which the delimiter and the decimal mark are detected."""


@dataclass(frozen=True)
class Table:
    """Named columns of equal length, as numbers or as text."""

    path: Path
    columns: dict[str, NDArray[Any]]
    locations: Sequence[str]
    """Location of each row in the file, for error messages: "line 3"."""

    @property
    def num_rows(self) -> int:
        return len(self.locations)

    def column(self, name: str) -> NDArray[Any]:
        if name not in self.columns:
            raise ValueError(f"{self.path} has no column {name!r}; its columns are {', '.join(self.columns)}.")
        return self.columns[name]

    def is_missing(self, name: str) -> NDArray[np.bool_]:
        """Return for each row whether the value of a column is missing."""
        column = self.column(name)
        if column.dtype.kind in "iufb":
            return np.isnan(column.astype(np.float64))
        return np.array([str(value).strip().lower() in MISSING for value in column], dtype=np.bool_)

    def is_number(self, name: str) -> NDArray[np.bool_]:
        """Return for each row whether the value of a column is a number or missing."""
        column = self.column(name)
        if column.dtype.kind in "iufb":
            return np.ones(len(column), dtype=np.bool_)
        return self.is_missing(name) | np.array([is_number(str(value)) for value in column], dtype=np.bool_)

    def numbers(self, names: Sequence[str]) -> NDArray[np.float64]:
        """Return columns as numbers, (rows, columns), NaN where missing; raise for text and infinity."""
        result = list[NDArray[np.float64]]()
        for name in names:
            column, is_text = self.column(name), ~self.is_number(name)
            if is_text.any():
                self.reject(name, int(is_text.argmax()), "is not a number")
            missing = self.is_missing(name)
            values = np.full(len(column), np.nan)
            values[~missing] = column[~missing].astype(np.float64)
            if np.isinf(values).any():
                self.reject(name, int(np.isinf(values).argmax()), "is not finite")
            result.append(values)
        return np.stack(result, axis=1)

    def reject(self, name: str, row: int, reason: str) -> None:
        raise ValueError(
            f"{self.path}, {self.locations[row]}: column {name} has {str(self.column(name)[row])!r}, which {reason}."
        )

    def write_csv(self, path: Path, extra: Mapping[str, Sequence[Any]]) -> None:
        """Write the table as CSV, with extra columns on the right."""
        columns = [*(column.tolist() for column in self.columns.values()), *extra.values()]
        with atomic_write(path) as unfinished, unfinished.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow([*self.columns, *extra])
            writer.writerows(zip(*columns, strict=True))


def read_table(path: Path) -> Table:
    """Read a .csv, .tsv, .txt, .parquet or .npy file; the suffix decides on the format."""
    (table,) = read_table_parts(path, None)
    if table.num_rows == 0:
        raise ValueError(f"{path} has no rows.")
    return table


def read_table_parts(path: Path, max_rows: int | None) -> Iterator[Table]:
    """Read a table in parts of at most ``max_rows`` rows, or as one part if None; yields at least one part."""
    readers = {".csv": read_csv, ".tsv": read_csv, ".txt": read_csv, ".parquet": read_parquet, ".npy": read_npy}
    if path.suffix.lower() not in readers:
        raise ValueError(f"{path} must end in one of {', '.join(readers)}; got {path.suffix or 'no suffix'!r}.")
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist.")
    return readers[path.suffix.lower()](path, max_rows)


def read_csv(path: Path, max_rows: int | None) -> Iterator[Table]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield from parse_csv(path, file, max_rows)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not text in UTF-8 ({error.reason} at byte {error.start}).") from None


def table_from_csv_text(text: str, path: Path) -> Table:
    """Parse CSV text as one table; ``path`` is only used in error messages.

    Example:
        >>> table_from_csv_text("x,y\\n1,2\\n3,4\\n", Path("two points")).numbers(["x", "y"]).tolist()
        [[1.0, 2.0], [3.0, 4.0]]
    """
    (table,) = parse_csv(path, StringIO(text, newline=""), None)
    return table


def parse_csv(path: Path, file: TextIOBase, max_rows: int | None) -> Iterator[Table]:
    first_lines = list(islice((line.strip("\r\n") for line in file if line.strip()), SNIFFED_LINES))
    if not first_lines:
        raise ValueError(f"{path} is empty.")
    file.seek(0)
    delimiter = detect_delimiter(first_lines)
    by_spaces = delimiter == " "
    reader = csv.reader(
        map(str.strip, file) if by_spaces else file, delimiter=delimiter, skipinitialspace=by_spaces, strict=True
    )
    rows = ((reader.line_num, row) for row in reader if any(map(str.strip, row)))
    if delimiter == ";" and has_decimal_commas(first_lines):
        rows = ((line, [replace_decimal_comma(value) for value in row]) for line, row in rows)
    try:
        yield from tables_from_rows(path, rows, max_rows)
    except csv.Error as error:
        raise ValueError(f"{path} is not CSV: {error}.") from None


def detect_delimiter(lines: Sequence[str]) -> str:
    """Return the delimiter of a CSV file from its first lines.

    Example:
        >>> [detect_delimiter(lines) for lines in (["x,y"], ["1,5;2,5"], ["x y", "1  2"], ["a b", "c"])]
        [',', ';', ' ', ',']
    """
    first = lines[0]
    if not any(mark in first for mark in DELIMITERS):
        # Several words may be the name of one column, unless the next line has as many numbers.
        words = first.split()
        numbers = words if all(map(is_number_or_missing, words)) else (lines[1:2] or [""])[0].split()
        by_spaces = len(numbers) > 1 and len(numbers) == len(words) and all(map(is_number_or_missing, numbers))
        return " " if by_spaces else ","
    if ";" in first and all(is_number_or_missing(replace_decimal_comma(value)) for value in first.split(";")):
        return ";"  # any comma is a decimal mark
    return max(DELIMITERS, key=first.count)


def has_decimal_commas(lines: Sequence[str]) -> bool:
    """Return whether a table separated by semicolons has decimal commas (1,5) and no decimal points."""
    values = [value for line in lines for value in line.split(";")]
    return any(map(DECIMAL_COMMA.fullmatch, values)) and not any("." in value and is_number(value) for value in values)


def replace_decimal_comma(value: str) -> str:
    return value.replace(",", ".") if DECIMAL_COMMA.fullmatch(value) else value


def tables_from_rows(path: Path, rows: Iterator[tuple[int, list[str]]], max_rows: int | None) -> Iterator[Table]:
    """Yield tables from pairs of a line number and a row; a first row that is not all numbers is the header."""
    line, header = next(rows, (0, list[str]()))
    if not header:
        raise ValueError(f"{path} is empty.")
    if all(map(is_number_or_missing, header)):
        names, rows = [f"column{index + 1}" for index in range(len(header))], chain([(line, header)], rows)
    else:
        names = [value.strip() for value in header]
    for index, name in enumerate(names):
        if not name or name in names[:index]:
            raise ValueError(f"{path}, line {line}: column {index + 1} must have a unique name; got {name!r}.")
    for part in count():
        body = list(islice(rows, max_rows))
        for line, row in body:
            if len(row) != len(names):
                raise ValueError(f"{path}, line {line}: expected {len(names)} values; got {len(row)}.")
        if part and not body:
            return
        columns = {name: np.array([row[index] for _, row in body], dtype=object) for index, name in enumerate(names)}
        yield Table(path, columns, [f"line {line}" for line, _ in body])


def read_parquet(path: Path, max_rows: int | None) -> Iterator[Table]:
    arrow: Any = require("pyarrow", extra="all", purpose="reading Parquet")
    parquet: Any = require("pyarrow.parquet", extra="all", purpose="reading Parquet")
    try:
        file: Any = parquet.ParquetFile(path)
        start = 0
        for batch in [file.read()] if max_rows is None else file.iter_batches(batch_size=max_rows):
            names: list[str] = batch.schema.names
            columns = {name: np.asarray(batch[name].to_numpy(zero_copy_only=False)) for name in names}
            yield Table(path, columns, row_locations(start, batch.num_rows))
            start += batch.num_rows
    except (arrow.ArrowException, OSError) as error:
        raise ValueError(f"{path} is not a Parquet file: {str(error).splitlines()[0]}") from None


def read_npy(path: Path, max_rows: int | None) -> Iterator[Table]:
    try:
        array: NDArray[Any] = np.load(path, allow_pickle=False, mmap_mode=None if max_rows is None else "r")
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path} is not an array of numbers in NumPy's format: {error}") from None
    if array.ndim != 2 or array.dtype.kind not in "iufb":
        raise ValueError(f"{path} must hold numbers of shape (rows, columns); got {array.dtype} of {array.shape}.")
    for start in range(0, max(len(array), 1), max_rows or max(len(array), 1)):
        part = array[start:][:max_rows]
        columns = {f"column{index + 1}": part[:, index] for index in range(array.shape[1])}
        yield Table(path, columns, row_locations(start, len(part)))


def row_locations(start: int, num_rows: int) -> list[str]:
    return [f"row {index + 1}" for index in range(start, start + num_rows)]


def numeric_columns(table: Table, *, exclude: str | None) -> list[str]:
    """Return the names of the numeric columns except ``exclude``; skip text, raise where text and numbers are mixed."""
    names = list[str]()
    for name in (name for name in table.columns if name != exclude):
        if (table.is_number(name) & ~table.is_missing(name)).any():
            table.numbers([name])  # raises if some of the values are text
            names.append(name)
    if not names:
        raise ValueError(f"{table.path} has no column of numbers; its columns are {', '.join(table.columns)}.")
    return names


def is_number_or_missing(text: str) -> bool:
    return is_number(text) or text.strip().lower() in MISSING


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


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


Floats = NDArray[np.float64]
CHUNK_ROWS = 100_000
"""Number of rows in memory at a time."""
MEMORY_FACTORS = {".csv": 20, ".tsv": 20, ".txt": 20, ".parquet": 20, ".npy": 4}
"""Approximate memory needed to process a table, as a multiple of its file size."""


def fits_in_memory(path: Path) -> bool:
    """Return whether processing a table needs at most half of the machine's memory; True if the file is missing."""
    if not path.is_file():
        return True
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return path.stat().st_size * MEMORY_FACTORS.get(path.suffix.lower(), 1) <= memory // 2


@dataclass(frozen=True)
class LargeTable:
    """Numeric columns of a file, read in chunks."""

    path: Path
    columns: Sequence[str]
    chunks: Callable[[], Iterator[Floats]]
    """Returns a new iterator of chunks (n, D) at every call."""
    num_rows: int
    """Number of rows without missing values."""
    num_dropped: int
    """Number of rows with missing values, which are dropped."""


def open_large_table(path: Path, columns: Sequence[str] = (), *, drop_missing: bool = False) -> LargeTable:
    """Open some columns of a table, or all numeric columns if none is named.

    Example:
        >>> path = Path(tempfile.mkdtemp()) / "points.csv"
        >>> _ = path.write_text(chr(10).join(["x,y", "1,2", "3,4"]))
        >>> [chunk.tolist() for chunk in open_large_table(path).chunks()]
        [[[1.0, 2.0], [3.0, 4.0]]]
    """
    parts = read_table_parts(path, CHUNK_ROWS)
    first = next(parts)
    names = list(columns) or numeric_columns(first, exclude=None)
    with tempfile.TemporaryFile() as file:  # the memory map stays valid after the file is closed
        num_rows, num_dropped = write_numbers(chain([first], parts), names, file, drop_missing=drop_missing)
        if num_rows == 0:
            reason = "every row has a missing value; fill some in" if num_dropped else "it has no rows"
            raise ValueError(f"{path}: {reason}.")
        values = np.memmap(file, dtype=np.float64, mode="r", shape=(num_rows, len(names)))

    def chunks() -> Iterator[Floats]:
        for start in range(0, num_rows, CHUNK_ROWS):
            yield values[start : start + CHUNK_ROWS]

    return LargeTable(path, names, chunks, num_rows, num_dropped)


def write_numbers(
    parts: Iterable[Table], columns: Sequence[str], file: IO[bytes], *, drop_missing: bool
) -> tuple[int, int]:
    """Write the rows without missing values; return their number and the number of dropped rows."""
    num_rows = num_dropped = 0
    for table in parts:
        values = table.numbers(columns)
        missing = np.isnan(values).any(axis=1)
        if missing.any() and not drop_missing:
            raise ValueError(
                f"{table.path}, {table.locations[int(missing.argmax())]}: a value is missing; fill it in, or drop "
                "such rows with --drop-missing."
            )
        try:
            file.write(np.ascontiguousarray(values[~missing]).tobytes())
            file.flush()
        except OSError as error:
            raise OSError(
                error.errno,
                f"the numbers of the table could not be written to {tempfile.gettempdir()} ({error.strerror}); the "
                "temporary file was removed. Set TMPDIR to another folder.",
            ) from None
        num_rows, num_dropped = num_rows + int((~missing).sum()), num_dropped + int(missing.sum())
    return num_rows, num_dropped
