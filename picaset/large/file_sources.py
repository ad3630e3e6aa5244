"""Files as sources of large sets, and ``open_source``, which turns every supported input into a source.

    .npy            an array (N, D)
    .safetensors    a tensor (N, D); ``from_safetensors(path, tensor=...)`` selects one of several
    .parquet        one row per element, one column per feature; ``from_parquet(path, columns=...)`` selects columns

The format is chosen by the suffix. Files are memory-mapped or read in parts, never as a whole.
"""

import json
import mmap
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from picaset.extras import require
from picaset.large.sources import CALLER, CHUNKS_AHEAD, ArrayRows, FromFunction, InMemory, Rows, Source, check_rows
from picaset.sets import SetBatch

SAFETENSORS_DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
    "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8,
}  # fmt: skip


class FileRows(Rows):
    """Numbers stored row after row in a memory-mapped file, which copies nothing.

    The operating system is advised to read the next chunks while the current one is processed.
    """

    chunks_ahead = 0  # the operating system prefetches

    def __init__(self, path: Path, *, offset: int, dtype: torch.dtype, count: int, width: int) -> None:
        super().__init__(str(path), count=count, width=width)
        self.path, self.offset, self.dtype = path, offset, dtype
        self.shape = (count, width)
        self.row_bytes = width * dtype.itemsize
        self.mapped: tuple[tuple[int, int], mmap.mmap] | None = None

    def rows(self, size: int) -> Iterator[Tensor]:
        count, width = self.shape
        with self.path.open("rb") as file:
            mapping = self.mapping(file) if count * width else None
            for start in range(0, count, size):
                stop = min(start + size, count)
                # Reading a mapping beyond the end of its file would kill the process.
                self.check_length(file, stop)
                if mapping is None:
                    yield torch.empty(stop - start, width, dtype=self.dtype)
                    continue
                self.advise(mapping, stop, stop + CHUNKS_AHEAD * size)
                begin, numbers = self.offset + start * self.row_bytes, (stop - start) * width
                yield torch.frombuffer(mapping, dtype=self.dtype, count=numbers, offset=begin).view(-1, width)

    def check_length(self, file: IO[bytes], stop: int) -> None:
        if os.fstat(file.fileno()).st_size < self.offset + stop * self.row_bytes:
            raise ValueError(
                f"{CALLER}: {self.path} is too short for its {self.shape[0]} elements; it may be truncated. "
                "Write it again."
            )

    def mapping(self, file: IO[bytes]) -> mmap.mmap:
        """Return the mapped file, which is mapped again only if another file has replaced it."""
        status = os.fstat(file.fileno())
        identity = (status.st_dev, status.st_ino)
        if self.mapped is None or self.mapped[0] != identity:
            self.check_length(file, self.shape[0])
            length = self.offset + self.shape[0] * self.row_bytes
            # Private, so that a transform that writes in place does not change the file.
            self.mapped = identity, mmap.mmap(file.fileno(), length, access=mmap.ACCESS_COPY)
        return self.mapped[1]

    def advise(self, mapping: mmap.mmap, start: int, stop: int) -> None:
        """Advise the operating system to read these rows."""
        if not hasattr(mmap, "MADV_WILLNEED"):
            return
        first = (self.offset + start * self.row_bytes) // mmap.PAGESIZE * mmap.PAGESIZE
        last = min(self.offset + stop * self.row_bytes, len(mapping))
        if first < last:
            mapping.madvise(mmap.MADV_WILLNEED, first, last - first)


class ParquetRows(Rows):
    """A Parquet file, read a few row groups at a time."""

    def __init__(self, path: Path, columns: Sequence[str] | None) -> None:
        parquet: Any = require("pyarrow.parquet", extra="all", purpose="reading Parquet")
        try:
            self.file = parquet.ParquetFile(path)
        except Exception as error:
            if type(error).__module__.split(".")[0] != "pyarrow":
                raise
            raise ValueError(f"{CALLER}: {path} is not a complete Parquet file ({error}).") from None
        available = [str(name) for name in self.file.schema_arrow.names]
        self.columns = available if columns is None else list(columns)
        missing = [name for name in self.columns if name not in available]
        if missing:
            raise ValueError(f"{CALLER}: {path} has no column {missing[0]!r}; it has {', '.join(available)}.")
        super().__init__(str(path), count=int(self.file.metadata.num_rows), width=len(self.columns))

    def rows(self, size: int) -> Iterator[Tensor]:
        return FromFunction(self.batches).rows(size)

    def batches(self) -> Iterator[NDArray[Any]]:
        for batch in self.file.iter_batches(batch_size=65536, columns=self.columns):
            columns = [np.asarray(column.to_numpy(zero_copy_only=False)) for column in batch.columns]
            for name, column in zip(self.columns, columns, strict=True):
                if column.dtype.kind not in "fiu":
                    raise TypeError(f"{CALLER}: column {name!r} of {self.name} must hold numbers; got {column.dtype}.")
            yield np.stack(columns, axis=1)


