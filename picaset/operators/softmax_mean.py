r"""O = softmax(Q X^T) X: attention whose keys and values are the elements themselves, forward and backward.

Small problems write the weights out and keep them. Large ones go through the blocked kernel, which keeps the logarithm
of the softmax denominator alone; backward, per chunk of elements small enough to stay in cache,

    [A; G] = [Q; dO] X^T          scores, and gradients of the weights, in one product
    A      = exp(A - log),        G = A * (G - rowsum(dO * O))
    dQ    += G X,                 dX += [A; G]^T [dO; Q]

and nothing of the size of the set is made beyond its gradient.

Dimensions:  B sets   N elements   M queries   E features
"""

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from picaset.operators.kernels import blocked_mean, plain_attention
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
