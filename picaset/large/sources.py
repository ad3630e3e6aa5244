"""Where a large set comes from: anything that can be read again, chunk by chunk, from the first element to the last.

    tensor (N, D) or (B, N, D)       in memory; gradients reach its elements
    NumPy array, memmap (N, D)       copied chunk by chunk
    path of a file                   .npy, .safetensors, .parquet; see file_sources.py
    function                         returns an iterator of chunks (n, D), a new one at every call

What is not in memory is read by a thread ahead of the arithmetic, and compared with the first pass by a sample.

Dimensions:  B sets   N elements   n elements of a chunk   D features

Whether a source gave the same elements again: a sample of every chunk, compared from pass to pass.
"""

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from picaset.checks import check_floating, check_mask
from picaset.large.reading import read_ahead

SAMPLED = 16
"""Elements of a chunk that are looked at."""


class SourceChangedError(RuntimeError):
    """A source gave other elements than in an earlier pass."""


class Fingerprint:
    """What was seen of a source in its first pass.

    Example:
        >>> before = Fingerprint("points")
        >>> before.begin(); before.see(torch.ones(3, 2)); before.end()
        >>> before.begin(); before.see(torch.zeros(3, 2))
        Traceback (most recent call last):
            ...
        picaset.large.sources.SourceChangedError: points changed between passes: elements 0 to 2 are not what they
        were in the first pass. Every pass must give the same elements in the same order.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.first: list[tuple[int, int]] | None = None
        self.now: list[tuple[int, int]] = []
        self.seen = 0

    def begin(self) -> None:
        self.now, self.seen = [], 0

    def see(self, chunk: Tensor) -> None:
        """A chunk of the pass, (n, D)."""
        found = (len(chunk), sample(chunk))
        if self.first is not None and len(self.now) < len(self.first):
            before = self.first[len(self.now)]
            if before[0] == found[0] and before != found:
                raise SourceChangedError(
                    f"{self.name} changed between passes: elements {self.seen} to {self.seen + len(chunk) - 1} are not "
                    "what they were in the first pass. Every pass must give the same elements in the same order."
                )
        self.now.append(found)
        self.seen += len(chunk)

    def end(self) -> None:
        """The pass is over; the first one is remembered."""
        if self.first is None:
            self.first = self.now
        elif (before := count(self.first)) != self.seen:
            hint = (
                "It can be read once only: pass a function that returns a new iterator at every call."
                if self.seen == 0
                else "Every pass must give the same elements in the same order."
            )
            raise SourceChangedError(
                f"{self.name} changed between passes: it had {before} elements, now it has {self.seen}. {hint}"
            )


def count(seen: Sequence[tuple[int, int]]) -> int:
    return sum(size for size, _ in seen)


def sample(chunk: Tensor) -> int:
    """A checksum of the last element and of some spread evenly before it."""
    chosen = torch.cat([chunk[:: max(len(chunk) // SAMPLED, 1)], chunk[-1:]])
    return zlib.crc32(chosen.view(torch.uint8).numpy().tobytes())


CALLER = "picaset.stream"
AHEAD = 2
"""Chunks that are read ahead."""
WORTH_A_THREAD = 1024
"""Elements of a chunk below which handing it from thread to thread costs more than reading it."""


class Chunk(NamedTuple):
    """Some elements of every set, and where they begin."""

    start: int
    elements: Tensor
    mask: Tensor | None


class Source(ABC):
    """Elements that can be read again.

    Every pass gives the same chunks, ``chunks(size)`` of (B, size, D), the last one smaller; without elements, none.
    """

    name: str
    sets: int = 1
    count: int | None = None
    """Elements of a set, absent ones included, where that is known before they are read."""
    width: int | None = None
    """Features of an element, where that is known before they are read."""

    @abstractmethod
    def chunks(self, size: int) -> Iterator[Chunk]: ...


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
                "the tensor changed between passes: it was written to in place. Stream a copy of it, tensor.clone()."
            )
        for start in range(0, self.elements.shape[1], size):
            yield self.part(start, start + size)

    def part(self, start: int, stop: int) -> Chunk:
        mask = None if self.mask is None else self.mask[:, start:stop]
        return Chunk(start, self.elements[:, start:stop], mask)


class Rows(Source):
    """Elements of one set that are read; subclasses write ``rows(size)``."""

    def __init__(self, name: str, *, count: int | None = None, width: int | None = None) -> None:
        self.name, self.count, self.width = name, count, width
        self.fingerprint = Fingerprint(name)
        self.ahead = AHEAD

    @abstractmethod
    def rows(self, size: int) -> Iterator[Tensor]:
        """Chunks (size, D), the last one smaller; one may be overwritten when ``ahead + 2`` more were taken."""

    def chunks(self, size: int) -> Iterator[Chunk]:
        return read_ahead(lambda: self.compared(size), depth=self.ahead if size >= WORTH_A_THREAD else 0)

    def compared(self, size: int) -> Iterator[Chunk]:
        self.fingerprint.begin()
        start = 0
        for rows in self.rows(size):
            self.width = rows.shape[1]
            self.fingerprint.see(rows)
            yield Chunk(start, rows[None], None)
            start += len(rows)
        self.fingerprint.end()
        self.count = start


class ArrayRows(Rows):
    """A NumPy array or memmap; chunks are copied out of it."""

    def __init__(self, array: NDArray[Any], name: str = "the array") -> None:
        check_rows(array, name)
        super().__init__(name, count=array.shape[0], width=array.shape[1])
        self.array = array

    def rows(self, size: int) -> Iterator[Tensor]:
        native = self.array.dtype.newbyteorder("=")
        buffers = [np.empty((min(size, len(self.array)), self.array.shape[1]), native) for _ in range(self.ahead + 3)]
        for index, start in enumerate(range(0, len(self.array), size)):
            part = self.array[start : start + size]
            buffer = buffers[index % len(buffers)][: len(part)]
            np.copyto(buffer, part)
            yield torch.as_tensor(buffer)


class FromFunction(Rows):
    """Chunks of any sizes from a function, cut and joined to the size that is asked for."""

    def __init__(self, function: Callable[[], Any]) -> None:
        super().__init__(f"the source {getattr(function, '__name__', type(function).__name__)}")
        self.function = function
        self.last: object = None

    def rows(self, size: int) -> Iterator[Tensor]:
        iterator = iter(self.function())
        if iterator is self.last:
            raise SourceChangedError(
                f"{self.name} returned the same iterator again, which can be read once only. It must return a new one "
                "at every call."
            )
        self.last = iterator
        held, waiting = 0, list[Tensor]()
        for index, chunk in enumerate(iterator):
            rows = self.checked(chunk, index)
            while held + len(rows) >= size:
                waiting.append(rows[: size - held])
                rows = rows[size - held :]
                yield waiting[0] if len(waiting) == 1 else torch.cat(waiting)
                held, waiting = 0, []
            if len(rows):
                waiting.append(rows)
                held += len(rows)
        if waiting:
            yield torch.cat(waiting)

    def checked(self, chunk: Any, index: int) -> Tensor:
        # Copies, since the function may write its next chunk over this one while it waits.
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
                f"{rows.shape[1]}, those before it have {self.width}."
            )
        self.width = rows.shape[1]
        return rows


def memory_of(tensor: Tensor) -> memoryview:
    """The bytes of a contiguous tensor."""
    return memoryview(cast(Any, tensor.reshape(-1).view(torch.uint8).numpy()))


def check_rows(array: NDArray[Any], name: str) -> None:
    check_numbers(array, name)
    if array.ndim != 2:
        raise ValueError(f"{CALLER}: {name} must have shape (N, D); got {array.shape}.")


def check_numbers(array: NDArray[Any], name: str) -> None:
    if array.dtype.kind not in "fiu":
        raise TypeError(f"{CALLER}: {name} must hold numbers; got {array.dtype}.")
