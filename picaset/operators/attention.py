r"""Exact multihead attention over a set, in whichever order of evaluation is cheapest.

    heads_h(q) = sum_n a_n (W_V,h x_n + b_V,h),     a = softmax_n(q_h . (W_K,h x_n + b_K,h))

Both views of a set below give the same numbers and the same gradients:

    ProjectedSet    keys and values of every element, made once and asked many times
    AbsorbedSet     the elements themselves: the key map moves into the query, the value map
                    behind the mean, and nothing of size (N, D) is ever made

A view answers in two halves, ``summarize`` (an AttentionState of the elements) and ``finish``
(the heads, from that state), so that the elements may also come in chunks.

Queries arrive scaled: whoever owns the query map divides by the square root of the width.

Dimensions:  B sets   N elements   K queries   H heads   d = D / H   E features of an element
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from picaset.operators.numerics import wide, without_autocast
from picaset.operators.state import AttentionState, softmax_over_present

Order = Literal["project", "absorb"]


@dataclass(frozen=True)
class ProjectedSet:
    """A set seen through its keys and values."""

    keys: Float[Tensor, "B H N d"]
    values: Float[Tensor, "B H N d"]
    mask: Bool[Tensor, "B N"] | None

    def scores(self, queries: Float[Tensor, "B H K d"]) -> Float[Tensor, "B H K N"]:
        return queries @ self.keys.transpose(-2, -1)

    def summarize(self, queries: Float[Tensor, "B H K d"]) -> AttentionState:
        return AttentionState.of(self.scores(queries), self.values, self.mask)

    def finish(self, state: AttentionState) -> Float[Tensor, "B H K d"]:
        return state.mean()


@dataclass(frozen=True)
class AbsorbedSet:
    """A set seen as it is, the key and value maps moved to the queries and to the mean."""

    elements: Float[Tensor, "B N E"]
    mask: Bool[Tensor, "B N"] | None
    key_weight: Float[Tensor, "H d E"]
    value_weight: Float[Tensor, "H d E"]
    value_bias: Float[Tensor, "H 1 d"]

    def scores(self, queries: Float[Tensor, "B H K d"]) -> Float[Tensor, "B H K N"]:
        # q . (W x + b) = (W^T q) . x + q . b, and what does not depend on n cancels in the softmax
        absorbed = torch.einsum("bhkd,hde->bhke", queries, self.key_weight)
        folded = absorbed.flatten(1, 2) @ self.elements.transpose(1, 2)  # (B, H K, N): one product for all heads
        return folded.reshape(*absorbed.shape[:3], folded.shape[-1])

    def summarize(self, queries: Float[Tensor, "B H K d"]) -> AttentionState:
        scores = self.scores(queries)
        # All heads look at the same elements, so they are folded into the queries: nothing is copied per head.
        state = AttentionState.of(scores.flatten(1, 2)[:, None], self.elements[:, None], self.mask)
        return AttentionState(*(part.reshape(*scores.shape[:3], part.shape[-1]) for part in state))

    def finish(self, state: AttentionState) -> Float[Tensor, "B H K d"]:
        # sum_n a_n (W x_n + b) = W (sum_n a_n x_n) + b, but nothing at all for an empty set
        heads = torch.einsum("bhke,hde->bhkd", state.mean(), self.value_weight)
        return heads + self.value_bias * state.seen()


SetView = ProjectedSet | AbsorbedSet


def attend(queries: Float[Tensor, "B H K d"], view: SetView) -> Float[Tensor, "B H K d"]:
    """Each query's attention-weighted mean of the values; zero for an empty set."""
    with without_autocast(queries):
        return view.finish(view.summarize(queries))


def attention_weights(queries: Float[Tensor, "B H K d"], view: SetView) -> Float[Tensor, "B H K N"]:
    """The weights themselves: a distribution over the present elements, all zero for an empty set."""
    with without_autocast(queries):
        return softmax_over_present(view.scores(queries), view.mask)


def view_set(
    elements: Float[Tensor, "B N E"],
    mask: Bool[Tensor, "B N"] | None,
    *,
    key_map: nn.Linear,
    value_map: nn.Linear,
    num_heads: int,
    order: Order,
) -> SetView:
    """See a set through a key and a value map, for queries in the given order of evaluation.

    Half-precision elements are widened here, so that scores and sums are taken in float32.
    """
    if order == "project":
        return ProjectedSet(
            split_heads(wide(key_map(elements)), num_heads), split_heads(wide(value_map(elements)), num_heads), mask
        )
    per_head = (num_heads, key_map.out_features // num_heads, key_map.in_features)
    return AbsorbedSet(
        wide(elements),
        mask,
        wide(key_map.weight).reshape(per_head),
        wide(value_map.weight).reshape(per_head),
        # The key bias cancels in the softmax. Its gradient is zero, but it has one: distributed training waits for it.
        wide(value_map.bias + 0 * key_map.bias).reshape(num_heads, 1, per_head[1]),
    )


def cheapest_order(
    *, num_queries: int | None, num_heads: int, dim_elements: int, dim: int, num_steps: int = 1
) -> Order:
    """Compare the multiplications per element of both orders; the number of elements plays no part.

    Projecting costs ``4 E D`` once and ``4 K D`` per step; absorbing costs ``4 K H E`` per step.
    ``num_queries=None`` says that the queries are as many as the elements, and projecting wins.
    """
    if num_queries is None:
        return "project"
    project = dim_elements * dim + num_steps * num_queries * dim
    absorb = num_steps * num_queries * num_heads * dim_elements
    return "absorb" if absorb < project else "project"


def split_heads(vectors: Float[Tensor, "B M D"], num_heads: int) -> Float[Tensor, "B H M d"]:
    sets, count, dim = vectors.shape
    return vectors.reshape(sets, count, num_heads, dim // num_heads).transpose(1, 2)


def join_heads(heads: Float[Tensor, "B H M d"]) -> Float[Tensor, "B M D"]:
    return heads.transpose(1, 2).flatten(2)
