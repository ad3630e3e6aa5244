r"""The multihead attention block: what every attention operator of this library is made of.

Queries look at a set, take what they find, and pass it through a feed-forward layer:

    form="paper"      H = Y W_Y + rFF(Multihead(Y, X, X)),   MAB(Y, X) = H + rFF(H)        (Eq. 3)
    form="authors"    H = Q + heads,                         MAB(Y, X) = H + relu(W_o H)

In the paper's form scores are divided by the square root of the head width, a linear map W_O
follows the heads, and W_Y is not the query map. The program of Set Transformer and of PICASO,
from which published checkpoints come, divides by the square root of the whole width, has no map
after the heads, and adds the projected query Q. All maps have biases, which the equation omits.

Dimensions:  B sets   N elements   K queries   D features inside   H heads   d = D / H
"""

import math
from typing import Literal, TypedDict

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from picaset.checks import check_choice, check_divides, check_positive
from picaset.operators.attention import (
    AbsorbedSet,
    Order,
    SetView,
    attend,
    attention_weights,
    cheapest_order,
    view_set,
)
from picaset.operators.base import read_set, write_set
from picaset.operators.state import AttentionState, wide, without_autocast
from picaset.sets import SetBatch

Form = Literal["paper", "authors"]


class BlockOptions(TypedDict, total=False):
    """The block's own keywords, which every operator made of blocks passes on."""

    form: Form
    norm: bool
    residual: bool
    feed_forward: bool


