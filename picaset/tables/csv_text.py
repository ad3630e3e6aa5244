"""Reading of CSV files: pyarrow parses them, and Python's ``csv`` finds the line of a mistake for the error message.

The encoding (UTF-8, UTF-16 with a byte order mark, Windows-1252), the delimiter, decimal commas and the header are
detected from the beginning of the file. ``read_csv_parts`` reads a file as one part or in blocks of bytes.
"""

import codecs
import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from io import BytesIO
from itertools import islice
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from picaset.extras import require

MISSING = {"", "na", "n/a", "#n/a", "<na>", "nan", "-nan", "null", "none"}
"""Text that stands for a missing value, in lower case."""
MISSING_SPELLINGS = sorted({spell(text) for text in MISSING for spell in (str, str.upper, str.title)} | {"NaN", "n/A"})
"""Texts that pyarrow, which compares exactly, reads as missing values."""
DELIMITERS = ",;\t|"
SEPARATOR_LINE = re.compile(r'"?sep=.?"?', re.IGNORECASE)
"""First line by which Excel is told the delimiter."""
DECIMAL_COMMA = re.compile(r"\s*[+-]?\d*,\d+([eE][+-]?\d+)?\s*")
GROUPED = {
    mark: re.compile(rf"\s*[+-]?\d{{1,3}}(?:{re.escape(mark)}\d{{3}})+(?:{re.escape(point)}\d*)?\s*")
    for mark, point in ((",", "."), (".", ","))
}
"""Numbers with thousands separators, by the separator."""
SNIFFED_LINES = 100
"""Number of lines from which the delimiter and the decimal mark are detected."""
MAX_COLUMNS = 10_000
"""Largest number of columns of a table."""
MAX_LINE_BYTES = 2**26
"""Longest row of a file that is read in blocks."""
THREADED_BYTES = 2**26
"""Size of a block above which pyarrow parses it with several threads."""


@runtime_checkable
class ByteFile(Protocol):
    """A binary file, opened for reading."""

    def read(self, size: int = -1, /) -> bytes: ...
    def __iter__(self) -> Iterator[bytes]: ...


@dataclass(frozen=True)
class Layout:
    """Format of the rows of a file."""

    delimiter: str
    has_decimal_commas: bool
    names: Sequence[str]
    is_numeric: Sequence[bool] | None = None
    """Whether each column was read as numbers in the first block; None before it is read."""


