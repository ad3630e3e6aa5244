"""A set that is never in memory as a whole: a source, and maps that are applied to every chunk of it.

    map        another large set, whose elements each depend on one element and on small tensors; evaluated lazily
    fold       one pass over the set that computes a statistic
    cache      the same set, cached on disk where reading it back is cheaper than computing it again
    collect    all elements in memory

rules.py writes every operator in terms of these. They serve a file on one machine and a set that is spread over
several processes, forward and backward.

Forward, chunks are summarized without an autograd graph and their summaries merged. Backward, each chunk is computed
again with a graph of its own, differentiated, its gradients added to those of the other chunks, and released; see
statistics.py for why the sum equals the gradient of the whole. :class:`Reading` holds the settings of the passes: chunk
size, precision, caching, progress, and processes that share the set.

Dimensions:  B sets   N elements   n elements of a chunk   D features
"""

import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from picaset.checks import check_choice, check_positive
from picaset.large.partitions import Partitioned
from picaset.large.sources import CHUNKS_AHEAD, Chunk, InMemory, Source, prefetch, prefetch_depth, sample_checksum
from picaset.large.statistics import Statistic, Summary
from picaset.operators.base import zero_padding
from picaset.operators.picaso import PicasoPool
from picaset.operators.state import upcast_half
from picaset.terminal import Watcher

Spill = Literal["auto", "always", "never"]
Value = TypeVar("Value")

VALUES_PER_CHUNK = 2**21
"""Elements of a chunk times the width of the widest layer: a few megabytes, so that there are few chunks."""
POOL_CHUNK_FACTOR = 4
"""Factor by which chunks are larger for a pool alone, which makes no layers of the elements."""


MAX_VALUES_PER_CHUNK = 2**26
"""Elements of a chunk times the width of the source: a quarter of a gigabyte, whatever the operator is."""


