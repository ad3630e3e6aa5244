"""Canonicalize over a large set: three passes to find where it lies, then those of the network.

Importing this file teaches ``read_large`` this operator.

Dimensions:  B sets   n elements of a chunk   D features

How an operator reads a large set: found by its type, or said by the operator itself.

A network of one's own takes part by having a method ``read_large(large)``, which calls ``read_large`` of its parts one
after the other, as :class:`picaset.networks.set_networks.PooledNetwork` does.

What is done to elements on their way from the source to the operator.

Pools over a large set: each one its equation, with the sum over the set taken by a fold.

Importing this file teaches ``read_large`` these operators.

Dimensions:  B sets   n elements of a chunk   K templates   D features

Attention over a large set: blocks, cascades and induced encoders. One pass for every step.

Importing this file teaches ``read_large`` these operators.

Dimensions:  B sets   n elements of a chunk   K queries   H heads   D features   M = H K
"""

from collections.abc import Callable
from functools import singledispatch
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from picaset.large.large_set import LargeSet
from picaset.large.statistics import Attention, Maxima, Softmax, Sums
from picaset.operators.attention import Order, ProjectedSet, cheapest_order, join_heads
from picaset.operators.attention_pools import FeaturewiseAttentionPool, GatedAttentionPool
from picaset.operators.block import MultiheadAttentionBlock
from picaset.operators.canonicalize import Canonicalize, Place
from picaset.operators.encoders import Elementwise, InducedSelfAttention, SelfAttention
from picaset.operators.janossy_pool import JanossyPool
from picaset.operators.picaso import GeneralizedPicaso, PicasoPool
from picaset.operators.simple_pools import MaxPool, MeanPool, SumPool, accumulate, count
from picaset.operators.slot_attention import SlotAttention
from picaset.operators.soft_kmeans import SoftKMeans
from picaset.operators.sort_pool import SortPool
from picaset.operators.state import AttentionState, wide, without_autocast


@runtime_checkable
class ReadsLargeSets(Protocol):
    """A module that says itself how it reads a large set."""

    def read_large(self, large: LargeSet) -> Any: ...


def read_large(operator: nn.Module, large: LargeSet) -> Any:
    """The result of an operator on a large set: a large set again from an encoder, tensors from anything else."""
    return operator.read_large(large) if isinstance(operator, ReadsLargeSets) else read_by_type(operator, large)


@singledispatch
def read_by_type(operator: nn.Module, large: LargeSet) -> Any:
    raise TypeError(
        f"{type(operator).__name__} cannot read a set in chunks: nobody said how. If it treats every element by itself,"
        " wrap it in picaset.Elementwise; a network says how by a method read_large(large)."
    )


@read_by_type.register
def _(operator: SelfAttention, large: LargeSet) -> Any:
    raise TypeError(
        "SelfAttention cannot read a set in chunks: every element attends to every other, so that its cost grows with "
        "the square of the set. InducedSelfAttention passes the same knowledge through a few learned points; in a "
        "network, encoder='induced'."
    )


@read_by_type.register
def _(operator: JanossyPool, large: LargeSet) -> Any:
    raise TypeError(
        "JanossyPool cannot read a set in chunks: it averages over all tuples of elements, which meet across chunks. "
        "PicasoPool or AttentionPool can."
    )


@read_by_type.register
def _(operator: SortPool, large: LargeSet) -> Any:
    raise TypeError(
        "SortPool cannot read a set in chunks: it sorts the whole set. PicasoPool or FeaturewiseAttentionPool can."
    )


@read_by_type.register
def _(operator: nn.Sequential, large: LargeSet) -> Any:
    result: Any = large
    for module in operator:
        result = read_large(module, result) if isinstance(result, LargeSet) else module(result)
    return result


def num_passes(operator: nn.Module) -> int:
    """How often the set that an operator is given is read: once for each step, by an encoder once more to be mapped."""
    return 2 if isinstance(operator, InducedSelfAttention) else int(getattr(operator, "num_steps", 1))


Transform = Callable[[Tensor], Tensor]


def expect_width(large: LargeSet, operator: nn.Module, transform: Transform | None) -> LargeSet:
    """A large set behind a transform, refused where its elements do not fit the operator."""
    name, width = type(operator).__name__, width_of(operator)

    def prepare(elements: Tensor) -> Tensor:
        prepared = elements if transform is None else transform(elements)
        if prepared.shape[:-1] != elements.shape[:-1]:
            raise ValueError(
                "picaset.stream: transform must keep every element where it is, (B, n, D) to (B, n, E); it made "
                f"{tuple(prepared.shape)} of {tuple(elements.shape)}."
            )
        if width is not None and prepared.shape[-1] != width:
            raise ValueError(
                f"{name}: elements must have {width} features; those of {large.source.name} have {prepared.shape[-1]}"
                f"{'' if transform is None else ' after the transform'}."
            )
        return prepared

    modules = (transform,) if isinstance(transform, nn.Module) else ()
    return large.map(prepare, modules=modules, costs=transform is not None)