class MultiheadAttentionBlock(nn.Module):
    r"""MAB: queries attend to a set (Eq. 3; Lee et al. 2019).

    .. math::  H = Y W_Y + \mathrm{rFF}(\mathrm{Multihead}(Y, X, X)), \qquad \mathrm{MAB}(Y, X) = H + \mathrm{rFF}(H)

    An empty set answers with heads of zero; residual, feed-forward and biases act as usual.

    Args:
        dim_queries: Features of a query.
        dim_elements: Features of an element.
        dim: Features inside and out.
        num_heads: Attention heads; divides ``dim``.
        form: ``"paper"`` for Eq. 3, ``"authors"`` for what the published programs compute.
        norm: Layer norm after each of the two sums.
        residual: Without it, both sums keep only their second term (Proposition 2).
        feed_forward: Without it, both feed-forward layers are left out (Proposition 2).

    Shapes:
        queries   (B, K, dim_queries)     or a SetBatch, one query for each of its elements
        elements  (B, N, dim_elements)    or a SetBatch
        mask      (B, N)                  True where an element is present; None means all are
        returns   (B, K, dim)             or a SetBatch, as the queries were

    Example:
        >>> block = MultiheadAttentionBlock(3, 5, 8, num_heads=2)
        >>> block(torch.randn(4, 2, 3), torch.randn(4, 100, 5)).shape
        torch.Size([4, 2, 8])
    """

    def __init__(
        self,
        dim_queries: int,
        dim_elements: int,
        dim: int,
        *,
        num_heads: int,
        form: Form = "paper",
        norm: bool = False,
        residual: bool = True,
        feed_forward: bool = True,
    ) -> None:
        super().__init__()
        caller = type(self).__name__
        check_positive(caller=caller, dim_queries=dim_queries, dim_elements=dim_elements)
        check_divides(num_heads, dim, caller=caller)
        check_choice(form, ("paper", "authors"), caller=caller, name="form")
        self.dim_queries = dim_queries
        self.dim_elements = self.dim_in = dim_elements
        self.dim = dim
        self.num_heads = num_heads
        self.form = form
        self.residual = residual
        self.feed_forward = feed_forward
        self.query_map = nn.Linear(dim_queries, dim)
        self.key_map = nn.Linear(dim_elements, dim)
        self.value_map = nn.Linear(dim_elements, dim)
        if form == "paper":
            self.output_map = nn.Linear(dim, dim)
            if residual:
                self.residual_map = nn.Linear(dim_queries, dim)
            if feed_forward:
                self.attended_layer = nn.Linear(dim, dim)
        if feed_forward:
            self.last_layer = nn.Linear(dim, dim)
        self.attended_norm = nn.LayerNorm(dim) if norm else nn.Identity()
        self.last_norm = nn.LayerNorm(dim) if norm and feed_forward else nn.Identity()

    def forward(
        self,
        queries: Float[Tensor, "B K Q"] | SetBatch,
        elements: Float[Tensor, "B N E"] | SetBatch,
        mask: Bool[Tensor, "B N"] | None = None,
    ) -> Float[Tensor, "B K D"] | SetBatch:
        """The queries after attending to their sets; ``mask`` is True where an element is present."""
        padded, present = read_set(self, elements, mask)
        asking, asked = queries.to_padded() if isinstance(queries, SetBatch) else (queries, None)
        check_queries(self, asking, padded)
        # A trace may hold for any number of queries, and the order must not depend on a size that can change.
        many = isinstance(queries, SetBatch) or torch.compiler.is_compiling()
        num_queries = None if many else asking.shape[1]
        answers = self.update(asking, self.view(padded, present, num_queries=num_queries))
        return write_set(answers, asked, like=queries)

    def view(
        self,
        elements: Float[Tensor, "B N E"],
        mask: Bool[Tensor, "B N"] | None,
        *,
        num_queries: int | None,
        num_steps: int = 1,
        order: Order | None = None,
    ) -> SetView:
        """See a set as this block does, to be asked ``num_queries`` questions in each of ``num_steps`` steps.

        ``num_queries=None`` says that every element asks; ``order`` overrides the cheapest order.
        """
        order = order or cheapest_order(
            num_queries=num_queries,
            num_heads=self.num_heads,
            dim_elements=self.dim_elements,
            dim=self.dim,
            num_steps=num_steps,
        )
        return view_set(
            elements,
            mask,
            key_map=self.key_map,
            value_map=self.value_map,
            num_heads=self.num_heads,
            scale=1 / math.sqrt(self.dim // self.num_heads if self.form == "paper" else self.dim),
            order=order,
        )

    def update(self, queries: Float[Tensor, "#B K Q"], view: SetView) -> Float[Tensor, "B K D"]:
        """The queries after attending to the set once; queries that all sets share may come as a batch of one."""
        asked = self.query_map(queries)  # (B, K, D)
        return self.combine(queries, asked, attend(wide(asked), view))

    def weights(self, queries: Float[Tensor, "B K Q"], view: SetView) -> Float[Tensor, "B H K N"]:
        """How much each query attends to each element, by head."""
        return attention_weights(wide(self.query_map(queries)), view)

    def summarize(
        self,
        queries: Float[Tensor, "B K Q"],
        elements: Float[Tensor, "B N E"],
        mask: Bool[Tensor, "B N"] | None = None,
    ) -> AttentionState:
        """What these queries need to know of a part of a set; states of parts merge."""
        asked = wide(self.query_map(queries))
        with without_autocast(asked):
            return self.absorbed(elements, mask).summarize(asked)

    def finish(self, queries: Float[Tensor, "B K Q"], state: AttentionState) -> Float[Tensor, "B K D"]:
        """The queries after attending to the set that ``state`` summarizes."""
        nothing = queries.new_zeros(1, 1, self.dim_elements)
        with without_autocast(state.total):
            attended = self.absorbed(nothing, None).finish(state)
        return self.combine(queries, self.query_map(queries), attended)

    def absorbed(self, elements: Tensor, mask: Tensor | None) -> AbsorbedSet:
        view = self.view(elements, mask, num_queries=1, order="absorb")
        assert isinstance(view, AbsorbedSet)
        return view

    def combine(
        self,
        queries: Float[Tensor, "#B K Q"],
        asked: Float[Tensor, "#B K D"],
        attended: Float[Tensor, "B K D"],
    ) -> Float[Tensor, "B K D"]:
        """Eq. 3 behind the attention: both residuals, both feed-forward layers."""
        attended = attended.to(asked.dtype)
        if self.form == "paper":
            attended = self.output_map(attended)
            if self.feed_forward:
                attended = torch.relu(self.attended_layer(attended))
        if self.residual:
            attended = attended + (self.residual_map(queries) if self.form == "paper" else asked)
        attended = self.attended_norm(attended)
        if not self.feed_forward:
            return attended
        last = torch.relu(self.last_layer(attended))
        return self.last_norm(attended + last if self.residual else last)


def check_queries(block: MultiheadAttentionBlock, queries: Tensor, elements: Tensor) -> None:
    if queries.dtype != elements.dtype and not torch.is_autocast_enabled(queries.device.type):
        raise TypeError(
            f"MultiheadAttentionBlock: queries are {queries.dtype} and elements {elements.dtype}; convert one."
        )
    if queries.dim() != 3 or queries.shape[2] != block.dim_queries or queries.shape[0] != elements.shape[0]:
        raise ValueError(
            f"MultiheadAttentionBlock: queries must have shape (B, K, {block.dim_queries}) with "
            f"B = {elements.shape[0]}, as many as there are sets; got {tuple(queries.shape)}."
        )
