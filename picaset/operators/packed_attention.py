"""Attention of packed sets as one operator of compiled code.

In eager code an encoder runs on buckets of similar size (buckets.py), which are planned from values; a full graph
cannot do that. There the maps are applied to the packed rows, without padding, and only the attention between them is
an operator, ``picaset::packed_attention``, that plans the buckets when it runs. Queries, or keys and values, or all
three are those of the packed elements; otherwise they are those of M vectors of each set:

    queries (total, D)      keys and values (total, D)      every element attends to its own set
    queries (total, D)      keys and values (B, M, D)       elements attend to the vectors of their set
    queries (B, M, D)       keys and values (total, D)      the vectors attend to the elements

The operator also returns the log of the denominators, (total, H) or (B, M, H), from which its backward pass recomputes
the weights, as torch's kernel does.

Dimensions:  B sets   M vectors of a set   b sets of a bucket   n elements of its largest set   D features   H heads
"""

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
from picaset.operators.buckets import Bucket, split_into_buckets
from picaset.operators.set_norm import SetNorm
from picaset.operators.state import Presence, without_autocast
from picaset.sets import SetBatch

Rows = Float[Tensor, "total D"] | Float[Tensor, "B M D"]
"""Vectors of the packed elements, or M vectors of each set."""


def packed_attention(queries: Rows, keys: Rows, values: Rows, batch: SetBatch, *, num_heads: int, scale: float) -> Rows:
    """Attend within the sets of a batch, in compiled code.

    Args:
        queries: Of the elements, or of the vectors of every set.
        keys: Of the elements, or of the vectors of every set; not of vectors if the queries are.
        values: Of the same as the keys.
        batch: The sets; its elements are not used.
        num_heads: Attention heads.
        scale: Factor of the scores.
    """
    with without_autocast(queries):
        operator = torch.ops.picaset.packed_attention
        return operator(queries, keys, values, batch.offsets, batch.weights, num_heads, scale)[0]


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


class Sets:
    """The buckets of packed sets, and the parts of tensors that belong to each."""

    def __init__(self, queries: Rows, keys: Rows, values: Rows, offsets: Tensor, weights: Tensor | None) -> None:
        self.inputs = queries, keys, values
        self.packed = keys if keys.dim() == 2 else queries
        self.buckets = list(split_into_buckets(SetBatch(self.packed, offsets, weights)))

    def inputs_of(self, bucket: Bucket, num_heads: int) -> Inputs:
        """Return the inputs of the attention of a bucket."""
        queries, keys, values = (split_heads(self.select(bucket, part), num_heads) for part in self.inputs)
        return Inputs(queries, keys, values, bucket.mask if self.inputs[1].dim() == 2 else None)

    def select(self, bucket: Bucket, rows: Shaped[Tensor, "..."]) -> Shaped[Tensor, "b _ _"]:
        """Return the rows of the elements of a bucket, or of the vectors of its sets."""
        if rows.dim() == 3:
            return rows if len(bucket.sets) == len(rows) else rows[bucket.sets]
        return bucket.elements if rows is self.packed else bucket.pad(rows)

    def write(self, bucket: Bucket, part: Shaped[Tensor, "b _ _"], rows: Shaped[Tensor, "..."]) -> None:
        """Write the rows of the elements of a bucket, or of the vectors of its sets, to their places."""
        if rows.dim() == 3:
            rows[bucket.sets] = part
        else:
            bucket.write(part, rows)


def forward_in_buckets(
    queries: Rows,
    keys: Rows,
    values: Rows,
    offsets: Int[Tensor, " B_plus_1"],
    weights: Shaped[Tensor, " total"] | None,
    num_heads: int,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """Return results and logs of the denominators of all buckets: the operator ``picaset::packed_attention``."""
    sets = Sets(queries, keys, values, offsets, weights)
    result, log = traced_forward(queries, keys, values, offsets, weights, num_heads, scale)
    for bucket in sets.buckets:
        mean, part = blocked_attention(*sets.inputs_of(bucket, num_heads), scale=scale)
        sets.write(bucket, join_heads(mean), result)
        sets.write(bucket, part.transpose(1, 2), log)
    return result, log


def backward_in_buckets(
    grad: Rows,
    queries: Rows,
    keys: Rows,
    values: Rows,
    offsets: Int[Tensor, " B_plus_1"],
    weights: Shaped[Tensor, " total"] | None,
    result: Rows,
    log: Shaped[Tensor, "*rows H"],
    num_heads: int,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of queries, keys and values: the operator ``picaset::packed_attention_backward``."""
    sets = Sets(queries, keys, values, offsets, weights)
    grads = traced_backward(grad, queries, keys, values)
    for bucket in sets.buckets:
        own_grad, mean = (split_heads(sets.select(bucket, part), num_heads) for part in (grad, result))
        own_log = sets.select(bucket, log).transpose(1, 2)
        parts = attention_backward(own_grad, *sets.inputs_of(bucket, num_heads), mean, own_log, scale=scale)
        for part, total in zip(parts, grads, strict=True):
            sets.write(bucket, join_heads(part), total)
    return grads


def traced_forward(
    queries: Tensor, keys: Tensor, values: Tensor, offsets: Tensor, weights: Tensor | None, num_heads: int, scale: float
) -> tuple[Tensor, Tensor]:
    """Return tensors of the shapes of the results and the logs."""
    result = torch.empty_like(queries, memory_format=torch.contiguous_format)
    return result, queries.new_empty(*queries.shape[:-1], num_heads)


def traced_backward(
    grad: Tensor, queries: Tensor, keys: Tensor, values: Tensor, *others: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Return tensors of the shapes of the gradients."""
    return torch.empty_like(queries), torch.empty_like(keys), torch.empty_like(values)


def save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.num_heads, ctx.scale = inputs
    ctx.save_for_backward(*tensors, *output)


def differentiate(ctx: Any, grad: Tensor, _: Any) -> Any:
    operator = torch.ops.picaset.packed_attention_backward
    return *operator(grad, *ctx.saved_tensors, ctx.num_heads, ctx.scale), None, None, None, None


INPUTS = "Tensor queries, Tensor keys, Tensor values, Tensor offsets, Tensor? weights"
OPTIONS = "int num_heads, float scale"
library.define(f"packed_attention({INPUTS}, {OPTIONS}) -> (Tensor, Tensor)")
library.define(
    f"packed_attention_backward(Tensor grad, {INPUTS}, Tensor result, Tensor log, {OPTIONS}) "
    "-> (Tensor, Tensor, Tensor)"
)
for name, kernel, traced in (
    ("packed_attention", forward_in_buckets, traced_forward),
    ("packed_attention_backward", backward_in_buckets, traced_backward),
):
    library.impl(name, kernel, "CompositeExplicitAutograd")
    torch_library.register_fake(f"picaset::{name}", traced, lib=library)
torch_library.register_autograd("picaset::packed_attention", differentiate, setup_context=save, lib=library)
