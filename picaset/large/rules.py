"""Streaming rules: how each operator is computed on a large set, one pass at a time.

``apply_streamed(operator, large)`` selects the rule by the class of the operator (``functools.singledispatch``); a
subclass inherits the rule of its base class. To stream an operator or network of your own, register a function of the
operator and a LargeSet by ``@apply_streamed.register`` in the file that defines the class. The function

    computes statistics of the set       large.fold(Sums(function), *inputs), one pass; see statistics.py
    transforms elements                  large.map(function, *inputs, modules=...)
    applies the parts of a network       apply_streamed(part, large)

and returns tensors, or a LargeSet if the operator is an encoder. Gradients need no further code.

Dimensions:  B sets   n elements of a chunk   K queries   H heads   M = H K   D features
"""

from functools import singledispatch
from typing import Any

import torch
from torch import Tensor, nn

from picaset.large.large_set import LargeSet, zero_absent
from picaset.large.statistics import Attention, Maxima, Softmax, Sums
from picaset.operators.attention import Order, ProjectedSet, cheapest_order, join_heads
from picaset.operators.attention_pools import FeaturewiseAttentionPool, GatedAttentionPool
from picaset.operators.block import MultiheadAttentionBlock
from picaset.operators.canonicalize import Canonicalize, ShiftAndScale
from picaset.operators.encoders import Elementwise, InducedSelfAttention, SelfAttention
from picaset.operators.janossy_pool import JanossyPool
from picaset.operators.picaso import GeneralizedPicaso, PicasoPool
from picaset.operators.set_norm import SetNorm
from picaset.operators.simple_pools import MaxPool, MeanPool, SumPool, count_elements, sum_elements
from picaset.operators.slot_attention import SlotAttention
from picaset.operators.soft_kmeans import SoftKMeans
from picaset.operators.sort_pool import SortPool
from picaset.operators.state import AttentionState, upcast_half, without_autocast


@singledispatch
def apply_streamed(operator: nn.Module, large: LargeSet) -> Any:
    """Apply an operator or network to a large set; encoders return a LargeSet, everything else tensors.

    Example:
        >>> class RootMeanSquare(nn.Module):
        ...     def forward(self, elements, mask=None):
        ...         return elements.square().mean(dim=1, keepdim=True).sqrt()
        >>> @apply_streamed.register
        ... def _(operator: RootMeanSquare, large: LargeSet) -> Tensor:
        ...     total, size = large.map(torch.square).fold(Sums(sum_and_count)).sums
        ...     return (total / size).sqrt()
        >>> from picaset import stream
        >>> stream(RootMeanSquare(), torch.tensor([[1.0], [7.0]]), chunk=1)
        tensor([[[5.]]])
    """
    raise TypeError(
        f"{type(operator).__name__} cannot stream: no streaming rule is registered for it. If it treats every element "
        "by itself, wrap it in picaset.Elementwise; otherwise register a rule, as picaset.large.rules describes."
    )


def num_passes(operator: nn.Module) -> int:
    """Return how often an operator reads its set: once per step; an induced encoder once more to map the elements."""
    return 2 if isinstance(operator, InducedSelfAttention) else int(getattr(operator, "num_steps", 1))


@apply_streamed.register
def _(operator: nn.Sequential, large: LargeSet) -> Any:
    result: Any = large
    for module in operator:
        result = apply_streamed(module, result) if isinstance(result, LargeSet) else module(result)
    return result


# Operators that cannot stream


@apply_streamed.register
def _(operator: SelfAttention, large: LargeSet) -> Any:
    raise TypeError(
        "SelfAttention cannot stream: every element attends to every other, so its cost grows with the square of the "
        "set size. Use InducedSelfAttention, which attends through a few learned points; in a network, "
        "encoder='induced'."
    )


@apply_streamed.register
def _(operator: JanossyPool, large: LargeSet) -> Any:
    raise TypeError(
        "JanossyPool cannot stream: it averages over tuples of elements, which may lie in different chunks. Use "
        "PicasoPool or AttentionPool."
    )


@apply_streamed.register
def _(operator: SortPool, large: LargeSet) -> Any:
    raise TypeError("SortPool cannot stream: it sorts the whole set. Use PicasoPool or FeaturewiseAttentionPool.")


# Simple pools


@apply_streamed.register
def _(operator: MeanPool, large: LargeSet) -> Tensor:
    total, size = large.fold(Sums(sum_and_count)).sums
    return (total / torch.where(size == 0, 1, size)).to(large.reading.dtype)


@apply_streamed.register
def _(operator: SumPool, large: LargeSet) -> Tensor:
    total, _ = large.fold(Sums(sum_and_count)).sums
    return total.to(large.reading.dtype)


@apply_streamed.register
def _(operator: MaxPool, large: LargeSet) -> Tensor:
    (largest,) = large.fold(Maxima(values_of)).sums
    return largest.masked_fill(largest == -torch.inf, 0.0).to(large.reading.dtype)


def values_of(elements: Tensor, mask: Tensor | None) -> tuple[Tensor]:
    return (elements,)


