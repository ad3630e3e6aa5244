"""Multihead attention without projecting the set, forward and backward in one piece.

    q . (W_K x + b) = (W_K^T q) . x + const        sum_n a_n (W_V x_n + b) = W_V (sum_n a_n x_n) + b

The key map moves into the query, where its bias cancels in the softmax, and the value map behind the mean of the
elements themselves. One function for the whole of it spares torch a dozen small operations a step. Elements and maps
are handed on beside the result: a cascade that passes them from step to step has the gradients of all steps added up
in one buffer each, in place.

Dimensions:  B sets   N elements   K queries   H heads   d = D / H   E features of an element   M = H K

O = softmax(Q X^T) X: attention whose keys and values are the elements themselves, forward and backward.

Small problems write the weights out and keep them. Large ones go through the blocked kernel, which keeps the logarithm
of the softmax denominator alone; backward, per chunk of elements small enough to stay in cache,

    [A; G] = [Q; dO] X^T          scores, and gradients of the weights, in one product
    A      = exp(A - log),        G = A * (G - rowsum(dO * O))
    dQ    += G X,                 dX += [A; G]^T [dO; Q]

and nothing of the size of the set is made beyond its gradient.

Dimensions:  B sets   N elements   M queries   E features
"""

from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from picaset.operators.kernels import blocked_mean, gradients_again, must_be_plain, plain_attention
from picaset.operators.state import softmax_over_present

WRITTEN_OUT = 2**20
"""Weights, over all sets and queries, up to which they are written out."""
ROWS_IN_CACHE = 8192
"""Elements, over all sets, that one chunk of the backward pass takes."""

softmax_backward: Any = torch.ops.aten._softmax_backward_data  # pyright: ignore


def softmax_mean(
    queries: Float[Tensor, "B M E"], elements: Float[Tensor, "B N E"], mask: Bool[Tensor, "B N"] | None
) -> tuple[Float[Tensor, "B M E"], Float[Tensor, "B M N"] | Float[Tensor, "B M"]]:
    """The mean of the elements, weighted by the softmax of their products with the queries; zero for an empty set.

    Beside it what the backward pass needs to know of the softmax: weights (B, M, N) or logarithms (B, M).
    """
    if elements.shape[0] * queries.shape[1] * elements.shape[1] > WRITTEN_OUT:
        return blocked_mean(queries, elements, mask)
    scores = torch.bmm(queries, elements.transpose(1, 2))
    weights = scores.softmax(dim=-1) if mask is None else softmax_over_present(scores[:, None], mask)[:, 0]
    return torch.bmm(weights, elements), weights


def plain_mean(
    queries: Float[Tensor, "B M E"], elements: Float[Tensor, "B N E"], mask: Bool[Tensor, "B N"] | None
) -> Float[Tensor, "B M E"]:
    """The same mean in operations that torch can trace, transform and differentiate any number of times."""
    return plain_attention(queries[:, None], elements[:, None], elements[:, None], mask)[:, 0]


def mean_backward(
    queries: Float[Tensor, "B M E"],
    elements: Float[Tensor, "B N E"],
    mask: Bool[Tensor, "B N"] | None,
    mean: Float[Tensor, "B M E"],
    softmax: Float[Tensor, "B M N"] | Float[Tensor, "B M"],
    grad_mean: Float[Tensor, "B M E"],
    grad_elements: Float[Tensor, "B N E"] | None,
    *,
    beta: bool,
) -> Float[Tensor, "B M E"]:
    """The gradient of the queries; that of the elements is written to ``grad_elements``, or by ``beta`` added."""
    if softmax.dim() == 3:
        return written_backward(queries, elements, softmax, grad_mean, grad_elements, beta=beta)
    return chunked_backward(queries, elements, mask, mean, softmax, grad_mean, grad_elements, beta=beta)


def written_backward(
    queries: Float[Tensor, "B M E"],
    elements: Float[Tensor, "B N E"],
    weights: Float[Tensor, "B M N"],
    grad_mean: Float[Tensor, "B M E"],
    grad_elements: Float[Tensor, "B N E"] | None,
    *,
    beta: bool,
) -> Float[Tensor, "B M E"]:
    """From the weights."""
    grad_scores = softmax_backward(torch.bmm(grad_mean, elements.transpose(1, 2)), weights, -1, weights.dtype)
    if grad_elements is not None:
        torch.baddbmm(grad_elements, weights.transpose(1, 2), grad_mean, beta=int(beta), out=grad_elements)
        grad_elements.baddbmm_(grad_scores.transpose(1, 2), queries)
    return torch.bmm(grad_scores, elements)