class Reduction:
    """Reduction over the processes that share a set; this base class is that of a set in one process."""

    shared = False
    """Whether other processes hold parts of the set."""

    def combine(self, statistic: Statistic, summary: Summary) -> Summary:
        """Return the summary of the whole set from those of its parts."""
        return summary

    def sum_tensors(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return the tensors summed over all processes."""
        return tensors

    def broadcast(self, tensor: Tensor) -> Tensor:
        """Return the tensor of the first process."""
        return tensor


@dataclass(frozen=True)
class Reading:
    """Settings of the passes over a large set."""

    size: int
    """Elements of a chunk."""
    dtype: torch.dtype
    device: torch.device
    reduction: Reduction = field(default_factory=Reduction)
    spill: Spill = "auto"
    folder: Path | None = None
    """Folder of temporary files; None is the system's."""
    watcher: Watcher = field(default_factory=Watcher)
    autocast: torch.dtype | None = None
    """The dtype of autocast where it was enabled when the reading began; backward passes use it too."""

    @classmethod
    def for_operator(
        cls,
        operator: nn.Module,
        source: Source,
        *,
        chunk: int | None,
        caller: str,
        spill: Spill,
        folder: Path | None = None,
        watcher: Watcher | None = None,
        reduction: Reduction | None = None,
    ) -> "Reading":
        """Return the settings for an operator: its device and dtype, and chunks whose widest layer fits into cache.

        Without parameters, device and dtype are those of a source in memory, or float32 on the CPU.
        """
        if chunk is not None:
            check_positive(caller=caller, chunk=chunk)
        check_choice(spill, ("auto", "always", "never"), caller=caller, name="spill")
        default = source.elements if isinstance(source, InMemory) else torch.empty(0, dtype=torch.float32, device="cpu")
        weight = next(operator.parameters(), default)
        kind = weight.device.type
        widest = max((size for parameter in operator.parameters() for size in parameter.shape), default=16)
        values = VALUES_PER_CHUNK * (POOL_CHUNK_FACTOR if isinstance(operator, PicasoPool) else 1)
        return cls(
            size=chunk or min(max(values // widest, 1024), max(MAX_VALUES_PER_CHUNK // (source.width or 1), 1)),
            dtype=weight.dtype,
            device=weight.device,
            reduction=reduction or Reduction(),
            spill=spill,
            folder=folder,
            watcher=watcher or Watcher(),
            autocast=torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None,
        )

    @property
    def sum_dtype(self) -> torch.dtype:
        """The dtype of sums: float32 for half precision."""
        return torch.float32 if self.dtype in (torch.float16, torch.bfloat16) else self.dtype

    def autocast_context(self) -> AbstractContextManager[object]:
        return nullcontext() if self.autocast is None else torch.autocast(self.device.type, dtype=self.autocast)


@dataclass(frozen=True)
class Map:
    """A function that is applied to every chunk, as ``function(elements, *inputs)``."""

    function: Callable[..., Tensor]
    inputs: tuple[Tensor, ...] = ()
    modules: tuple[nn.Module, ...] = ()
    """Modules whose parameters ``function`` uses."""
    costs: bool = True
    """Whether the map has a cost, so that caching its results may save time."""


@dataclass(frozen=True)
class LargeSet:
    """A source and the maps that are applied to its elements.

    Args:
        source: The source of the chunks.
        reading: Settings of the passes.
        maps: Functions applied to every chunk, in order.
        origin: The set that ``source`` caches, if it is a cache; gradients are computed from it.
    """

    source: Source
    reading: Reading
    maps: tuple[Map, ...] = ()
    origin: "LargeSet | None" = None

    @property
    def sets(self) -> int:
        """Number of sets, B."""
        return self.source.sets

    @property
    def inputs(self) -> tuple[tuple[Tensor, ...], ...]:
        """The inputs of each map."""
        return tuple(step.inputs for step in self.maps)

    def map(
        self, function: Callable[..., Tensor], *inputs: Tensor, modules: tuple[nn.Module, ...] = (), costs: bool = True
    ) -> "LargeSet":
        """Return the set with elements ``function(elements, *inputs)``; elements must not depend on each other."""
        return LargeSet(self.source, self.reading, (*self.maps, Map(function, inputs, modules, costs)), self.origin)

    def fold(self, statistic: Statistic, *inputs: Tensor) -> Summary:
        """Compute a statistic in one pass: its peak and, as ``sums``, its results.

        The results are differentiable in the inputs, in all parameters, and in the elements of a source in memory.
        """
        tracked = self.tracked_tensors(inputs, statistic.modules)
        if not needs_gradient(tracked):
            with torch.no_grad():
                summary = self.summarize(statistic, inputs)
            return Summary(summary.peak, self.results(statistic, summary))
        summaries = list[Summary]()
        results = cast(Any, Folding).apply(self, statistic, inputs, summaries, *tracked)
        return Summary(summaries[0].peak, results)

    def fold_parts(
        self, function: Callable[["LargeSet"], Value], merge: Callable[[Value, Value], Value], activity: str
    ) -> Value:
        """Return ``function`` of every part of the set, merged; without an engine that holds parts, there is one.

        An engine sends ``function`` to where the parts are, so it must not refer to this set.
        """
        if not isinstance(self.source, Partitioned):
            return function(self)
        maps, grad, watcher = self.maps, torch.is_grad_enabled(), self.reading.watcher
        reading = replace(self.reading, watcher=Watcher())
        if reading.device.type != "cpu":
            raise ValueError(
                f"picaset.stream: the parts of {self.source.name} are computed on CPUs; the network is on "
                f"{reading.device}. Call .cpu() on it."
            )

        def evaluate(part: Source) -> Value:
            with torch.set_grad_enabled(grad):
                return function(LargeSet(part, reading, maps))

        watcher.begin(activity, self.source.count)
        value = self.source.fold(evaluate, merge)
        watcher.advance(self.source.count or 0)
        return value

    def encode_parts(self) -> Any:
        """Return the elements in the partitions of their engine, as a column ``encoded`` of its dataset."""
        assert isinstance(self.source, Partitioned)
        maps, reading = self.maps, replace(self.reading, watcher=Watcher())

        @torch.no_grad()
        def encode(part: Source) -> Tensor:
            return upcast_half(torch.cat([chunk.elements[0] for chunk in LargeSet(part, reading, maps).chunks("")]))

        return self.source.encode(encode)

    def sample(self, size: int, generator: torch.Generator) -> tuple[Float[Tensor, "n D"], int]:
        """Draw ``size`` elements of one set uniformly in one pass; return them and the number of all elements.

        Every element gets a random key, and those with the smallest keys are the sample. The keys of a chunk depend on
        its contents, so they do not depend on which process reads it.
        """
        if self.sets != 1:
            raise ValueError(f"LargeSet.sample: a sample is of one set; {self.source.name} has {self.sets}.")
        seed = int(torch.randint(2**62, (), generator=generator))

        def smallest_keys(keys: Tensor, elements: Tensor, count: int) -> tuple[Tensor, Tensor, int]:
            keys, indices = keys.topk(min(size, len(keys)), largest=False)
            return keys, elements[indices], count

        def merge(left: tuple[Tensor, Tensor, int], right: tuple[Tensor, Tensor, int]) -> tuple[Tensor, Tensor, int]:
            return smallest_keys(torch.cat([left[0], right[0]]), torch.cat([left[1], right[1]]), left[2] + right[2])

        def sample_part(part: LargeSet) -> tuple[Tensor, Tensor, int]:
            merged = None
            for chunk in part.chunks("sampling"):
                elements = chunk.elements[0] if chunk.mask is None else chunk.elements[0, chunk.mask[0]]
                checksum = sample_checksum(elements) if len(elements) else 0
                keys = torch.rand(len(elements), generator=torch.Generator().manual_seed(seed ^ checksum))
                sample = smallest_keys(keys, elements, len(elements))
                merged = sample if merged is None else merge(merged, sample)
            assert merged is not None
            return merged

        return self.fold_parts(sample_part, merge, "sampling")[1:]

    def collect(self) -> Float[Tensor, "B N D"]:
        """Return all elements in memory; differentiable."""
        tracked = self.tracked_tensors((), ())
        if not needs_gradient(tracked):
            with torch.no_grad():
                return self.concatenated_chunks()
        return cast(Any, Collecting).apply(self, *tracked)

    def cache(self, *, reads: int) -> "LargeSet":
        """Return the same set, cached on disk if it will be read ``reads`` times and that pays."""
        if reads < 2 or not any(step.costs for step in self.maps) or self.reading.spill == "never":
            return self
        if isinstance(self.source, Partitioned):
            return self
        return LargeSet(Spilled(self, reads=reads), self.reading, (), self)

    def concatenate_features(self, other: "LargeSet") -> "LargeSet":
        """Return the set whose features are those of this one followed by those of another that is a map of it."""
        base, derived = self.uncached(), other.uncached()
        added = derived.maps[len(base.maps) :]
        if derived.source is not base.source or derived.maps[: len(base.maps)] != base.maps:
            raise ValueError("LargeSet.concatenate_features: the other set must be derived from this one by maps.")

        def concatenate(elements: Tensor, *inputs: Tensor) -> Tensor:
            remaining, mapped = iter(inputs), elements
            for step in added:
                mapped = step.function(mapped, *(next(remaining) for _ in step.inputs))
            return torch.cat([elements, mapped], dim=-1)

        inputs = (tensor for step in added for tensor in step.inputs)
        return base.map(concatenate, *inputs, modules=tuple(module for step in added for module in step.modules))

    def uncached(self) -> "LargeSet":
        """Return the same set, computed from its first source instead of from a cache."""
        if self.origin is None:
            return self
        first = self.origin.uncached()
        return LargeSet(first.source, self.reading, first.maps + self.maps)

    def source_chunks(self, activity: str) -> Iterator[Chunk]:
        """Yield the chunks of the source; for an empty set, one absent element."""
        self.reading.watcher.begin(activity, self.source.count)
        empty = True
        for chunk in self.source.chunks(self.reading.size):
            empty = False
            yield chunk
            self.reading.watcher.advance(chunk.elements.shape[1])
        if not empty:
            return
        if self.source.width is None:
            raise ValueError(
                f"picaset.stream: {self.source.name} returned no chunks, so the number of features is unknown. Return "
                "an empty set as one chunk of shape (0, D)."
            )
        elements = torch.zeros(self.sets, 1, self.source.width)
        yield Chunk(0, elements, torch.zeros(self.sets, 1, dtype=torch.bool))

    def chunks(self, activity: str) -> Iterator[Chunk]:
        """Yield the chunks of the set, in one pass that is shown to the user as ``activity``."""
        for chunk in self.source_chunks(activity):
            yield self.apply_maps(chunk, self.inputs)

    def apply_maps(self, chunk: Chunk, inputs: tuple[tuple[Tensor, ...], ...]) -> Chunk:
        """Apply all maps, with these inputs, to a chunk of the source; absent elements are zero after each."""
        mask = None if chunk.mask is None else chunk.mask.to(self.reading.device)
        elements = zero_absent(chunk.elements.to(self.reading.device, self.reading.dtype), mask)
        with self.reading.autocast_context():
            for step, step_inputs in zip(self.maps, inputs, strict=True):
                elements = zero_absent(step.function(elements, *chunk.select(step_inputs)), mask)
        return chunk._replace(elements=elements, mask=mask)

    def summarize(self, statistic: Statistic, inputs: tuple[Tensor, ...]) -> Summary:
        """Return the summary of the whole set, including the parts of other processes."""

        def summarize_part(part: LargeSet) -> Summary:
            summaries = dict[int | None, Summary]()
            for chunk in part.chunks("gathering"):
                summary = statistic.summarize(chunk.elements.detach(), chunk.mask, chunk.select(inputs))
                earlier = summaries.get(chunk.set_index)
                summaries[chunk.set_index] = summary if earlier is None else statistic.merge(earlier, summary)
            return join_summaries(summaries, part.sets)

        merged = self.fold_parts(summarize_part, statistic.merge, "gathering")
        return self.reading.reduction.combine(statistic, merged)

    def results(self, statistic: Statistic, summary: Summary) -> tuple[Tensor, ...]:
        return tuple(result.to(self.reading.sum_dtype) for result in statistic.results(summary))

    def concatenated_chunks(self) -> Tensor:
        chunks = [chunk.elements for chunk in self.chunks("writing")]
        return chunks[0][:, : self.source.count or 0] if len(chunks) == 1 else torch.cat(chunks, dim=1)

    def tracked_tensors(self, inputs: tuple[Tensor, ...], modules: tuple[nn.Module, ...]) -> list[Tensor | None]:
        """Return what a pass is differentiable in: elements in memory, inputs of maps, inputs, parameters."""
        whole = self.uncached()
        elements = whole.source.elements if isinstance(whole.source, InMemory) else None
        elements = elements if elements is not None and elements.requires_grad else None
        if elements is None and self.reading.reduction.shared and torch.is_grad_enabled():
            # All ranks run the backward pass together, so each needs a tensor that requires a gradient.
            elements = torch.zeros((), requires_grad=True)
        map_inputs = [tensor for tensors in whole.inputs for tensor in tensors]
        modules = (*(module for step in whole.maps for module in step.modules), *modules)
        parameters = {id(parameter): parameter for module in modules for parameter in module.parameters()}
        return [elements, *map_inputs, *inputs, *parameters.values()]


def needs_gradient(tracked: list[Tensor | None]) -> bool:
    return torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tracked)


def zero_absent(elements: Tensor, mask: Tensor | None) -> Tensor:
    return elements if mask is None else zero_padding(elements, mask)


def join_summaries(summaries: dict[int | None, Summary], num_sets: int) -> Summary:
    """Combine summaries of single sets, by index, into one of all sets; a set that is missing has no elements.

    The key None stands for a summary of all sets.
    """
    first = next(iter(summaries.values()))
    if None in summaries:
        return first
    peak = None if first.peak is None else torch.full_like(first.peak, -torch.inf)
    neutral = Summary(peak, tuple(map(torch.zeros_like, first.sums)))
    peaks, sums = zip(*(summaries.get(index, neutral) for index in range(num_sets)), strict=True)
    return Summary(None if peak is None else torch.cat(peaks), tuple(map(torch.cat, zip(*sums, strict=True))))


# Gradients


class Folding(torch.autograd.Function):
    """``LargeSet.fold`` with a backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        large: LargeSet,
        statistic: Statistic,
        inputs: tuple[Tensor, ...],
        summaries: list[Summary],
        *tracked: Any,
    ) -> Any:
        if statistic.compares_values:
            # With gradients enabled and without the cache, operations and rounding are those of the backward pass.
            with torch.enable_grad():
                summary = large.uncached().summarize(statistic, inputs)
        else:
            summary = large.summarize(statistic, inputs)
        summaries.append(summary)
        ctx.large, ctx.statistic, ctx.summary, ctx.num_inputs = large.uncached(), statistic, summary, len(inputs)
        ctx.save_for_backward(*tracked)
        return tuple(result.detach() for result in large.results(statistic, summary))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_results: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        statistic, summary = ctx.statistic, ctx.summary

        def contribution(source_chunk: Chunk, chunk: Chunk, inputs: tuple[Tensor, ...]) -> Differentiated:
            peak = None if summary.peak is None else chunk.select([summary.peak])[0]
            whole = Summary(peak, chunk.select(summary.sums))
            contributions = statistic.contribute(chunk.elements, chunk.mask, whole, chunk.select(inputs))
            return Differentiated(contributions, chunk.select(grad_results))

        need = ctx.needs_input_grad[4:]
        return None, None, None, None, *backward_pass(ctx.large, ctx.saved_tensors, need, ctx.num_inputs, contribution)


class Collecting(torch.autograd.Function):
    """``LargeSet.collect`` with a backward pass."""

    @staticmethod
    def forward(ctx: Any, large: LargeSet, *tracked: Any) -> Any:
        ctx.large = large.uncached()
        ctx.save_for_backward(*tracked)
        return large.concatenated_chunks()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        def contribution(source_chunk: Chunk, chunk: Chunk, inputs: tuple[Tensor, ...]) -> Differentiated:
            start, count = source_chunk.start, source_chunk.elements.shape[1]
            grad = grad_outputs[0][:, start : start + count]
            return Differentiated((chunk.elements[:, : grad.shape[1]],), (grad,))

        return None, *backward_pass(ctx.large, ctx.saved_tensors, ctx.needs_input_grad[1:], 0, contribution)


class Differentiated(NamedTuple):
    """Outputs of one chunk, and the gradients of the loss with respect to them."""

    outputs: Sequence[Tensor]
    gradients: Sequence[Tensor]


def backward_pass(
    large: LargeSet,
    tracked: Sequence[Any],
    need: Sequence[bool],
    num_inputs: int,
    contribution: Callable[[Chunk, Chunk, tuple[Tensor, ...]], Differentiated],
) -> list[Tensor | None]:
    """Return the gradients of the tracked tensors that need one, summed over the chunks of one pass.

    Args:
        large: The set, without a cache.
        tracked: As ``LargeSet.tracked_tensors`` returns them.
        need: Whether each of them needs a gradient.
        num_inputs: Number of inputs of the statistic.
        contribution: Returns what is differentiated, from a chunk of the source, the same chunk after all maps, and the
            inputs of the statistic.
    """
    stop = 1 + sum(len(tensors) for tensors in large.inputs) + num_inputs
    leaves = [tensor.detach().requires_grad_(use) for tensor, use in zip(tracked[1:stop], need[1:stop], strict=True)]
    remaining = iter(leaves)
    map_inputs = tuple(tuple(next(remaining) for _ in tensors) for tensors in large.inputs)
    inputs = tuple(remaining)
    targets = [tensor for tensor, use in zip([*leaves, *tracked[stop:]], need[1:], strict=True) if use]
    # The placeholder for elements where ranks share a set has no dimensions.
    grad_elements = torch.empty_like(tracked[0]) if need[0] and tracked[0].dim() else None

    def differentiate(part: LargeSet) -> list[Tensor | None]:
        sums: list[Tensor | None] = [None] * len(targets)
        for source_chunk in part.source_chunks("gradients"):
            with torch.enable_grad():
                leaf = source_chunk.elements.detach().requires_grad_(grad_elements is not None)
                chunk = part.apply_maps(source_chunk._replace(elements=leaf), map_inputs)
                pairs = zip(*contribution(source_chunk, chunk, inputs), strict=True)
            pairs = [(output, grad.to(output.dtype)) for output, grad in pairs if output.requires_grad]
            if not pairs:
                continue
            outputs, grad_outputs = zip(*pairs, strict=True)
            leaf_targets = targets if grad_elements is None else [*targets, leaf]
            gradients: Any = torch.autograd.grad(outputs, leaf_targets, grad_outputs, allow_unused=True)
            sums = add_gradients(sums, gradients[: len(targets)])
            if grad_elements is not None and grad_elements.numel():
                span = grad_elements[:, source_chunk.start : source_chunk.start + leaf.shape[1]]
                _ = span.zero_() if gradients[-1] is None else span.copy_(gradients[-1])
        return sums

    sums = large.fold_parts(differentiate, add_gradients, "gradients")
    if large.reading.reduction.shared:
        local_sums = [
            torch.zeros_like(target) if total is None else total for target, total in zip(targets, sums, strict=True)
        ]
        sums = list(large.reading.reduction.sum_tensors(local_sums))
    remaining_sums = iter(sums)
    return [grad_elements, *(next(remaining_sums) if required else None for required in need[1:])]


def add_gradients(sums: Sequence[Tensor | None], gradients: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Add gradients to sums of them, in place; None is zero."""
    return [
        total if grad is None else grad.clone() if total is None else total.add_(grad)
        for total, grad in zip(sums, gradients, strict=True)
    ]


# Caching on disk


class Spilled(Source):
    """A large set that is computed in its first pass and, if that pays, read from a temporary file from then on.

    It pays if computing a chunk again in each later pass takes longer than writing it once and reading it in each. Both
    are measured on the second chunk, because the first one includes warm-up. Backward passes do not use the file, since
    they need the autograd graph.
    """

    def __init__(self, large: LargeSet, *, reads: int) -> None:
        self.large = large
        self.name = f"the cache of {large.source.name}"
        self.sets = large.sets
        self.reads = reads
        self.decided = large.reading.spill == "always"
        self.file: SpillFile | None = None

    @property
    def count(self) -> int | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.large.source.count

    def chunks(self, size: int) -> Iterator[Chunk]:
        if self.file is not None:
            return self.file.chunks()
        return self.computed_and_written() if self.reads > 1 else self.large.chunks("encoding")

    def computed_and_written(self) -> Iterator[Chunk]:
        file: SpillFile | None = SpillFile(self.large.reading.folder)
        began = time.perf_counter()
        for index, chunk in enumerate(self.large.chunks("encoding")):
            computing = time.perf_counter() - began
            if file is not None:
                began = time.perf_counter()
                file.write(chunk)
                writing = time.perf_counter() - began
                if index == 1 and not self.decided and not self.pays(computing, writing, chunk):
                    file, self.reads = file.close(), 0
            yield chunk
            began = time.perf_counter()
        self.file = file

    def pays(self, computing: float, writing: float, chunk: Chunk) -> bool:
        """Whether caching is cheaper; reading is assumed to take as long as writing, which favours computing again."""
        folder = self.large.reading.folder or Path(tempfile.gettempdir())
        count = self.large.source.count
        needed = 0 if count is None else chunk.elements.nbytes * count // max(chunk.elements.shape[1], 1)
        if shutil.disk_usage(folder).free < needed:
            return False
        return (self.reads - 1) * computing > self.reads * writing


class WrittenChunk(NamedTuple):
    """A chunk in a spill file, without its elements."""

    start: int
    shape: torch.Size
    dtype: torch.dtype
    device: torch.device
    mask: Tensor | None

    @property
    def nbytes(self) -> int:
        return self.shape.numel() * self.dtype.itemsize


class SpillFile:
    """Chunks written to an unnamed temporary file, and read back in order.

    The file has no name in its folder, so it disappears when it is closed, even if the process is killed.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder or Path(tempfile.gettempdir())
        self.file = tempfile.TemporaryFile(dir=self.folder, buffering=0)  # noqa: SIM115 - it lives as long as this
        weakref.finalize(self, self.file.close)
        self.written = list[WrittenChunk]()
        self.nbytes = 0

    def write(self, chunk: Chunk) -> None:
        elements = chunk.elements.detach()
        data = bytes_of(elements.cpu().contiguous())
        try:
            done = 0
            while done < len(data):
                done += os.pwrite(self.file.fileno(), data[done:], self.nbytes + done)
        except OSError as error:
            self.close()
            raise OSError(
                error.errno,
                f"picaset.stream: cannot cache encoded elements in {self.folder}; writing failed after "
                f"{self.nbytes / 2**20:.0f} MB ({error.strerror}). The temporary file is removed. Pass another "
                "folder=..., or spill='never' to compute them again in every pass.",
            ) from None
        self.written.append(WrittenChunk(chunk.start, elements.shape, elements.dtype, elements.device, chunk.mask))
        self.nbytes += len(data)

    def chunks(self) -> Iterator[Chunk]:
        size = self.written[0].shape[1] if self.written else 0
        return prefetch(self.read, depth=prefetch_depth(size))

    def read(self) -> Iterator[Chunk]:
        largest = max((written.nbytes for written in self.written), default=0)
        buffers = [torch.empty(largest, dtype=torch.uint8) for _ in range(CHUNKS_AHEAD + 3)]
        offset = 0
        for index, written in enumerate(self.written):
            buffer = buffers[index % len(buffers)][: written.nbytes]
            view, done = bytes_of(buffer), 0
            while done < written.nbytes:
                done += os.preadv(self.file.fileno(), [view[done:]], offset + done)
            offset += written.nbytes
            elements = buffer.view(written.dtype).view(written.shape).to(written.device)
            yield Chunk(written.start, elements, written.mask)

    def close(self) -> None:
        self.file.close()


def bytes_of(tensor: Tensor) -> memoryview:
    """Return the memory of a contiguous tensor."""
    return memoryview(cast(Any, tensor.reshape(-1).view(torch.uint8).numpy()))
