"""Attention of packed sets as one operator of compiled code.

In eager code an encoder runs on buckets of similar size (buckets.py), which are planned from values; a full graph
cannot do that. There the maps are applied to the packed rows, without padding, and only the attention between them is
an operator, ``picaset::packed_attention``, that plans the buckets when it runs. It has three forms:

    queries, keys and values of every element                          every element attends to its own set
    queries of every element; keys and values of the vectors of a set  elements attend to the vectors
    keys and values of every element; queries of the vectors of a set  vectors attend to the elements

Dimensions:  B sets   M vectors of a set   b sets of a bucket   n elements of its largest set   D features   H heads
"""

from dataclasses import replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from picaset.operators.attention import (
    FLASH_BACKWARD,
    FLASH_FORWARD,
    attention_backward,
    blocked_attention,
    join_heads,
    library,
    private_operator,
    requires_plain_equation,
    split_heads,
    torch_library,
)
from picaset.operators.buckets import Bucket, by_element, by_set, split_into_buckets
from picaset.operators.set_norm import SetNorm
from picaset.operators.state import Presence, without_autocast
from picaset.sets import SetBatch


def packed_attention(
    rows: Float[Tensor, "total F"], vectors: Float[Tensor, "B M G"] | None, batch: SetBatch, num_heads: int
) -> Float[Tensor, "total D"] | Float[Tensor, "B M D"]:
    """Attend within the sets of a batch, in compiled code.

    Args:
        rows: Of every element: queries, keys and values; only queries; or only keys and values, concatenated.
        vectors: Of the vectors of every set, what the rows lack; None if they lack nothing. Queries are scaled.
        batch: The sets; its elements are not used.
        num_heads: Attention heads.
    """
    with without_autocast(rows):
        return torch.ops.picaset.packed_attention(rows, vectors, batch.offsets, batch.weights, num_heads)


def compiles_packed(batch: SetBatch, module: nn.Module) -> bool:
    """Whether a module is compiled whole and computes on packed rows: on the CPU, and without norms of whole sets."""
    if not torch.compiler.is_compiling() or requires_plain_equation() or batch.elements.device.type != "cpu":
        return False
    if batch.weights is not None and batch.weights.requires_grad:
        return False
    if private_operator(FLASH_FORWARD) is None or private_operator(FLASH_BACKWARD) is None:
        return False
    return not any(isinstance(part, SetNorm) for part in module.modules())


class Inputs(NamedTuple):
    """Queries, keys and values of the sets of a bucket, (b, H, n or M, d)."""

    queries: Tensor
    keys: Tensor
    values: Tensor
    mask: Presence | None


def inputs_of(bucket: Bucket, vectors: Tensor | None, num_heads: int) -> Inputs:
    """Return the inputs of the attention of a bucket."""
    own, mask = bucket.elements, bucket.mask
    if vectors is None:
        parts = own.chunk(3, dim=2)
    elif rows_are_queries(own, vectors):
        parts, mask = (own, *vectors[bucket.sets].chunk(2, dim=2)), None
    else:
        parts = (vectors[bucket.sets], *own.chunk(2, dim=2))
    queries, keys, values = (split_heads(part, num_heads) for part in parts)
    return Inputs(queries, keys, values, mask)


def rows_are_queries(rows: Tensor, vectors: Tensor | None) -> bool:
    return vectors is not None and vectors.shape[2] == 2 * rows.shape[-1]


def rows_are_results(rows: Tensor, vectors: Tensor | None) -> bool:
    """Whether there is a result for every element, not for the vectors of every set."""
    return vectors is None or rows_are_queries(rows, vectors)