def chunked_backward(
    queries: Float[Tensor, "B M E"],
    elements: Float[Tensor, "B N E"],
    mask: Bool[Tensor, "B N"] | None,
    mean: Float[Tensor, "B M E"],
    log: Float[Tensor, "B M"],
    grad_mean: Float[Tensor, "B M E"],
    grad_elements: Float[Tensor, "B N E"] | None,
    *,
    beta: bool,
) -> Float[Tensor, "B M E"]:
    """From the logarithms of the denominators, making the weights again chunk by chunk."""
    sets, count, _ = elements.shape
    num_queries = queries.shape[1]
    asking = torch.cat([queries, grad_mean], dim=1)  # (B, 2M, E)
    answering = torch.cat([grad_mean, queries], dim=1)
    log, correction = log[..., None], (grad_mean * mean).sum(dim=-1, keepdim=True)  # (B, M, 1) each
    grad_queries = torch.zeros_like(queries)
    size = max(ROWS_IN_CACHE // max(sets, 1), 1)
    for start in range(0, count, size):
        chunk = elements[:, start : start + size]
        both = asking @ chunk.transpose(1, 2)  # (B, 2M, n)
        weights, grad_scores = both[:, :num_queries], both[:, num_queries:]
        weights.sub_(log).exp_()
        if mask is not None:
            weights.masked_fill_(~mask[:, None, start : start + size], 0.0)
        grad_scores.sub_(correction).mul_(weights)
        grad_queries.baddbmm_(grad_scores, chunk)
        if grad_elements is not None:
            part = grad_elements[:, start : start + size]
            torch.baddbmm(part, both.transpose(1, 2), answering, beta=int(beta), out=part)
    return grad_queries


class Absorbed(NamedTuple):
    """What every step needs of a set and of the maps that it is seen through."""

    elements: Float[Tensor, "B N E"]
    key_weight: Float[Tensor, "H d E"]
    value_weight: Float[Tensor, "H d E"]
    value_bias: Float[Tensor, "#B 1 D"]
    """Zero for an empty set, whose heads are zero."""


def absorbed_attention(
    asked: Float[Tensor, "#B K D"], absorbed: Absorbed, mask: Bool[Tensor, "B N"] | None, scale: float
) -> tuple[Float[Tensor, "B K D"], Absorbed]:
    """The heads, and what to ask in the next step, so that gradients are added up in place."""
    if must_be_plain():
        return plain_absorbed_attention(asked, absorbed, mask, scale), absorbed
    if not (torch.is_grad_enabled() and (asked.requires_grad or any(part.requires_grad for part in absorbed))):
        return forward(asked, absorbed, mask, scale)[0], absorbed
    heads, elements, key_weight, value_weight = cast(Any, AbsorbedAttention).apply(asked, *absorbed, mask, scale)
    # What needs no gradient goes on as it came: an output of the function would ask for one.
    return heads, Absorbed(
        elements if absorbed.elements.requires_grad else absorbed.elements,
        key_weight if absorbed.key_weight.requires_grad else absorbed.key_weight,
        value_weight if absorbed.value_weight.requires_grad else absorbed.value_weight,
        absorbed.value_bias,
    )


def plain_absorbed_attention(
    asked: Float[Tensor, "#B K D"], absorbed: Absorbed, mask: Bool[Tensor, "B N"] | None, scale: float
) -> Float[Tensor, "B K D"]:
    """The same in operations that torch can trace, transform and differentiate any number of times."""
    queries = absorb(asked, absorbed.key_weight, scale).expand(absorbed.elements.shape[0], -1, -1)
    return project(plain_mean(queries, absorbed.elements, mask), absorbed.value_weight) + absorbed.value_bias


def forward(
    asked: Float[Tensor, "#B K D"], absorbed: Absorbed, mask: Bool[Tensor, "B N"] | None, scale: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The heads; and queries, mean and softmax, which the backward pass asks for."""
    queries = absorb(asked, absorbed.key_weight, scale).expand(absorbed.elements.shape[0], -1, -1)
    mean, softmax = softmax_mean(queries, absorbed.elements, mask)
    return project(mean, absorbed.value_weight).add_(absorbed.value_bias), queries, mean, softmax


def absorb(asked: Float[Tensor, "B K D"], key_weight: Float[Tensor, "H d E"], scale: float) -> Float[Tensor, "B M E"]:
    """The queries as the elements see them, head after head."""
    return fold(torch.bmm(by_head(asked * scale, key_weight.shape[0]), key_weight), *asked.shape[:2])


def project(mean: Float[Tensor, "B M E"], value_weight: Float[Tensor, "H d E"]) -> Float[Tensor, "B K D"]:
    """The value map, behind the mean."""
    sets, rows, _ = mean.shape
    num_heads = value_weight.shape[0]
    return joined(torch.bmm(unfold(mean, num_heads), value_weight.transpose(1, 2)), sets, rows // num_heads)


def by_head(vectors: Float[Tensor, "B K D"], num_heads: int) -> Float[Tensor, "H BK d"]:
    sets, count, dim = vectors.shape
    return vectors.reshape(sets * count, num_heads, dim // num_heads).transpose(0, 1)


def joined(heads: Float[Tensor, "H BK d"], sets: int, count: int) -> Float[Tensor, "B K D"]:
    num_heads, _, width = heads.shape
    return heads.transpose(0, 1).reshape(sets, count, num_heads * width)


def fold(heads: Float[Tensor, "H BK E"], sets: int, count: int) -> Float[Tensor, "B M E"]:
    """All heads of a set as rows of one product with its elements."""
    num_heads, _, features = heads.shape
    return heads.view(num_heads, sets, count, features).transpose(0, 1).reshape(sets, num_heads * count, features)


def unfold(folded: Float[Tensor, "B M E"], num_heads: int) -> Float[Tensor, "H BK E"]:
    sets, rows, features = folded.shape
    count = rows // num_heads
    return folded.reshape(sets, num_heads, count, features).transpose(0, 1).reshape(num_heads, sets * count, features)


class AbsorbedAttention(torch.autograd.Function):
    """``absorbed_attention`` for torch's autograd."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Any:
        asked, elements, keys, values, bias, mask, scale = given
        heads, queries, mean, softmax = forward(asked, Absorbed(elements, keys, values, bias), mask, scale)
        ctx.set_materialize_grads(False)
        ctx.scale = scale
        ctx.save_for_backward(asked, elements, keys, values, bias, mask, queries, mean, softmax)
        return heads, elements.view_as(elements), keys.view_as(keys), values.view_as(values)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        grad_heads, *passed = grad_outputs
        asked, elements, keys, values, bias, mask, queries, mean, softmax = ctx.saved_tensors
        need = ctx.needs_input_grad
        if grad_heads is None:
            return None, *passed, None, None, None
        if torch.is_grad_enabled():  # asked for a gradient that can be differentiated again
            again = plain_absorbed_attention(asked, Absorbed(elements, keys, values, bias), mask, ctx.scale)
            grads = gradients_again(again, (asked, elements, keys, values, bias), need, grad_heads)
            return (
                *(sum_of_given(one, more) for one, more in zip(grads, (None, *passed, None), strict=True)),
                None,
                None,
            )
        sets, num_heads, count = len(elements), len(keys), asked.shape[1]
        grad_by_head = by_head(grad_heads, num_heads)  # (H, B K, d)
        grad_mean = fold(torch.bmm(grad_by_head, values), sets, count)  # (B, M, E)
        grad_elements = None
        if need[1]:
            grad_elements = torch.empty_like(elements) if passed[0] is None else passed[0].contiguous()
        beta = passed[0] is not None
        grad_queries = mean_backward(queries, elements, mask, mean, softmax, grad_mean, grad_elements, beta=beta)
        if len(asked) < sets:  # one question for all sets
            grad_queries = grad_queries.sum(dim=0, keepdim=True)
        grad_absorbed = unfold(grad_queries, num_heads)  # (H, R, E)
        grad_asked = joined(torch.bmm(grad_absorbed, keys.transpose(1, 2)), len(asked), count)
        return (
            grad_asked.mul_(ctx.scale) if need[0] else None,
            grad_elements,
            plus_product(passed[1], by_head(asked * ctx.scale, num_heads), grad_absorbed) if need[2] else None,
            plus_product(passed[2], grad_by_head, unfold(mean, num_heads)) if need[3] else None,
            grad_heads.sum_to_size(bias.shape) if need[4] else None,
            None,
            None,
        )


def plus_product(
    passed: Tensor | None, left: Float[Tensor, "H R d"], right: Float[Tensor, "H R E"]
) -> Float[Tensor, "H d E"]:
    """The product of both, added to what later steps passed on; that buffer only this chain of steps has seen."""
    left = left.transpose(1, 2)
    return torch.bmm(left, right) if passed is None else passed.contiguous().baddbmm_(left, right)


def sum_of_given(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    if one is None or other is None:
        return other if one is None else one
    return one + other
