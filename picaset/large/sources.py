"""Sources of large sets: anything that can be read repeatedly, chunk by chunk, in the same order.

    tensor (N, D) or (B, N, D)       in memory; gradients reach its elements
    NumPy array or memmap (N, D)     copied chunk by chunk
    function                         returns an iterator of chunks (n, D), a new one at every call
    .npy file                        an array (N, D)
    .safetensors file                a tensor (N, D); ``from_safetensors(path, tensor=...)`` selects one of several
    .parquet file                    one row per element; ``from_parquet(path, columns=...)`` selects columns
    .lance folder                    the same; ``from_lance(path, columns=...)``
    list of files                    one after the other
    Hugging Face dataset             one row per element; ``from_hugging_face(dataset, columns=...)``
    DataLoader, or any iterable      batches (n, D), the same ones in every pass
    Ray dataset, Dask collection     stay where they are; see partitions.py

``open_source`` accepts all of them; the format of a file is chosen by its suffix. Files are memory-mapped or read in
parts, never as a whole, by a thread ahead of the computation (``prefetch``). A checksum of a sample of every chunk is
compared with that of the first pass, so that a source that changes between passes is detected.

Dimensions:  B sets   N elements   n elements of a chunk   D features
"""

import mmap
import os
import queue
import threading
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar, cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Shaped
from numpy.typing import NDArray
from torch import Tensor

from picaset.array_files import ParquetReader, read_npy_header, read_safetensors_header
from picaset.checks import check_floating, check_mask, check_weights
from picaset.extras import require
from picaset.operators.state import presence
from picaset.sets import SetBatch

Item = TypeVar("Item")


