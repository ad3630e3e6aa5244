"""Softmax attention with few passes over memory: torch's blocked kernel, and what surrounds it.

The blocked kernel never writes the scores out, and returns the logarithm of the softmax denominator, from which the
weights can be made again in the backward pass. ``plain_attention`` is the same equation in operations that torch
can trace, transform and differentiate any number of times; second derivatives go through it.

Dimensions:  B sets   N elements   M queries   H heads   d features of a head

O = softmax(Q K^T) V by head, forward and backward through torch's blocked kernel: no (M, N) is ever written.

Dimensions:  B sets   N elements   M queries   H heads   d features of a head
"""

from typing import Any, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from picaset.operators.state import softmax_over_present

SMALLEST_PART = 2048
"""Elements below which it does not pay to cut a set into parts, one for each thread."""

flash_forward: Any = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu  # pyright: ignore
flash_backward: Any = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward  # pyright: ignore


def must_be_plain() -> bool:
    """Whether a trace or a function transform needs operations that it can see through."""
    return torch.compiler.is_compiling() or cast(Any, torch)._C._are_functorch_transforms_active()


def plain_attention(
    queries: Float[Tensor, "B H M d"],
    keys: Float[Tensor, "B H N d"],
    values: Float[Tensor, "B H N d"],
    mask: Bool[Tensor, "B N"] | None,
) -> Float[Tensor, "B H M d"]:
    """Attention over the present elements; zero for an empty set."""
    return softmax_over_present(queries @ keys.transpose(-2, -1), mask) @ values


def blocked_mean(
    queries: Float[Tensor, "B M E"], elements: Float[Tensor, "B N E"], mask: Bool[Tensor, "B N"] | None
) -> tuple[Float[Tensor, "B M E"], Float[Tensor, "B M"]]:
    """Attention whose keys and values are the elements, and the logarithm of its denominator.

    The kernel takes sets in parallel. Where there are fewer sets than threads, each is cut into parts, and what
    remains of it after equal parts makes one more; they are merged by their denominators.
    """
    sets, count, width = elements.shape
    parts = torch.get_num_threads() // max(sets, 1)
    if elements.device.type != "cpu" or parts < 2 or count < SMALLEST_PART * parts:
        mean, log = blocked_attention(queries[:, None], elements[:, None], elements[:, None], mask)
        return mean[:, 0], log[:, 0]
    size = count // parts
    whole = size * parts
    cut = elements[:, :whole].view(sets, parts, size, width)
    present = None if mask is None else mask[:, :whole].reshape(sets, parts, 1, size)
    pieces = [blocked(queries[:, None].expand(-1, parts, -1, -1), cut, cut, present)]
    if whole < count:
        rest = elements[:, None, whole:]
        pieces.append(blocked(queries[:, None], rest, rest, None if mask is None else mask[:, None, None, whole:]))
    means, logs = (torch.cat(part, dim=1) for part in zip(*pieces, strict=True))  # (B, parts, M, E), (B, parts, M)
    logs = torch.where(logs == torch.inf, -torch.inf, logs)  # a part without elements weighs nothing
    log = logs.logsumexp(dim=1)
    empty = log == -torch.inf
    shares = (logs - torch.where(empty, 0.0, log)[:, None]).exp()
    return (shares[..., None] * means).sum(dim=1), torch.where(empty, torch.inf, log)


def blocked_attention(
    queries: Float[Tensor, "B H M d"],
    keys: Float[Tensor, "B H N d"],
    values: Float[Tensor, "B H N d"],
    mask: Bool[Tensor, "B N"] | None,
) -> tuple[Float[Tensor, "B H M d"], Float[Tensor, "B H M"]]:
    """Attention, and the logarithm of its denominator."""
    return blocked(queries, keys, values, None if mask is None else mask[:, None, None, :])


def blocked(queries: Tensor, keys: Tensor, values: Tensor, present: Tensor | None) -> tuple[Tensor, Tensor]:
    """Of a set without present elements the mean is zero and the logarithm +inf, so that its weights come out zero."""
    if queries.device.type == "cpu":
        mean, log = flash_forward(queries, keys, values, 0.0, False, attn_mask=additive(present, queries), scale=1.0)
        return mean, log if present is None else log.masked_fill(~present.any(dim=-1), torch.inf)
    scores = queries @ keys.transpose(-2, -1)
    if present is not None:
        scores = scores.masked_fill_(~present, -torch.inf)
    log = scores.logsumexp(dim=-1)
    log = log if present is None else log.masked_fill(~present.any(dim=-1), torch.inf)
    return (scores - log[..., None]).exp_() @ values, log


def additive(present: Tensor | None, like: Tensor) -> Tensor | None:
    """A mask as the kernel takes it: added to the scores."""
    if present is None:
        return None
    return torch.zeros_like(present, dtype=like.dtype).masked_fill_(~present, -torch.inf)


def gradients_again(
    output: Tensor, inputs: tuple[Tensor, ...], needed: tuple[bool, ...], grad_output: Tensor
) -> tuple[Tensor | None, ...]:
    """Gradients that can be differentiated again, of an output made anew by the plain equation."""
    wanted = [given for given, need in zip(inputs, needed, strict=False) if need]
    found = iter(torch.autograd.grad(output, wanted, grad_output, create_graph=True))
    return tuple(next(found) if need else None for _, need in zip(inputs, needed, strict=False))


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
