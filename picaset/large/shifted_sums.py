r"""Softmax sums relative to a known peak, with a backward pass that is all that is ever asked of them.

    total = sum_n exp(q . k_n - peak),     weighted = sum_n exp(q . k_n - peak) v_n

Their values are known by the time that their gradients are asked for: the forward pass over all chunks found them.
So the forward half here makes nothing but room, and the backward half makes the weights of its chunk and all
gradients from them:

    A = exp(Q K^T - peak),   G = A * (dW V^T + dt),   dQ = G K,   dK = G^T Q,   dV = A^T dW

Dimensions:  B sets   n elements of a chunk   H heads   M queries   d features
"""

from typing import Any, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable


def shifted_sums(
    queries: Float[Tensor, "B H M d"],
    keys: Float[Tensor, "B H n d"],
    values: Float[Tensor, "B H n d"],
    mask: Bool[Tensor, "B n"] | None,
    peak: Float[Tensor, "B H M 1"],
) -> tuple[Float[Tensor, "B H M 1"], Float[Tensor, "B H M d"]]:
    """Tensors of the shapes of the total and the weighted sum that hold nothing but their gradients."""
    return cast(Any, ShiftedSums).apply(queries, keys, values, mask, peak)


class ShiftedSums(torch.autograd.Function):
    """``shifted_sums`` for torch's autograd."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Any:
        queries, _, values, _, _ = given
        ctx.save_for_backward(*given)
        total = queries.new_zeros(*queries.shape[:3], 1)
        return total, total.expand(*queries.shape[:3], values.shape[3]).clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        queries, keys, values, mask, peak = ctx.saved_tensors
        grad_total, grad_weighted = grad_outputs
        absorbed = keys.data_ptr() == values.data_ptr() and keys.shape == values.shape
        count = queries.shape[2]
        if absorbed:  # scores, and gradients of the weights, in one product
            both = torch.cat([queries, grad_weighted], dim=2) @ keys.transpose(2, 3)
            weights, grad_scores = both[:, :, :count], both[:, :, count:]
        else:
            both = None
            weights, grad_scores = queries @ keys.transpose(2, 3), grad_weighted @ values.transpose(2, 3)
        weights.sub_(peak).exp_()
        if mask is not None:
            weights.masked_fill_(~mask[:, None, None, :], 0.0)
        grad_scores.add_(grad_total).mul_(weights)
        need_queries, need_keys, need_values = ctx.needs_input_grad[:3]
        grad_queries = grad_scores @ keys if need_queries else None
        if both is not None and need_keys and need_values:  # keys and values are one tensor: so is their gradient
            together = both.transpose(2, 3) @ torch.cat([grad_weighted, queries], dim=2)
            return grad_queries, together, None, None, None
        return (
            grad_queries,
            grad_scores.transpose(2, 3) @ queries if need_keys else None,
            weights.transpose(2, 3) @ grad_weighted if need_values else None,
            None,
            None,
        )
