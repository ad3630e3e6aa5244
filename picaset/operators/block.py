r"""The multihead attention block (MAB), of which all attention operators of this library consist.

Queries attend to a set, and the result passes through a feed-forward layer:

    form="paper"      H = Y W_Y + rFF(Multihead(Y, X, X)),   MAB(Y, X) = H + rFF(H)        (Eq. 3)
    form="authors"    H = Q + heads,                         MAB(Y, X) = H + relu(W_o H)

In the paper's form, scores are divided by the square root of the head width, a linear map W_O follows the heads, and
W_Y is not the query map. The programs of Set Transformer and PICASO, and so the published checkpoints, divide by the
square root of the whole width, have no map after the heads, and add the projected query Q. All maps have biases,
which the equation omits.

``residual="clean"`` is the equivariant residual of Set Transformer++ (Zhang et al. 2022): norms precede the attention
and the feed-forward layer, and nothing lies on the path of the queries, so that depth does not change them:

    H = Y + Attention(norm(Y), norm(X)),   MAB(Y, X) = H + rFF(norm(H))

Dimensions:  B sets   N elements   K queries   D features inside   H heads   d = D / H
"""

import math
from typing import Literal, TypedDict, cast

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn

from picaset.checks import check_choice, check_num_heads, check_positive
from picaset.operators.attention import (
    AbsorbedSet,
    Order,
    SetView,
    attend,
    attention_weights,
    cheapest_order,
    requires_plain_equation,
    view_set,
)
from picaset.operators.base import read_set, write_set
from picaset.operators.fused import Form as FusedForm
from picaset.operators.fused import attend_in_steps, rectify
from picaset.operators.packed_attention import packed_attention
from picaset.operators.set_norm import SetNorm
from picaset.operators.state import AttentionState, Presence, upcast_half, without_autocast
from picaset.pretrained import PretrainedNetwork
from picaset.sets import SetBatch

Form = Literal["paper", "authors"]
Norm = bool | Literal["layer", "set"]
Residual = bool | Literal["clean"]


class BlockOptions(TypedDict, total=False):
    """Keywords of MultiheadAttentionBlock that operators built from blocks accept and pass on."""

    form: Form
    norm: Norm
    residual: Residual
    feed_forward: bool