def forward_in_buckets(
    rows: Float[Tensor, "total F"],
    vectors: Float[Tensor, "B M G"] | None,
    offsets: Int[Tensor, " B_plus_1"],
    weights: Shaped[Tensor, " total"] | None,
    num_heads: int,
) -> Tensor:
    """Return the results of all buckets: the operator ``picaset::packed_attention``."""
    buckets = list(split_into_buckets(SetBatch(rows, offsets, weights)))
    results = list[Tensor]()
    for bucket in buckets:
        queries, keys, values, mask = inputs_of(bucket, vectors, num_heads)
        results.append(join_heads(blocked_attention(queries, keys, values, mask)[0]))
    return (by_element if rows_are_results(rows, vectors) else by_set)(buckets, results)


def backward_in_buckets(
    grad: Tensor,
    rows: Float[Tensor, "total F"],
    vectors: Float[Tensor, "B M G"] | None,
    offsets: Int[Tensor, " B_plus_1"],
    weights: Shaped[Tensor, " total"] | None,
    num_heads: int,
) -> tuple[Tensor, Tensor]:
    """Return the gradients of rows and vectors: the operator ``picaset::packed_attention_backward``."""
    width = rows.shape[1]
    by_row = rows_are_results(rows, vectors)
    joined = torch.cat([rows, grad], dim=1) if by_row else rows  # padded together
    buckets = list(split_into_buckets(SetBatch(joined, offsets, weights)))
    grad_rows = list[Tensor]()
    grad_vectors = rows.new_zeros(0) if vectors is None else torch.zeros_like(vectors)
    for bucket in buckets:
        own, own_grad = bucket.elements[..., :width], bucket.elements[..., width:] if by_row else grad[bucket.sets]
        queries, keys, values, mask = inputs_of(replace(bucket, elements=own), vectors, num_heads)
        mean, log = blocked_attention(queries, keys, values, mask)
        grads = attention_backward(split_heads(own_grad, num_heads), queries, keys, values, mask, mean, log)
        parts = [join_heads(part) for part in grads]
        if vectors is None:
            grad_rows.append(torch.cat(parts, dim=2))
        elif by_row:
            grad_rows.append(parts[0])
            grad_vectors[bucket.sets] = torch.cat(parts[1:], dim=2)
        else:
            grad_rows.append(torch.cat(parts[1:], dim=2))
            grad_vectors[bucket.sets] = parts[0]
    return by_element(buckets, grad_rows), grad_vectors


def traced_forward(
    rows: Tensor, vectors: Tensor | None, offsets: Tensor, weights: Tensor | None, num_heads: int
) -> Tensor:
    """Return a tensor of the shape of the result."""
    if vectors is None:
        return rows.new_empty(rows.shape[0], rows.shape[1] // 3)
    return torch.empty_like(rows if rows_are_queries(rows, vectors) else vectors)


def traced_backward(
    grad: Tensor, rows: Tensor, vectors: Tensor | None, offsets: Tensor, weights: Tensor | None, num_heads: int
) -> tuple[Tensor, Tensor]:
    """Return tensors of the shapes of the gradients."""
    return torch.empty_like(rows), rows.new_empty(0) if vectors is None else torch.empty_like(vectors)


def save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.num_heads = inputs
    ctx.save_for_backward(*tensors)


def differentiate(ctx: Any, grad: Tensor) -> Any:
    saved = ctx.saved_tensors
    grad_rows, grad_vectors = torch.ops.picaset.packed_attention_backward(grad, *saved, ctx.num_heads)
    return grad_rows, None if saved[1] is None else grad_vectors, None, None, None


INPUTS = "Tensor rows, Tensor? vectors, Tensor offsets, Tensor? weights, int num_heads"
library.define(f"packed_attention({INPUTS}) -> Tensor")
library.define(f"packed_attention_backward(Tensor grad, {INPUTS}) -> (Tensor, Tensor)")
for name, kernel, traced in (
    ("packed_attention", forward_in_buckets, traced_forward),
    ("packed_attention_backward", backward_in_buckets, traced_backward),
):
    library.impl(name, kernel, "CompositeExplicitAutograd")
    torch_library.register_fake(f"picaset::{name}", traced, lib=library)
torch_library.register_autograd("picaset::packed_attention", differentiate, setup_context=save, lib=library)
