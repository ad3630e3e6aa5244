"""Packed sets with little padding: sets of similar size are padded together.

One set of 10 000 elements and 99 small ones, padded to the largest, are 99 % padding. Sorted by size and cut where the
padding would outweigh another call, they are a few padded batches that cost what their elements cost. A lone set, and
neighbours of one size, are views of the batch: nothing is copied.

Dimensions:  B sets   b sets of a bucket   n elements of its largest   D features   total elements of all sets
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from picaset.sets import SetBatch

WASTE = 0.25
"""Padding that a bucket may have, as a share of its elements."""
NEGLIGIBLE = 2048
"""Padding, in elements, that is cheaper than another bucket."""

Operator = Callable[[Tensor, Tensor | None], Tensor]
"""From padded elements and their mask, as operators take them, to one row for each set or each element."""


@dataclass(frozen=True)
class Bucket:
    """Sets that are padded together; ``mask`` is None when they are of one size."""

    sets: Int[Tensor, " b"]
    elements: Float[Tensor, "b n D"]
    mask: Bool[Tensor, "b n"] | None
    rows: Int[Tensor, " present"]
    """Where the present elements lie in the batch."""


def pool_in_buckets(batch: SetBatch, operator: Operator) -> Float[Tensor, "B ..."]:
    """What an operator makes of each set, in the order of the batch."""
    buckets = list(in_buckets(batch))
    return by_set(buckets, [operator(bucket.elements, bucket.mask) for bucket in buckets])


def encode_in_buckets(batch: SetBatch, operator: Operator) -> SetBatch:
    """What an operator makes of each element, in the order of the batch."""
    buckets = list(in_buckets(batch))
    return batch.with_elements(by_element(buckets, [operator(bucket.elements, bucket.mask) for bucket in buckets]))


def pool_and_encode_in_buckets(
    batch: SetBatch, operator: Callable[[Tensor, Tensor | None], tuple[Tensor, Tensor]]
) -> tuple[Float[Tensor, "B ..."], SetBatch]:
    """Both, for an operator that returns both."""
    buckets = list(in_buckets(batch))
    pooled, encoded = zip(*(operator(bucket.elements, bucket.mask) for bucket in buckets), strict=True)
    return by_set(buckets, pooled), batch.with_elements(by_element(buckets, encoded))


def by_set(buckets: Sequence[Bucket], pooled: Sequence[Tensor]) -> Float[Tensor, "B ..."]:
    if len(buckets) == 1:
        return pooled[0]
    return torch.cat(tuple(pooled))[torch.cat([bucket.sets for bucket in buckets]).argsort()]


def by_element(buckets: Sequence[Bucket], encoded: Sequence[Tensor]) -> Float[Tensor, "total E"]:
    present = [
        output.flatten(0, 1) if bucket.mask is None else output[bucket.mask]
        for bucket, output in zip(buckets, encoded, strict=True)
    ]
    if len(buckets) == 1:
        return present[0]
    return torch.cat(present)[torch.cat([bucket.rows for bucket in buckets]).argsort()]


def in_buckets(batch: SetBatch) -> Iterator[Bucket]:
    """The sets of a batch in buckets; within each, and in one bucket only, in the order of the batch."""
    if batch.same_size:
        everything = torch.arange(len(batch.elements), device=batch.offsets.device)
        yield padded_together(batch, torch.arange(len(batch), device=batch.offsets.device), everything)
        return
    for sets in plan(batch.sizes.cpu()):
        sets = sets.to(batch.offsets.device)
        yield padded_together(batch, sets, rows_of(batch, sets))


def plan(sizes: Int[Tensor, " B"]) -> list[Int[Tensor, " b"]]:
    """Which sets go together: from the largest down, as long as the padding stays small."""
    order = sizes.argsort(descending=True, stable=True)
    found, start, held = list[Tensor](), 0, 0
    in_order = sizes[order]
    largest = int(in_order[0])
    for index, size in enumerate(int(one) for one in in_order):
        padding = largest * (index - start + 1) - (held + size)
        if padding > max(WASTE * (held + size), NEGLIGIBLE):
            found.append(order[start:index].sort().values)
            start, held, largest = index, 0, size
        held += size
    return [*found, order[start:].sort().values]


def rows_of(batch: SetBatch, sets: Int[Tensor, " b"]) -> Int[Tensor, " present"]:
    """Where the elements of some sets lie in the batch, set by set."""
    sizes = batch.sizes[sets]
    ends = sizes.cumsum(0)
    shift = (batch.offsets[sets] - ends + sizes).repeat_interleave(sizes)
    return shift + torch.arange(int(ends[-1]), device=sets.device)


def padded_together(batch: SetBatch, sets: Int[Tensor, " b"], rows: Int[Tensor, " present"]) -> Bucket:
    sizes = batch.sizes[sets]
    largest, width = int(sizes.max()) if len(sets) else 0, batch.elements.shape[1]
    if len(rows) == len(sets) * largest > 0 and int(rows[-1] - rows[0]) == len(rows) - 1:
        together = batch.elements[int(rows[0]) : int(rows[-1]) + 1]
        return Bucket(sets, together.reshape(len(sets), largest, width), None, rows)
    # One absent element where there is none at all: a maximum needs something to be taken over.
    mask = torch.arange(max(largest, 1), device=sets.device) < sizes[:, None]
    padded = batch.elements.new_zeros(*mask.shape, width)
    padded[mask] = batch.elements[rows]
    return Bucket(sets, padded, None if bool(mask.all()) else mask, rows)
