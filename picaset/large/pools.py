"""Pools over a large set: each one its equation, with the sum over the set taken by a fold.

Importing this file teaches ``read_large`` these operators.

Dimensions:  B sets   n elements of a chunk   K templates   D features
"""

from typing import Any

import torch
from torch import Tensor

from picaset.large.dispatch import read_by_type
from picaset.large.large_set import LargeSet
from picaset.large.statistics import Maxima, Softmax, Sums
from picaset.operators.attention_pools import FeaturewiseAttentionPool, GatedAttentionPool
from picaset.operators.numerics import wide, without_autocast
from picaset.operators.simple_pools import MaxPool, MeanPool, SumPool, accumulate, count
from picaset.operators.slot_attention import SlotAttention
from picaset.operators.soft_kmeans import SoftKMeans
from picaset.operators.state import AttentionState


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
