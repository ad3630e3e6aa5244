"""Apply an operator to packed sets in buckets of similar size, to keep padding small.

One set of 10 000 elements and 99 small ones, all padded to the largest, would be 99 % padding. The sets are sorted by
size instead, and a new bucket begins where padding would cost more than another call of the operator. A bucket of one
set, or of adjacent sets of equal size, is a view of the batch and copies nothing.

Dimensions:  B sets   b sets of a bucket   n elements of its largest set   D features   total elements of all sets
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from picaset.operators.state import Presence, presence
from picaset.sets import SetBatch

MAX_PADDING_FRACTION = 0.25
"""Largest padding of a bucket, as a fraction of its elements."""
NEGLIGIBLE_PADDING = 2048
"""Padding, in elements, that costs less than another bucket."""

Operator = Callable[[Tensor, Tensor | None], Tensor]
"""A function of padded elements and their mask that returns one row per set or per element."""


@dataclass(frozen=True)
class Bucket:
    """Sets that are padded together."""

    sets: Int[Tensor, " b"]
    elements: Float[Tensor, "b n D"]
    mask: Presence | None
    """Mask or weights; None if every element is present."""
    slots: Bool[Tensor, "b n"] | None
    """True where the batch has an element, also of weight zero; None if it has everywhere."""
    rows: Int[Tensor, " present"]
    """Positions of the elements in the batch."""
    filled: Int[Tensor, " present"] | None = None
    """Positions of the elements among the b n slots of the bucket; None if they fill all."""
    start: int | None = None
    """Position of the first element, if the elements are consecutive and need no padding."""

    def view_of(self, values: Float[Tensor, "total X"]) -> Float[Tensor, "b n X"] | None:
        """Return the rows of a packed tensor that belong to this bucket as a view; None if that needs a copy."""
        sets, size, _ = self.elements.shape
        return None if self.start is None else values[self.start : self.start + sets * size].view(sets, size, -1)

    def pad(self, values: Float[Tensor, "total X"]) -> Float[Tensor, "b n X"]:
        """Return the rows of a packed tensor that belong to this bucket, padded with zeros; a view where possible."""
        view = self.view_of(values)
        return pad_rows(values, self.rows, self.filled, self.elements.shape[:2]) if view is None else view

    def unpad(self, padded: Float[Tensor, "b n X"]) -> Float[Tensor, "present X"]:
        """Return the rows of the elements, without the padding."""
        rows = padded.flatten(0, 1)
        return rows if self.filled is None else rows.index_select(0, self.filled)

    def write(self, padded: Float[Tensor, "b n X"], values: Float[Tensor, "total X"]) -> None:
        """Write the rows of the elements to their places in a packed tensor."""
        view = self.view_of(values)
        if view is None:
            values.index_copy_(0, self.rows, self.unpad(padded))
        else:
            view.copy_(padded)


def pool_in_buckets(batch: SetBatch, operator: Operator) -> Float[Tensor, "B ..."]:
    """Apply an operator that returns one row per set; rows follow the order of the batch."""
    buckets = list(split_into_buckets(batch))
    return by_set(buckets, [operator(bucket.elements, bucket.mask) for bucket in buckets])


def encode_in_buckets(batch: SetBatch, operator: Operator) -> SetBatch:
    """Apply an operator that returns one row per element; rows follow the order of the batch."""
    buckets = list(split_into_buckets(batch))
    return batch.with_elements(by_element(buckets, [operator(bucket.elements, bucket.mask) for bucket in buckets]))


def pool_and_encode_in_buckets(
    batch: SetBatch, operator: Callable[[Tensor, Tensor | None], tuple[Tensor, Tensor]]
) -> tuple[Float[Tensor, "B ..."], SetBatch]:
    """Apply an operator that returns rows per set and rows per element."""
    buckets = list(split_into_buckets(batch))
    pooled, encoded = zip(*(operator(bucket.elements, bucket.mask) for bucket in buckets), strict=True)
    return by_set(buckets, pooled), batch.with_elements(by_element(buckets, encoded))


def by_set(buckets: Sequence[Bucket], pooled: Sequence[Tensor]) -> Float[Tensor, "B ..."]:
    """Concatenate the rows of all buckets in the order of the sets."""
    if len(buckets) == 1:
        return pooled[0]
    return torch.cat(tuple(pooled))[torch.cat([bucket.sets for bucket in buckets]).argsort()]


def by_element(buckets: Sequence[Bucket], encoded: Sequence[Tensor]) -> Float[Tensor, "total E"]:
    """Concatenate the present rows of all buckets in the order of the elements."""
    present = [present_rows(bucket, output) for bucket, output in zip(buckets, encoded, strict=True)]
    if len(buckets) == 1:
        return present[0]
    return torch.cat(present)[torch.cat([bucket.rows for bucket in buckets]).argsort()]


def present_rows(bucket: Bucket, encoded: Tensor) -> Float[Tensor, "present E"]:
    """Return the rows of the elements of a bucket; zeros for those of weight zero."""
    if bucket.mask is not None and bucket.mask.dtype is not torch.bool:
        encoded = encoded.masked_fill((bucket.mask == 0).reshape(*bucket.mask.shape, *[1] * (encoded.dim() - 2)), 0.0)
    return bucket.unpad(encoded)


def split_into_buckets(batch: SetBatch) -> Iterator[Bucket]:
    """Yield the buckets of a batch, largest sets first; sets of one bucket keep their order."""
    if batch.same_size:
        all_rows = torch.arange(len(batch.elements), device=batch.offsets.device)
        yield pad_together(batch, torch.arange(len(batch), device=batch.offsets.device), all_rows)
        return
    for sets in plan(batch.sizes.cpu()):
        sets = sets.to(batch.offsets.device)
        yield pad_together(batch, sets, element_positions(batch, sets))


def plan(sizes: Int[Tensor, " B"]) -> list[Int[Tensor, " b"]]:
    """Return the indices of the sets of each bucket, filled greedily from the largest set down."""
    order = sizes.argsort(descending=True, stable=True)
    buckets, start, total = list[Tensor](), 0, 0
    sorted_sizes = [int(size) for size in sizes[order]]
    largest = sorted_sizes[0]
    for index, size in enumerate(sorted_sizes):
        padding = largest * (index - start + 1) - (total + size)
        if padding > max(MAX_PADDING_FRACTION * (total + size), NEGLIGIBLE_PADDING):
            buckets.append(order[start:index].sort().values)
            start, total, largest = index, 0, size
        total += size
    return [*buckets, order[start:].sort().values]


def element_positions(batch: SetBatch, sets: Int[Tensor, " b"]) -> Int[Tensor, " present"]:
    """Return the positions of the elements of some sets in the batch, set by set."""
    sizes = batch.sizes[sets]
    ends = sizes.cumsum(0)
    shift = (batch.offsets[sets] - ends + sizes).repeat_interleave(sizes)
    return shift + torch.arange(int(ends[-1]), device=sets.device)


def pad_together(batch: SetBatch, sets: Int[Tensor, " b"], rows: Int[Tensor, " present"]) -> Bucket:
    """Return a bucket of the given sets, as a view where the elements are contiguous and need no padding."""
    sizes = batch.sizes[sets]
    largest, width = int(sizes.max()) if len(sets) else 0, batch.elements.shape[1]
    if len(rows) == len(sets) * largest > 0 and int(rows[-1] - rows[0]) == len(rows) - 1:
        start = int(rows[0])
        contiguous = batch.elements[start : start + len(rows)].reshape(len(sets), largest, width)
        weights = None if batch.weights is None else batch.weights[rows].reshape(len(sets), largest)
        return weighted_bucket(Bucket(sets, contiguous, None, None, rows, start=start), weights)
    # A maximum over no elements is undefined, so there is at least one absent element.
    mask = torch.arange(max(largest, 1), device=sets.device) < sizes[:, None]
    filled = None if len(rows) == mask.numel() else mask.flatten().nonzero()[:, 0]
    mask = None if filled is None else mask
    padded = pad_rows(batch.elements, rows, filled, (len(sets), max(largest, 1)))
    weights = None
    if batch.weights is not None:
        weights = pad_rows(batch.weights[:, None], rows, filled, padded.shape[:2])[..., 0]
    return weighted_bucket(Bucket(sets, padded, mask, mask, rows, filled), weights)


def pad_rows(
    values: Shaped[Tensor, "total X"],
    rows: Int[Tensor, " present"],
    filled: Int[Tensor, " present"] | None,
    shape: Sequence[int],
) -> Shaped[Tensor, "b n X"]:
    """Return some rows of a tensor in the given slots of padded sets, with zeros in the others."""
    selected = values.index_select(0, rows)
    if filled is not None:
        selected = values.new_zeros(math.prod(shape), values.shape[1]).index_copy_(0, filled, selected)
    return selected.view(*shape, values.shape[1])


def weighted_bucket(bucket: Bucket, weights: Tensor | None) -> Bucket:
    """Return a bucket whose mask includes the weights, and whose elements of weight zero are zero."""
    if weights is None:
        return bucket
    mask = presence(bucket.slots, weights, bucket.elements)
    assert mask is not None
    return replace(bucket, elements=bucket.elements.masked_fill(mask[..., None] == 0, 0.0), mask=mask)
