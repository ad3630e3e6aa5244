"""Tables that are larger than memory: their numeric columns, read in chunks.

The file is parsed once into an unnamed temporary file of float64, since fitting reads the numbers many times.
"""

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from picaset.tables.table import Table, numeric_columns, read_table_parts

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
