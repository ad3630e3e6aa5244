"""A set that is never held: a source, and what is done to every element on the way.

    map     another large set, each element of which depends on one element and on small tensors; costs nothing yet
    fold    one pass over the set, from which a statistic comes back
    keep    the same set, about to be read several times: kept on disk where that is cheaper than making it again
    collect    its elements, in memory

Operators are written over these in pools.py, cascades.py and canonical.py. The same few lines serve a file on one
machine and a set that is spread over many, forward and backward.

Dimensions:  B sets   n elements of a chunk   D features
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from picaset.large.folding import collect, fold
from picaset.large.reading import Reading
from picaset.large.sources import Chunk, Source
from picaset.large.spill import Spilled
from picaset.large.statistics import Statistic, Summary
from picaset.operators.inputs import silence


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