def width_of(operator: nn.Module) -> int | None:
    """Features that an operator expects; of modules one after the other, what the first one does."""
    if isinstance(operator, nn.Sequential) and len(operator):
        return width_of(operator[0])
    return getattr(operator, "dim_in", None)


def sum_and_count(elements: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    return accumulate(elements), count(elements, mask).expand(len(elements), 1, 1).to(torch.float64)


def identity(elements: Tensor, mask: Tensor | None) -> tuple[Tensor]:
    return (elements,)


@read_by_type.register
def _(operator: MeanPool, large: LargeSet) -> Tensor:
    total, size = large.fold(Sums(sum_and_count)).sums
    return (total / size.clamp(min=1)).to(large.reading.dtype)


@read_by_type.register
def _(operator: SumPool, large: LargeSet) -> Tensor:
    (total, _) = large.fold(Sums(sum_and_count)).sums
    return total.to(large.reading.dtype)


@read_by_type.register
def _(operator: MaxPool, large: LargeSet) -> Tensor:
    (largest,) = large.fold(Maxima(identity)).sums
    return largest.masked_fill(largest == -torch.inf, 0.0).to(large.reading.dtype)


def softmax_state(large: LargeSet, statistic: Softmax, *inputs: Tensor) -> AttentionState:
    """The state of the whole set."""
    peak, (total, weighted) = large.fold(statistic, *inputs)
    assert peak is not None
    return AttentionState(peak.to(total.dtype), total, weighted)


@read_by_type.register
def _(operator: GatedAttentionPool, large: LargeSet) -> Tensor:
    def weigh(elements: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        return operator.scores(elements)[:, None], wide(elements)[:, None]

    state = softmax_state(large, Softmax(weigh, (operator,)))
    return state.mean().squeeze(1).to(large.reading.dtype)


@read_by_type.register
def _(operator: FeaturewiseAttentionPool, large: LargeSet) -> Tensor:
    def weigh(elements: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        scores = wide(operator.weigh(elements)).transpose(1, 2)[:, :, None]  # (B, D, 1, n)
        return scores, wide(elements).transpose(1, 2)[..., None]

    state = softmax_state(large, Softmax(weigh, (operator,)))
    return state.mean().flatten(1)[:, None].to(large.reading.dtype)


@read_by_type.register
def _(operator: SoftKMeans, large: LargeSet) -> Tensor:
    def weigh(elements: Tensor, mask: Tensor | None, templates: Tensor) -> tuple[Tensor, Tensor]:
        elements = wide(elements)
        with without_autocast(elements):
            return operator.scores(templates, elements)[:, None], elements[:, None]

    templates = wide(operator.templates).expand(large.sets, -1, -1)
    for _ in range(operator.num_steps):
        state = softmax_state(large, Softmax(weigh), templates)
        mean = state.mean()
        templates = (torch.where(state.seen(), mean, templates[:, None]) if operator.compete else mean)[:, 0]
    return templates.to(operator.templates.dtype)


@read_by_type.register
def _(operator: SlotAttention, large: LargeSet) -> Any:
    def shares(elements: Tensor, mask: Tensor | None, slots: Tensor) -> tuple[Tensor, Tensor]:
        keys, values = operator.project(elements)
        held = operator.compete(slots, keys, mask)  # (B, K, n)
        return held.sum(dim=-1, keepdim=True), held @ values

    slots = operator.slots_from(large.reading.reduction.same(operator.draw(large.sets)))
    for _ in range(operator.num_steps):
        total, weighted = large.fold(Sums(shares, (operator,)), slots).sums
        slots = operator.update(slots, total, weighted)
    return slots


def ask(block: MultiheadAttentionBlock, queries: Tensor, large: LargeSet, order: Order | None = None) -> Tensor:
    """Queries (B, K, Q) after attending to a large set once; one pass, in the order that is cheapest for one."""
    order = order or cheapest_order(
        num_queries=queries.shape[1], num_heads=block.num_heads, dim_elements=block.dim_elements, dim=block.dim
    )
    asked = wide(block.query_map(queries))
    attended = absorbed(block, asked, large) if order == "absorb" else projected(block, asked, large)
    return block.combine(queries, block.query_map(queries), attended)


def absorbed(block: MultiheadAttentionBlock, asked: Tensor, large: LargeSet) -> Tensor:
    """The heads, without projecting the set: a softmax mean of the elements, asked M questions by all heads at once."""

    def products(elements: Tensor, mask: Tensor | None, questions: Tensor) -> tuple[Tensor, ...]:
        seen = wide(elements)[:, None]
        return questions[:, None], seen, seen

    nothing = block.absorbed(asked.new_zeros(1, 1, block.dim_elements), None)
    with without_autocast(asked):
        questions = nothing.queries(asked)  # (B, M, E)
        peak, (total, weighted) = large.fold(Attention(products), questions)
        assert peak is not None
        state = AttentionState(peak.to(total.dtype), total, weighted)
        return nothing.finish(AttentionState(*(nothing.by_head(part[:, 0]) for part in state)))


def projected(block: MultiheadAttentionBlock, asked: Tensor, large: LargeSet) -> Tensor:
    """The heads, through keys and values of every element."""

    def products(elements: Tensor, mask: Tensor | None, asked: Tensor) -> tuple[Tensor, ...]:
        view = block.view(elements, mask, num_queries=None, order="project")
        assert isinstance(view, ProjectedSet)
        return view.queries(asked), view.keys, view.values

    peak, (total, weighted) = large.fold(Attention(products, (block.key_map, block.value_map)), asked)
    assert peak is not None
    return join_heads(AttentionState(peak.to(total.dtype), total, weighted).mean())


@read_by_type.register
def _(operator: PicasoPool, large: LargeSet) -> Tensor:
    templates = operator.initial(large.sets)
    for step in range(operator.num_steps):
        templates = ask(operator.block(step), templates, large, operator.order)
    return templates


@read_by_type.register
def _(operator: Elementwise, large: LargeSet) -> LargeSet:
    return large.map(operator.network, modules=(operator,))


@read_by_type.register
def _(operator: InducedSelfAttention, large: LargeSet) -> LargeSet:
    gathered = ask(operator.gather, operator.inducing.expand(large.sets, -1, -1), large)  # (B, M, D)
    return spread(operator.spread, gathered, large)


def spread(block: MultiheadAttentionBlock, answers: Tensor, large: LargeSet) -> LargeSet:
    """The set whose elements have attended to a few answers."""

    def attend(elements: Tensor, answers: Tensor) -> Tensor:
        return block.update(elements, block.view(answers, None, num_queries=None))

    return large.map(attend, answers, modules=(block,))


@read_by_type.register
def _(operator: GeneralizedPicaso, large: LargeSet) -> Any:
    templates = operator.templates.expand(large.sets, -1, -1)
    for step in range(operator.num_steps):
        templates = ask(operator.reading, templates, large)
        large = spread(operator.rewriting or operator.reading, templates, large)
        if step + 1 < operator.num_steps:
            large = large.keep(reads=2)  # asked by the next step, and rewritten after it
    return templates, large


@read_by_type.register
def _(operator: Canonicalize, large: LargeSet) -> Any:
    shift, scale = place_of(large)
    prediction = read_large(operator.network, large.map(put_at_the_origin, shift, scale))
    if isinstance(prediction, LargeSet):
        raise TypeError(
            "Canonicalize cannot read a set in chunks around an encoder: its prediction is a set, which restore would "
            "need as a whole. Put a pool behind the encoder."
        )
    return operator.restore(prediction, shift, scale)


def put_at_the_origin(elements: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    return (elements - shift) / scale


def place_of(large: LargeSet) -> Place:
    """The mean of a set, and the root of its mean squared deviation over elements and features."""
    # As in the operator: measured from the middle of the bounding box, which carries no gradient.
    with torch.no_grad():
        (ends,) = large.fold(Maxima(both_ways)).sums  # (B, 1, 2 D)
    high, low = ends.chunk(2, dim=-1)[0], -ends.chunk(2, dim=-1)[1]
    empty = high == -torch.inf
    middle = (low / 2 + high / 2).masked_fill(empty, 0.0)
    extent = (high / 2 - low / 2).masked_fill(empty, 0.0).amax(dim=(1, 2), keepdim=True)  # (B, 1, 1)
    unit = torch.where(extent > 0, extent, 1.0)

    total, size = large.fold(Sums(deviations), middle).sums
    size = size.clamp(min=1)
    offset = total / size
    (squares,) = large.fold(Sums(squared_deviations), middle, offset, unit).sums
    variance = squares / (size * middle.shape[2])
    # The root of zero has no gradient; take that of one instead.
    scale = unit * torch.where(variance > 0, variance, 1.0).sqrt()
    scale = torch.where(extent > 0, scale, 1.0)
    dtype = large.reading.dtype
    return Place((middle + offset).to(dtype), scale.to(dtype).clamp(min=torch.finfo(dtype).tiny))


def both_ways(elements: Tensor, mask: Tensor | None) -> tuple[Tensor]:
    return (torch.cat([wide(elements), -wide(elements)], dim=-1),)


def deviations(elements: Tensor, mask: Tensor | None, middle: Tensor) -> tuple[Tensor, Tensor]:
    deviation = absent_as_zero(wide(elements) - middle, mask)
    return deviation.sum(dim=1, keepdim=True), count(elements, mask).expand(len(elements), 1, 1).double()


def squared_deviations(
    elements: Tensor, mask: Tensor | None, middle: Tensor, offset: Tensor, unit: Tensor
) -> tuple[Tensor]:
    deviation = absent_as_zero((wide(elements) - middle - offset) / unit, mask)
    return (deviation.square().sum(dim=(1, 2), keepdim=True),)


def absent_as_zero(values: Tensor, mask: Tensor | None) -> Tensor:
    return values if mask is None else values.masked_fill(~mask[..., None], 0.0)
