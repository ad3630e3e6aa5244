# ruff: noqa: N803 - arguments in capitals are constants of the compiler
"""Absorbed attention on a GPU: few queries over long sets, in Triton.

    mean = softmax(Q X^T) X

A set of N elements is divided into parts, one program each, so that one long set occupies the whole device (split-K).
The forward pass writes the mean and the log of the denominator of every part, and ``merge_parts`` combines them
exactly. The backward pass reads the elements once more: it recomputes the weights from the log of the denominator,
writes the gradient of the elements, and leaves one gradient of the queries per part for ``merge_parts`` to add up.

Padded and packed sets share the kernels: a part is a range of rows of the (total, E) elements. Elements that are absent
are not read. Products of float32 are exact (``input_precision="ieee"``), not TF32. A set without elements has a mean of
zero and a log of +inf, so that its weights are zero.

The kernels are compiled for the device and checked against the plain equation before their first use; where that fails,
``serves`` says no, with a warning, and ``attention.py`` uses its other kernels.

Dimensions:  B sets   N elements   M queries   E features   P parts of all sets
"""

# pyright: basic, reportArgumentType=false, reportCallIssue=false, reportIndexIssue=false
# Triton compiles the kernels, whose arguments have other types than those of Python.
import warnings
from functools import cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from picaset.operators.attention import DeviceKernel, largest_error

MAX_FEATURES = 512
"""Widest elements whose tiles fit into the registers of a program."""
PROGRAMS_PER_PROCESSOR = 4
"""Parts per multiprocessor of the device, if there are enough elements."""


class Parts(NamedTuple):
    """Division of the rows of all sets into parts."""

    num_sets: int
    num_parts: int
    """Number of parts, or an upper bound of it for packed sets, whose sizes only the device knows."""
    size: int
    """Rows of a part."""
    tables: tuple[Tensor | None, Tensor | None, Tensor | None]
    """Offsets (B + 1,), first part of each set (B + 1,) and set of each part (P,), for packed sets."""
    count: int
    """Elements of a padded set."""
    per_set: int
    """Parts of a padded set."""


