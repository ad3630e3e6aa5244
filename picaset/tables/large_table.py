"""Tables too large for memory: the columns of numbers that are wanted, as a source that is read in chunks.

The file is read once, and the numbers are kept in a temporary file without a name, since they are needed many times.
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

from picaset.tables.table import Table, columns_of_numbers, table_parts

Floats = NDArray[np.float64]
LINES = 100_000
"""Rows that are read at a time."""
IN_MEMORY = {".csv": 20, ".tsv": 20, ".txt": 20, ".parquet": 20, ".npy": 4}
"""How many times as large as its file a table is in memory, about, while it is worked on."""


def fits_in_memory(path: Path) -> bool:
    """Whether a table can be expected to take no more than half of this machine's memory; one that is not there can."""
    if not path.is_file():
        return True
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return path.stat().st_size * IN_MEMORY.get(path.suffix.lower(), 1) <= memory // 2


@dataclass(frozen=True)
class LargeTable:
    """The numbers of some columns, read in chunks.

    Args:
        path: Where the table is.
        columns: Which columns, in their order.
        chunks: A new iterator of chunks (n, D) at every call.
        num_rows: Rows that have all values.
        num_dropped: Rows with missing values, which are left out.
    """

    path: Path
    columns: Sequence[str]
    chunks: Callable[[], Iterator[Floats]]
    num_rows: int
    num_dropped: int


def open_large_table(path: Path, columns: Sequence[str] = (), *, drop_missing: bool = False) -> LargeTable:
    """Open the columns of a table, all those of numbers if none is named.

    Example:
        >>> path = Path(tempfile.mkdtemp()) / "points.csv"
        >>> _ = path.write_text(chr(10).join(["x,y", "1,2", "3,4"]))
        >>> [chunk.tolist() for chunk in open_large_table(path).chunks()]
        [[[1.0, 2.0], [3.0, 4.0]]]
    """
    parts = table_parts(path, LINES)
    first = next(parts)
    chosen = list(columns) or columns_of_numbers(first, but=None)
    with tempfile.TemporaryFile() as kept:  # what is mapped of it outlives its closing
        rows, left_out = keep_numbers(chain([first], parts), chosen, kept, drop_missing=drop_missing)
        if rows == 0:
            reason = "every row has a missing value; nothing is left to cluster" if left_out else "it has no rows"
            raise ValueError(f"{path}: {reason}.")
        held = np.memmap(kept, dtype=np.float64, mode="r", shape=(rows, len(chosen)))

    def chunks() -> Iterator[Floats]:
        for start in range(0, rows, LINES):
            yield held[start : start + LINES]

    return LargeTable(path, chosen, chunks, rows, left_out)


def keep_numbers(
    parts: Iterable[Table], columns: Sequence[str], file: IO[bytes], *, drop_missing: bool
) -> tuple[int, int]:
    """Write the rows that have all values, and count these and the others."""
    rows = left_out = 0
    for table in parts:
        values = table.numbers(columns)
        missing = np.isnan(values).any(axis=1)
        if missing.any() and not drop_missing:
            raise ValueError(
                f"{table.path}, {table.places[int(missing.argmax())]}: a value is missing; fill it in, or leave such "
                "rows out with --drop-missing."
            )
        write(np.ascontiguousarray(values[~missing]), file)
        rows, left_out = rows + int((~missing).sum()), left_out + int(missing.sum())
    return rows, left_out


def write(values: Floats, file: IO[bytes]) -> None:
    try:
        file.write(values.tobytes())
        file.flush()
    except OSError as error:
        raise OSError(
            error.errno,
            f"the numbers of the table could not be kept in {tempfile.gettempdir()} ({error.strerror}); nothing is "
            "left there. Name another folder by TMPDIR.",
        ) from None