class MultiheadAttentionBlock(PretrainedNetwork):
    r"""Multihead attention block: queries attend to a set (MAB; Eq. 3, Lee et al. 2019).

    .. math::  H = Y W_Y + \mathrm{rFF}(\mathrm{Multihead}(Y, X, X)), \qquad \mathrm{MAB}(Y, X) = H + \mathrm{rFF}(H)

    The heads of an empty set are zero; residual, feed-forward layer and biases apply as usual.

    Args:
        dim_queries: Features of a query.
        dim_elements: Features of an element.
        dim: Features inside the block and of its output.
        num_heads: Attention heads; divides ``dim``.
        form: ``"paper"`` for Eq. 3, ``"authors"`` for the form of the published programs.
        norm: ``True`` or ``"layer"`` for layer norm, ``"set"`` for :class:`SetNorm`, after each of the two sums.
        residual: If False, both sums keep only their second term (Proposition 2). ``"clean"`` moves the norms before
            the attention and the feed-forward layer, and adds the queries as they are; if ``dim_queries`` is not
            ``dim``, a linear map of them.
        feed_forward: If False, both feed-forward layers are omitted (Proposition 2).

    Shapes:
        queries   (B, K, dim_queries)     or a SetBatch of queries
        elements  (B, N, dim_elements)    or a SetBatch
        mask      (B, N)                  True where an element is present; None if all are
        weights   (B, N)                  an element of weight w counts as w copies of it; None for ones
        returns   (B, K, dim)             or a SetBatch if the queries are one

    Example:
        >>> block = MultiheadAttentionBlock(3, 5, 8, num_heads=2)
        >>> block(torch.randn(4, 2, 3), torch.randn(4, 100, 5)).shape
        torch.Size([4, 2, 8])
    """

    takes_weights = True

    def __init__(
        self,
        dim_queries: int,
        dim_elements: int,
        dim: int,
        *,
        num_heads: int,
        form: Form = "paper",
        norm: Norm = False,
        residual: Residual = True,
        feed_forward: bool = True,
    ) -> None:
        super().__init__()
        caller = type(self).__name__
        check_choice(norm, (False, True, "layer", "set"), caller=caller, name="norm")
        check_choice(residual, (False, True, "clean"), caller=caller, name="residual")
        check_positive(caller=caller, dim_queries=dim_queries, dim_elements=dim_elements)
        check_num_heads(num_heads, dim, caller=caller)
        check_choice(form, ("paper", "authors"), caller=caller, name="form")
        self.dim_queries = dim_queries
        self.dim_elements = self.dim_in = dim_elements
        self.dim = dim
        self.num_heads = num_heads
        self.form = form
        self.residual = residual
        self.clean = residual == "clean"
        self.feed_forward = feed_forward
        self.scale = 1 / math.sqrt(dim // num_heads if form == "paper" else dim)
        self.query_map = nn.Linear(dim_queries, dim)
        self.key_map = nn.Linear(dim_elements, dim)
        self.value_map = nn.Linear(dim_elements, dim)
        if form == "paper":
            self.output_map = nn.Linear(dim, dim)
            if feed_forward:
                self.attended_layer = nn.Linear(dim, dim)
        if self.clean and dim_queries == dim:
            self.residual_map = nn.Identity()
        elif self.clean or (residual and form == "paper"):
            self.residual_map = nn.Linear(dim_queries, dim)
        if feed_forward:
            self.last_layer = nn.Linear(dim, dim)
        if self.clean:
            self.query_norm, self.element_norm = build_norm(norm, dim_queries), build_norm(norm, dim_elements)
        self.attended_norm = build_norm(norm if feed_forward or not self.clean else False, dim)
        self.last_norm = build_norm(norm if feed_forward and not self.clean else False, dim)

    def forward(
        self,
        queries: Float[Tensor, "B K Q"] | SetBatch,
        elements: Float[Tensor, "B N E"] | SetBatch,
        mask: Bool[Tensor, "B N"] | None = None,
        weights: Shaped[Tensor, "B N"] | None = None,
    ) -> Float[Tensor, "B K D"] | SetBatch:
        """Update the queries by attending to the sets; ``mask`` is True where an element is present."""
        padded, merged = read_set(self, elements, mask, weights)
        padded_queries, query_mask = queries.to_padded() if isinstance(queries, SetBatch) else (queries, None)
        check_queries(self, padded_queries, padded)
        # The number of queries of a trace may be dynamic, and the order of evaluation may not depend on it.
        dynamic = isinstance(queries, SetBatch) or torch.compiler.is_compiling()
        num_queries = None if dynamic else padded_queries.shape[1]
        updated = self.update(padded_queries, self.view(padded, merged, num_queries=num_queries), query_mask)
        return write_set(updated, query_mask, like=queries)

    def view(
        self,
        elements: Float[Tensor, "B N E"],
        mask: Presence | None,
        *,
        num_queries: int | None,
        num_steps: int = 1,
        order: Order | None = None,
    ) -> SetView:
        """Return a set as this block attends to it, for ``num_queries`` queries in each of ``num_steps`` steps.

        ``num_queries=None`` means one query per element; ``order`` overrides the cheapest order.
        """
        order = order or self.cheapest_order(num_queries=num_queries, num_steps=num_steps)
        if order == "absorb" and not (is_linear(self.key_map) and is_linear(self.value_map)):
            order = "project"
        return view_set(
            self.normalized(elements, mask),
            mask,
            key_map=self.key_map,
            value_map=self.value_map,
            num_heads=self.num_heads,
            scale=self.scale,
            order=order,
        )

    def cheapest_order(self, *, num_queries: int | None, num_steps: int = 1) -> Order:
        """Return the cheapest order for ``num_queries`` queries in each of ``num_steps`` steps."""
        return cheapest_order(
            num_queries=num_queries,
            num_heads=self.num_heads,
            dim_elements=self.dim_elements,
            dim=self.dim,
            num_steps=num_steps,
        )

    def update(
        self, queries: Float[Tensor, "#B K Q"], view: SetView, mask: Shaped[Tensor, "B K"] | None = None
    ) -> Float[Tensor, "B K D"]:
        """Update the queries by attending to the set; queries shared by all sets may be a batch of one.

        ``mask`` tells set norm which queries are present, if they are elements of padded sets.
        """
        some_queries = torch.compiler.is_compiling() or queries.shape[1] > 0
        if isinstance(view, AbsorbedSet) and some_queries and self.is_fused(view.mask):
            return self.attend_in_steps(queries, view.elements, view.mask, num_steps=1)
        projected = self.project(queries, mask)  # (B, K, D)
        return self.combine(queries, projected, attend(upcast_half(projected), view), mask)

    def update_packed(
        self,
        queries: Float[Tensor, "total Q"] | Float[Tensor, "1 M Q"],
        elements: Float[Tensor, "total E"] | Float[Tensor, "B M E"],
        batch: SetBatch,
    ) -> Float[Tensor, "total D"] | Float[Tensor, "B M D"]:
        """Update queries by attending to the sets of a batch, in compiled code (packed_attention.py).

        Queries or elements, or both, are the packed ones of the batch; queries (1, M, Q) are shared by all sets, and
        elements (B, M, E) are vectors of each set.
        """
        if queries.dim() == 3 and self.is_fused(None) and self.cheapest_order(num_queries=queries.shape[1]) == "absorb":
            return self.attend_in_steps(queries, batch.with_elements(elements), None, num_steps=1)
        projected = self.project(queries)
        normed = self.normalized(elements, None)
        mapped = self.key_map(normed), self.value_map(normed)
        own, keys, values = (upcast_half(part) for part in (projected, *mapped))
        if own.dim() == 3:
            own = own.expand(len(batch), -1, -1)
        attended = packed_attention(own, keys, values, batch, num_heads=self.num_heads, scale=self.scale)
        return self.combine(queries, projected, attended)

    def normalized(
        self, elements: Float[Tensor, "B N E"], mask: Shaped[Tensor, "B N"] | None
    ) -> Float[Tensor, "B N E"]:
        """Return the elements as keys and values are computed from them: as they are, without clean residuals."""
        return normalize(self.element_norm, elements, mask) if self.clean else elements

    def project(
        self, queries: Float[Tensor, "#B K Q"], mask: Shaped[Tensor, "B K"] | None = None
    ) -> Float[Tensor, "#B K D"]:
        """Return the projected queries, which the scores are computed from."""
        return self.query_map(normalize(self.query_norm, queries, mask) if self.clean else queries)

    def attend_in_steps(
        self,
        queries: Float[Tensor, "#B K Q"],
        elements: Tensor | SetBatch,
        mask: Presence | None,
        *,
        num_steps: int,
        order: Order | None = None,
    ) -> Float[Tensor, "B K D"]:
        """Update the queries ``num_steps`` times, as one autograd node (fused.py)."""
        norm = isinstance(self.attended_norm, nn.LayerNorm)
        form = FusedForm(
            self.num_heads, num_steps, self.scale, self.form == "paper", bool(self.residual), self.feed_forward, norm
        )
        modules = self._modules  # attributes of a module are slow to look up, which matters for small sets
        layers = [cast(nn.Linear, modules[name]) for name in form.layers()]
        parameters = [part for layer in layers for part in (layer.weight, layer.bias)]
        return attend_in_steps(queries, elements, mask, parameters, form, order)

    def is_fused(self, mask: Tensor | None) -> bool:
        """Whether attention in the absorbed order is one autograd node: not in exported programs and transforms.

        Nor with clean residuals, nor if weights of elements need a gradient, nor if a layer was replaced or has hooks.
        """
        if self.clean or requires_plain_equation() or (mask is not None and mask.requires_grad):
            return False
        for layer in cast(dict[str, nn.Module], self._modules).values():
            if type(layer) not in (nn.Linear, nn.LayerNorm, nn.Identity) or has_hooks(layer):
                return False
        return True

    def weights(self, queries: Float[Tensor, "#B K Q"], view: SetView) -> Float[Tensor, "B H K N"]:
        """Return the attention weights of each head."""
        return attention_weights(upcast_half(self.project(queries)), view)

    def summarize(
        self, queries: Float[Tensor, "B K Q"], elements: Float[Tensor, "B N E"], mask: Presence | None = None
    ) -> AttentionState:
        """Return the softmax statistics of a part of a set for these queries; those of all parts merge."""
        projected = upcast_half(self.project(queries))
        with without_autocast(projected):
            return self.absorbed(elements, mask).summarize(projected)

    def finish(self, queries: Float[Tensor, "B K Q"], state: AttentionState) -> Float[Tensor, "B K D"]:
        """Update the queries by attending to the set with the merged ``state``."""
        no_elements = queries.new_zeros(1, 1, self.dim_elements)
        with without_autocast(state.total):
            attended = self.absorbed(no_elements, None).finish(state)
        return self.combine(queries, self.project(queries), attended)

    def absorbed(self, elements: Tensor, mask: Tensor | None) -> AbsorbedSet:
        """Return a set for evaluation in the absorbed order."""
        view = self.view(elements, mask, num_queries=1, order="absorb")
        if not isinstance(view, AbsorbedSet):
            raise TypeError(
                "MultiheadAttentionBlock: a set is read in parts by the weights of key_map and value_map, so they must "
                "be nn.Linear without hooks; one of them was replaced or has hooks. Merge an adapter into its weights."
            )
        return view

    def combine(
        self,
        queries: Float[Tensor, "#B K Q"],
        projected: Float[Tensor, "#B K D"],
        attended: Float[Tensor, "B K D"],
        mask: Shaped[Tensor, "B K"] | None = None,
    ) -> Float[Tensor, "B K D"]:
        """Apply Eq. 3 after the attention: output map, residuals, norms and feed-forward layers."""
        attended = attended.to(projected.dtype)
        if self.form == "paper":
            attended = self.output_map(attended)
            if self.feed_forward:
                attended = rectify(self.attended_layer(attended))
        if self.residual:
            mapped = self.form == "paper" or self.clean
            attended = attended + (self.residual_map(queries) if mapped else projected)
        normed = normalize(self.attended_norm, attended, mask)
        if not self.feed_forward:
            return normed
        last = rectify(self.last_layer(normed))
        residual_input = attended if self.clean else normed
        return normalize(self.last_norm, residual_input + last if self.residual else last, mask)


def has_hooks(layer: nn.Module) -> bool:
    """Whether a call of the layer does more than its class, such as pruning, or moving weights between devices."""
    hooks = layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks  # pyright: ignore
    return bool(hooks) or "forward" in layer.__dict__  # pyright: ignore[reportUnknownArgumentType]


def is_linear(layer: nn.Module) -> bool:
    """Whether the output of a layer is determined by its weight and bias, which the absorbed order reads."""
    return type(layer).forward is nn.Linear.forward and not has_hooks(layer)


def check_queries(block: MultiheadAttentionBlock, queries: Tensor, elements: Tensor) -> None:
    if queries.dtype != elements.dtype and not torch.is_autocast_enabled(queries.device.type):
        raise TypeError(
            f"MultiheadAttentionBlock: queries are {queries.dtype} and elements {elements.dtype}; "
            "convert them to one dtype."
        )
    if queries.dim() != 3 or queries.shape[2] != block.dim_queries or queries.shape[0] != elements.shape[0]:
        raise ValueError(
            f"MultiheadAttentionBlock: queries must have shape (B, K, {block.dim_queries}) with "
            f"B = {elements.shape[0]}, the number of sets; got {tuple(queries.shape)}."
        )


def build_norm(norm: object, dim: int) -> nn.Module:
    """Return the norm of an option: layer norm for True and ``"layer"``, :class:`SetNorm` for ``"set"``, or none."""
    return SetNorm(dim) if norm == "set" else nn.LayerNorm(dim) if norm else nn.Identity()


def normalize(
    norm: nn.Module, elements: Float[Tensor, "B N D"], mask: Shaped[Tensor, "B N"] | None
) -> Float[Tensor, "B N D"]:
    """Apply a norm; only set norm needs to know which elements are present."""
    if isinstance(norm, SetNorm):
        return norm(elements, mask)
    if (
        isinstance(norm, nn.LayerNorm)
        and elements.dtype != norm.weight.dtype
        and not torch.is_autocast_enabled(elements.device.type)
    ):
        return norm(elements.to(norm.weight.dtype)).to(elements.dtype)  # elements of half precision, upcast to sum them
    return norm(elements)
