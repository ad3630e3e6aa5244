r"""O = softmax(Q X^T) X: attention whose keys and values are the elements themselves, forward and backward.

Small problems write the weights out and keep them. Large ones go through the blocked kernel, which keeps the logarithm
of the softmax denominator alone; backward, per chunk of elements small enough to stay in cache,

    [A; G] = [Q; dO] X^T          scores, and gradients of the weights, in one product
    A      = exp(A - log),        G = A * (G - rowsum(dO * O))
    dQ    += G X,                 dX += [A; G]^T [dO; Q]

and nothing of the size of the set is made beyond its gradient. The elements are handed on beside the result: a
cascade that passes them from step to step has the gradients of all steps added up in one buffer, in place.

Dimensions:  B sets   N elements   M queries   E features
"""

from typing import Any, cast

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
) -> tuple[Float[Tensor, "B M E"], Float[Tensor, "B N E"]]:
    """The mean of the elements, weighted by the softmax of their products with the queries, and the elements again.

    Zero for an empty set. Hand the returned elements to the next call, so that gradients are added up in place.
    """
    if must_be_plain():
        return plain_mean(queries, elements, mask), elements
    if not (torch.is_grad_enabled() and (queries.requires_grad or elements.requires_grad)):
        return forward(queries, elements, mask)[0], elements
    mean, elements, _ = cast(Any, SoftmaxMean).apply(queries, elements, mask)
    return mean, elements


def plain_mean(queries: Tensor, elements: Tensor, mask: Tensor | None) -> Tensor:
    return plain_attention(queries[:, None], elements[:, None], elements[:, None], mask)[:, 0]


def forward(queries: Tensor, elements: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """The mean, and what the backward pass needs to know of the softmax: weights (B, M, N) or logarithms (B, M)."""
    if elements.shape[0] * queries.shape[1] * elements.shape[1] > WRITTEN_OUT:
        return blocked_mean(queries, elements, mask)
    weights = softmax_over_present((queries @ elements.transpose(1, 2))[:, None], mask)[:, 0]
    return weights @ elements, weights


class SoftmaxMean(torch.autograd.Function):
    """``softmax_mean`` for torch's autograd; a third output is what is kept of the softmax."""

    @staticmethod
    def forward(queries: Tensor, elements: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        mean, kept = forward(queries, elements, mask)
        return mean, elements.view_as(elements), kept

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor | None], output: tuple[Tensor, ...]) -> None:
        queries, elements, mask = inputs
        mean, _, kept = output
        ctx.mark_non_differentiable(kept)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(queries, elements, mask, mean, kept)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        grad_mean, grad_passed, _ = grad_outputs
        queries, elements, mask, mean, kept = ctx.saved_tensors
        if grad_mean is None:
            return None, grad_passed, None
        if torch.is_grad_enabled():  # asked for a gradient that can be differentiated again
            again = plain_mean(queries, elements, mask)
            grad_queries, grad_elements = gradients_again(again, (queries, elements), ctx.needs_input_grad, grad_mean)
            return grad_queries, add(grad_elements, grad_passed), None
        # A buffer that only this chain of steps has seen may be added to; in the last step there is none yet.
        beta, into = grad_passed is not None, None
        if ctx.needs_input_grad[1]:
            into = torch.empty_like(elements) if grad_passed is None else grad_passed.contiguous()
        if kept.dim() == 3:
            grad_queries = written_backward(queries, elements, kept, grad_mean, into, beta=beta)
        else:
            grad_queries = chunked_backward(queries, elements, mask, mean, kept, grad_mean, into, beta=beta)
        return grad_queries, into, None


def add(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    if one is None or other is None:
        return other if one is None else one
    return one + other


def written_backward(
    queries: Float[Tensor, "B M E"],
    elements: Float[Tensor, "B N E"],
    weights: Float[Tensor, "B M N"],
    grad_mean: Float[Tensor, "B M E"],
    grad_elements: Float[Tensor, "B N E"] | None,
    *,
    beta: bool,
) -> Float[Tensor, "B M E"]:
    """The gradient of the queries, from the weights; that of the elements is written, or by ``beta`` added."""
    grad_scores = softmax_backward(grad_mean @ elements.transpose(1, 2), weights, -1, weights.dtype)
    if grad_elements is not None:
        both = torch.cat([weights, grad_scores], dim=1).transpose(1, 2)  # (B, N, 2M)
        torch.baddbmm(grad_elements, both, torch.cat([grad_mean, queries], dim=1), beta=int(beta), out=grad_elements)
    return grad_scores @ elements


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
    """The same from the logarithms of the denominators, making the weights again chunk by chunk."""
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
