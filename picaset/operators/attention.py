"""Exact multihead attention over a set, in the cheapest order of evaluation.

    heads_h(q) = sum_n a_n (W_V,h x_n + b_V,h),     a = softmax_n(scale q_h . (W_K,h x_n + b_K,h))

Two views of a set give the same results and gradients:

    ProjectedSet    keys and values of every element, computed once and used by every step
    AbsorbedSet     the elements themselves: the key map is applied to the queries and the value map to the
                    mean, and no (N, D) tensor is allocated

``AbsorbedSet`` also evaluates attention in two parts for elements that come in chunks: ``summarize`` returns the
AttentionState of a chunk, and ``finish`` the heads from the merged state.

**Kernels.** Softmax attention uses torch's blocked (flash) kernel, which never stores the (M, N) scores.

    plain_attention      the equation in differentiable operations
    softmax_attention    the same with the blocked kernel, forward and backward
    blocked_attention    the kernel's forward pass, with the log of the softmax denominator
    blocked_mean         the same where keys and values are the elements, using all threads for few sets

The log of the denominator is all that the backward pass needs to recompute the weights. Exported programs, function
transforms and second derivatives use ``plain_attention``. So does everything where torch lacks the kernel, a private
operator. Compiled code calls the kernel as the operator ``picaset::attention``.

**The absorbed order** never projects the set, and has its own backward pass.

    q . (W_K x + b) = (W_K^T q) . x + const        sum_n a_n (W_V x_n + b) = W_V (sum_n a_n x_n) + b

The key map is applied to the queries, where its bias cancels in the softmax, and the value map to the mean. In between
is O = softmax(Q X^T) X, attention with the elements X themselves as keys and values. Small problems store the
weights for the backward pass. Large ones use the blocked kernel, which keeps only the log of the softmax
denominator; its backward pass recomputes the weights in chunks of elements that fit into the cache,

    [A; G] = [Q; dO] X^T          scores and gradients of the weights, in one product
    A      = exp(A - log),        G = A * (G - rowsum(dO * O))
    dQ    += G X,                 dX += [A; G]^T [dO; Q]

and allocates nothing of the size of the set except its gradient.

``fused.py`` joins it with the rest of a block, over all steps, to one autograd node. ``DEVICE_KERNELS`` is the place
where another kernel is hooked in: it replaces ``softmax_mean`` and ``backward_in_chunks`` for the tensors that it
serves. That of ``triton_attention.py`` serves GPUs, that of ``native_attention.py`` large sets on the CPU.

Dimensions:  B sets   N elements   K queries   H heads   d = D / H   E features of an element   M = H K
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple, cast

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.nn.functional import pad, scaled_dot_product_attention

from picaset.operators.state import AttentionState, Presence, softmax_over_present, upcast_half, without_autocast

SMALLEST_PART = 2048
"""Smallest number of elements per thread for which a set is divided among threads."""

FLASH_FORWARD = "_scaled_dot_product_flash_attention_for_cpu"
FLASH_BACKWARD = "_scaled_dot_product_flash_attention_for_cpu_backward"
SOFTMAX_BACKWARD = "_softmax_backward_data"
EFFICIENT_FORWARD = "_scaled_dot_product_efficient_attention"


def private_operator(name: str) -> Any:
    """Return a private operator of torch, or None if this version of torch does not have it."""
    return getattr(torch.ops.aten, name, None)


def requires_plain_equation() -> bool:
    """Whether a program is exported or traced, or a function transform is active, which need plain operations."""
    if torch.compiler.is_exporting() or (not torch.compiler.is_compiling() and cast(Any, torch.jit).is_tracing()):
        return True
    transforms_active: Any = getattr(cast(Any, torch)._C, "_are_functorch_transforms_active", None)
    return transforms_active is None or transforms_active()


class DeviceKernel(NamedTuple):
    """Absorbed attention on one kind of device: the functions ``blocked_mean`` and ``backward_in_chunks`` there.

    Both also take the ``offsets`` of packed sets, then with elements (total, E).
    """

    forward: Callable[..., tuple[Tensor, Tensor]]
    backward: Callable[..., Tensor]
    serves: Callable[[Tensor], bool] = lambda elements: True
    """Whether the kernel serves elements of this dtype, width and device."""
    pays: Callable[[int, int, int], bool] = lambda num_sets, num_queries, numbers: True
    """Whether the kernel is faster for so many sets, queries of each, and numbers in the elements of all."""
    large_only: bool = False
    """Whether problems so small that their weights are stored are left to torch."""


DEVICE_KERNELS = dict[str, DeviceKernel]()
"""Kernels by type of device, such as ``"cuda"``; the functions of this file serve all others."""


NATIVE_NUMBERS = 2**23
"""Number of numbers in the elements from which the kernel in C is compiled at the first use, if possible."""
NATIVE_NUMBERS_OF_A_SET = 2**15
"""Smallest mean over the sets of their number of numbers for which it was measured to be faster."""
NATIVE_QUERIES = 32
"""Largest number of queries of a set, over all heads, for which it was measured to be faster."""


def pays_natively(num_sets: int, num_queries: int, numbers: int) -> bool:
    """Whether the kernel in C is worth its compilation, and faster than torch's."""
    large = numbers >= max(NATIVE_NUMBERS, num_sets * NATIVE_NUMBERS_OF_A_SET)
    return large and num_queries <= NATIVE_QUERIES


