"""Attention over a large set: blocks, cascades and induced encoders. One pass for every step.

Importing this file teaches ``read_large`` these operators.

Dimensions:  B sets   n elements of a chunk   K queries   H heads   D features   M = H K
"""

from typing import Any

from torch import Tensor

from picaset.large.dispatch import read_by_type
from picaset.large.large_set import LargeSet
from picaset.large.statistics import Attention
from picaset.operators.attention import Order, ProjectedSet, cheapest_order, join_heads
from picaset.operators.block import MultiheadAttentionBlock
from picaset.operators.encoders import Elementwise, InducedSelfAttention
from picaset.operators.generalized_picaso import GeneralizedPicaso
from picaset.operators.numerics import wide, without_autocast
from picaset.operators.picaso import PicasoPool
from picaset.operators.state import AttentionState


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
