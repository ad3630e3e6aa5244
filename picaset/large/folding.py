"""One pass over a large set, forward and backward, with one chunk in memory at a time.

Forward, chunks are summarized without a graph and their summaries merged. Backward, each chunk is made again with a
graph of its own, the gradient of what it contributed is taken, added to those of the others, and forgotten. What comes
back equals the gradient of the whole, because results are sums of contributions once the peak is known.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from picaset.large.sources import Chunk, InMemory
from picaset.large.statistics import Statistic, Summary

if TYPE_CHECKING:
    from picaset.large.large_set import LargeSet

Outputs = Callable[[Chunk, Chunk, tuple[Tensor, ...]], tuple[Sequence[Tensor], Sequence[Tensor]]]
"""From a chunk of the source, the same chunk after all maps, and inputs: what it contributed, and its gradients."""


def fold(large: "LargeSet", statistic: Statistic, inputs: tuple[Tensor, ...]) -> Summary:
    """The peak of the whole set and the results of a statistic."""
    whole = large.from_the_start()
    tracked = tracked_by(whole, inputs, statistic.modules)
    if not needs_gradient(tracked):
        with torch.no_grad():
            summary = summarize(large, statistic, inputs)
        return Summary(summary.peak, in_precision(statistic.results(summary), large))
    summaries = list[Summary]()
    results = cast(Any, Folding).apply(large, statistic, inputs, summaries, *tracked)
    return Summary(summaries[0].peak, results)


def collect(large: "LargeSet") -> Tensor:
    """All elements of a set in memory, (B, N, D)."""
    tracked = tracked_by(large.from_the_start(), (), ())
    if not needs_gradient(tracked):
        with torch.no_grad():
            return together(large)
    return cast(Any, Collecting).apply(large, *tracked)


def summarize(large: "LargeSet | Recorded", statistic: Statistic, inputs: tuple[Tensor, ...]) -> Summary:
    """The summary of the whole set, those of other ranks included."""
    merged = None
    for _, elements, mask in large.chunks("gathering"):
        found = statistic.summarize(elements, mask, inputs)
        merged = found if merged is None else statistic.merge(merged, found)
    assert merged is not None
    return large.reading.reduction.combine(statistic, merged)


def together(large: "LargeSet") -> Tensor:
    made = [chunk.elements for chunk in large.chunks("writing")]
    count = large.source.count or 0
    return made[0][:, :count] if len(made) == 1 else torch.cat(made, dim=1)


def tracked_by(whole: "LargeSet", inputs: tuple[Tensor, ...], modules: tuple[nn.Module, ...]) -> list[Tensor | None]:
    """Everything that a pass is differentiable in: elements in memory, then inputs, then parameters."""
    elements = whole.source.elements if isinstance(whole.source, InMemory) else None
    elements = elements if elements is not None and elements.requires_grad else None
    if elements is None and whole.reading.reduction.shared and torch.is_grad_enabled():
        # Backward passes are taken together: everyone has to have one, whatever it is that needs gradients.
        elements = torch.zeros((), requires_grad=True)
    given = [one for tensors in whole.inputs for one in tensors]
    parameters = {id(one): one for module in (*whole.modules, *modules) for one in module.parameters()}
    return [elements, *given, *inputs, *parameters.values()]


def needs_gradient(tracked: list[Tensor | None]) -> bool:
    return torch.is_grad_enabled() and any(one is not None and one.requires_grad for one in tracked)


def in_precision(results: tuple[Tensor, ...], large: "LargeSet") -> tuple[Tensor, ...]:
    return tuple(one.to(large.reading.sums) for one in results)


class Folding(torch.autograd.Function):
    """``fold`` for torch's autograd."""

    @staticmethod
    def forward(
        ctx: Any,
        large: "LargeSet",
        statistic: Statistic,
        inputs: tuple[Tensor, ...],
        summaries: list[Summary],
        *tracked: Any,
    ) -> Any:
        if statistic.repeats_exactly:
            # The same operations as in the backward pass, so that they round alike.
            with torch.enable_grad():
                summary = summarize(Recorded(large.from_the_start()), statistic, inputs)
        else:
            summary = summarize(large, statistic, inputs)
        summaries.append(summary)
        ctx.large, ctx.statistic, ctx.summary, ctx.num_inputs = large.from_the_start(), statistic, summary, len(inputs)
        ctx.save_for_backward(*tracked)
        return in_precision(statistic.results(summary), large)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_results: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        def contributed(raw: Chunk, chunk: Chunk, inputs: tuple[Tensor, ...]) -> Any:
            return ctx.statistic.contribute(chunk.elements, chunk.mask, ctx.summary, inputs), grad_results

        need = ctx.needs_input_grad[4:]
        return None, None, None, None, *backward_pass(ctx.large, ctx.saved_tensors, need, ctx.num_inputs, contributed)


