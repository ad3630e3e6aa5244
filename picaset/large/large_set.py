"""A set that is never held: a source, and what is done to every element on the way.

    map     another large set, each element of which depends on one element and on small tensors; costs nothing yet
    fold    one pass over the set, from which a statistic comes back
    keep    the same set, about to be read several times: kept on disk where that is cheaper than making it again
    collect    its elements, in memory

Operators are written over these in pools.py, cascades.py and canonical.py. The same few lines serve a file on one
machine and a set that is spread over many, forward and backward.

Dimensions:  B sets   n elements of a chunk   D features

Encoded elements kept in a temporary file, where reading them again is cheaper than making them again.

The file has no name in its folder: when its set is forgotten, or the process dies in whatever way, nothing is left.
Backward passes make the elements again, since they need the graph.
"""

import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor, nn

from picaset.large.folding import collect, fold
from picaset.large.reading import Reading, read_ahead
from picaset.large.sources import AHEAD, WORTH_A_THREAD, Chunk, Source, memory_of
from picaset.large.statistics import Statistic, Summary
from picaset.operators.base import silence

if TYPE_CHECKING:
    from picaset.large.large_set import LargeSet


class Spilled(Source):
    """A large set that is made in its first pass, and from then on read from disk, if that pays.

    It pays when making a chunk again for each of the later passes takes longer than writing it once and reading it for
    each. Both are measured on the second chunk, the first being slowed by what is cold.
    """

    def __init__(self, large: "LargeSet", *, reads: int) -> None:
        self.large = large
        self.name = f"what was kept of {large.source.name}"
        self.sets = large.sets
        self.reads = reads
        self.file: SpillFile | None = None
        self.decided = large.reading.spill == "always"
        self.whole = False

    @property
    def count(self) -> int | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.large.source.count

    def chunks(self, size: int) -> Iterator[Chunk]:
        if self.file is not None and self.whole:
            return self.file.chunks()
        return self.made_and_written() if self.reads > 1 else self.large.chunks("encoding")

    def made_and_written(self) -> Iterator[Chunk]:
        file: SpillFile | None = SpillFile(self.large.reading.folder)
        began = time.perf_counter()
        for index, chunk in enumerate(self.large.chunks("encoding")):
            making = time.perf_counter() - began
            if file is not None:
                began = time.perf_counter()
                file.write(chunk)
                writing = time.perf_counter() - began
                if index == 1 and not self.decided and not self.pays(making, writing, chunk):
                    file, self.reads = file.close(), 0
            yield chunk
            began = time.perf_counter()
        self.file, self.whole = file, file is not None

    def pays(self, making: float, writing: float, chunk: Chunk) -> bool:
        """Reading is taken to cost as much as writing, which errs on the side of making again."""
        folder = self.large.reading.folder or Path(tempfile.gettempdir())
        count = self.large.source.count
        needed = 0 if count is None else chunk.elements.nbytes * count // max(chunk.elements.shape[1], 1)
        if shutil.disk_usage(folder).free < needed:
            return False
        return (self.reads - 1) * making > self.reads * writing