def sum_and_count(elements: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    return sum_elements(elements, mask), count_elements(elements, mask).expand(len(elements), 1, 1).to(torch.float64)


# Softmax pools


@apply_streamed.register
def _(operator: GatedAttentionPool, large: LargeSet) -> Tensor:
    def score(elements: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        return operator.scores(elements)[:, None], upcast_half(elements)[:, None]

    state = softmax_state(large, Softmax(score, (operator,)))
    return state.mean().squeeze(1).to(large.reading.dtype)


@apply_streamed.register
def _(operator: FeaturewiseAttentionPool, large: LargeSet) -> Tensor:
    def score(elements: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        scores = upcast_half(operator.weigh(elements)).transpose(1, 2)[:, :, None]  # (B, D, 1, n)
        return scores, upcast_half(elements).transpose(1, 2)[..., None]

    state = softmax_state(large, Softmax(score, (operator,)))
    return state.mean().flatten(1)[:, None].to(large.reading.dtype)


@apply_streamed.register
def _(operator: SoftKMeans, large: LargeSet) -> Tensor:
    def score(elements: Tensor, mask: Tensor | None, templates: Tensor) -> tuple[Tensor, Tensor]:
        elements = upcast_half(elements)
        with without_autocast(elements):
            return operator.scores(templates, elements)[:, None], elements[:, None]

    templates = upcast_half(operator.templates).expand(large.sets, -1, -1)
    for _ in range(operator.num_steps):
        state = softmax_state(large, Softmax(score), templates)
        mean = state.mean()
        templates = (torch.where(state.is_nonempty(), mean, templates[:, None]) if operator.compete else mean)[:, 0]
    return templates.to(operator.templates.dtype)


def softmax_state(large: LargeSet, statistic: Softmax, *inputs: Tensor) -> AttentionState:
    """Return the attention state of the whole set."""
    peak, (total, weighted) = large.fold(statistic, *inputs)
    assert peak is not None
    return AttentionState(peak.to(total.dtype), total, weighted)


@apply_streamed.register
def _(operator: SlotAttention, large: LargeSet) -> Tensor:
    def share_sums(elements: Tensor, mask: Tensor | None, slots: Tensor) -> tuple[Tensor, Tensor]:
        keys, values = operator.project(elements)
        shares = operator.compete(slots, keys, mask)  # (B, K, n)
        return shares.sum(dim=-1, keepdim=True), shares @ values

    slots = operator.slots_from(large.reading.reduction.broadcast(operator.draw(large.sets)))
    for _ in range(operator.num_steps):
        total, weighted = large.fold(Sums(share_sums, (operator,)), slots).sums
        slots = operator.update(slots, total, weighted)
    return slots


# Attention blocks, cascades and encoders


@apply_streamed.register
def _(operator: PicasoPool, large: LargeSet) -> Tensor:
    if type(operator).advance is not PicasoPool.advance:
        name = type(operator).__name__
        raise TypeError(
            f"{name} cannot stream: it overrides advance, and no streaming rule is registered for it; register one, as "
            "picaset.large.rules describes."
        )
    templates = operator.initial(large.sets)
    for step in range(operator.num_steps):
        templates = attend_large(operator.block(step), templates, large, operator.order)
    return templates


@apply_streamed.register
def _(operator: Elementwise, large: LargeSet) -> LargeSet:
    return large.map(operator.network, modules=(operator,))


@apply_streamed.register
def _(operator: InducedSelfAttention, large: LargeSet) -> LargeSet:
    gathered = attend_large(operator.gather, operator.inducing.expand(large.sets, -1, -1), large)  # (B, M, D)
    return attend_from_elements(operator.spread, gathered, large)


@apply_streamed.register
def _(operator: GeneralizedPicaso, large: LargeSet) -> tuple[Tensor, LargeSet]:
    templates = operator.templates.expand(large.sets, -1, -1)
    for step in range(operator.num_steps):
        templates = attend_large(operator.reading, templates, large)
        large = attend_from_elements(operator.rewriting or operator.reading, templates, large)
        if step + 1 < operator.num_steps:
            large = large.cache(reads=2)  # the next step attends to it, then maps it
    return templates, large


def attend_large(
    block: MultiheadAttentionBlock, queries: Tensor, large: LargeSet, order: Order | None = None
) -> Tensor:
    """Return queries (B, K, Q) after attending to a large set in one pass, by default in the cheapest order."""
    order = order or cheapest_order(
        num_queries=queries.shape[1], num_heads=block.num_heads, dim_elements=block.dim_elements, dim=block.dim
    )
    if block.clean and isinstance(block.element_norm, SetNorm):
        raise TypeError(SET_NORM_CANNOT_STREAM)
    projected = upcast_half(block.project(queries))
    heads = absorbed_heads(block, projected, large) if order == "absorb" else projected_heads(block, projected, large)
    return block.combine(queries, block.project(queries), heads)


SET_NORM_CANNOT_STREAM = (
    "norm='set' cannot stream: the mean and the variance of all elements are needed before any of them is attended to. "
    "Use norm='layer'."
)


def absorbed_heads(block: MultiheadAttentionBlock, queries: Tensor, large: LargeSet) -> Tensor:
    """Return the heads without projecting the set: a softmax mean of its elements for the M queries of all heads."""

    def products(elements: Tensor, mask: Tensor | None, queries: Tensor) -> tuple[Tensor, ...]:
        values = upcast_half(block.normalized(elements, mask))[:, None]
        return queries[:, None], values, values

    norms = (block.element_norm,) if block.clean else ()
    maps = block.absorbed(queries.new_zeros(1, 1, block.dim_elements), None)
    with without_autocast(queries):
        peak, (mean,) = large.fold(Attention(products, norms), maps.queries(queries))
        assert peak is not None
        peak = peak.to(mean.dtype)
        return maps.finish(AttentionState(*(maps.by_head(part[:, 0]) for part in (peak, torch.ones_like(peak), mean))))


def projected_heads(block: MultiheadAttentionBlock, queries: Tensor, large: LargeSet) -> Tensor:
    """Return the heads by projecting every element to keys and values."""

    def products(elements: Tensor, mask: Tensor | None, queries: Tensor) -> tuple[Tensor, ...]:
        view = block.view(elements, mask, num_queries=None, order="project")
        assert isinstance(view, ProjectedSet)
        return view.queries(queries), view.keys, view.values

    norms = (block.element_norm,) if block.clean else ()
    (mean,) = large.fold(Attention(products, (block.key_map, block.value_map, *norms)), queries).sums
    return join_heads(mean)


def attend_from_elements(block: MultiheadAttentionBlock, vectors: Tensor, large: LargeSet) -> LargeSet:
    """Let every element attend to the vectors (B, K, D), and return the updated set."""
    if any(isinstance(module, SetNorm) for module in block.modules()):
        raise TypeError(SET_NORM_CANNOT_STREAM)

    def attend(elements: Tensor, vectors: Tensor) -> Tensor:
        return block.update(elements, block.view(vectors, None, num_queries=None))

    return large.map(attend, vectors, modules=(block,))


# Canonicalize


@apply_streamed.register
def _(operator: Canonicalize, large: LargeSet) -> Any:
    shift, scale = place_of(large)
    prediction = apply_streamed(operator.network, large.map(standardize, shift, scale))
    if isinstance(prediction, LargeSet):
        raise TypeError(
            "Canonicalize cannot stream around an encoder: restore would need its prediction, a set, as a whole. Add a "
            "pool after the encoder."
        )
    return operator.restore(prediction, shift, scale)


def standardize(elements: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    return (elements - shift) / scale


def place_of(large: LargeSet) -> ShiftAndScale:
    """Return the mean of a set and the root of its mean squared deviation over elements and features."""
    # shift_and_scale of canonicalize.py computes the deviations once and takes their maximum as unit. Here each of
    # three passes computes them again, and that unit would take a fourth, so the unit is half of the bounding box.
    # As there, deviations are measured from the middle of the bounding box, which carries no gradient.
    with torch.no_grad():
        (corners,) = large.fold(Maxima(signed_values)).sums  # (B, 1, 2 D)
    high, low = corners.chunk(2, dim=-1)[0], -corners.chunk(2, dim=-1)[1]
    empty = high == -torch.inf
    middle = (low / 2 + high / 2).masked_fill(empty, 0.0)
    extent = (high / 2 - low / 2).masked_fill(empty, 0.0).amax(dim=(1, 2), keepdim=True)  # (B, 1, 1)
    unit = torch.where(extent > 0, extent, 1.0)

    total, size = large.fold(Sums(deviations), middle).sums
    size = torch.where(size == 0, 1, size)
    offset = total / size
    (squares,) = large.fold(Sums(squared_deviations), middle, offset, unit).sums
    variance = squares / (size * middle.shape[2])
    # The square root has no gradient at zero, so replace zero by one.
    scale = unit * torch.where(variance > 0, variance, 1.0).sqrt()
    scale = torch.where(extent > 0, scale, 1.0)
    dtype = large.reading.dtype
    return ShiftAndScale((middle + offset).to(dtype), scale.to(dtype).clamp(min=torch.finfo(dtype).tiny))


def signed_values(elements: Tensor, mask: Tensor | None) -> tuple[Tensor]:
    return (torch.cat([upcast_half(elements), -upcast_half(elements)], dim=-1),)


def deviations(elements: Tensor, mask: Tensor | None, middle: Tensor) -> tuple[Tensor, Tensor]:
    deviation = zero_absent(upcast_half(elements) - middle, mask)
    return sum_elements(deviation, mask), count_elements(elements, mask).expand(len(elements), 1, 1).double()


def squared_deviations(
    elements: Tensor, mask: Tensor | None, middle: Tensor, offset: Tensor, unit: Tensor
) -> tuple[Tensor]:
    deviation = zero_absent((upcast_half(elements) - middle - offset) / unit, mask)
    return (sum_elements(deviation.square(), mask).sum(dim=2, keepdim=True),)