@dataclass(frozen=True)
class CsvPart:
    """Consecutive rows of a CSV file."""

    name: str
    """Name of the file, for error messages."""
    data: bytes
    """Rows in UTF-8, without the header."""
    first_line: int
    """Line number of the first row."""
    layout: Layout

    def rows(self, *, blank: bool = False) -> Iterator[tuple[int, list[str]]]:
        """Yield the line number and the text of every row, with or without blank ones."""
        delimiter = self.layout.delimiter
        reader = csv.reader((line.decode() for line in BytesIO(self.data)), delimiter=delimiter, strict=True)
        try:
            for row in reader:
                if blank or any(map(str.strip, row)):
                    yield self.first_line + reader.line_num - 1, [self.normalize(value) for value in row]
        except csv.Error as error:
            line = self.first_line + reader.line_num - 1
            raise ValueError(f"{self.name}, line {line}: is not CSV: {error}.") from None

    def normalize(self, value: str) -> str:
        return replace_decimal_comma(value) if self.layout.has_decimal_commas else value

    @cached_property
    def lines(self) -> NDArray[np.int64]:
        """Line number of every row."""
        return np.fromiter((line for line, _ in self.rows()), dtype=np.int64)

    def parse(self) -> dict[str, NDArray[Any]]:
        """Return the columns: numbers with NaN where missing, or text."""
        if not self.data or self.data.isspace():
            return {name: np.empty(0) for name in self.layout.names}
        arrow: Any = require("pyarrow", extra="tables", purpose="reading CSV")
        try:
            table = self.parse_by_arrow(arrow)
        except arrow.ArrowInvalid as error:
            self.raise_first_mistake()
            if not any(self.layout.is_numeric or ()):
                raise ValueError(f"{self.name} is not CSV: {str(error).splitlines()[0]}") from None
            # A number that only Python reads, such as one between spaces, in a column of a later block.
            return replace(self, layout=replace(self.layout, is_numeric=[False] * len(self.layout.names))).parse()
        if b'"' in self.data and self.data.count(b'"') % 2:  # the search for the first is much faster than the count
            self.raise_first_mistake()  # pyarrow closes an open quote at the end of the file
        columns = dict(zip(self.layout.names, map(to_array, table.columns), strict=True))
        blank = np.arange(int(table.num_rows))
        for column in columns.values():
            blank = blank[is_blank(column[blank])]
            if len(blank) == 0:
                return columns
        is_nonblank = [any(map(str.strip, row)) for _, row in self.rows(blank=True) if len(row) == len(columns)]
        return {name: column[np.array(is_nonblank, dtype=np.bool_)] for name, column in columns.items()}

    def raise_first_mistake(self) -> None:
        """Raise an error for the first row that does not fit the layout; return if there is none."""
        names, is_numeric = self.layout.names, self.layout.is_numeric or ()
        for line, row in self.rows():
            if len(row) != len(names):
                trailing = len(row) > len(names) and not any(map(str.strip, row[len(names) :]))
                hint = f" Remove the {self.layout.delimiter!r} at the end, or name its column." if trailing else ""
                raise ValueError(f"{self.name}, line {line}: expected {len(names)} values; got {len(row)}.{hint}")
            for name, value, numeric in zip(names, row, is_numeric, strict=False):
                if numeric and not is_number_or_missing(value):
                    raise ValueError(f"{self.name}, line {line}: column {name} has {value!r}, which is not a number.")

    def skip_blank(self, row: Any) -> str:
        return "error" if row.text.strip(f" \t\r\n{self.layout.delimiter}") else "skip"

    def parse_by_arrow(self, arrow: Any) -> Any:
        arrow_csv: Any = require("pyarrow.csv", extra="tables", purpose="reading CSV")
        layout, types = self.layout, None
        if layout.is_numeric is not None:
            kinds = (arrow.float64() if numeric else arrow.string() for numeric in layout.is_numeric)
            types = dict(zip(layout.names, kinds, strict=True))
        return arrow_csv.read_csv(
            arrow.BufferReader(self.data),
            read_options=arrow_csv.ReadOptions(
                column_names=layout.names, use_threads=len(self.data) > THREADED_BYTES, block_size=2**22
            ),
            parse_options=arrow_csv.ParseOptions(
                delimiter=layout.delimiter, newlines_in_values=b'"' in self.data, invalid_row_handler=self.skip_blank
            ),
            convert_options=arrow_csv.ConvertOptions(
                column_types=types,
                null_values=MISSING_SPELLINGS,
                true_values=[],
                false_values=[],
                timestamp_parsers=["%%"],  # none: dates stay as they are written
                decimal_point="," if layout.has_decimal_commas else ".",
            ),
        )


def read_csv_parts(
    file: ByteFile, name: str, block_bytes: int = -1
) -> Iterator[tuple[CsvPart, dict[str, NDArray[Any]], list[str]]]:
    """Yield the rows of a file in blocks of about ``block_bytes``, or as one if -1, their columns, and notes."""
    layout, first_line = None, 1
    for encoding, block in utf8_blocks(file, name, block_bytes):
        data = block.replace(b"\r", b"\n") if b"\r" in block and b"\n" not in block else block
        num_lines = data.count(b"\n") if block_bytes > 0 else 0  # of the only block, it is not needed
        num_header_lines, num_comments, notes = 0, 0, list[str]()
        if b"\0" in data:
            raise ValueError(f"{name} is not a text file: it contains a zero byte. Save it as CSV in UTF-8.")
        if layout is None:
            data, num_separators = skip_separator(data)
            lines = first_lines(data)
            if not lines:
                first_line += num_lines
                continue
            data, num_comments = skip_comments(data, lines)
            if num_comments:
                lines = first_lines(data)
                notes.append(f"{name} begins with a comment (#), which is skipped")
            num_comments += num_separators
            layout = detect_layout(lines, name)
            data = join_spaces(data) if layout.delimiter == " " else data
            layout, num_header_lines = read_header(CsvPart(name, data, first_line + num_comments, layout))
            for _ in range(num_header_lines):
                data = data[data.find(b"\n") + 1 or len(data) :]
        elif layout.delimiter == " ":
            data = join_spaces(data)
        part = CsvPart(name, data, first_line + num_comments + num_header_lines, layout)
        columns = part.parse()
        if layout.is_numeric is None and len(columns[layout.names[0]]):
            layout = replace(layout, is_numeric=[column.dtype.kind in "iuf" for column in columns.values()])
        notes += [f"{name} is read as Windows-1252 text"] if encoding == "cp1252" else []
        for column_name, column in columns.items():
            if column.dtype.kind == "O":
                numbers, example = numbers_from_text(column, decimal_comma=layout.has_decimal_commas)
                columns[column_name] = column if numbers is None else numbers
                if example:
                    notes.append(f"thousands separators as in {example} (column {column_name}) are removed")
        yield part, columns, notes
        first_line += num_lines
    if layout is None:
        raise ValueError(f"{name} is empty.")