class SpillFile:
    """Chunks written one after the other to a file without a name, and read back in that order."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder or Path(tempfile.gettempdir())
        self.file = tempfile.TemporaryFile(dir=self.folder, buffering=0)  # noqa: SIM115 - it lives as long as this
        weakref.finalize(self, self.file.close)
        self.written = list[tuple[int, tuple[int, ...], torch.dtype, torch.device, Tensor | None]]()
        self.bytes = 0

    def write(self, chunk: Chunk) -> None:
        elements = chunk.elements.detach()
        held = memory_of(elements.cpu().contiguous())
        try:
            done = 0
            while done < len(held):
                done += os.pwrite(self.file.fileno(), held[done:], self.bytes + done)
        except OSError as error:
            self.close()
            raise OSError(
                error.errno,
                f"picaset.stream: encoded elements could not be kept in {self.folder} after {self.bytes / 2**20:.0f} MB"
                f" ({error.strerror}). What was written is gone. Give another folder=..., or spill='never', which makes"
                " them again in every pass.",
            ) from None
        self.written.append((chunk.start, tuple(elements.shape), elements.dtype, elements.device, chunk.mask))
        self.bytes += len(held)

    def chunks(self) -> Iterator[Chunk]:
        elements = self.written[0][1][1] if self.written else 0
        return read_ahead(self.read, depth=AHEAD if elements >= WORTH_A_THREAD else 0)

    def read(self) -> Iterator[Chunk]:
        largest = max((torch.Size(shape).numel() * dtype.itemsize for _, shape, dtype, _, _ in self.written), default=0)
        buffers = [torch.empty(largest, dtype=torch.uint8) for _ in range(AHEAD + 3)]
        offset = 0
        for index, (start, shape, dtype, device, mask) in enumerate(self.written):
            size = torch.Size(shape).numel() * dtype.itemsize
            buffer = buffers[index % len(buffers)][:size]
            view, done = memory_of(buffer), 0
            while done < size:
                done += os.preadv(self.file.fileno(), [view[done:]], offset + done)
            offset += size
            yield Chunk(start, buffer.view(dtype).view(shape).to(device), mask)

    def close(self) -> None:
        """Nothing is left of it."""
        self.file.close()


@dataclass(frozen=True)
class Map:
    """``function(elements, *inputs)`` of every chunk, by itself, with the parameters of some modules."""

    function: Callable[..., Tensor]
    inputs: tuple[Tensor, ...] = ()
    modules: tuple[nn.Module, ...] = ()
    costs: bool = True
    """Whether it does more than look at the elements."""


@dataclass(frozen=True)
class LargeSet:
    """A source and the maps that its elements go through.

    Args:
        source: Where chunks are read from.
        reading: How.
        maps: What is done to them.
        origin: The set that the source keeps on disk, if it does; gradients are taken of that.
    """

    source: Source
    reading: Reading
    maps: tuple[Map, ...] = ()
    origin: "LargeSet | None" = None

    def map(
        self,
        function: Callable[..., Tensor],
        *inputs: Tensor,
        modules: tuple[nn.Module, ...] = (),
        costs: bool = True,
    ) -> "LargeSet":
        """The set whose elements are ``function(elements, *inputs)``; elements must not depend on each other."""
        return LargeSet(self.source, self.reading, (*self.maps, Map(function, inputs, modules, costs)), self.origin)

    def fold(self, statistic: Statistic, *inputs: Tensor) -> Summary:
        """One pass: the peak, and results that are differentiable in the inputs, in all parameters and in elements
        that are in memory."""
        return fold(self, statistic, inputs)

    def keep(self, *, reads: int) -> "LargeSet":
        """The same set, if it will be read ``reads`` times."""
        if reads < 2 or not any(one.costs for one in self.maps) or self.reading.spill == "never":
            return self
        return LargeSet(Spilled(self, reads=reads), self.reading, (), self)

    def beside(self, other: "LargeSet") -> "LargeSet":
        """The set whose elements are those of this one followed by those of another that was made from it."""
        mine, theirs = self.from_the_start(), other.from_the_start()
        added = theirs.maps[len(mine.maps) :]
        if theirs.source is not mine.source or theirs.maps[: len(mine.maps)] != mine.maps:
            raise ValueError("LargeSet.beside: the other set must have been made from this one, by maps.")

        def both(elements: Tensor, *inputs: Tensor) -> Tensor:
            remaining, encoded = iter(inputs), elements
            for one in added:
                encoded = one.function(encoded, *(next(remaining) for _ in one.inputs))
            return torch.cat([elements, encoded], dim=-1)

        inputs = (tensor for one in added for tensor in one.inputs)
        return mine.map(both, *inputs, modules=tuple(module for one in added for module in one.modules))

    def collect(self) -> Float[Tensor, "B N D"]:
        """All elements in memory; differentiable."""
        return collect(self)

    def from_the_start(self) -> "LargeSet":
        """The same set, made from its first source and not from what was kept of it."""
        if self.origin is None:
            return self
        first = self.origin.from_the_start()
        return LargeSet(first.source, self.reading, first.maps + self.maps)

    @property
    def inputs(self) -> tuple[tuple[Tensor, ...], ...]:
        """The small tensors that each map takes."""
        return tuple(one.inputs for one in self.maps)

    @property
    def modules(self) -> tuple[nn.Module, ...]:
        return tuple(module for one in self.maps for module in one.modules)

    @property
    def sets(self) -> int:
        return self.source.sets

    def raw_chunks(self, kind: str) -> Iterator[Chunk]:
        """The chunks of the source, at least one: without elements, one that is absent."""
        self.reading.watcher.begin(kind, self.source.count)
        empty = True
        for chunk in self.source.chunks(self.reading.size):
            empty = False
            yield chunk
            self.reading.watcher.advance(chunk.elements.shape[1])
        if empty:
            yield self.nothing()

    def chunks(self, kind: str) -> Iterator[Chunk]:
        """The chunks of the set."""
        for chunk in self.raw_chunks(kind):
            yield self.through(chunk, self.inputs)

    def through(self, chunk: Chunk, inputs: tuple[tuple[Tensor, ...], ...]) -> Chunk:
        """A chunk of the source after all maps, which take these inputs; absent elements are zero after each."""
        mask = None if chunk.mask is None else chunk.mask.to(self.reading.device)
        elements = silenced(self.reading.prepared(chunk.elements), mask)
        with self.reading.precision():
            for one, given in zip(self.maps, inputs, strict=True):
                elements = silenced(one.function(elements, *given), mask)
        return Chunk(chunk.start, elements, mask)

    def nothing(self) -> Chunk:
        """One absent element, for statistics of nothing."""
        if self.source.width is None:
            raise ValueError(
                f"picaset.stream: {self.source.name} gave no chunks, so nobody knows how many features an element has. "
                "An empty set is one chunk of shape (0, D)."
            )
        elements = torch.zeros(self.sets, 1, self.source.width)
        return Chunk(0, elements, torch.zeros(self.sets, 1, dtype=torch.bool))


def silenced(elements: Tensor, mask: Tensor | None) -> Tensor:
    return elements if mask is None else silence(elements, mask)
