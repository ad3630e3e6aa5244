"""Tables from CSV, JSON lines, Parquet and NPY files, in memory or in chunks, and their rows as sets.

read_table          a table in memory
choose_columns      its features: the numeric columns without ids, and what is left out
group_rows          the rows grouped into sets by the values of one column
open_large_table    the numeric columns of a table larger than memory, parsed once into an unnamed temporary file

A column holds numbers if all of its values are numbers, also if they are written as text, or missing, and otherwise
text. Errors name the line of a text file, or the row, and the column.
"""

import csv
import gzip
import json
import math
import os
import re
import shutil
import tempfile
import zlib
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from io import BytesIO
from itertools import chain, count, islice
from pathlib import Path
from typing import IO, Any, cast, overload

import numpy as np
from numpy.typing import NDArray

from picaset.array_files import ParquetReader, read_npy_header
from picaset.files import atomic_write, check_regular, open_output
from picaset.tables.csv_text import MAX_COLUMNS, ByteFile, CsvPart, is_missing, is_number_or_missing, read_csv_parts

ID_NAME = re.compile(
    r"(?i:(.*[_\W])?(id|uuid|guid|key)|index|idx|unnamed: 0|row|row.?(id|names?|numbers?)|nr|no\.?|#)|.*[a-z]I[dD]"
)
"""Names of columns that identify rows or things."""
MAX_UNPACKED = 200
"""Largest ratio of the size of unpacked text to that of its .gz file."""


class Locations(Sequence[str]):
    """Location of each row in its file, "row 3" or "line 3"; line numbers are counted when one is asked for."""

    def __init__(self, start: int, num_rows: int, part: CsvPart | None = None) -> None:
        self.start, self.num_rows, self.part = start, num_rows, part

    def __len__(self) -> int:
        return self.num_rows

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            return [self[row] for row in range(self.num_rows)[index]]
        row = self.start + range(self.num_rows)[index]
        return f"row {row + 1}" if self.part is None else f"line {self.part.lines[row]}"


def row_locations(start: int, num_rows: int) -> Sequence[str]:
    return Locations(start, num_rows)


@dataclass(frozen=True)
class Table:
    """Named columns of equal length: numbers, NaN where missing, or text."""

    path: Path
    columns: dict[str, NDArray[Any]]
    locations: Sequence[str]
    """Location of each row in the file, for error messages: "line 3"."""
    notes: Sequence[str] = ()
    """Remarks for the user on how the file was read."""
    text: Callable[[], Iterable[Sequence[Any]]] | None = None
    """Returns the rows as they are written in the file; None if they are not text."""

    @property
    def num_rows(self) -> int:
        return len(self.locations)

    def column(self, name: str) -> NDArray[Any]:
        if name not in self.columns:
            raise ValueError(f"{self.path} has no column {name!r}; its columns are {list_names(self.columns)}.")
        return self.columns[name]

    def is_missing(self, name: str) -> NDArray[np.bool_]:
        """Return for each row whether the value of a column is missing."""
        column = self.column(name)
        if column.dtype.kind in "iufb":
            return np.isnan(column)
        return np.array([is_missing(str(value)) for value in column], dtype=np.bool_)

    def is_number(self, name: str) -> NDArray[np.bool_]:
        """Return for each row whether the value of a column is a number or missing."""
        column = self.column(name)
        if column.dtype.kind in "iufb":
            return np.ones(len(column), dtype=np.bool_)
        return np.array([is_number_or_missing(str(value)) for value in column], dtype=np.bool_)

    def numbers(self, names: Sequence[str]) -> NDArray[np.float64]:
        """Return columns as numbers, (rows, columns), NaN where missing; raise for text and infinity."""
        result = np.empty((self.num_rows, len(names)))
        for index, name in enumerate(names):
            column = self.column(name)
            if column.dtype.kind not in "iufb":
                is_text = ~self.is_number(name)
                if is_text.any():
                    self.reject(name, int(is_text.argmax()), "is not a number")
                column = np.where(self.is_missing(name), np.nan, column)
            with np.errstate(over="ignore", invalid="ignore"):
                column = np.asarray(column, dtype=np.float64)
            result[:, index] = column
            is_infinite = np.isinf(column)
            if is_infinite.any():
                self.reject(name, int(is_infinite.argmax()), "is not finite")
        return result

    def reject(self, name: str, row: int, reason: str) -> None:
        value = str(self.column(name)[row])
        raise ValueError(f"{self.path}, {self.locations[row]}: column {name} has {value[:100]!r}, which {reason}.")

    def write_csv(self, path: Path, extra: Mapping[str, Sequence[Any]]) -> None:
        """Write the table as CSV, with extra columns on the right; one whose name is taken is numbered: score_2."""
        columns = (column.tolist() for column in self.columns.values())
        rows = zip(*columns, strict=True) if self.text is None else self.text()
        with atomic_write(path) as unfinished, open_output(unfinished) as file:
            writer = csv.writer(file)
            writer.writerow([*self.columns, *(free_name(name, self.columns) for name in extra)])
            writer.writerows([*row, *more] for row, more in zip(rows, zip(*extra.values(), strict=True), strict=True))


