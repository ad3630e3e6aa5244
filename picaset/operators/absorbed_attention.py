"""Multihead attention that never projects the set ("absorbed" order), with its own backward pass.

    q . (W_K x + b) = (W_K^T q) . x + const        sum_n a_n (W_V x_n + b) = W_V (sum_n a_n x_n) + b

The key map is applied to the queries, where its bias cancels in the softmax, and the value map to the mean. In between
is O = softmax(Q X^T) X, attention with the elements X themselves as keys and values. Small problems store the
weights for the backward pass. Large ones use the blocked kernel, which keeps only the log of the softmax
denominator; its backward pass recomputes the weights in chunks of elements that fit into the cache,

    [A; G] = [Q; dO] X^T          scores and gradients of the weights, in one product
    A      = exp(A - log),        G = A * (G - rowsum(dO * O))
    dQ    += G X,                 dX += [A; G]^T [dO; Q]

and allocates nothing of the size of the set except its gradient.

The whole is one autograd function, which saves a dozen small operations per step. It also returns the elements and
maps; a cascade passes these on to its next step, so that the gradients of all steps accumulate in place, in one
buffer each.

Dimensions:  B sets   N elements   K queries   H heads   d = D / H   E features of an element   M = H K
"""

from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from picaset.operators.kernels import (
    blocked_mean,
    differentiable_gradients,
    plain_attention,
    requires_plain_equation,
    softmax_backward,
)
from picaset.operators.state import softmax_over_present

MAX_STORED_WEIGHTS = 2**20
"""Number of weights, over all sets and queries, up to which they are stored for the backward pass."""
ROWS_IN_CACHE = 8192
"""Number of elements, over all sets, in one chunk of the backward pass."""


def softmax_mean(
    queries: Float[Tensor, "B M E"], elements: Float[Tensor, "B N E"], mask: Bool[Tensor, "B N"] | None
) -> tuple[Float[Tensor, "B M E"], Float[Tensor, "B M N"] | Float[Tensor, "B M"]]:
    """Return the attention-weighted mean of the elements; zero for an empty set.

    Also return what the backward pass needs: the weights (B, M, N), or the log of the denominators (B, M).
    """
    if elements.shape[0] * queries.shape[1] * elements.shape[1] > MAX_STORED_WEIGHTS:
        return blocked_mean(queries, elements, mask)
    scores = torch.bmm(queries, elements.transpose(1, 2))
    weights = scores.softmax(dim=-1) if mask is None else softmax_over_present(scores[:, None], mask)[:, 0]
    return torch.bmm(weights, elements), weights


def backward_from_weights(
    queries: Float[Tensor, "B M E"],
    elements: Float[Tensor, "B N E"],
    weights: Float[Tensor, "B M N"],
    grad_mean: Float[Tensor, "B M E"],
    grad_elements: Float[Tensor, "B N E"] | None,
    *,
    accumulate: bool,
) -> Float[Tensor, "B M E"]:
    """Return the gradient of the queries from stored weights.

    The gradient of the elements is written into ``grad_elements``, or added to it if ``accumulate`` is set.
    """
    grad_scores = softmax_backward(torch.bmm(grad_mean, elements.transpose(1, 2)), weights)
    if grad_elements is not None:
        torch.baddbmm(grad_elements, weights.transpose(1, 2), grad_mean, beta=int(accumulate), out=grad_elements)
        grad_elements.baddbmm_(grad_scores.transpose(1, 2), queries)
    return torch.bmm(grad_scores, elements)


