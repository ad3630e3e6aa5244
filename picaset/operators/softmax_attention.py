r"""O = softmax(Q K^T) V by head, forward and backward through torch's blocked kernel: no (M, N) is ever written.

Dimensions:  B sets   N elements   M queries   H heads   d features of a head
"""

from typing import Any, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from picaset.operators.kernels import (
    additive,
    blocked_attention,
    flash_backward,
    gradients_again,
    must_be_plain,
    plain_attention,
)


def softmax_attention(
    queries: Float[Tensor, "B H M d"],
    keys: Float[Tensor, "B H N d"],
    values: Float[Tensor, "B H N d"],
    mask: Bool[Tensor, "B N"] | None,
) -> Float[Tensor, "B H M d"]:
    """Attention over the present elements; zero for an empty set."""
    if must_be_plain() or queries.device.type != "cpu" or queries.shape[2] == 0:
        return plain_attention(queries, keys, values, mask)
    return cast(Any, SoftmaxAttention).apply(queries, keys, values, mask)[0]


class SoftmaxAttention(torch.autograd.Function):
    """``softmax_attention`` for torch's autograd; a second output is the logarithm of the denominator."""

    @staticmethod
    def forward(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        return blocked_attention(queries, keys, values, mask)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        mean, log = output
        ctx.mark_non_differentiable(log)
        ctx.save_for_backward(*inputs, mean, log)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        queries, keys, values, mask, mean, log = ctx.saved_tensors
        if torch.is_grad_enabled():  # asked for a gradient that can be differentiated again
            again = plain_attention(queries, keys, values, mask)
            return *gradients_again(again, (queries, keys, values), ctx.needs_input_grad, grad_outputs[0]), None
        bias = additive(None if mask is None else mask[:, None, None, :], queries)
        grads = flash_backward(grad_outputs[0], queries, keys, values, mean, log, 0.0, False, attn_mask=bias, scale=1.0)
        return *grads, None