def first_lines(data: bytes) -> list[str]:
    """Return the first lines that are not blank."""
    return [line.decode() for line in islice(filter(bytes.strip, BytesIO(data)), SNIFFED_LINES)]


def skip_separator(data: bytes) -> tuple[bytes, int]:
    """Remove the line that tells Excel the delimiter; return the number of lines removed, with blank ones before it.

    Example:
        >>> skip_separator(b"sep=;\\nx;y\\n")
        (b'x;y\\n', 1)
    """
    end = data.find(b"\n", len(data) - len(data.lstrip())) + 1 or len(data)
    if len(data) > end and SEPARATOR_LINE.fullmatch(data[:end].decode().strip()):
        return data[end:], data[:end].count(b"\n")
    return data, 0


def skip_comments(data: bytes, lines: Sequence[str]) -> tuple[bytes, int]:
    """Remove lines that begin with # from the beginning of a text; return their number, with blank ones among them.

    The last of them has the names of the columns, as NumPy writes them, if it has as many values as the next row and
    this is no header followed by numbers. Then it stays, without the #.

    Example:
        >>> lines = ["# one station", "# x,y", "1,2"]
        >>> skip_comments(chr(10).join(lines).encode(), lines)
        (b'x,y\\n1,2', 1)
    """
    number = next((index for index, line in enumerate(lines) if not line.startswith("#")), 0)
    if number == 0:
        return data, 0
    delimiter = detect_delimiter([line.strip("\r\n") for line in lines[number:]])
    names, first, *others = (
        line.split() if delimiter == " " else line.split(delimiter)
        for line in (lines[number - 1][1:], *lines[number : number + 2])
    )
    has_names = len(names) == len(first) > 1 and (not is_header(first) or all(map(is_header, others)))
    removed = 0
    while number > has_names:
        line, _, data = data.partition(b"\n")
        removed, number = removed + 1, number - bool(line.strip())
    if has_names and names[0].strip():
        data = data.lstrip().removeprefix(b"#").lstrip()
    return data, removed


def join_spaces(data: bytes) -> bytes:
    return b"\n".join(b" ".join(line.split()) for line in data.split(b"\n"))


def utf8_blocks(file: ByteFile, name: str, size: int) -> Iterator[tuple[str, bytes]]:
    """Yield the encoding of a file, and its text as UTF-8 in blocks of about ``size`` bytes, or as one block if -1.

    A block ends with a row.
    """
    pending, encoding, decoder = b"", "", None
    try:
        while data := file.read(size):
            if decoder is None:
                encoding = detect_encoding(data, is_whole=size < 0)
                decoder = codecs.getincrementaldecoder(encoding)()
            if not data.isascii() or encoding == "utf-16" or decoder.getstate()[0]:
                data = decoder.decode(data).encode()
            pending = pending + data if pending else data
            end = len(pending) if size < 0 else last_row_end(pending)
            if end:
                yield encoding, pending[:end]
                pending = pending[end:]
            if len(pending) > max(MAX_LINE_BYTES, size):
                raise ValueError(f"{name} has a row of more than {len(pending):,} bytes; is a quote not closed?")
        pending += b"" if decoder is None else decoder.decode(b"", final=True).encode()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{name} is not text in UTF-8 or Windows-1252 ({error.reason} at byte {error.start}). Save it as UTF-8."
        ) from None
    if pending:
        yield encoding, pending


def detect_encoding(data: bytes, *, is_whole: bool) -> str:
    """Return the encoding of a text from its first bytes.

    Example:
        >>> [detect_encoding("caf\\u00e9".encode(name), is_whole=True) for name in ("utf-8", "cp1252", "utf-16")]
        ['utf-8', 'cp1252', 'utf-16']
    """
    if data.startswith(codecs.BOM_UTF8):
        return "utf-8-sig"
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if data.isascii():
        return "utf-8"
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data, final=is_whole)
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8"


def last_row_end(data: bytes) -> int:
    """Return the position after the last line break that is not inside quotes; 0 if there is none.

    Example:
        >>> last_row_end(b'1,2' + bytes([10]) + b'3,"4' + bytes([10]) + b'5')
        4
    """
    end = data.rfind(b"\n") + 1
    if data.count(b'"', 0, end) % 2 == 0:
        return end
    values = np.frombuffer(data, dtype=np.uint8)
    is_quoted = np.logical_xor.accumulate(values == ord('"'))
    ends = np.flatnonzero((values == ord("\n")) & ~is_quoted)
    return int(ends[-1]) + 1 if len(ends) else 0