def free_name(name: str, taken: Container[str]) -> str:
    """Return a name that is not taken: the name itself, or the first of name_2, name_3 and so on."""
    return next(free for free in chain([name], (f"{name}_{number}" for number in count(2))) if free not in taken)


def list_names(names: Iterable[str]) -> str:
    """Return names separated by commas, the first ones if there are many."""
    names = list(names)
    return ", ".join(names[:30]) + (f" and {len(names) - 30} more" if len(names) > 30 else "")


def read_table(path: Path) -> Table:
    """Read a .csv, .tsv, .txt, .json, .jsonl, .parquet or .npy file; text may be packed (.csv.gz)."""
    if not fits_in_memory(path):
        raise ValueError(
            f"{path} needs about {needed_memory(path) / 1e9:,.1f} GB, more than half of the memory of this machine. "
            "Take a part of its rows."
        )
    (table,) = read_table_parts(path, None)
    if table.num_rows == 0:
        raise ValueError(f"{path} has no rows.")
    return table


def read_table_parts(path: Path, max_rows: int | None) -> Iterator[Table]:
    """Read a table in parts of at most ``max_rows`` rows, or as one part if None; yields at least one part."""
    suffix = data_suffix(path)
    if path.is_dir():
        raise ValueError(f"{path} is a folder; expected a file that ends in one of {', '.join(READERS)}.")
    if suffix not in READERS:
        raise ValueError(f"{path} must end in one of {', '.join(READERS)}; got {path.suffix or 'no suffix'!r}.")
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist.")
    check_regular(path)
    return READERS[suffix](path, max_rows)


def data_suffix(path: Path) -> str:
    """Return the suffix that names the format, in lower case: that before .gz for packed text."""
    suffix = path.suffix.lower()
    inner = Path(path.stem).suffix.lower()
    return inner if suffix == ".gz" and READERS.get(inner) in (read_csv, read_json_lines) else suffix


def read_csv(path: Path, max_rows: int | None) -> Iterator[Table]:
    with open_text(path) as file:
        yield from csv_tables(file, path, max_rows)


def table_from_csv_text(text: str, path: Path) -> Table:
    """Parse CSV text as one table; ``path`` is only used in error messages.

    Example:
        >>> table_from_csv_text("x,y\\n1,2\\n3,4\\n", Path("two points")).numbers(["x", "y"]).tolist()
        [[1.0, 2.0], [3.0, 4.0]]
    """
    (table,) = csv_tables(BytesIO(text.encode()), path, None)
    return table


def csv_tables(file: ByteFile, path: Path, max_rows: int | None) -> Iterator[Table]:
    for part, columns, notes in read_csv_parts(file, str(path), -1 if max_rows is None else CHUNK_BYTES):
        num_rows = len(next(iter(columns.values())))
        size = max(num_rows, 1) if max_rows is None else max_rows
        for start in range(0, max(num_rows, 1), size):

            def text(part: CsvPart = part, start: int = start, size: int = size) -> Iterable[Sequence[Any]]:
                return islice((row for _, row in part.rows()), start, start + size)

            some = {name: column[start : start + size] for name, column in columns.items()}
            yield Table(path, some, Locations(start, min(size, num_rows - start), part), notes, text)


