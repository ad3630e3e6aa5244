"""Array files, checked against a schema and against their own size before any number is read.

    read_npy_header            shape, dtype and position of an array in NumPy's format
    read_safetensors_header    dtype, shape and position of every tensor of a safetensors file
    ParquetReader              columns of a Parquet file, in batches of rows

Whatever the bytes are, the result is a description that fits the file or a ``ValueError`` that names the file.
"""

import json
import math
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from picaset.extras import require
from picaset.files import check_regular

MAX_HEADER_BYTES = 100_000_000
"""Longest header of a safetensors file, as in the safetensors library."""
SAFETENSORS_ITEM_BYTES = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U64": 8, "U32": 4, "U16": 2,
    "U8": 1, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "C64": 8,
}  # fmt: skip


class NpyHeader(NamedTuple):
    """Layout of a two-dimensional array of numbers in a .npy file."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    offset: int
    """Position of the first number, in bytes."""
    fortran_order: bool


def read_npy_header(path: Path, *, kinds: str = "iufb") -> NpyHeader:
    """Return the layout of the array (N, D) in a .npy file; ``kinds`` are the accepted kinds of NumPy data types."""
    check_regular(path)
    size = path.stat().st_size
    with path.open("rb") as file:
        try:
            if file.read(2) == b"PK":
                raise ValueError("it is a zip archive: take an array out of the .npz and save it with np.save")
            file.seek(0)
            read_header = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[npy.read_magic(file)]
            shape, fortran_order, dtype = read_header(file)
            num_bytes = math.prod(shape) * dtype.itemsize
        except Exception as error:  # NumPy parses the header as Python, which fails in many ways
            reason = str(error).splitlines()[0] if isinstance(error, ValueError) and str(error) else "damaged header"
            raise ValueError(f"{path} is not a complete .npy file of numbers ({reason}).") from None
        offset = file.tell()
    lengths_fit = len(shape) == 2 and all(
        type(length) is int and length >= least for length, least in zip(shape, (0, 1), strict=True)
    )
    if not lengths_fit or dtype.kind not in kinds:
        raise ValueError(f"{path} must hold numbers of shape (rows, columns); got {dtype} of {shape}.")
    if offset + num_bytes > size:
        raise ValueError(
            f"{path} is not a complete .npy file: its header claims shape {shape} of {dtype}, {num_bytes:,} bytes; the "
            f"file has {size - offset:,}. Write it again."
        )
    return NpyHeader((shape[0], shape[1]), dtype, offset, bool(fortran_order))


class TensorEntry(NamedTuple):
    """Description of one tensor in the header of a safetensors file."""

    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


def read_safetensors_header(path: Path) -> tuple[int, dict[str, TensorEntry]]:
    """Return the position of the data of a safetensors file in bytes, and its tensors by name."""
    check_regular(path)
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 0 < length <= min(size - 8, MAX_HEADER_BYTES):
            raise ValueError(f"{path} is not a complete safetensors file.")
        try:
            header: Any = json.loads(file.read(length))
        except (ValueError, RecursionError):
            raise ValueError(f"{path} is not a complete safetensors file; its header is not JSON.") from None
    if not isinstance(header, dict):
        raise ValueError(f"{path} is not a safetensors file; its header is not a JSON object.")
    entries = dict[str, TensorEntry]()
    for name, values in cast(dict[str, Any], header).items():
        if name != "__metadata__":
            entries[name] = read_entry(values, size - 8 - length, where=f"{path}, tensor {name!r}")
    return 8 + length, entries


def read_entry(values: Any, num_bytes: int, *, where: str) -> TensorEntry:
    match values:
        case {"dtype": str(dtype), "shape": [*shape], "data_offsets": [start, stop]} if all(
            type(length) is int and length >= 0 for length in (*shape, start, stop)
        ):
            expected = math.prod(shape) * SAFETENSORS_ITEM_BYTES.get(dtype, 0)
            if not start <= stop <= num_bytes or (expected and stop - start != expected):
                raise ValueError(
                    f"{where} is not a complete tensor: {dtype} of shape {tuple(shape)} at bytes {start} to {stop} of "
                    f"{num_bytes}. Write the file again."
                )
            return TensorEntry(dtype, tuple(shape), (start, stop))
        case _:
            raise ValueError(
                f"{where} must have dtype (text), shape (whole numbers) and data_offsets (two whole numbers); got "
                f"{str(values)[:100]}."
            )


class ParquetReader:
    """Columns of a Parquet file as arrays: numbers with NaN where missing, or text with "" where missing."""

    def __init__(self, path: Path, *, max_columns: int | None = None) -> None:
        check_regular(path)
        self.path = path
        self.arrow: Any = require("pyarrow", extra="tables", purpose="reading Parquet")
        parquet: Any = require("pyarrow.parquet", extra="tables", purpose="reading Parquet")
        with self.clear_errors():
            self.file: Any = parquet.ParquetFile(path)
            schema = self.file.schema_arrow
            self.names = [str(name) for name in schema.names]
            self.types = dict(zip(self.names, schema.types, strict=True))
            self.num_rows = int(self.file.metadata.num_rows)
            groups = [self.file.metadata.row_group(index) for index in range(self.file.metadata.num_row_groups)]
            in_groups = sum(group.num_rows for group in groups)
            unpacked = sum(group.total_byte_size for group in groups)
        if not self.names:
            raise ValueError(f"{path} has no columns.")
        if max_columns is not None and len(self.names) > max_columns:
            raise ValueError(f"{path} has {len(self.names):,} columns; at most {max_columns:,} can be used.")
        for name, count in Counter(self.names).items():
            if count > 1:
                raise ValueError(f"{path}: every column must have its own name; {count} have the name {name!r}.")
        if self.num_rows < 0 or self.num_rows != in_groups:
            raise ValueError(
                f"{path} is not a complete Parquet file: it claims {self.num_rows} rows and has {in_groups}."
            )
        self.memory = max(unpacked, 8 * self.num_rows * len(self.names))
        """Bytes of all columns in memory, about."""

    @contextmanager
    def clear_errors(self) -> Generator[None]:
        try:
            yield
        except Exception as error:  # of many classes, and from several libraries below pyarrow
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise ValueError(f"{self.path} is not a complete Parquet file: {reason}") from None

    def is_numeric(self, name: str) -> bool:
        types, kind = self.arrow.types, self.types[name]
        return any(test(kind) for test in (types.is_integer, types.is_floating, types.is_decimal))

    def batches(self, size: int, names: Sequence[str] | None = None) -> Iterator[dict[str, NDArray[Any]]]:
        """Yield the named columns, or all, of at most ``size`` rows at a time."""
        names = self.names if names is None else list(names)
        with self.clear_errors():
            for batch in self.file.iter_batches(batch_size=size, columns=names, use_threads=False):
                yield {name: self.to_array(batch.column(name)) for name in names}

    def to_array(self, column: Any) -> NDArray[Any]:
        types, kind = self.arrow.types, column.type
        if types.is_integer(kind) or types.is_floating(kind) or (types.is_boolean(kind) and not column.null_count):
            return np.asarray(column.to_numpy(zero_copy_only=False))
        if types.is_decimal(kind) or types.is_boolean(kind) or types.is_null(kind):
            return np.array([np.nan if value is None else float(value) for value in column.to_pylist()])
        return np.array(["" if value is None else str(value) for value in column.to_pylist()], dtype=object)