def divide(elements: Tensor, offsets: Tensor | None, block: int) -> Parts:
    """Divide sets into parts of a multiple of ``block`` rows."""
    total = elements.shape[:-1].numel()
    size = max(triton.cdiv(triton.cdiv(total, num_programs(elements.device)), block), 1) * block
    if offsets is None:
        sets, count = elements.shape[:2]
        per_set = triton.cdiv(count, size)
        return Parts(sets, sets * per_set, size, (None, None, None), count, per_set)
    sets = len(offsets) - 1
    ends = ((offsets.diff() + size - 1) // size).cumsum(0)
    num_parts = total // size + sets
    owners = torch.searchsorted(ends, torch.arange(num_parts, device=ends.device), right=True).clamp(max=sets - 1)
    return Parts(sets, num_parts, size, (offsets, torch.cat([ends.new_zeros(1), ends]), owners), 0, 0)


def num_programs(device: torch.device) -> int:
    """Return how many parts occupy a device; two in the interpreter, which runs on the CPU."""
    if device.type != "cuda":
        return 2
    return PROGRAMS_PER_PROCESSOR * torch.cuda.get_device_properties(device).multi_processor_count


@triton.jit
def rows_of_part(part, offsets, firsts, owners, count, per_set, size, PACKED: tl.constexpr):
    """Return the set of a part, its first row, and the row after its last."""
    if PACKED:
        owner = tl.load(owners + part)
        begin = tl.load(offsets + owner) + (part - tl.load(firsts + owner)) * size
        end = tl.minimum(begin + size, tl.load(offsets + owner + 1))
    else:
        owner = (part // per_set).to(tl.int64)
        begin = owner * count + (part % per_set) * size
        end = tl.minimum(begin + size, (owner + 1) * count)
    return owner, begin, end


@triton.jit
def load_elements(elements, mask, rows, end, features, MASKED: tl.constexpr, E: tl.constexpr, DTYPE: tl.constexpr):
    """Return a block of elements, zero where absent, and the logs of their weights, -inf where absent."""
    present = rows < end
    logs = tl.zeros_like(rows).to(DTYPE)
    if MASKED:
        weights = tl.load(mask + rows, mask=present, other=0).to(DTYPE)
        present = present & (weights != 0)
        logs = tl.log(tl.where(present, weights, 1.0))
    columns = tl.arange(0, E)
    inside = present[:, None] & (columns < features)[None, :]
    block = tl.load(elements + rows[:, None] * features + columns[None, :], mask=inside, other=0.0)
    return block, tl.where(present, logs, float("-inf"))


@triton.jit
def attend_to_part(
    queries, elements, mask, offsets, firsts, owners, means, logs, num_queries, features, count, per_set, size,
    PACKED: tl.constexpr, MASKED: tl.constexpr, M: tl.constexpr, N: tl.constexpr, E: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    """Write the mean of a part and the log of its denominator, -inf if it has no elements."""
    part = tl.program_id(0)
    owner, begin, end = rows_of_part(part, offsets, firsts, owners, count, per_set, size, PACKED)
    m, columns = tl.program_id(1) * M + tl.arange(0, M), tl.arange(0, E)
    inside = (m < num_queries)[:, None] & (columns < features)[None, :]
    at = m[:, None] * features + columns[None, :]
    query = tl.load(queries + owner * num_queries * features + at, mask=inside, other=0.0)
    largest = tl.full([M], float("-inf"), DTYPE)
    total = tl.zeros([M], DTYPE)
    weighted = tl.zeros([M, E], DTYPE)
    for start in range(begin, end, N):
        block, bias = load_elements(
            elements, mask, start + tl.arange(0, N), end, features, MASKED, E, DTYPE
        )  # (N, E), (N,)
        scores = tl.dot(query, tl.trans(block), input_precision="ieee", out_dtype=DTYPE) + bias[None, :]
        larger = tl.maximum(largest, tl.max(scores, 1))
        shift = tl.where(larger == float("-inf"), 0.0, larger)
        factor = tl.exp(largest - shift)
        weights = tl.exp(scores - shift[:, None])
        total = total * factor + tl.sum(weights, 1)
        products = tl.dot(weights, block, input_precision="ieee", out_dtype=DTYPE)
        weighted = weighted * factor[:, None] + products
        largest = larger
    safe = tl.where(total == 0, 1.0, total)
    first = part.to(tl.int64) * num_queries
    tl.store(means + first * features + at, weighted / safe[:, None], mask=inside)
    tl.store(logs + first + m, tl.where(total == 0, float("-inf"), largest + tl.log(safe)), mask=m < num_queries)


@triton.jit
def merge_parts(
    parts, logs, firsts, merged, log, num_queries, features, per_set,
    PACKED: tl.constexpr, WEIGHTED: tl.constexpr, P: tl.constexpr, E: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    """Write the mean of all parts of a set by their denominators, and its log; or the sum of the parts."""
    owner, query = tl.program_id(0).to(tl.int64), tl.program_id(1)
    if PACKED:
        first, last = tl.load(firsts + owner), tl.load(firsts + owner + 1)
    else:
        first, last = owner * per_set, (owner + 1) * per_set
    columns = tl.arange(0, E)
    largest = tl.full([], float("-inf"), DTYPE)
    total = tl.zeros([], DTYPE)
    weighted = tl.zeros([E], DTYPE)
    for start in range(first, last, P):
        part = start + tl.arange(0, P)
        row = part * num_queries + query
        inside = (part < last)[:, None] & (columns < features)[None, :]
        block = tl.load(parts + row[:, None] * features + columns[None, :], mask=inside, other=0.0)  # (P, E)
        if WEIGHTED:
            part_logs = tl.load(logs + row, mask=part < last, other=float("-inf"))
            larger = tl.maximum(largest, tl.max(part_logs, 0))
            shift = tl.where(larger == float("-inf"), 0.0, larger)
            factor = tl.exp(largest - shift)
            weights = tl.exp(part_logs - shift)
            total = total * factor + tl.sum(weights, 0)
            weighted = weighted * factor + tl.sum(weights[:, None] * block, 0)
            largest = larger
        else:
            weighted += tl.sum(block, 0)
    row = owner * num_queries + query
    if WEIGHTED:
        safe = tl.where(total == 0, 1.0, total)
        weighted = weighted / safe
        tl.store(log + row, tl.where(total == 0, float("inf"), largest + tl.log(safe)))
    tl.store(merged + row * features + columns, weighted, mask=columns < features)


@triton.jit
def differentiate_part(
    queries, elements, mask, offsets, firsts, owners, logs, corrections, grad_means, grad_queries, grad_elements,
    first_query, num_queries, features, count, per_set, size,
    PACKED: tl.constexpr, MASKED: tl.constexpr, NEEDED: tl.constexpr, ACCUMULATE: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, E: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    """Write the gradient of the elements of a part, and its share of the gradient of the queries."""
    part = tl.program_id(0)
    owner, begin, end = rows_of_part(part, offsets, firsts, owners, count, per_set, size, PACKED)
    m, columns = first_query + tl.arange(0, M), tl.arange(0, E)
    inside = (m < num_queries)[:, None] & (columns < features)[None, :]
    at, first = m[:, None] * features + columns[None, :], owner * num_queries
    query = tl.load(queries + first * features + at, mask=inside, other=0.0)
    grad_mean = tl.load(grad_means + first * features + at, mask=inside, other=0.0)
    log = tl.load(logs + first + m, mask=m < num_queries, other=float("inf"))
    correction = tl.load(corrections + first + m, mask=m < num_queries, other=0.0)
    grad_query = tl.zeros([M, E], DTYPE)
    for start in range(begin, end, N):
        rows = start + tl.arange(0, N)
        block, bias = load_elements(elements, mask, rows, end, features, MASKED, E, DTYPE)
        transposed = tl.trans(block)
        scores = tl.dot(query, transposed, input_precision="ieee", out_dtype=DTYPE) + bias[None, :]
        weights = tl.exp(scores - log[:, None])
        grad_weights = tl.dot(grad_mean, transposed, input_precision="ieee", out_dtype=DTYPE)
        grad_scores = weights * (grad_weights - correction[:, None])
        grad_query += tl.dot(grad_scores, block, input_precision="ieee", out_dtype=DTYPE)
        if NEEDED:
            grad = tl.dot(tl.trans(weights), grad_mean, input_precision="ieee", out_dtype=DTYPE)
            grad += tl.dot(tl.trans(grad_scores), query, input_precision="ieee", out_dtype=DTYPE)
            written = (rows < end)[:, None] & (columns < features)[None, :]
            target = grad_elements + rows[:, None] * features + columns[None, :]
            if ACCUMULATE:
                grad += tl.load(target, mask=written, other=0.0)
            tl.store(target, grad, mask=written)
    tl.store(grad_queries + part.to(tl.int64) * num_queries * features + at, grad_query, mask=inside)


def tile_sizes(num_queries: int, features: int) -> dict[str, int]:
    """Return the tile of a program: queries, elements and features, powers of two and at least 16 for products."""
    wide = max(16, triton.next_power_of_2(features))
    queries = min(max(16, triton.next_power_of_2(num_queries)), 64 if wide <= 128 else 16)
    return dict(M=queries, N=max(16, min(64, 8192 // wide)), E=wide)


def as_numbers(mask: Tensor | None) -> Tensor | None:
    """Return a mask or weights as numbers, in the order of the rows."""
    return None if mask is None else (mask.to(torch.uint8) if mask.dtype is torch.bool else mask).contiguous()


def forward(
    queries: Tensor, elements: Tensor, mask: Tensor | None, offsets: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the attention-weighted mean (B, M, E) of the elements, and the log of its denominator (B, M).

    ``elements`` are (B, N, E), or (total, E) with the ``offsets`` of packed sets; ``mask`` has their shape without the
    features: True or a positive weight where an element is present.
    """
    queries, elements = queries.contiguous(), elements.contiguous()
    sets, num_queries, features = queries.shape
    tile = tile_sizes(num_queries, features)
    parts = divide(elements, offsets, tile["N"])
    common = dict(PACKED=offsets is not None, E=tile["E"], DTYPE=DTYPES[elements.dtype])
    means = queries.new_empty((parts.num_parts, num_queries, features))
    logs = means.new_empty((parts.num_parts, num_queries))
    mean, log = torch.empty_like(queries), queries.new_empty((sets, num_queries))
    sizes = (num_queries, features, parts.count, parts.per_set, parts.size)
    if parts.num_parts:
        attend_to_part[(parts.num_parts, triton.cdiv(num_queries, tile["M"]))](
            queries, elements, as_numbers(mask), *parts.tables, means, logs, *sizes,
            MASKED=mask is not None, M=tile["M"], N=tile["N"], **common,
        )  # fmt: skip
    if sets and num_queries:
        merge_parts[(sets, num_queries)](
            means, logs, parts.tables[1], mean, log, num_queries, features, parts.per_set, WEIGHTED=True, P=16, **common
        )
    return mean, log


def backward(
    queries: Tensor,
    elements: Tensor,
    mask: Tensor | None,
    mean: Tensor,
    log: Tensor,
    grad_mean: Tensor,
    grad_elements: Tensor | None,
    *,
    accumulate: bool,
    offsets: Tensor | None = None,
) -> Tensor:
    """Return the gradient of the queries; that of the elements is written into ``grad_elements``, or added to it."""
    if grad_elements is not None and not grad_elements.is_contiguous():
        written = torch.empty_like(grad_elements, memory_format=torch.contiguous_format)
        grad = backward(queries, elements, mask, mean, log, grad_mean, written, accumulate=False, offsets=offsets)
        _ = grad_elements.add_(written) if accumulate else grad_elements.copy_(written)
        return grad
    queries, elements, grad_mean = queries.contiguous(), elements.contiguous(), grad_mean.contiguous()
    sets, num_queries, features = queries.shape
    tile = tile_sizes(num_queries, features)
    parts = divide(elements, offsets, tile["N"])
    common = dict(PACKED=offsets is not None, E=tile["E"], DTYPE=DTYPES[elements.dtype])
    corrections = (grad_mean * mean).sum(dim=-1).contiguous()
    grads = queries.new_empty((parts.num_parts, num_queries, features))
    sizes = (num_queries, features, parts.count, parts.per_set, parts.size)
    for first in range(0, num_queries if parts.num_parts else 0, tile["M"]):
        differentiate_part[(parts.num_parts,)](
            queries, elements, as_numbers(mask), *parts.tables, log.contiguous(), corrections, grad_mean, grads,
            grad_elements, first, *sizes, MASKED=mask is not None, NEEDED=grad_elements is not None,
            ACCUMULATE=accumulate or first > 0, M=tile["M"], N=tile["N"], **common,
        )  # fmt: skip
    grad_queries = torch.empty_like(queries)
    if sets and num_queries:
        merge_parts[(sets, num_queries)](
            grads, None, parts.tables[1], grad_queries, None, num_queries, features, parts.per_set, WEIGHTED=False,
            P=16, **common,
        )  # fmt: skip
    return grad_queries


DTYPES = {torch.float32: tl.float32, torch.float64: tl.float64}
"""Dtypes of elements, products and sums; half precision is converted to float32 before."""
LARGEST_ERRORS = {torch.float32: 1e-4, torch.float64: 1e-10}
"""Largest difference to the plain equation that a kernel may have, relative to the largest value."""


def serves(elements: Tensor) -> bool:
    """Whether the kernels compute the plain equation for elements of this dtype and width on this device."""
    wide = max(16, triton.next_power_of_2(elements.shape[-1]))
    return wide <= MAX_FEATURES and elements.dtype in DTYPES and passes_check(elements.device, elements.dtype, wide)


@cache
def passes_check(device: torch.device, dtype: torch.dtype, features: int) -> bool:
    """Compare both passes with the plain equation in float64; warn and return False if they differ or do not run."""
    try:
        error = largest_error(forward, backward, device, dtype, features)
    except Exception as problem:  # a compiler and a driver can fail in any way, and the other kernels still work
        error, reason = float("nan"), f"{type(problem).__name__}: {problem}"
    else:
        reason = f"it differs from the plain equation by {error:.1e}"
    if not error <= LARGEST_ERRORS[dtype]:
        warnings.warn(f"The Triton kernel for {dtype} on {device} is not used: {reason}.", stacklevel=2)
        return False
    return True


KERNEL = DeviceKernel(forward, backward, serves)