def device_kernel(elements: Tensor, num_sets: int, num_queries: int) -> DeviceKernel | None:
    """Return the kernel for these elements and so many queries of a set, if their device has one.

    Those of ``triton_attention.py`` and ``native_attention.py`` are loaded at their first use.
    """
    kind, sizes = elements.device.type, (num_sets, num_queries, elements.numel())
    # By their names, because they import this file and Triton.
    if kind == "cuda" and kind not in DEVICE_KERNELS and find_spec("triton") is not None:
        DEVICE_KERNELS[kind] = import_module("picaset.operators.triton_attention").KERNEL
    if kind == "cpu" and kind not in DEVICE_KERNELS and pays_natively(*sizes):
        import_module("picaset.operators.native_attention").enable_if_possible()
    kernel = DEVICE_KERNELS.get(kind)
    return kernel if kernel is not None and kernel.serves(elements) and kernel.pays(*sizes) else None


def largest_error(forward: Any, backward: Any, device: torch.device, dtype: torch.dtype, features: int) -> float:
    """Return the largest error of a device kernel on three weighted sets, one of them empty, relative to the values."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(3, 5, features), (3, 150, features), (3, 5, features)]
    queries, elements, grad = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    queries /= features**0.5
    weights = torch.arange(450).view(3, 150).double() % 3 * torch.tensor([[1.0], [0.0], [1.0]])
    with torch.enable_grad():
        inputs = queries.requires_grad_(), elements.requires_grad_()
        output = softmax_over_present((queries @ elements.mT)[:, None], weights)[:, 0] @ elements
        expected = [output, *torch.autograd.grad(output, inputs, grad)]
    moved = (tensor.detach().to(device, dtype) for tensor in (queries, elements, weights, grad))
    queries, elements, weights, grad = moved
    mean, log = forward(queries, elements, weights)
    grad_elements = torch.empty_like(elements)
    grad_queries = backward(queries, elements, weights, mean, log, grad, grad_elements, accumulate=False)
    computed = (mean, grad_queries, grad_elements)
    return max(
        float((result.cpu().double() - right.detach()).abs().max() / right.detach().abs().max())
        for result, right in zip(computed, expected, strict=True)
    )


def plain_attention(
    queries: Float[Tensor, "B H M d"],
    keys: Float[Tensor, "B H N d"],
    values: Float[Tensor, "B H N d"],
    mask: Presence | None,
) -> Float[Tensor, "B H M d"]:
    """Attend to the present elements; the result of an empty set is zero."""
    return softmax_over_present(queries @ keys.transpose(-2, -1), mask) @ values


def blocked_mean(
    queries: Float[Tensor, "B M E"], elements: Float[Tensor, "B N E"], mask: Presence | None
) -> tuple[Float[Tensor, "B M E"], Float[Tensor, "B M"]]:
    """Return attention with the elements as keys and values, and the log of its denominator.

    The kernel processes sets in parallel. If there are fewer sets than threads, each set is divided into equal parts,
    and a part for the remainder, which are merged by their denominators.
    """
    sets, count, width = elements.shape
    parts = num_workers(elements.device) // max(sets, 1)
    if parts < 2 or count < SMALLEST_PART * parts:
        mean, log = blocked_attention(queries[:, None], elements[:, None], elements[:, None], mask)
        return mean[:, 0], log[:, 0]
    size = count // parts
    whole = size * parts
    divided = elements[:, :whole].view(sets, parts, size, width)
    divided_mask = None if mask is None else mask[:, :whole].reshape(sets, parts, 1, size)
    results = [blocked(queries[:, None].expand(-1, parts, -1, -1), divided, divided, divided_mask)]
    if whole < count:
        rest = elements[:, None, whole:]
        results.append(blocked(queries[:, None], rest, rest, None if mask is None else mask[:, None, None, whole:]))
    means, logs = (torch.cat(part, dim=1) for part in zip(*results, strict=True))  # (B, parts, M, E), (B, parts, M)
    logs = torch.where(logs == torch.inf, -torch.inf, logs)  # an empty part has no weight
    log = logs.logsumexp(dim=1)
    empty = log == -torch.inf
    weights = (logs - torch.where(empty, 0.0, log)[:, None]).exp()
    return (weights[..., None] * means).sum(dim=1), torch.where(empty, torch.inf, log)


def num_workers(device: torch.device) -> int:
    """Return how many sets, or parts of sets, a device attends to at the same time."""
    if device.type == "cpu":
        return torch.get_num_threads()
    return 2 * cast(Any, torch.cuda).get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


def blocked_attention(
    queries: Float[Tensor, "B H M d"],
    keys: Float[Tensor, "B H N d"],
    values: Float[Tensor, "B H N d"],
    mask: Presence | None,
    *,
    scale: float = 1.0,
) -> tuple[Float[Tensor, "B H M d"], Float[Tensor, "B H M"]]:
    """Return attention over the present elements, and the log of its denominator."""
    return blocked(queries, keys, values, None if mask is None else mask[:, None, None, :], scale=scale)


def blocked(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, *, scale: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Return the mean and the log of the denominator; zero and +inf for an empty set, so that its weights are zero."""
    flash_forward, efficient_forward = private_operator(FLASH_FORWARD), private_operator(EFFICIENT_FORWARD)
    queries, keys, values = row_major(queries), row_major(keys), row_major(values)
    bias = additive_mask(mask, queries)
    if queries.device.type == "cpu" and flash_forward is not None:
        mean, log = flash_forward(queries, keys, values, 0.0, False, attn_mask=bias, scale=scale)
        return mean, log if mask is None else log.masked_fill(~mask.any(dim=-1), torch.inf)
    # Tensors without values take the way of a GPU, to check shapes where there is none.
    if queries.device.type in ("cuda", "meta") and efficient_forward is not None:
        if bias is not None:  # the kernel needs rows of aligned length
            shape = (*queries.shape[:-1], keys.shape[-2])
            bias = pad(bias, (0, -keys.shape[-2] % 16))[..., : keys.shape[-2]].expand(shape)
        mean, log, *_ = efficient_forward(queries, keys, values, bias, True, scale=scale)
        log = log[..., : queries.shape[-2]]
        if mask is None:
            return mean, log
        empty = ~mask.any(dim=-1)
        return mean.masked_fill(empty[..., None], 0.0), log.masked_fill(empty, torch.inf)
    scores = scale * (queries @ keys.transpose(-2, -1))
    if bias is not None:
        scores += bias
    log = scores.logsumexp(dim=-1)
    log = log if mask is None else log.masked_fill(~mask.any(dim=-1), torch.inf)
    return (scores - log[..., None]).exp_() @ values, log


