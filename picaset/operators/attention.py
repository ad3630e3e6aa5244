r"""Exact multihead attention over a set, in the cheapest order of evaluation.

    heads_h(q) = sum_n a_n (W_V,h x_n + b_V,h),     a = softmax_n(scale q_h . (W_K,h x_n + b_K,h))

Two views of a set give the same results and gradients:

    ProjectedSet    keys and values of every element, computed once and used by every step
    AbsorbedSet     the elements themselves: the key map is applied to the queries and the value map to the
                    mean, and no (N, D) tensor is allocated

``AbsorbedSet`` also evaluates attention in two parts for elements that come in chunks: ``summarize`` returns the
AttentionState of a chunk, and ``finish`` the heads from the merged state.

Dimensions:  B sets   N elements   K queries   H heads   d = D / H   E features of an element   M = H K
"""

from dataclasses import dataclass
from typing import Literal

from jaxtyping import Bool, Float
from torch import Tensor, nn

from picaset.operators.absorbed_attention import Absorbed, absorb, absorbed_attention, project
from picaset.operators.kernels import softmax_attention
from picaset.operators.state import AttentionState, softmax_over_present, upcast_half, without_autocast

Order = Literal["project", "absorb"]

NARROW_HEAD = 16
"""Overhead of one query of one head, in features of equal cost; measured by benchmarks/pooling.py."""


@dataclass(frozen=True)
class ProjectedSet:
    """A set as its keys and values."""

    keys: Float[Tensor, "B H N d"]
    values: Float[Tensor, "B H N d"]
    mask: Bool[Tensor, "B N"] | None
    scale: float

    def scores(self, queries: Float[Tensor, "#B K D"]) -> Float[Tensor, "B H K N"]:
        """Return the scaled products of queries and keys."""
        return self.queries(queries) @ self.keys.transpose(-2, -1)

    def attend(self, queries: Float[Tensor, "#B K D"]) -> Float[Tensor, "B K D"]:
        """Return the heads, concatenated."""
        by_head = self.queries(queries).expand(self.keys.shape[0], -1, -1, -1)
        return join_heads(softmax_attention(by_head, self.keys, self.values, self.mask))

    def queries(self, queries: Float[Tensor, "B K D"]) -> Float[Tensor, "B H K d"]:
        """Return the scaled queries of each head."""
        return split_heads(queries * self.scale, self.keys.shape[1])


@dataclass
class AbsorbedSet:
    """A set as its elements, with the key map applied to the queries and the value map to the mean."""

    absorbed: Absorbed
    mask: Bool[Tensor, "B N"] | None
    scale: float

    def scores(self, queries: Float[Tensor, "#B K D"]) -> Float[Tensor, "B H K N"]:
        """Return the scaled products of queries and keys."""
        folded = self.queries(queries) @ self.absorbed.elements.transpose(1, 2)  # (B, M, N): one product for all heads
        return self.by_head(folded)

    def attend(self, queries: Float[Tensor, "#B K D"]) -> Float[Tensor, "B K D"]:
        """Return the heads, concatenated; the next call adds its gradients to the same buffers."""
        heads, self.absorbed = absorbed_attention(queries, self.absorbed, self.mask, self.scale)
        return heads

    def summarize(self, queries: Float[Tensor, "B K D"]) -> AttentionState:
        """Return the softmax statistics of the elements; those of the parts of a set merge."""
        elements = self.absorbed.elements
        folded = self.queries(queries) @ elements.transpose(1, 2)
        state = AttentionState.of(folded[:, None], elements[:, None], self.mask)
        return AttentionState(*(self.by_head(part[:, 0]) for part in state))

    def finish(self, state: AttentionState) -> Float[Tensor, "B K D"]:
        """Return the heads from the state of the whole set."""
        heads = project(state.mean().flatten(1, 2), self.absorbed.value_weight)
        return heads + self.absorbed.value_bias * state.seen()[:, 0, :1]

    def queries(self, queries: Float[Tensor, "B K D"]) -> Float[Tensor, "B M E"]:
        """Return the scaled queries of all heads, mapped to the space of the elements."""
        return absorb(queries, self.absorbed.key_weight, self.scale)

    def by_head(self, folded: Float[Tensor, "B M X"]) -> Float[Tensor, "B H K X"]:
        """Separate the heads."""
        sets, rows, columns = folded.shape
        heads = self.absorbed.key_weight.shape[0]
        return folded.reshape(sets, heads, rows // heads, columns)


SetView = ProjectedSet | AbsorbedSet


def attend(queries: Float[Tensor, "#B K D"], view: SetView) -> Float[Tensor, "B K D"]:
    """Return the attention-weighted mean of the values, heads concatenated; zero for an empty set.

    Queries shared by all sets may be a batch of one.
    """
    with without_autocast(queries):
        return view.attend(queries)


def attention_weights(queries: Float[Tensor, "#B K D"], view: SetView) -> Float[Tensor, "B H K N"]:
    """Return the attention weights, a distribution over the present elements; all zero for an empty set."""
    with without_autocast(queries):
        return softmax_over_present(view.scores(queries), view.mask)


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
    """Return a set, with its key and value map, for the given order of evaluation.

    Half precision is converted to float32 here, so that scores and sums are computed in float32.
    """
    if order == "project":
        keys, values = (split_heads(upcast_half(layer(elements)), num_heads) for layer in (key_map, value_map))
        return ProjectedSet(keys, values, mask, scale)
    per_head = (num_heads, key_map.out_features // num_heads, key_map.in_features)
    # The key bias cancels in the softmax, but needs a gradient, of zero: distributed training waits for it.
    bias = upcast_half(value_map.bias + 0 * key_map.bias)[None, None]
    if mask is not None:
        bias = bias * mask.any(dim=1)[:, None, None]
    key_weight, value_weight = (upcast_half(layer.weight).reshape(per_head) for layer in (key_map, value_map))
    return AbsorbedSet(Absorbed(upcast_half(elements), key_weight, value_weight, bias), mask, scale)


def cheapest_order(
    *, num_queries: int | None, num_heads: int, dim_elements: int, dim: int, num_steps: int = 1
) -> Order:
    """Return the order with fewer multiplications per element, whatever the number of elements.

    In pairs of multiplications, projecting costs ``E D`` once and ``K D`` per step, absorbing ``K H E`` per step.
    Kernels are less efficient for narrow heads, hence the overhead of ``NARROW_HEAD`` features per query and head.
    ``num_queries=None`` means one query per element, for which projecting is cheaper.
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
