"""Softmax attention by torch's blocked (flash) kernel, which never stores the (M, N) scores.

    plain_attention      the equation in differentiable operations
    softmax_attention    the same with the blocked kernel, forward and backward
    blocked_attention    the kernel's forward pass, with the log of the softmax denominator
    blocked_mean         the same where keys and values are the elements, using all threads for few sets

The log of the denominator is all that the backward pass needs to recompute the weights. Traces, function transforms
and second derivatives use ``plain_attention``. So does everything where torch lacks the kernel: it is a private
operator, looked up on first use.

Dimensions:  B sets   N elements   M queries   H heads   d features of a head
"""

from functools import cache
from typing import Any, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from picaset.operators.state import softmax_over_present

SMALLEST_PART = 2048
"""Smallest number of elements per thread for which a set is divided among threads."""

FLASH_FORWARD = "_scaled_dot_product_flash_attention_for_cpu"
FLASH_BACKWARD = "_scaled_dot_product_flash_attention_for_cpu_backward"
SOFTMAX_BACKWARD = "_softmax_backward_data"


@cache
def private_operator(name: str) -> Any:
    """Return a private operator of torch, or None if this version of torch does not have it."""
    return getattr(torch.ops.aten, name, None)


def requires_plain_equation() -> bool:
    """Whether a trace or a function transform is active, which needs differentiable operations."""
    if torch.compiler.is_compiling():
        return True
    transforms_active: Any = getattr(cast(Any, torch)._C, "_are_functorch_transforms_active", None)
    return transforms_active is None or transforms_active()


def plain_attention(
    queries: Float[Tensor, "B H M d"],
    keys: Float[Tensor, "B H N d"],
    values: Float[Tensor, "B H N d"],
    mask: Bool[Tensor, "B N"] | None,
) -> Float[Tensor, "B H M d"]:
    """Attend to the present elements; the result of an empty set is zero."""
    return softmax_over_present(queries @ keys.transpose(-2, -1), mask) @ values


def blocked_mean(
    queries: Float[Tensor, "B M E"], elements: Float[Tensor, "B N E"], mask: Bool[Tensor, "B N"] | None
) -> tuple[Float[Tensor, "B M E"], Float[Tensor, "B M"]]:
    """Return attention with the elements as keys and values, and the log of its denominator.

    The kernel processes sets in parallel. If there are fewer sets than threads, each set is divided into equal parts,
    and a part for the remainder, which are merged by their denominators.
    """
    sets, count, width = elements.shape
    parts = torch.get_num_threads() // max(sets, 1)
    if elements.device.type != "cpu" or parts < 2 or count < SMALLEST_PART * parts:
        mean, log = blocked_attention(queries[:, None], elements[:, None], elements[:, None], mask)
        return mean[:, 0], log[:, 0]
    size = count // parts
    whole = size * parts
    divided = elements[:, :whole].view(sets, parts, size, width)
    present = None if mask is None else mask[:, :whole].reshape(sets, parts, 1, size)
    results = [blocked(queries[:, None].expand(-1, parts, -1, -1), divided, divided, present)]
    if whole < count:
        rest = elements[:, None, whole:]
        results.append(blocked(queries[:, None], rest, rest, None if mask is None else mask[:, None, None, whole:]))
    means, logs = (torch.cat(part, dim=1) for part in zip(*results, strict=True))  # (B, parts, M, E), (B, parts, M)
    logs = torch.where(logs == torch.inf, -torch.inf, logs)  # an empty part has no weight
    log = logs.logsumexp(dim=1)
    empty = log == -torch.inf
    weights = (logs - torch.where(empty, 0.0, log)[:, None]).exp()
    return (weights[..., None] * means).sum(dim=1), torch.where(empty, torch.inf, log)