def row_major(tensor: Tensor) -> Tensor:
    """Return the tensor with adjacent features, which the kernels assume; they would read other memory."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def additive_mask(mask: Tensor | None, like: Tensor) -> Tensor | None:
    """Return what to add to the scores: the log of the weight of an element, zero without weights; -inf if absent."""
    if mask is None or mask.dtype is not torch.bool:
        return None if mask is None else mask.log().to(like.dtype)
    return torch.zeros_like(mask, dtype=like.dtype).masked_fill_(~mask, -torch.inf)


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
    mask: Presence | None,
) -> Float[Tensor, "B H M d"]:
    """Attend to the present elements, with the blocked kernel where possible; the result of an empty set is zero."""
    needs_gradient = mask is not None and mask.requires_grad  # the kernels have none for weights
    if requires_plain_equation() or needs_gradient or queries.shape[2] == 0:
        return plain_attention(queries, keys, values, mask)
    if queries.device.type != "cpu":
        return attention_off_the_cpu(queries, keys, values, mask)
    if private_operator(FLASH_FORWARD) is None or private_operator(FLASH_BACKWARD) is None:
        return plain_attention(queries, keys, values, mask)
    if torch.compiler.is_compiling():
        return torch.ops.picaset.attention(queries, keys, values, mask)[0]
    return cast(Any, SoftmaxAttention).apply(queries, keys, values, mask)[0]


def attention_off_the_cpu(queries: Tensor, keys: Tensor, values: Tensor, mask: Presence | None) -> Tensor:
    """Attend to the present elements with torch's own attention, which selects a kernel for the device."""
    if mask is None:
        return scaled_dot_product_attention(queries, keys, values, scale=1.0)
    # Kernels differ in what they return for an empty set, so it attends to its padding, and the result is set to zero.
    empty = ~mask.any(dim=1)[:, None, None, None]
    bias = additive_mask(mask[:, None, None, :], queries)
    assert bias is not None
    bias = bias.masked_fill(empty, 0.0).expand(-1, queries.shape[1], queries.shape[2], -1)
    return scaled_dot_product_attention(queries, keys, values, attn_mask=bias, scale=1.0).masked_fill(empty, 0.0)


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
            with without_autocast(queries):
                output = plain_attention(queries, keys, values, mask)
                return *differentiable_gradients(output, (queries, keys, values), ctx.needs_input_grad, grad), None
        return *attention_backward(grad, queries, keys, values, mask, mean, log), None


