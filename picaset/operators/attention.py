r"""Exact multihead attention over a set, in whichever order of evaluation is cheapest.

    heads_h(q) = sum_n a_n (W_V,h x_n + b_V,h),     a = softmax_n(scale q_h . (W_K,h x_n + b_K,h))

Both views of a set below give the same numbers and the same gradients:

    ProjectedSet    keys and values of every element, made once and asked many times
    AbsorbedSet     the elements themselves: the key map moves into the query, the value map
                    behind the mean, and nothing of size (N, D) is ever made

``AbsorbedSet`` also answers in two halves, ``summarize`` (an AttentionState of the elements) and ``finish``
(the heads, from that state), so that the elements may come in chunks.

Dimensions:  B sets   N elements   K queries   H heads   d = D / H   E features of an element   M = H K
"""

from dataclasses import dataclass
from typing import Literal

from jaxtyping import Bool, Float
from torch import Tensor, nn

from picaset.operators.absorbed_attention import Absorbed, absorb, absorbed_attention, project
from picaset.operators.kernels import softmax_attention
from picaset.operators.state import AttentionState, softmax_over_present, wide, without_autocast

Order = Literal["project", "absorb"]

NARROW_HEAD = 16
"""What a query of a head costs beyond its multiplications, in features; measured by benchmarks/pooling.py."""


@dataclass(frozen=True)
class ProjectedSet:
    """A set seen through its keys and values."""

    keys: Float[Tensor, "B H N d"]
    values: Float[Tensor, "B H N d"]
    mask: Bool[Tensor, "B N"] | None
    scale: float

    def scores(self, asked: Float[Tensor, "B K D"]) -> Float[Tensor, "B H K N"]:
        return self.queries(asked) @ self.keys.transpose(-2, -1)

    def attend(self, asked: Float[Tensor, "#B K D"]) -> Float[Tensor, "B K D"]:
        queries = self.queries(asked).expand(self.keys.shape[0], -1, -1, -1)
        return join_heads(softmax_attention(queries, self.keys, self.values, self.mask))

    def queries(self, asked: Float[Tensor, "B K D"]) -> Float[Tensor, "B H K d"]:
        return split_heads(asked * self.scale, self.keys.shape[1])


@dataclass
class AbsorbedSet:
    """A set seen as it is, the key and value maps moved to the queries and to the mean."""

    absorbed: Absorbed
    mask: Bool[Tensor, "B N"] | None
    scale: float

    def scores(self, asked: Float[Tensor, "B K D"]) -> Float[Tensor, "B H K N"]:
        folded = self.queries(asked) @ self.absorbed.elements.transpose(1, 2)  # (B, M, N): one product for all heads
        return self.by_head(folded)

    def attend(self, asked: Float[Tensor, "#B K D"]) -> Float[Tensor, "B K D"]:
        heads, self.absorbed = absorbed_attention(asked, self.absorbed, self.mask, self.scale)
        return heads

    def summarize(self, asked: Float[Tensor, "B K D"]) -> AttentionState:
        """What the queries need to know of the elements; states of the parts of a set merge."""
        elements = self.absorbed.elements
        folded = self.queries(asked) @ elements.transpose(1, 2)
        state = AttentionState.of(folded[:, None], elements[:, None], self.mask)
        return AttentionState(*(self.by_head(part[:, 0]) for part in state))

    def finish(self, state: AttentionState) -> Float[Tensor, "B K D"]:
        """The heads of the set that a state summarizes."""
        heads = project(state.mean().flatten(1, 2), self.absorbed.value_weight)
        return heads + self.absorbed.value_bias * state.seen()[:, 0, :1]

    def queries(self, asked: Float[Tensor, "B K D"]) -> Float[Tensor, "B M E"]:
        return absorb(asked, self.absorbed.key_weight, self.scale)

    def by_head(self, folded: Float[Tensor, "B M X"]) -> Float[Tensor, "B H K X"]:
        sets, rows, columns = folded.shape
        heads = self.absorbed.key_weight.shape[0]
        return folded.reshape(sets, heads, rows // heads, columns)


SetView = ProjectedSet | AbsorbedSet


def attend(asked: Float[Tensor, "#B K D"], view: SetView) -> Float[Tensor, "B K D"]:
    """Each query's attention-weighted mean of the values, its heads side by side; zero for an empty set.

    Queries that all sets share may come once, as a batch of one.
    """
    with without_autocast(asked):
        return view.attend(asked)


def attention_weights(asked: Float[Tensor, "B K D"], view: SetView) -> Float[Tensor, "B H K N"]:
    """The weights themselves: a distribution over the present elements, all zero for an empty set."""
    with without_autocast(asked):
        return softmax_over_present(view.scores(asked), view.mask)


def view_set(
    elements: Float[Tensor, "B N E"],
    mask: Bool[Tensor, "B N"] | None,
    *,
    key_map: nn.Linear,
    value_map: nn.Linear,
    num_heads: int,
    scale: float,
    order: Order,
) -> SetView:
    """See a set through a key and a value map, for queries in the given order of evaluation.

    Half-precision elements are widened here, so that scores and sums are taken in float32.
    """
    if order == "project":
        keys, values = (split_heads(wide(layer(elements)), num_heads) for layer in (key_map, value_map))
        return ProjectedSet(keys, values, mask, scale)
    per_head = (num_heads, key_map.out_features // num_heads, key_map.in_features)
    # The key bias cancels in the softmax. Its gradient is zero, but it has one: distributed training waits for it.
    bias = wide(value_map.bias + 0 * key_map.bias)[None, None]
    if mask is not None:
        bias = bias * mask.any(dim=1)[:, None, None]
    key_weight, value_weight = (wide(layer.weight).reshape(per_head) for layer in (key_map, value_map))
    return AbsorbedSet(Absorbed(wide(elements), key_weight, value_weight, bias), mask, scale)


def cheapest_order(
    *, num_queries: int | None, num_heads: int, dim_elements: int, dim: int, num_steps: int = 1
) -> Order:
    """Compare the multiplications per element of both orders; the number of elements plays no part.

    In pairs of multiplications, projecting costs ``E D`` once and ``K D`` per step, absorbing ``K H E`` per step.
    Narrow heads keep the kernel from its best rate, as if every query of every head cost a few features more.
    ``num_queries=None`` says that the queries are as many as the elements, and projecting wins.
    """
    if num_queries is None:
        return "project"
    project = dim_elements * dim + num_steps * num_queries * (dim + NARROW_HEAD * num_heads)
    absorb = num_steps * num_queries * num_heads * dim_elements
    return "absorb" if absorb < project else "project"


def split_heads(vectors: Float[Tensor, "B M D"], num_heads: int) -> Float[Tensor, "B H M d"]:
    sets, count, dim = vectors.shape
    return vectors.reshape(sets, count, num_heads, dim // num_heads).transpose(1, 2)


def join_heads(heads: Float[Tensor, "B H M d"]) -> Float[Tensor, "B M D"]:
    return heads.transpose(1, 2).flatten(2)
