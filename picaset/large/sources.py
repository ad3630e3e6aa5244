"""Sources of large sets: anything that can be read repeatedly, chunk by chunk, in the same order.

    tensor (N, D) or (B, N, D)       in memory; gradients reach its elements
    NumPy array or memmap (N, D)     copied chunk by chunk
    path of a file                   .npy, .safetensors, .parquet; see file_sources.py
    function                         returns an iterator of chunks (n, D), a new one at every call

Sources outside memory are read by a thread ahead of the computation. A checksum of a sample of every chunk is compared
with that of the first pass, so that a source that changes between passes is detected.

Dimensions:  B sets   N elements   n elements of a chunk   D features
"""

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from picaset.checks import check_floating, check_mask
from picaset.prefetch import prefetch

CALLER = "picaset.stream"
CHUNKS_AHEAD = 2
"""Number of chunks that are read ahead."""
MIN_PREFETCHED_CHUNK = 1024
"""Elements of a chunk below which passing it between threads costs more than reading it."""
SAMPLED_ELEMENTS = 16
"""Elements of a chunk that enter its checksum, about."""


class Chunk(NamedTuple):
    """Consecutive elements of every set, (B, n, D), and the index of the first one."""

    start: int
    elements: Tensor
    mask: Tensor | None


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

    def __init__(self, elements: Float[Tensor, "*B N D"], mask: Bool[Tensor, "*B N"] | None = None) -> None:
        self.name = "the tensor"
        if elements.dim() not in (2, 3):
            raise ValueError(f"{CALLER}: a tensor must have shape (N, D) or (B, N, D); got {tuple(elements.shape)}.")
        check_floating(elements, caller=CALLER)
        if elements.dim() == 2:
            elements, mask = elements[None], None if mask is None else mask[None]
        if mask is not None:
            check_mask(mask, elements, caller=CALLER)
        self.elements, self.mask = elements, mask
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

    def __init__(self, function: Callable[[], Any]) -> None:
        super().__init__(f"the source {getattr(function, '__name__', type(function).__name__)}")
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


def check_rows(array: NDArray[Any], name: str) -> None:
    check_numbers(array, name)
    if array.ndim != 2:
        raise ValueError(f"{CALLER}: {name} must have shape (N, D); got {array.shape}.")


def check_numbers(array: NDArray[Any], name: str) -> None:
    if array.dtype.kind not in "fiu":
        raise TypeError(f"{CALLER}: {name} must hold numbers; got {array.dtype}.")