def attention_backward(
    grad: Tensor,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None,
    mean: Tensor,
    log: Tensor,
    *,
    scale: float = 1.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of queries, keys and values with the blocked kernel."""
    bias = additive_mask(None if mask is None else mask[:, None, None, :], queries)
    flash_backward = private_operator(FLASH_BACKWARD)
    grad, queries, keys, values = map(row_major, (grad, queries, keys, values))
    return flash_backward(grad, queries, keys, values, mean, log, 0.0, False, attn_mask=bias, scale=scale)


def save_attention(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs, *output)


def differentiate_attention(ctx: Any, grad: Tensor, _: Any) -> Any:
    return *torch.ops.picaset.attention_backward(grad, *ctx.saved_tensors), None


def with_more_sets(operator: Any) -> Any:
    """Return a vmap rule that applies an operator once, to the sets of all examples."""

    def rule(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor | None) -> tuple[tuple[Tensor, ...], Any]:
        def merge(tensor: Tensor | None, dim: int | None) -> Tensor | None:
            if tensor is None:
                return None
            examples = tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
            return examples.flatten(0, 1)

        results = operator(*(merge(*pair) for pair in zip(inputs, in_dims, strict=True)))
        separate = tuple(part.unflatten(0, (info.batch_size, part.shape[0] // info.batch_size)) for part in results)
        return separate, (0,) * len(separate)

    return rule


# Operators for compiled code; torch derives the shapes that a trace needs from the functions themselves.
torch_library: Any = torch.library  # its functions have no types
library: Any = torch_library.Library("picaset", "FRAGMENT")
INPUTS = "Tensor queries, Tensor keys, Tensor values, Tensor? mask"
library.define(f"attention({INPUTS}) -> (Tensor, Tensor)")
library.define(f"attention_backward(Tensor grad, {INPUTS}, Tensor mean, Tensor log) -> (Tensor, Tensor, Tensor)")
for name, kernel in (("attention", blocked_attention), ("attention_backward", attention_backward)):
    library.impl(name, kernel, "CompositeExplicitAutograd")
    torch_library.register_fake(f"picaset::{name}", kernel, lib=library)
    torch_library.register_vmap(f"picaset::{name}", with_more_sets(getattr(torch.ops.picaset, name)), lib=library)
torch_library.register_autograd(
    "picaset::attention", differentiate_attention, setup_context=save_attention, lib=library
)


MAX_STORED_WEIGHTS = 2**20
"""Number of weights, over all sets and queries, up to which they are stored for the backward pass."""
ROWS_IN_CACHE = 8192
"""Number of elements, over all sets, in one chunk of the backward pass."""


def stores_weights(num_queries: int, elements: Float[Tensor, "B N E"], dtype: torch.dtype) -> bool:
    """Whether the problem, with queries of this number and dtype, is so small that its weights are stored."""
    kind = elements.device.type
    # On a GPU the answer must not depend on whether the kernel serves, because a trace has to give it, too.
    has_kernel = kind == "cuda" or (kind in DEVICE_KERNELS and not DEVICE_KERNELS[kind].large_only)
    if has_kernel or elements.dtype != dtype:
        return False
    return elements.shape[0] * num_queries * elements.shape[1] <= MAX_STORED_WEIGHTS


def keeps_dtype(elements: Tensor) -> bool:
    """Whether products with the elements are computed in their dtype; otherwise half precision becomes float32."""
    return elements.dtype is torch.bfloat16 and elements.device.type == "cpu" and MULTIPLIES_BFLOAT16


MULTIPLIES_BFLOAT16: bool = getattr(torch.cpu, "_is_avx512_bf16_supported", bool)()
"""Whether this processor has instructions for products in bfloat16."""


def softmax_mean(
    queries: Float[Tensor, "B M E"],
    elements: Float[Tensor, "B N E"] | Float[Tensor, "total E"],
    mask: Shaped[Tensor, "..."] | None,
    *,
    store: bool = True,
    offsets: Tensor | None = None,
) -> tuple[Float[Tensor, "B M E"], Float[Tensor, "B M N"] | Float[Tensor, "B M"]]:
    """Return the attention-weighted mean of the elements; zero for an empty set.

    Also return what the backward pass needs: the weights (B, M, N) of a small problem, unless they may not be stored,
    or the log of the denominators (B, M). Packed sets with ``offsets`` need the kernel of a device.
    """
    if not (store and offsets is None and stores_weights(queries.shape[1], elements, queries.dtype)):
        kernel = device_kernel(elements, *queries.shape[:2])
        if kernel is not None:
            return kernel.forward(queries, elements, mask, offsets)
        mean, log = blocked_mean(queries.to(elements.dtype), elements, mask)
        return mean.to(queries.dtype), log
    return stored_mean(queries, elements, mask)


def stored_mean(
    queries: Float[Tensor, "B M E"], elements: Float[Tensor, "B N E"], mask: Presence | None
) -> tuple[Float[Tensor, "B M E"], Float[Tensor, "B M N"]]:
    """Return the attention-weighted mean of the elements of a small problem, and the weights."""
    scores = torch.bmm(queries, elements.transpose(1, 2))
    weights = scores.softmax(dim=-1) if mask is None else softmax_over_present(scores[:, None], mask)[:, 0]
    return torch.bmm(weights, elements), weights


def rows_of_chunk(queries: Float[Tensor, "B M E"]) -> int:
    """Return the number of elements, over all sets, in one chunk of the backward pass.

    On the CPU a chunk fits into the cache; on a GPU the products of a chunk take a sixteenth of the free memory.
    """
    if queries.device.type != "cuda":
        return ROWS_IN_CACHE
    free, _ = torch.cuda.mem_get_info(queries.device)
    return max(free // (16 * 4 * queries.element_size() * queries.shape[1]), ROWS_IN_CACHE)


def backward_in_chunks(
    queries: Float[Tensor, "B M E"],
    elements: Float[Tensor, "B N E"] | Float[Tensor, "total E"],
    mask: Shaped[Tensor, "..."] | None,
    mean: Float[Tensor, "B M E"],
    log: Float[Tensor, "B M"],
    grad_mean: Float[Tensor, "B M E"],
    grad_elements: Float[Tensor, "B N E"] | Float[Tensor, "total E"] | None,
    *,
    accumulate: bool,
    offsets: Tensor | None = None,
) -> Float[Tensor, "B M E"]:
    """Return the gradient of the queries, with weights recomputed chunk by chunk from the log of the denominators.

    The gradient of the elements is written into ``grad_elements``, or added to it if ``accumulate`` is set.
    """
    kernel = device_kernel(elements, *queries.shape[:2])
    if kernel is not None:
        return kernel.backward(
            queries, elements, mask, mean, log, grad_mean, grad_elements, accumulate=accumulate, offsets=offsets
        )
    sets, count, _ = elements.shape
    num_queries, dtype = queries.shape[1], elements.dtype
    log, correction = log[..., None], (grad_mean * mean).sum(dim=-1, keepdim=True)  # (B, M, 1) each
    if stores_weights(num_queries, elements, queries.dtype):  # concatenating would take as long as multiplying
        weights = torch.bmm(queries, elements.transpose(1, 2)).sub_(log)
        if mask is not None:
            weights += cast(Tensor, additive_mask(mask[:, None], weights))
        weights.exp_()
        # The elements may be a part of a set, so the weights need not add up to one.
        grad_scores = torch.bmm(grad_mean, elements.transpose(1, 2)).sub_(correction).mul_(weights)
        if grad_elements is not None:
            beta = int(accumulate)
            torch.baddbmm(grad_elements, weights.transpose(1, 2), grad_mean, beta=beta, out=grad_elements)
            torch.baddbmm(grad_elements, grad_scores.transpose(1, 2), queries, out=grad_elements)
        return torch.bmm(grad_scores, elements)
    left = torch.cat([queries, grad_mean], dim=1).to(dtype)  # (B, 2M, E)
    right = torch.cat([grad_mean, queries], dim=1).to(dtype)
    grad_queries = torch.zeros_like(queries)
    size = max(rows_of_chunk(queries) // max(sets, 1), 1)
    for start in range(0, count, size):
        chunk = elements[:, start : start + size]
        products = (left @ chunk.transpose(1, 2)).to(queries.dtype)  # (B, 2M, n)
        weights, grad_scores = products[:, :num_queries], products[:, num_queries:]
        weights.sub_(log)
        if mask is not None:
            weights += cast(Tensor, additive_mask(mask[:, None, start : start + size], weights))
        weights.exp_()
        grad_scores.sub_(correction).mul_(weights)
        products = products.to(dtype)
        grad_queries += products[:, num_queries:] @ chunk
        if grad_elements is not None:
            grad_chunk = grad_elements[:, start : start + size]
            torch.baddbmm(grad_chunk, products.transpose(1, 2), right, beta=int(accumulate), out=grad_chunk)
    return grad_queries


def absorb(queries: Float[Tensor, "B K D"], key_weight: Float[Tensor, "H d E"], scale: float) -> Float[Tensor, "B M E"]:
    """Apply the transposed key map of each head to its part of the queries."""
    return fold(torch.bmm(by_head(queries * scale, key_weight.shape[0]), key_weight), *queries.shape[:2])


def project(mean: Float[Tensor, "B M E"], value_weight: Float[Tensor, "H d E"]) -> Float[Tensor, "B K D"]:
    """Apply the value map of each head to its means."""
    sets, rows, _ = mean.shape
    num_heads = value_weight.shape[0]
    return join(torch.bmm(unfold(mean, num_heads), value_weight.transpose(1, 2)), sets, rows // num_heads)


def weight_by_head(weight: Float[Tensor, "D E"], num_heads: int) -> Float[Tensor, "H d E"]:
    """Return the weight of a map of each head, in float32 for half precision."""
    return upcast_half(weight).reshape(num_heads, weight.shape[0] // num_heads, weight.shape[1])


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
    if count == 1:
        return heads.transpose(0, 1)
    num_heads, _, features = heads.shape
    return heads.view(num_heads, sets, count, features).transpose(0, 1).reshape(sets, num_heads * count, features)


def unfold(folded: Float[Tensor, "B M E"], num_heads: int) -> Float[Tensor, "H BK E"]:
    """Separate the heads again; the inverse of ``fold``."""
    sets, rows, features = folded.shape
    count = rows // num_heads
    if count == 1:
        return folded.transpose(0, 1)
    return folded.reshape(sets, num_heads, count, features).transpose(0, 1).reshape(num_heads, sets * count, features)


Order = Literal["project", "absorb"]

NARROW_HEAD = 16
"""Overhead of one query of one head, in features of equal cost; measured by benchmarks/pooling.py."""


@dataclass(frozen=True)
class ProjectedSet:
    """A set as its keys and values."""

    keys: Float[Tensor, "B H N d"]
    values: Float[Tensor, "B H N d"]
    mask: Presence | None
    scale: float

    def scores(self, queries: Float[Tensor, "#B K D"]) -> Float[Tensor, "B H K N"]:
        """Return the scaled products of queries and keys."""
        return self.queries(queries) @ self.keys.transpose(-2, -1)

    def attend(self, queries: Float[Tensor, "#B K D"]) -> Float[Tensor, "B K D"]:
        """Return the heads, concatenated."""
        by_head = self.queries(queries).expand(self.keys.shape[0], -1, -1, -1)
        return join_heads(softmax_attention(by_head, self.keys, self.values, self.mask))

    def queries(self, queries: Float[Tensor, "B K D"]) -> Float[Tensor, "B H K d"]:
        """Return the scaled queries of each head."""
        return split_heads(queries * self.scale, self.keys.shape[1])


@dataclass(frozen=True)
class AbsorbedSet:
    """A set as its elements, with the key map applied to the queries and the value map to the mean."""

    elements: Float[Tensor, "B N E"]
    key_map: nn.Linear
    value_map: nn.Linear
    mask: Presence | None
    num_heads: int
    scale: float

    def scores(self, queries: Float[Tensor, "#B K D"]) -> Float[Tensor, "B H K N"]:
        """Return the scaled products of queries and keys."""
        # (B, M, N): one product for all heads
        return self.by_head(self.queries(queries) @ upcast_half(self.elements).transpose(1, 2))

    def attend(self, queries: Float[Tensor, "#B K D"]) -> Float[Tensor, "B K D"]:
        """Return the heads, concatenated, by the plain equation."""
        elements = upcast_half(self.elements)
        folded = self.queries(queries).expand(elements.shape[0], -1, -1)[:, None]
        mean = plain_attention(folded, elements[:, None], elements[:, None], self.mask)[:, 0]
        bias = self.value_bias()
        return self.project(mean) + (bias if self.mask is None else bias * self.mask.any(dim=1)[:, None, None])

    def summarize(self, queries: Float[Tensor, "B K D"]) -> AttentionState:
        """Return the softmax statistics of the elements; those of the parts of a set merge."""
        elements = upcast_half(self.elements)
        folded = self.queries(queries) @ elements.transpose(1, 2)
        state = AttentionState.of(folded[:, None], elements[:, None], self.mask)
        return AttentionState(*(self.by_head(part[:, 0]) for part in state))

    def finish(self, state: AttentionState) -> Float[Tensor, "B K D"]:
        """Return the heads from the state of the whole set."""
        return self.project(state.mean().flatten(1, 2)) + self.value_bias() * state.is_nonempty()[:, 0, :1]

    def queries(self, queries: Float[Tensor, "B K D"]) -> Float[Tensor, "B M E"]:
        """Return the scaled queries of all heads, mapped to the space of the elements."""
        return absorb(queries, weight_by_head(self.key_map.weight, self.num_heads), self.scale)

    def project(self, mean: Float[Tensor, "B M E"]) -> Float[Tensor, "B K D"]:
        """Apply the value map of each head to its means, without the bias."""
        return project(mean, weight_by_head(self.value_map.weight, self.num_heads))

    def value_bias(self) -> Float[Tensor, " D"]:
        """Return the bias of the values; the key bias cancels in the softmax, so its gradient is zero."""
        return upcast_half(self.value_map.bias + 0 * self.key_map.bias)  # distributed training waits for every gradient

    def by_head(self, folded: Float[Tensor, "B M X"]) -> Float[Tensor, "B H K X"]:
        """Separate the heads."""
        sets, rows, columns = folded.shape
        return folded.reshape(sets, self.num_heads, rows // self.num_heads, columns)


SetView = ProjectedSet | AbsorbedSet


def attend(queries: Float[Tensor, "#B K D"], view: SetView) -> Float[Tensor, "B K D"]:
    """Return the attention-weighted mean of the values, heads concatenated; zero for an empty set.

    Queries shared by all sets may be a batch of one.
    """
    with without_autocast(queries):
        return view.attend(queries)


def attention_weights(queries: Float[Tensor, "#B K D"], view: SetView) -> Float[Tensor, "B H K N"]:
    """Return the attention weights, a distribution over the present elements; all zero for an empty set."""
    with without_autocast(queries):
        return softmax_over_present(view.scores(queries), view.mask)


def view_set(
    elements: Float[Tensor, "B N E"],
    mask: Presence | None,
    *,
    key_map: nn.Linear,
    value_map: nn.Linear,
    num_heads: int,
    scale: float,
    order: Order,
) -> SetView:
    """Return a set, with its key and value map, for the given order of evaluation.

    Half precision is converted to float32 here or on use, so that scores and sums are computed in float32.
    """
    if order == "project":
        keys, values = (split_heads(upcast_half(layer(elements)), num_heads) for layer in (key_map, value_map))
        return ProjectedSet(keys, values, mask, scale)
    return AbsorbedSet(elements, key_map, value_map, mask, num_heads, scale)


def cheapest_order(
    *, num_queries: int | None, num_heads: int, dim_elements: int, dim: int, num_steps: int = 1
) -> Order:
    """Return the order with fewer multiplications per element, whatever the number of elements.

    In pairs of multiplications, projecting costs ``E D`` once and ``K D`` per step, absorbing ``K H E`` per step.
    Kernels are less efficient for narrow heads, hence the overhead of ``NARROW_HEAD`` features per query and head.
    ``num_queries=None`` means one query per element, for which projecting is cheaper.
    """
    if num_queries is None:
        return "project"
    project = dim_elements * dim + num_steps * num_queries * (dim + NARROW_HEAD * num_heads)
    absorb = num_steps * num_queries * num_heads * dim_elements
    return "absorb" if absorb < project else "project"


def split_heads(vectors: Float[Tensor, "B M D"], num_heads: int) -> Float[Tensor, "B H M d"]:
    sets, count, dim = vectors.shape
    return vectors.reshape(sets, count, num_heads, dim // num_heads).transpose(1, 2)


def join_heads(heads: Float[Tensor, "B H M d"]) -> Float[Tensor, "B M D"]:
    return heads.transpose(1, 2).flatten(2)