def prefetch(items: Callable[[], Iterator[Item]], *, depth: int = 2) -> Generator[Item]:
    """Yield the items of ``items()``, computing up to ``depth`` of them ahead in a thread.

    An exception in the thread is raised here. The thread ends with the last item, or when this generator is closed.

    Args:
        items: Returns the iterator; called in the thread.
        depth: Number of items ahead; with 0 there is no thread.

    Example:
        >>> list(prefetch(lambda: iter("abc")))
        ['a', 'b', 'c']
    """
    if depth == 0:
        yield from items()
        return
    ready: queue.Queue[tuple[bool, Item | BaseException | None]] = queue.Queue(maxsize=depth)
    closed = threading.Event()

    def put(has_item: bool, value: Item | BaseException | None) -> bool:
        while not closed.is_set():
            try:
                ready.put((has_item, value), timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def produce() -> None:
        try:
            iterator = items()
            for item in iterator:
                if not put(True, item):
                    break
            if isinstance(iterator, Generator):
                iterator.close()
            put(False, None)
        except BaseException as error:  # raised again in the consuming thread
            put(False, error)

    thread = threading.Thread(target=produce, name="prefetch", daemon=True)
    thread.start()
    try:
        while True:
            has_item, value = ready.get()
            if has_item:
                yield value  # pyright: ignore[reportReturnType]
            elif isinstance(value, BaseException):
                raise value
            else:
                return
    finally:
        closed.set()
        thread.join()


CALLER = "picaset.stream"
CHUNKS_AHEAD = 2
"""Number of chunks that are read ahead."""
MIN_PREFETCHED_CHUNK = 1024
"""Elements of a chunk below which passing it between threads costs more than reading it."""
SAMPLED_ELEMENTS = 16
"""Elements of a chunk that enter its checksum, about."""


class Chunk(NamedTuple):
    """Consecutive elements of every set, (B, n, D), or of one of several sets, and the index of the first one."""

    start: int
    elements: Tensor
    mask: Tensor | None
    """Mask or weights, (B, n); None if every element is present."""
    set_index: int | None = None
    """The set of the elements, (1, n, D), if they are of one of several."""

    def select(self, tensors: Iterable[Tensor]) -> tuple[Tensor, ...]:
        """Return the rows of tensors (B, ...) that belong to the sets of this chunk."""
        index = self.set_index
        return tuple(tensor if index is None or len(tensor) == 1 else tensor[index : index + 1] for tensor in tensors)


class Source(ABC):
    """Elements that can be read repeatedly."""

    name: str
    """Name of the source in error messages."""
    sets: int = 1
    count: int | None = None
    """Number of elements of a set, absent ones included; None if unknown before the first pass."""
    width: int | None = None
    """Number of features; None if unknown before the first pass."""

    @abstractmethod
    def chunks(self, size: int) -> Iterator[Chunk]:
        """Yield chunks of ``size`` elements, the last one smaller: the same in every pass, none for an empty set."""


class SourceChangedError(RuntimeError):
    """A source returned other elements than in an earlier pass."""


class InMemory(Source):
    """A tensor; its chunks are views."""

    def __init__(
        self,
        elements: Float[Tensor, "*B N D"],
        mask: Bool[Tensor, "*B N"] | None = None,
        weights: Shaped[Tensor, "*B N"] | None = None,
    ) -> None:
        self.name = "the tensor"
        if elements.dim() not in (2, 3):
            raise ValueError(f"{CALLER}: a tensor must have shape (N, D) or (B, N, D); got {tuple(elements.shape)}.")
        check_floating(elements, caller=CALLER)
        if elements.dim() == 2:
            mask, weights = (None if part is None else part[None] for part in (mask, weights))
            elements = elements[None]
        if mask is not None:
            check_mask(mask, elements, caller=CALLER)
        if weights is not None:
            check_weights(weights, elements, caller=CALLER)
            weights = weights.detach()
        self.elements, self.mask = elements, presence(mask, weights, elements)
        self.sets, self.count, self.width = elements.shape
        self.version = elements._version

    def chunks(self, size: int) -> Iterator[Chunk]:
        if self.elements._version != self.version:
            raise SourceChangedError(
                "the tensor changed between passes: it was modified in place. Stream a copy of it, tensor.clone()."
            )
        for start in range(0, self.elements.shape[1], size):
            mask = None if self.mask is None else self.mask[:, start : start + size]
            yield Chunk(start, self.elements[:, start : start + size], mask)


class Rows(Source):
    """One set whose elements are read from outside memory; subclasses implement ``rows``."""

    chunks_ahead = CHUNKS_AHEAD

    def __init__(self, name: str, *, count: int | None = None, width: int | None = None) -> None:
        self.name, self.count, self.width = name, count, width
        self.fingerprint = Fingerprint(name)

    @abstractmethod
    def rows(self, size: int) -> Iterator[Tensor]:
        """Yield chunks (size, D), the last one smaller.

        The memory of a chunk may be reused once ``chunks_ahead + 2`` more were taken.
        """

    def chunks(self, size: int) -> Iterator[Chunk]:
        return prefetch(lambda: self.checked_chunks(size), depth=prefetch_depth(size, self.chunks_ahead))

    def checked_chunks(self, size: int) -> Iterator[Chunk]:
        """Yield the chunks, comparing each with the first pass."""
        self.fingerprint.begin_pass()
        start = 0
        for rows in self.rows(size):
            self.width = rows.shape[1]
            self.fingerprint.check(rows)
            yield Chunk(start, rows[None], None)
            start += len(rows)
        self.fingerprint.end_pass()
        self.count = start


def prefetch_depth(size: int, chunks_ahead: int = CHUNKS_AHEAD) -> int:
    """Return the number of chunks of ``size`` elements to prefetch."""
    return chunks_ahead if size >= MIN_PREFETCHED_CHUNK else 0


class Fingerprint:
    """Sizes and checksums of the chunks of a source in its first pass, compared with every later pass.

    Example:
        >>> fingerprint = Fingerprint("points")
        >>> fingerprint.begin_pass(); fingerprint.check(torch.ones(3, 2)); fingerprint.end_pass()
        >>> fingerprint.begin_pass(); fingerprint.check(torch.zeros(3, 2))
        Traceback (most recent call last):
            ...
        picaset.large.sources.SourceChangedError: points changed between passes: elements 0 to 2 differ from the first
        pass. Every pass must return the same elements in the same order.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.first: list[tuple[int, int]] | None = None
        self.begin_pass()

    def begin_pass(self) -> None:
        self.current = list[tuple[int, int]]()
        self.count = 0

    def check(self, chunk: Tensor) -> None:
        """Compare the next chunk of the pass, (n, D), with that of the first pass."""
        current = (len(chunk), sample_checksum(chunk))
        if self.first is not None and len(self.current) < len(self.first):
            first = self.first[len(self.current)]
            if first[0] == current[0] and first != current:
                raise SourceChangedError(
                    f"{self.name} changed between passes: elements {self.count} to {self.count + len(chunk) - 1} "
                    "differ from the first pass. Every pass must return the same elements in the same order."
                )
        self.current.append(current)
        self.count += len(chunk)

    def end_pass(self) -> None:
        """Compare the number of elements with that of the first pass."""
        if self.first is None:
            self.first = self.current
        elif (first := sum(size for size, _ in self.first)) != self.count:
            hint = (
                "It can be read only once: pass a function that returns a new iterator at every call."
                if self.count == 0
                else "Every pass must return the same elements in the same order."
            )
            raise SourceChangedError(
                f"{self.name} changed between passes: it had {first} elements, now it has {self.count}. {hint}"
            )


def sample_checksum(chunk: Tensor) -> int:
    """Return a checksum of the last element and of others at even distances."""
    sample = torch.cat([chunk[:: max(len(chunk) // SAMPLED_ELEMENTS, 1)], chunk[-1:]])
    return zlib.crc32(sample.view(torch.uint8).numpy().tobytes())


class ArrayRows(Rows):
    """A NumPy array or memmap, from which chunks are copied."""

    def __init__(self, array: NDArray[Any], name: str = "the array") -> None:
        check_rows(array, name)
        super().__init__(name, count=array.shape[0], width=array.shape[1])
        self.array = array

    def rows(self, size: int) -> Iterator[Tensor]:
        dtype = self.array.dtype.newbyteorder("=")
        shape = (min(size, len(self.array)), self.array.shape[1])
        buffers = [np.empty(shape, dtype) for _ in range(self.chunks_ahead + 3)]
        for index, start in enumerate(range(0, len(self.array), size)):
            part = self.array[start : start + size]
            buffer = buffers[index % len(buffers)][: len(part)]
            np.copyto(buffer, part)
            yield torch.as_tensor(buffer)


class FromFunction(Rows):
    """Chunks of any sizes from a function, split and joined to the requested size."""

    def __init__(self, function: Callable[[], Any], name: str | None = None) -> None:
        super().__init__(name or f"the source {getattr(function, '__name__', type(function).__name__)}")
        self.function = function
        self.last_iterator: object = None

    def rows(self, size: int) -> Iterator[Tensor]:
        iterator = iter(self.function())
        if iterator is self.last_iterator:
            raise SourceChangedError(
                f"{self.name} returned the same iterator again, which can be read only once. It must return a new one "
                "at every call."
            )
        self.last_iterator = iterator
        pending, count = list[Tensor](), 0
        for index, chunk in enumerate(iterator):
            rows = self.convert(chunk, index)
            while count + len(rows) >= size:
                pending.append(rows[: size - count])
                rows = rows[size - count :]
                yield pending[0] if len(pending) == 1 else torch.cat(pending)
                pending, count = [], 0
            if len(rows):
                pending.append(rows)
                count += len(rows)
        if pending:
            yield torch.cat(pending)

    def convert(self, chunk: Any, index: int) -> Tensor:
        """Return a chunk of the function as a tensor, after checking it."""
        if isinstance(chunk, list | tuple) and isinstance(next(iter(cast("list[Any]", chunk)), None), Tensor):
            if len(cast("list[Any]", chunk)) > 1:
                raise TypeError(
                    f"{CALLER}: every chunk must be one array (n, D); chunk {index} of {self.name} has "
                    f"{len(cast('list[Any]', chunk))} parts, perhaps labels. Pass a function that returns an iterator "
                    "of the elements alone."
                )
            (chunk,) = cast("list[Any]", chunk)  # of a DataLoader of a TensorDataset
        # A copy, since the function may write its next chunk into the same memory while this one waits.
        if isinstance(chunk, np.ndarray):
            check_numbers(cast(NDArray[Any], chunk), f"chunk {index} of {self.name}")
            rows = torch.as_tensor(np.array(cast(NDArray[Any], chunk), order="C"))
        else:
            rows = torch.as_tensor(chunk).detach().cpu().clone(memory_format=torch.contiguous_format)
        if rows.dim() != 2:
            raise ValueError(
                f"{CALLER}: every chunk must have shape (n, D); chunk {index} of {self.name} has {tuple(rows.shape)}."
            )
        if self.width is not None and rows.shape[1] != self.width:
            raise ValueError(
                f"{CALLER}: all chunks must have the same number of features; chunk {index} of {self.name} has "
                f"{rows.shape[1]}, earlier chunks have {self.width}."
            )
        self.width = rows.shape[1]
        return rows


def stack_columns(table: Mapping[str, Any], rows: slice, columns: Sequence[str] | None, name: str) -> NDArray[Any]:
    """Return some rows of a table as an array (n, D): columns of numbers, or of vectors of equal length, in order."""
    parts = list[NDArray[Any]]()
    for column in table if columns is None else columns:
        if column not in table:
            raise ValueError(f"{CALLER}: {name} has no column {column!r}; it has {', '.join(table)}.")
        values: NDArray[Any] = np.asarray(table[column][rows])
        if values.dtype == object and len({np.shape(value) for value in values}) == 1:
            values = np.array(values.tolist())
        if values.dtype.kind not in "fiu" or values.ndim not in (1, 2):
            raise TypeError(
                f"{CALLER}: column {column!r} of {name} must hold numbers, or vectors of equal length; got "
                f"{values.dtype} of shape {values.shape}. Select columns, or map them to vectors first."
            )
        parts.append(values[:, None] if values.ndim == 1 else values)
    return np.ascontiguousarray(np.concatenate(parts, axis=1))


def check_rows(array: NDArray[Any], name: str) -> None:
    check_numbers(array, name)
    if array.ndim != 2:
        raise ValueError(f"{CALLER}: {name} must have shape (N, D); got {array.shape}.")


def check_numbers(array: NDArray[Any], name: str) -> None:
    if array.dtype.kind not in "fiu":
        raise TypeError(f"{CALLER}: {name} must hold numbers; got {array.dtype}.")


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
        self.file = ParquetReader(path)
        available = self.file.names
        self.columns = available if columns is None else list(columns)
        for name in self.columns:
            if name not in self.file.types:
                raise ValueError(f"{CALLER}: {path} has no column {name!r}; it has {', '.join(available)}.")
            if not self.file.is_numeric(name):
                raise ValueError(
                    f"{CALLER}: column {name!r} of {path} must hold numbers. Choose others by "
                    "from_parquet(path, columns=...)."
                )
        super().__init__(str(path), count=self.file.num_rows, width=len(self.columns))

    def rows(self, size: int) -> Iterator[Tensor]:
        return FromFunction(self.batches).rows(size)

    def batches(self) -> Iterator[NDArray[Any]]:
        for columns in self.file.batches(65536, self.columns):
            yield np.stack(list(columns.values()), axis=1)


ENGINES = {"ray": "picaset.integrations.ray", "dask": "picaset.integrations.dask"}
"""Packages whose datasets stay where they are, and the modules that read them."""


def open_source(source: object, mask: Tensor | None = None, weights: Tensor | None = None) -> Source:
    """Return the source of a tensor, an array, a path or a function; a source is returned as it is."""
    if mask is not None and not isinstance(source, Tensor):
        raise TypeError(f"{CALLER}: a mask requires a tensor as source; got a mask and {type(source).__name__}.")
    if weights is not None and not isinstance(source, Tensor):
        raise TypeError(f"{CALLER}: weights require a tensor as source; got weights and {type(source).__name__}.")
    if isinstance(source, Source):
        return source
    if isinstance(source, Tensor):
        return InMemory(source, mask, weights)
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
    if (package := type(source).__module__.split(".")[0]) in ENGINES:
        return import_module(ENGINES[package]).from_dataset(source)
    if package == "datasets":
        return from_hugging_face(source)
    if package == "lance":
        return from_lance(source)
    if callable(source):
        return FromFunction(source)
    if isinstance(source, list | tuple) and all(isinstance(item, str | os.PathLike) for item in cast(Any, source)):
        return Files([Path(path) for path in cast("Sequence[str]", source)])
    iterable = isinstance(source, Iterable) and not isinstance(source, Mapping)
    if iterable and not hasattr(cast(object, source), "columns"):  # a data frame iterates over its columns
        return FromFunction(cast(Any, source).__iter__, f"the {type(cast(object, source)).__name__}")
    raise TypeError(
        f"{CALLER}: a source must be a tensor, an array, the path of a file, a list of paths, a dataset, an iterable "
        f"of chunks, or a function that returns an iterator of chunks; got {type(cast(object, source)).__name__}."
    )


def open_file(path: Path) -> Rows:
    if not path.exists():
        raise FileNotFoundError(f"{CALLER}: {path} does not exist.")
    if path.suffix == ".npy":
        return from_npy(path)
    if path.suffix == ".safetensors":
        return from_safetensors(path)
    if path.suffix == ".parquet":
        return from_parquet(path)
    if path.suffix == ".lance":
        return from_lance(path)
    raise ValueError(
        f"{CALLER}: {path} must end in .npy, .safetensors, .parquet or .lance; read other formats by a function."
    )


def from_npy(path: Path) -> Rows:
    header = read_npy_header(path, kinds="fiu")
    if header.dtype.itemsize > 8:
        raise ValueError(f"{CALLER}: {path} holds numbers of {header.dtype}; save it as float64.")
    if header.fortran_order or not header.dtype.isnative:
        order = "F" if header.fortran_order else "C"
        return ArrayRows(np.memmap(path, header.dtype, "r", header.offset, header.shape, order), str(path))
    dtype = torch.as_tensor(np.empty(0, header.dtype)).dtype
    return FileRows(path, offset=header.offset, dtype=dtype, count=header.shape[0], width=header.shape[1])


def from_safetensors(path: str | os.PathLike[str], tensor: str | None = None) -> Rows:
    """Return the source of one tensor (N, D) of a safetensors file; ``tensor`` is its name if the file has several."""
    path = Path(path)
    offset, entries = read_safetensors_header(path)
    names = ", ".join(sorted(entries))
    if tensor is None and len(entries) != 1:
        raise ValueError(
            f"{CALLER}: {path} holds {len(entries)} tensors ({names}); choose one by from_safetensors(path, "
            "tensor=...)."
        )
    name = next(iter(entries)) if tensor is None else tensor
    if name not in entries:
        raise ValueError(f"{CALLER}: {path} has no tensor {name!r}; it has {names}.")
    entry = entries[name]
    if len(entry.shape) != 2 or entry.shape[1] == 0 or entry.dtype not in SAFETENSORS_DTYPES:
        raise ValueError(
            f"{CALLER}: tensor {name!r} of {path} must hold numbers and have shape (N, D); got {entry.dtype} and "
            f"{tuple(entry.shape)}."
        )
    dtype, offset = SAFETENSORS_DTYPES[entry.dtype], offset + entry.data_offsets[0]
    return FileRows(path, offset=offset, dtype=dtype, count=entry.shape[0], width=entry.shape[1])


def from_parquet(path: str | os.PathLike[str], columns: Sequence[str] | None = None) -> Rows:
    """Return the source of a Parquet file, with all of its columns or those listed."""
    return ParquetRows(Path(path), columns)


class Files(Rows):
    """The elements of several files, one after the other."""

    def __init__(self, paths: Sequence[Path]) -> None:
        if not paths:
            raise ValueError(f"{CALLER}: a list of files must not be empty.")
        self.files = [open_file(path) for path in paths]
        super().__init__(f"the list of {len(paths)} files", width=self.files[0].width)

    def rows(self, size: int) -> Iterator[Tensor]:
        return FromFunction(lambda: (rows for file in self.files for rows in file.rows(size)), self.name).rows(size)


ROWS_PER_BATCH = 65536
"""Rows of a table that are converted at a time."""


def from_hugging_face(dataset: Any, columns: Sequence[str] | None = None) -> Rows:
    """Return the source of a ``datasets.Dataset`` or ``IterableDataset``, with all of its columns or those listed."""
    name = "the Hugging Face dataset"

    def batches() -> Iterator[NDArray[Any]]:
        for batch in dataset.with_format("numpy").iter(batch_size=ROWS_PER_BATCH):
            yield stack_columns(batch, slice(None), columns, name)

    return FromFunction(batches, name)


def from_lance(dataset: Any, columns: Sequence[str] | None = None) -> Rows:
    """Return the source of a Lance dataset or its path, with all of its columns or those listed."""
    if isinstance(dataset, str | os.PathLike):
        lance: Any = require("lance", extra="development", purpose="reading Lance")
        dataset = lance.dataset(dataset)
    name = str(dataset.uri)

    def batches() -> Iterator[NDArray[Any]]:
        for batch in dataset.to_batches(columns=columns and list(columns), batch_size=ROWS_PER_BATCH):
            table = {key: vectors_of(batch.column(key)) for key in batch.schema.names}
            yield stack_columns(table, slice(None), columns, name)

    return FromFunction(batches, name)


def vectors_of(column: Any) -> NDArray[Any]:
    """Return the values of an Arrow column, those of lists of a fixed size as (n, D)."""
    if not hasattr(column.type, "list_size"):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    if column.null_count:
        raise ValueError(f"{CALLER}: vectors must not be null; {column.null_count} are. Filter these rows first.")
    values = np.asarray(column.flatten().to_numpy(zero_copy_only=False))
    return values.reshape(-1, column.type.list_size)