@contextmanager
def open_text(path: Path) -> Generator[ByteFile]:
    """Open a text file, unpacking it if it ends in .gz."""
    if path.suffix.lower() != ".gz":
        with path.open("rb") as file:
            yield file
        return
    try:
        with gzip.open(path) as file:
            yield BoundedFile(file, path, MAX_UNPACKED * max(path.stat().st_size, 2**20))
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is not a complete gzip file: {error}.") from None


class BoundedFile:
    """A file that raises an error where it is longer than it may be."""

    def __init__(self, file: Any, path: Path, limit: int) -> None:
        self.file, self.path, self.limit, self.num_read = file, path, limit, 0

    def read(self, size: int = -1, /) -> bytes:
        data = self.file.read(self.limit - self.num_read + 1 if size < 0 else size)
        return self.count(data)

    def __iter__(self) -> Iterator[bytes]:
        return map(self.count, self.file)

    def count(self, data: bytes) -> bytes:
        self.num_read += len(data)
        if self.num_read > self.limit:
            raise ValueError(
                f"{self.path} unpacks to more than {self.limit:,} bytes, {MAX_UNPACKED} times its size. If this is "
                "right, unpack it first."
            )
        return data


def read_json_lines(path: Path, max_rows: int | None) -> Iterator[Table]:
    """Read one JSON object per line, one array of objects, or the one object of columns that pandas writes."""
    with open_text(path) as file:
        records = json_records(file, path)
        names = dict[str, None]()
        for index in count():
            part = list(islice(records, max_rows))
            if index and not part:
                return
            for _, record in part:
                names.update(dict.fromkeys(record))
            if len(names) > MAX_COLUMNS:
                raise ValueError(f"{path} has more than {MAX_COLUMNS:,} columns, which is the most that can be used.")
            columns = {name: json_column([record.get(name) for _, record in part]) for name in names}
            yield Table(path, columns, [location for location, _ in part])