class Collecting(torch.autograd.Function):
    """``collect`` for torch's autograd."""

    @staticmethod
    def forward(ctx: Any, large: "LargeSet", *tracked: Any) -> Any:
        ctx.large = large.from_the_start()
        ctx.save_for_backward(*tracked)
        return together(large)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        def made(raw: Chunk, chunk: Chunk, inputs: tuple[Tensor, ...]) -> Any:
            grad = grad_outputs[0][:, raw.start : raw.start + raw.elements.shape[1]]
            return (chunk.elements[:, : grad.shape[1]],), (grad,)

        return None, *backward_pass(ctx.large, ctx.saved_tensors, ctx.needs_input_grad[1:], 0, made)


def backward_pass(
    whole: "LargeSet", tracked: Sequence[Any], need: Sequence[bool], num_inputs: int, outputs: Outputs
) -> list[Tensor | None]:
    """The gradient of everything tracked that needs one, added up over the chunks."""
    num_given = sum(len(tensors) for tensors in whole.inputs)
    stop = 1 + num_given + num_inputs
    leaves = [one.detach().requires_grad_(use) for one, use in zip(tracked[1:stop], need[1:stop], strict=True)]
    remaining = iter(leaves)
    by_map = tuple(tuple(next(remaining) for _ in tensors) for tensors in whole.inputs)
    inputs = tuple(remaining)
    wanted = [one for one, use in zip([*leaves, *tracked[stop:]], need[1:], strict=True) if use]
    sums: list[Tensor | None] = [None] * len(wanted)
    # What stands in for elements where ranks share a set has no dimensions.
    grad_elements = torch.empty_like(tracked[0]) if need[0] and tracked[0].dim() else None
    for raw in whole.raw_chunks("gradients"):
        with torch.enable_grad():
            leaf = raw.elements.detach().requires_grad_(grad_elements is not None)
            chunk = whole.through(raw._replace(elements=leaf), by_map)
            made, gradients = outputs(raw, chunk, inputs)
        pairs = [(one, grad.to(one.dtype)) for one, grad in zip(made, gradients, strict=True) if one.requires_grad]
        asked = [*wanted, leaf] if grad_elements is not None else wanted
        if not pairs:
            continue
        found = gradients_of(pairs, asked)
        for index, grad in enumerate(found[: len(wanted)]):
            if grad is not None:
                before = sums[index]
                sums[index] = grad.clone() if before is None else before.add_(grad)
        if grad_elements is not None and grad_elements.numel():
            part = grad_elements[:, raw.start : raw.start + leaf.shape[1]]
            _ = part.zero_() if found[-1] is None else part.copy_(found[-1])
    if whole.reading.reduction.shared:
        everyone = [torch.zeros_like(one) if total is None else total for one, total in zip(wanted, sums, strict=True)]
        sums = list(whole.reading.reduction.add(everyone))
    found_sums = iter(sums)
    return [grad_elements, *(next(found_sums) if required else None for required in need[1:])]


def gradients_of(pairs: list[tuple[Tensor, Tensor]], inputs: Sequence[Tensor]) -> tuple[Tensor | None, ...]:
    """The gradient of some outputs, each with its own, in the inputs; None where there is none."""
    outputs, gradients = zip(*pairs, strict=True)
    return torch.autograd.grad(outputs, inputs, gradients, allow_unused=True)


class Recorded:
    """A large set whose chunks are made with a graph, which is forgotten at once."""

    def __init__(self, large: "LargeSet") -> None:
        self.large = large
        self.reading = large.reading

    def chunks(self, kind: str) -> Iterator[Chunk]:
        for raw in self.large.raw_chunks(kind):
            with torch.enable_grad():
                chunk = self.large.through(raw, self.large.inputs)
            yield chunk._replace(elements=chunk.elements.detach())