def blocked_attention(
    queries: Float[Tensor, "B H M d"],
    keys: Float[Tensor, "B H N d"],
    values: Float[Tensor, "B H N d"],
    mask: Bool[Tensor, "B N"] | None,
) -> tuple[Float[Tensor, "B H M d"], Float[Tensor, "B H M"]]:
    """Return attention over the present elements, and the log of its denominator."""
    return blocked(queries, keys, values, None if mask is None else mask[:, None, None, :])


def blocked(queries: Tensor, keys: Tensor, values: Tensor, present: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the mean and the log of the denominator; zero and +inf for an empty set, so that its weights are zero."""
    flash_forward = private_operator(FLASH_FORWARD)
    if queries.device.type == "cpu" and flash_forward is not None:
        bias = additive_mask(present, queries)
        mean, log = flash_forward(queries, keys, values, 0.0, False, attn_mask=bias, scale=1.0)
        return mean, log if present is None else log.masked_fill(~present.any(dim=-1), torch.inf)
    scores = queries @ keys.transpose(-2, -1)
    if present is not None:
        scores = scores.masked_fill_(~present, -torch.inf)
    log = scores.logsumexp(dim=-1)
    log = log if present is None else log.masked_fill(~present.any(dim=-1), torch.inf)
    return (scores - log[..., None]).exp_() @ values, log


def additive_mask(present: Tensor | None, like: Tensor) -> Tensor | None:
    """Return a mask to add to the scores: zero where an element is present, -inf elsewhere."""
    if present is None:
        return None
    return torch.zeros_like(present, dtype=like.dtype).masked_fill_(~present, -torch.inf)


def softmax_backward(grad_weights: Tensor, weights: Tensor) -> Tensor:
    """Return the gradient of the scores from that of their softmax over the last dimension."""
    fused = private_operator(SOFTMAX_BACKWARD)
    if fused is not None:
        return fused(grad_weights, weights, -1, weights.dtype)
    products = grad_weights * weights
    return products - weights * products.sum(dim=-1, keepdim=True)


def differentiable_gradients(
    output: Tensor, inputs: tuple[Tensor, ...], needed: tuple[bool, ...], grad_output: Tensor
) -> tuple[Tensor | None, ...]:
    """Return gradients that can be differentiated again, for an output computed by the plain equation."""
    needed_inputs = [tensor for tensor, need in zip(inputs, needed, strict=False) if need]
    gradients = iter(torch.autograd.grad(output, needed_inputs, grad_output, create_graph=True))
    return tuple(next(gradients) if need else None for _, need in zip(inputs, needed, strict=False))


def softmax_attention(
    queries: Float[Tensor, "B H M d"],
    keys: Float[Tensor, "B H N d"],
    values: Float[Tensor, "B H N d"],
    mask: Bool[Tensor, "B N"] | None,
) -> Float[Tensor, "B H M d"]:
    """Attend to the present elements, with the blocked kernel where possible; the result of an empty set is zero."""
    if requires_plain_equation() or queries.device.type != "cpu" or queries.shape[2] == 0:
        return plain_attention(queries, keys, values, mask)
    if private_operator(FLASH_FORWARD) is None or private_operator(FLASH_BACKWARD) is None:
        return plain_attention(queries, keys, values, mask)
    return cast(Any, SoftmaxAttention).apply(queries, keys, values, mask)[0]


class SoftmaxAttention(torch.autograd.Function):
    """Autograd function of ``softmax_attention``; its second output is the log of the denominator."""

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
        grad = grad_outputs[0]
        if torch.is_grad_enabled():  # the gradient itself will be differentiated
            output = plain_attention(queries, keys, values, mask)
            return *differentiable_gradients(output, (queries, keys, values), ctx.needs_input_grad, grad), None
        bias = additive_mask(None if mask is None else mask[:, None, None, :], queries)
        flash_backward = private_operator(FLASH_BACKWARD)
        grads = flash_backward(grad, queries, keys, values, mean, log, 0.0, False, attn_mask=bias, scale=1.0)
        return *grads, None