def json_records(file: ByteFile, path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the location of each record and its values."""
    for number, line in enumerate(file, start=1):
        start = line.removeprefix(b"\xef\xbb\xbf").strip() if number == 1 else line.strip()
        if not start:
            continue
        if number == 1 and start.startswith(b"["):
            values = parse_json(line + file.read(), f"{path}")
            for index, record in enumerate(values):
                yield check_record(record, f"row {index + 1}", path)
            return
        location, record = f"line {number}", None
        if number == 1 and start == b"{":  # one object on many lines
            record = parse_json(line + file.read(), f"{path}")
        location, record = check_record(record or parse_json(line, f"{path}, {location}"), location, path)
        if number == 1 and record and all(isinstance(value, dict | list) for value in record.values()):
            rows = [] if file.read().strip() else records_of_columns(record)
            if not rows:
                raise ValueError(
                    f"{path} must have one JSON object for each row, with a number or text for each column; got lists "
                    'or objects instead. With pandas, write df.to_json(path, orient="records").'
                )
            yield from ((f"row {index + 1}", row) for index, row in enumerate(rows))
            return
        yield location, record


def records_of_columns(columns: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of a table that is written as one object; an empty list if the columns differ in their rows.

    Example:
        >>> records_of_columns({"x": {"0": 1, "1": 2}, "y": {"0": 3, "1": 4}})  # as pandas writes it
        [{'x': 1, 'y': 3}, {'x': 2, 'y': 4}]
        >>> records_of_columns({"0": {"x": 1, "y": 3}, "1": {"x": 2, "y": 4}})  # with orient="index"
        [{'x': 1, 'y': 3}, {'x': 2, 'y': 4}]
        >>> records_of_columns({"x": [1, 2], "y": [3, 4]})
        [{'x': 1, 'y': 3}, {'x': 2, 'y': 4}]
    """
    values: list[dict[Any, Any]] = [
        dict(enumerate(cast(list[Any], column))) if isinstance(column, list) else column for column in columns.values()
    ]
    rows = list(values[0])
    if set(columns) == {"columns", "index", "data"} or any(list(column) != rows for column in values):
        return []
    if all(map(str.isdigit, columns)) and not all(str(row).isdigit() for row in rows):
        return values
    return [{name: column[row] for name, column in zip(columns, values, strict=True)} for row in rows]


def parse_json(data: bytes, where: str) -> Any:
    try:
        return json.loads(data, parse_int=lambda text: int(text) if len(text) < 19 else float(text))
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise ValueError(f"{where} is not JSON: {reason}.") from None


def check_record(record: Any, location: str, path: Path) -> tuple[str, dict[str, Any]]:
    if not isinstance(record, dict):
        raise ValueError(
            f"{path}, {location}: must be a JSON object with a value for each column; got {str(record)[:50]}."
        )
    return location, cast(dict[str, Any], record)


def json_column(values: list[Any]) -> NDArray[Any]:
    kinds: set[type] = set(map(type, values))
    if kinds in ({int}, {bool}):
        return np.array(values)
    if kinds <= {int, float, type(None)}:
        return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
    return np.array(
        ["" if value is None else value if isinstance(value, str) else json.dumps(value) for value in values],
        dtype=object,
    )


def read_parquet(path: Path, max_rows: int | None) -> Iterator[Table]:
    file, start = ParquetReader(path, max_columns=MAX_COLUMNS), 0
    empty = {name: np.empty(0) for name in file.names}
    batches: Iterable[dict[str, NDArray[Any]]] = file.batches(min(max_rows or CHUNK_ROWS, CHUNK_ROWS))
    if max_rows is None:
        parts = list(batches) or [empty]
        batches = [{name: np.concatenate([part[name] for part in parts]) for name in file.names}]
    for columns in batches if file.num_rows else [empty]:
        num_rows = len(columns[file.names[0]])
        yield Table(path, columns, Locations(start, num_rows))
        start += num_rows


def read_npy(path: Path, max_rows: int | None) -> Iterator[Table]:
    header = read_npy_header(path)
    num_rows, num_columns = header.shape
    if num_columns > MAX_COLUMNS:
        raise ValueError(f"{path} has {num_columns:,} columns; at most {MAX_COLUMNS:,} can be used.")
    order = "F" if header.fortran_order else "C"
    if max_rows is None or num_rows == 0:
        array = np.fromfile(path, header.dtype, num_rows * num_columns, offset=header.offset)
        array = array.reshape(header.shape, order=order)
    else:
        array = np.memmap(path, header.dtype, "r", header.offset, header.shape, order)
    size = max(num_rows, 1) if max_rows is None else max_rows
    for start in range(0, max(num_rows, 1), size):
        part = array[start : start + size]
        columns = {f"column{index + 1}": part[:, index] for index in range(num_columns)}
        yield Table(path, columns, Locations(start, len(part)))


READERS: dict[str, Callable[[Path, int | None], Iterator[Table]]] = {
    ".csv": read_csv, ".tsv": read_csv, ".txt": read_csv, ".json": read_json_lines, ".jsonl": read_json_lines,
    ".ndjson": read_json_lines, ".parquet": read_parquet, ".npy": read_npy,
}  # fmt: skip


def choose_columns(table: Table, *, exclude: Sequence[str] = ()) -> tuple[list[str], list[str]]:
    """Return the names of the columns that are features, and a note on the others.

    Text, dates, truth values and empty columns are left out, and whole numbers in a column whose name is that of an
    identifier, such as ``id`` or ``user_id`` or the index that pandas writes. A column of numbers with some text in it
    raises an error.
    """
    names, others = list[str](), list[str]()
    for name in (name for name in table.columns if name not in exclude):
        kind = column_kind(table, name)
        names.append(name) if kind == "numbers" else others.append(f"{name} ({kind})")
    if not names:
        besides = f" besides {list_names(exclude)}" if exclude else ""
        columns = list_names(others or table.columns) or "none"
        raise ValueError(f"{table.path} has no column of numbers{besides}; its columns are {columns}.")
    return names, [f"left out: {list_names(others)}; choose columns with --columns"] if others else []


def column_kind(table: Table, name: str) -> str:
    column = table.columns[name]
    if column.dtype.kind == "b":
        return "true or false"
    present = column[~table.is_missing(name)]
    if len(present) == 0:
        return "empty"
    if column.dtype.kind not in "iuf":
        if 2 * sum(map(is_number_or_missing, present)) < len(present):
            return "dates" if all(map(is_date, present[:10])) else "text"
        column = table.numbers([name])[:, 0]  # raises for the first text
    return "ids" if ID_NAME.fullmatch(name) and is_whole(column) else "numbers"


def is_date(text: str) -> bool:
    try:
        datetime.fromisoformat(text.strip())
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
    notes: Sequence[str] = ()
    """Remarks for the user: how the file was read, which columns were left out."""

    def arrays(self) -> list[NDArray[np.float64]]:
        """Return the features of each set."""
        return [self.points[members] for members in self.members]


def group_rows(
    table: Table,
    *,
    columns: Sequence[str] = (),
    set_column: str | None,
    drop_missing: bool = False,
    keep_missing: bool = False,
    hint: str,
) -> RowSets:
    """Group the rows of a table into sets.

    Args:
        table: The rows.
        columns: Features; empty for all numeric columns.
        set_column: Column whose value names the set of a row; None for one set of all rows.
        drop_missing: Whether to drop rows with missing values instead of raising an error.
        keep_missing: Whether to keep them, with NaN where a value is missing, unless all of a row are.
        hint: Ends the error message for a missing value: what the user can do about it.
    """
    labels = [] if set_column is None else to_text(table.column(set_column))
    names, notes = list(columns), list[str]()
    if not names:
        names, notes = choose_columns(table, exclude=() if set_column is None else (set_column,))
    values = table.numbers(names)
    is_missing = np.isnan(values)
    if set_column is not None:
        is_missing = np.column_stack([is_missing, table.is_missing(set_column)])
    missing = is_missing.any(axis=1)
    if keep_missing:
        missing = is_missing[:, : len(names)].all(axis=1) | is_missing[:, len(names) :].any(axis=1)
    if missing.any() and not drop_missing and not keep_missing:
        row = int(missing.argmax())
        column = [*names, set_column][int(is_missing[row].argmax())]
        raise ValueError(
            f"{table.path}, {table.locations[row]}: a value is missing in column {column} (as in "
            f"{int(missing.sum())} of {table.num_rows} rows); {hint}."
        )
    rows = np.flatnonzero(~missing)
    if len(rows) == 0:
        raise ValueError(f"{table.path}: every row has a missing value; fill some in, or choose other columns.")
    labels = [ALL_ROWS] * len(rows) if set_column is None else [labels[row] for row in rows.tolist()]
    index_by_name = dict[str, int]()
    owners = np.array([index_by_name.setdefault(label, len(index_by_name)) for label in labels])
    members = np.split(np.argsort(owners, kind="stable"), np.cumsum(np.bincount(owners))[:-1])
    return RowSets(names, rows, values[rows], list(index_by_name), members, [*table.notes, *notes])


def to_text(column: NDArray[Any]) -> list[str]:
    """Return the values of a column as text, whole numbers without a decimal point."""
    if column.dtype.kind == "f" and is_whole(column):
        return [f"{value:.0f}" for value in column.tolist()]
    return list(map(str, column.tolist()))


def is_whole(column: NDArray[Any]) -> bool:
    """Return whether all numbers of a column are whole, apart from missing ones."""
    with np.errstate(invalid="ignore"):  # damaged files have signalling NaNs
        return column.dtype.kind in "iu" or bool((np.isnan(column) | (column == np.floor(column))).all())


Floats = NDArray[np.float64]
CHUNK_ROWS = 100_000
"""Number of rows in memory at a time."""
CHUNK_BYTES = 2**24
"""Number of bytes of a text file in memory at a time."""
MEMORY_FACTORS = {".gz": 100, ".json": 30, ".jsonl": 30, ".ndjson": 30}
"""Approximate memory needed to process a text file, as a multiple of its size."""


def fits_in_memory(path: Path) -> bool:
    """Return whether processing a table needs at most half of the machine's memory; True if it cannot be read."""
    if not path.is_file():
        return True
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return needed_memory(path) <= memory // 2
    except ValueError:
        return True


def needed_memory(path: Path) -> int:
    """Return the approximate number of bytes needed to process a table, from the header of its file or its size."""
    if path.suffix.lower() == ".npy":
        return 24 * math.prod(read_npy_header(path).shape)
    if path.suffix.lower() == ".parquet":
        return 3 * ParquetReader(path, max_columns=MAX_COLUMNS).memory
    return path.stat().st_size * MEMORY_FACTORS.get(path.suffix.lower(), 10)


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
    notes: Sequence[str] = ()
    """Remarks for the user: how the file was read, which columns were left out."""


def open_large_table(path: Path, columns: Sequence[str] = (), *, drop_missing: bool = False) -> LargeTable:
    """Open some columns of a table, or all numeric columns if none is named.

    Example:
        >>> path = Path(tempfile.mkdtemp()) / "points.csv"
        >>> _ = path.write_text(chr(10).join(["x,y", "1,2", "3,4"]))
        >>> [chunk.tolist() for chunk in open_large_table(path).chunks()]
        [[[1.0, 2.0], [3.0, 4.0]]]
    """
    parts = read_table_parts(path, CHUNK_ROWS)
    first = next((part for part in parts if part.num_rows), None)
    if first is None:
        raise ValueError(f"{path} has no rows.")
    names, notes = list(columns), list[str]()
    if not names:
        names, notes = choose_columns(first)
    check_space(path, len(names))
    with tempfile.TemporaryFile() as file:  # the memory map stays valid after the file is closed
        num_rows, num_dropped = write_numbers(chain([first], parts), names, file, drop_missing=drop_missing)
        if num_rows == 0:
            raise ValueError(f"{path}: every row has a missing value; fill some in, or choose other columns.")
        values = np.memmap(file, dtype=np.float64, mode="r", shape=(num_rows, len(names)))

    def chunks() -> Iterator[Floats]:
        for start in range(0, num_rows, CHUNK_ROWS):
            yield np.array(values[start : start + CHUNK_ROWS])

    return LargeTable(path, names, chunks, num_rows, num_dropped, [*first.notes, *notes])


def check_space(path: Path, num_columns: int) -> None:
    """Raise an error if the header of a file claims more numbers than the temporary folder has room for."""
    num_rows = 0
    if path.suffix.lower() == ".npy":
        num_rows = read_npy_header(path).shape[0]
    elif path.suffix.lower() == ".parquet":
        num_rows = ParquetReader(path).num_rows
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if 8 * num_rows * num_columns > free:
        raise ValueError(
            f"{path} has {num_rows:,} rows, which need {8 * num_rows * num_columns / 1e9:,.0f} GB in "
            f"{tempfile.gettempdir()}; {free / 1e9:,.0f} GB are free. Set TMPDIR to another folder."
        )


def write_numbers(
    parts: Iterable[Table], columns: Sequence[str], file: IO[bytes], *, drop_missing: bool
) -> tuple[int, int]:
    """Write the rows without missing values; return their number and the number of dropped rows."""
    num_rows = num_dropped = 0
    for table in parts:
        values = table.numbers(columns)
        missing = np.isnan(values).any(axis=1)
        if missing.any() and not drop_missing:
            row = int(missing.argmax())
            raise ValueError(
                f"{table.path}, {table.locations[row]}: a value is missing in column "
                f"{columns[int(np.isnan(values[row]).argmax())]}; fill it in, or drop such rows with --drop-missing."
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