def open_source(source: object, mask: Tensor | None = None) -> Source:
    """Return the source of a tensor, an array, a path or a function; a source is returned as it is."""
    if mask is not None and not isinstance(source, Tensor):
        raise TypeError(f"{CALLER}: a mask requires a tensor as source; got a mask and {type(source).__name__}.")
    if isinstance(source, Source):
        return source
    if isinstance(source, Tensor):
        return InMemory(source, mask)
    if isinstance(source, np.ndarray):
        return ArrayRows(cast(NDArray[Any], source))
    if isinstance(source, str | os.PathLike):
        return open_file(Path(cast("str | os.PathLike[str]", source)))
    if isinstance(source, Iterator):
        raise TypeError(
            f"{CALLER}: a {type(cast(object, source)).__name__} can be read only once, and a large set is read several "
            "times. Pass a function that returns a new one at every call."
        )
    if isinstance(source, SetBatch):
        raise TypeError(
            f"{CALLER}: a source is one set, such as a tensor (N, D); got a SetBatch. Call the operator itself with it."
        )
    if callable(source):
        return FromFunction(source)
    raise TypeError(
        f"{CALLER}: a source must be a tensor, an array, the path of a file, or a function that returns an iterator of "
        f"chunks; got {type(source).__name__}."
    )


def open_file(path: Path) -> Source:
    if not path.exists():
        raise FileNotFoundError(f"{CALLER}: {path} does not exist.")
    if path.suffix == ".npy":
        return from_npy(path)
    if path.suffix == ".safetensors":
        return from_safetensors(path)
    if path.suffix == ".parquet":
        return from_parquet(path)
    raise ValueError(f"{CALLER}: {path} must end in .npy, .safetensors or .parquet; read other formats by a function.")


def from_npy(path: Path) -> Source:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{CALLER}: {path} is not a complete .npy file of numbers ({error}).") from None
    check_rows(array, str(path))
    if not array.flags.c_contiguous or not array.dtype.isnative or not isinstance(array, np.memmap):
        return ArrayRows(array, str(path))
    memmap = cast(Any, array)
    dtype = torch.as_tensor(np.empty(0, memmap.dtype)).dtype
    return FileRows(path, offset=int(memmap.offset), dtype=dtype, count=memmap.shape[0], width=memmap.shape[1])


def from_safetensors(path: str | os.PathLike[str], tensor: str | None = None) -> Source:
    """Return the source of one tensor (N, D) of a safetensors file; ``tensor`` is its name if the file has several."""
    path = Path(path)
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        try:
            if not 0 < length <= size - 8:
                raise ValueError
            header = cast(dict[str, Any], json.loads(file.read(length)))
        except ValueError:
            raise ValueError(f"{CALLER}: {path} is not a complete safetensors file.") from None
    header.pop("__metadata__", None)
    names = ", ".join(sorted(header))
    if tensor is None and len(header) != 1:
        raise ValueError(
            f"{CALLER}: {path} holds {len(header)} tensors ({names}); choose one by from_safetensors(path, tensor=...)."
        )
    name = next(iter(header)) if tensor is None else tensor
    if name not in header:
        raise ValueError(f"{CALLER}: {path} has no tensor {name!r}; it has {names}.")
    dtype, shape, (start, stop) = (header[name][key] for key in ("dtype", "shape", "data_offsets"))
    if len(shape) != 2 or dtype not in SAFETENSORS_DTYPES:
        raise ValueError(
            f"{CALLER}: tensor {name!r} of {path} must hold numbers and have shape (N, D); got {dtype} and "
            f"{tuple(shape)}."
        )
    if 8 + length + stop > size:
        raise ValueError(f"{CALLER}: {path} is not a complete safetensors file.")
    offset, dtype = 8 + length + start, SAFETENSORS_DTYPES[dtype]
    return FileRows(path, offset=offset, dtype=dtype, count=shape[0], width=shape[1])


def from_parquet(path: str | os.PathLike[str], columns: Sequence[str] | None = None) -> Source:
    """Return the source of a Parquet file, with all of its columns or those listed."""
    return ParquetRows(Path(path), columns)