def backward_in_chunks(
    queries: Float[Tensor, "B M E"],
    elements: Float[Tensor, "B N E"],
    mask: Bool[Tensor, "B N"] | None,
    mean: Float[Tensor, "B M E"],
    log: Float[Tensor, "B M"],
    grad_mean: Float[Tensor, "B M E"],
    grad_elements: Float[Tensor, "B N E"] | None,
    *,
    accumulate: bool,
) -> Float[Tensor, "B M E"]:
    """Like ``backward_from_weights``, with weights recomputed chunk by chunk from the log of the denominators."""
    sets, count, _ = elements.shape
    num_queries = queries.shape[1]
    left = torch.cat([queries, grad_mean], dim=1)  # (B, 2M, E)
    right = torch.cat([grad_mean, queries], dim=1)
    log, correction = log[..., None], (grad_mean * mean).sum(dim=-1, keepdim=True)  # (B, M, 1) each
    grad_queries = torch.zeros_like(queries)
    size = max(ROWS_IN_CACHE // max(sets, 1), 1)
    for start in range(0, count, size):
        chunk = elements[:, start : start + size]
        products = left @ chunk.transpose(1, 2)  # (B, 2M, n)
        weights, grad_scores = products[:, :num_queries], products[:, num_queries:]
        weights.sub_(log).exp_()
        if mask is not None:
            weights.masked_fill_(~mask[:, None, start : start + size], 0.0)
        grad_scores.sub_(correction).mul_(weights)
        grad_queries.baddbmm_(grad_scores, chunk)
        if grad_elements is not None:
            grad_chunk = grad_elements[:, start : start + size]
            torch.baddbmm(grad_chunk, products.transpose(1, 2), right, beta=int(accumulate), out=grad_chunk)
    return grad_queries


class Absorbed(NamedTuple):
    """A set and the key and value maps through which it is attended to."""

    elements: Float[Tensor, "B N E"]
    key_weight: Float[Tensor, "H d E"]
    value_weight: Float[Tensor, "H d E"]
    value_bias: Float[Tensor, "#B 1 D"]
    """Bias of the value map; zero for an empty set."""


def absorbed_attention(
    queries: Float[Tensor, "#B K D"], absorbed: Absorbed, mask: Bool[Tensor, "B N"] | None, scale: float
) -> tuple[Float[Tensor, "B K D"], Absorbed]:
    """Return the heads, and the set to pass to the next step, so that gradients accumulate in place."""
    if requires_plain_equation():
        return plain_absorbed_attention(queries, absorbed, mask, scale), absorbed
    if not (torch.is_grad_enabled() and (queries.requires_grad or any(part.requires_grad for part in absorbed))):
        return forward(queries, absorbed, mask, scale)[0], absorbed
    heads, elements, key_weight, value_weight = cast(Any, AbsorbedAttention).apply(queries, *absorbed, mask, scale)
    # Outputs of the function require a gradient, so inputs that require none are passed on themselves.
    return heads, Absorbed(
        elements if absorbed.elements.requires_grad else absorbed.elements,
        key_weight if absorbed.key_weight.requires_grad else absorbed.key_weight,
        value_weight if absorbed.value_weight.requires_grad else absorbed.value_weight,
        absorbed.value_bias,
    )


def plain_absorbed_attention(
    queries: Float[Tensor, "#B K D"], absorbed: Absorbed, mask: Bool[Tensor, "B N"] | None, scale: float
) -> Float[Tensor, "B K D"]:
    """Return the heads by operations that torch can trace, transform and differentiate any number of times."""
    elements = absorbed.elements
    folded = absorb(queries, absorbed.key_weight, scale).expand(elements.shape[0], -1, -1)
    mean = plain_attention(folded[:, None], elements[:, None], elements[:, None], mask)[:, 0]
    return project(mean, absorbed.value_weight) + absorbed.value_bias


def forward(
    queries: Float[Tensor, "#B K D"], absorbed: Absorbed, mask: Bool[Tensor, "B N"] | None, scale: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the heads; and folded queries, mean and softmax statistics for the backward pass."""
    folded = absorb(queries, absorbed.key_weight, scale).expand(absorbed.elements.shape[0], -1, -1)
    mean, softmax = softmax_mean(folded, absorbed.elements, mask)
    return project(mean, absorbed.value_weight).add_(absorbed.value_bias), folded, mean, softmax


def absorb(queries: Float[Tensor, "B K D"], key_weight: Float[Tensor, "H d E"], scale: float) -> Float[Tensor, "B M E"]:
    """Apply the transposed key map of each head to its part of the queries."""
    return fold(torch.bmm(by_head(queries * scale, key_weight.shape[0]), key_weight), *queries.shape[:2])


def project(mean: Float[Tensor, "B M E"], value_weight: Float[Tensor, "H d E"]) -> Float[Tensor, "B K D"]:
    """Apply the value map of each head to its means."""
    sets, rows, _ = mean.shape
    num_heads = value_weight.shape[0]
    return join(torch.bmm(unfold(mean, num_heads), value_weight.transpose(1, 2)), sets, rows // num_heads)


def by_head(vectors: Float[Tensor, "B K D"], num_heads: int) -> Float[Tensor, "H BK d"]:
    """Split vectors into heads, all sets side by side."""
    sets, count, dim = vectors.shape
    return vectors.reshape(sets * count, num_heads, dim // num_heads).transpose(0, 1)


def join(heads: Float[Tensor, "H BK d"], sets: int, count: int) -> Float[Tensor, "B K D"]:
    """Concatenate heads; the inverse of ``by_head``."""
    num_heads, _, width = heads.shape
    return heads.transpose(0, 1).reshape(sets, count, num_heads * width)


def fold(heads: Float[Tensor, "H BK E"], sets: int, count: int) -> Float[Tensor, "B M E"]:
    """Stack the heads of each set as rows, for one product with its elements."""
    num_heads, _, features = heads.shape
    return heads.view(num_heads, sets, count, features).transpose(0, 1).reshape(sets, num_heads * count, features)


def unfold(folded: Float[Tensor, "B M E"], num_heads: int) -> Float[Tensor, "H BK E"]:
    """Separate the heads again; the inverse of ``fold``."""
    sets, rows, features = folded.shape
    count = rows // num_heads
    return folded.reshape(sets, num_heads, count, features).transpose(0, 1).reshape(num_heads, sets * count, features)


class AbsorbedAttention(torch.autograd.Function):
    """Autograd function of ``absorbed_attention``."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Any:
        queries, elements, keys, values, bias, mask, scale = inputs
        heads, folded, mean, softmax = forward(queries, Absorbed(elements, keys, values, bias), mask, scale)
        ctx.set_materialize_grads(False)
        ctx.scale = scale
        ctx.save_for_backward(queries, elements, keys, values, bias, mask, folded, mean, softmax)
        return heads, elements.view_as(elements), keys.view_as(keys), values.view_as(values)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        grad_heads, *later = grad_outputs  # ``later``: gradients of elements and maps from the steps after this one
        queries, elements, keys, values, bias, mask, folded, mean, softmax = ctx.saved_tensors
        need = ctx.needs_input_grad
        if grad_heads is None:
            return None, *later, None, None, None
        if torch.is_grad_enabled():  # the gradient itself will be differentiated
            output = plain_absorbed_attention(queries, Absorbed(elements, keys, values, bias), mask, ctx.scale)
            grads = differentiable_gradients(output, (queries, elements, keys, values, bias), need, grad_heads)
            return *(add_gradients(*pair) for pair in zip(grads, (None, *later, None), strict=True)), None, None
        sets, num_heads, count = len(elements), len(keys), queries.shape[1]
        grad_by_head = by_head(grad_heads, num_heads)  # (H, B K, d)
        grad_mean = fold(torch.bmm(grad_by_head, values), sets, count)  # (B, M, E)
        accumulate = later[0] is not None
        grad_elements = None
        if need[1]:
            grad_elements = later[0].contiguous() if accumulate else torch.empty_like(elements)
        if softmax.dim() == 3:
            grad_folded = backward_from_weights(
                folded, elements, softmax, grad_mean, grad_elements, accumulate=accumulate
            )
        else:
            grad_folded = backward_in_chunks(
                folded, elements, mask, mean, softmax, grad_mean, grad_elements, accumulate=accumulate
            )
        if len(queries) < sets:  # all sets share the queries
            grad_folded = grad_folded.sum(dim=0, keepdim=True)
        grad_absorbed = unfold(grad_folded, num_heads)  # (H, R, E)
        grad_queries = join(torch.bmm(grad_absorbed, keys.transpose(1, 2)), len(queries), count)
        return (
            grad_queries.mul_(ctx.scale) if need[0] else None,
            grad_elements,
            add_product(later[1], by_head(queries * ctx.scale, num_heads), grad_absorbed) if need[2] else None,
            add_product(later[2], grad_by_head, unfold(mean, num_heads)) if need[3] else None,
            grad_heads.sum_to_size(bias.shape) if need[4] else None,
            None,
            None,
        )


def add_product(
    total: Tensor | None, left: Float[Tensor, "H R d"], right: Float[Tensor, "H R E"]
) -> Float[Tensor, "H d E"]:
    """Add ``left^T right`` to the gradient from later steps, in place: no other graph refers to that buffer."""
    left = left.transpose(1, 2)
    return torch.bmm(left, right) if total is None else total.contiguous().baddbmm_(left, right)


def add_gradients(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    """Add two gradients, of which None is zero."""
    if first is None or second is None:
        return second if first is None else first
    return first + second