def detect_layout(lines: Sequence[str], name: str) -> Layout:
    """Return the layout of a file from its first lines; the names of its columns are not yet known."""
    lines = [line.strip("\r\n") for line in lines]
    delimiter = detect_delimiter(lines)
    if lines[0].count(delimiter) >= MAX_COLUMNS:
        raise ValueError(
            f"{name} has {lines[0].count(delimiter) + 1:,} columns; at most {MAX_COLUMNS:,} can be used. Keep "
            "some of them, or write one element per row."
        )
    return Layout(delimiter, delimiter == ";" and find_decimal_commas(lines), [])


def read_header(part: CsvPart) -> tuple[Layout, int]:
    """Return the layout with the names of the columns, and the number of lines before the first row."""
    line, first = next(part.rows(), (0, list[str]()))
    if not first:
        raise ValueError(f"{part.name} has no rows: all its values are blank.")
    if not is_header(first):
        return replace(part.layout, names=[f"column{index + 1}" for index in range(len(first))]), 0
    names = [value.strip() for value in first]
    if not names[0] and "index" not in names:
        names[0] = "index"  # as pandas writes it
    names = [name or f"column{index + 1}" for index, name in enumerate(names)]
    unique_names = set[str]()
    for index, name in enumerate(names):
        if name in unique_names:
            raise ValueError(f"{part.name}, line {line}: column {index + 1} must have a unique name; got {name!r}.")
        unique_names.add(name)
    return replace(part.layout, names=names), line - part.first_line + 1


def is_header(row: Sequence[str]) -> bool:
    """Return whether the first row of a file has the names of the columns.

    Numbers are data, unless they are the numbers by which pandas names the columns of an array.

    Example:
        >>> rows = ("x,y", "1,2", "5.1,3.5,setosa", "country,2019,2020", ",0,1", "0,1,2")
        >>> [is_header(row.split(",")) for row in rows]
        [True, False, False, True, True, True]
    """
    values = [value.strip() for value in row]
    counted = [str(index) for index in range(len(values))]
    if (len(values) > 2 and values == counted) or (len(values) > 1 and values == ["", *counted[:-1]]):
        return True
    if all(map(is_number_or_missing, values)):
        return False
    numbers = list(filter(is_number, values))
    return all(map(str.isdigit, numbers)) and len(set(numbers)) == len(numbers)


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


def find_decimal_commas(lines: Sequence[str]) -> bool:
    """Return whether a table separated by semicolons has decimal commas (1,5) and no decimal points."""
    values = [value for line in lines for value in line.split(";") if not GROUPED["."].fullmatch(value)]
    return any(map(DECIMAL_COMMA.fullmatch, values)) and not any("." in value and is_number(value) for value in values)


def replace_decimal_comma(value: str) -> str:
    return value.replace(",", ".") if DECIMAL_COMMA.fullmatch(value) else value


def to_array(column: Any) -> NDArray[Any]:
    """Return a column of pyarrow as numbers, NaN where missing, or as text."""
    kind = str(column.type)
    if kind in ("int64", "double"):
        return np.asarray(column.to_numpy())
    return np.array(column.cast("string").fill_null("").to_numpy(), dtype=object)


def is_blank(values: NDArray[Any]) -> NDArray[np.bool_]:
    if values.dtype.kind != "O":
        return np.isnan(values)
    return np.array([not value.strip() for value in values], dtype=np.bool_)


def numbers_from_text(values: NDArray[Any], *, decimal_comma: bool = False) -> tuple[NDArray[np.float64] | None, str]:
    """Return text as numbers, NaN where missing, and an example of thousands separators; None if some is not a number.

    Example:
        >>> values, example = numbers_from_text(np.array(["NA", " 1,234.5", "7"], dtype=object))
        >>> values.tolist(), example
        ([nan, 1234.5, 7.0], '1,234.5')
    """
    mark = "." if decimal_comma else ","
    numbers, example = np.full(len(values), np.nan), ""
    for index, value in enumerate(values):
        if not is_missing(value):
            if GROUPED[mark].fullmatch(value):
                example = example or value.strip()
                value = value.replace(mark, "")
            try:
                numbers[index] = float(value.replace(",", ".") if decimal_comma else value)
            except ValueError:
                return None, ""
            if "_" in value:
                return None, ""
    return numbers, example


def is_number_or_missing(text: str) -> bool:
    return is_number(text) or is_missing(text)


def is_missing(text: str) -> bool:
    return text.strip().lower() in MISSING


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text  # Python reads 2021_03 as 202103
