"""Many sets of different sizes as one value.

Sets are held packed, end to end, so that a batch costs what its elements cost:

    elements   x x x x x x x | y | z z z z z        (total, D)
    offsets    0               7   8           13   (B + 1)

Every operator takes a ``SetBatch`` or the padded pair ``(elements, mask)``.

Dimensions:  B sets   N elements of the largest set   D features   total elements of all sets

From a data set of sets to batches: how sets are gathered, and which go together.

    collate                a DataLoader's ``collate_fn``: a list of sets becomes a SetBatch
    SimilarSizeBatches     a DataLoader's ``batch_sampler``: sets of similar size share a batch

Packed batches cost what their elements cost in any grouping; padded ones cost the size of
their largest set, so grouping by size is what keeps padding small.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, SupportsIndex, cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import (
    Sampler,
    default_collate,  # pyright: ignore[reportUnknownVariableType]
)

from picaset.checks import check_finite, check_floating, check_mask, check_positive


@dataclass(frozen=True, eq=False)
class SetBatch:
    """Sets packed end to end: set ``i`` is ``elements[offsets[i]:offsets[i + 1]]``.

    Shapes:
        elements  (total, D)
        offsets   (B + 1,)     int64, from 0 to total, never falling

    Example:
        >>> batch = SetBatch.from_list([torch.zeros(7, 2), torch.ones(1, 2), torch.zeros(0, 2)])
        >>> batch
        SetBatch(3 sets of 0 to 7 elements, 2 features, float32, cpu)
        >>> batch.sizes
        tensor([7, 1, 0])
        >>> batch[1]
        tensor([[1., 1.]])
        >>> elements, mask = batch.to_padded()
        >>> elements.shape, mask.sum(dim=1)
        (torch.Size([3, 7, 2]), tensor([7, 1, 0]))
    """

    elements: Float[Tensor, "total D"]
    offsets: Int[Tensor, " B_plus_1"]

    def __post_init__(self) -> None:
        check_packed(self.elements, self.offsets)

    @classmethod
    def from_list(cls, sets: Sequence[Tensor | NDArray[np.floating]]) -> "SetBatch":
        """Pack a list of sets, each (n, D); refuses NaN and infinity, naming the set that has them."""
        if len(sets) == 0:
            raise ValueError("SetBatch.from_list: expected at least one set; got an empty list.")
        tensors = [as_set(one, index) for index, one in enumerate(sets)]
        for index, one in enumerate(tensors):
            if one.shape[1] != tensors[0].shape[1]:
                raise ValueError(
                    f"SetBatch.from_list: all sets must have the same number of features; "
                    f"set 0 has {tensors[0].shape[1]}, set {index} has {one.shape[1]}."
                )
            if (one.dtype, one.device) != (tensors[0].dtype, tensors[0].device):
                raise TypeError(
                    f"SetBatch.from_list: all sets must have one dtype and device; set 0 is {tensors[0].dtype} "
                    f"on {tensors[0].device}, set {index} is {one.dtype} on {one.device}. Convert them with .to(...)."
                )
        sizes = torch.tensor([len(one) for one in tensors], device=tensors[0].device)
        return cls(torch.cat(tensors), offsets_of(sizes))

    @classmethod
    def from_padded(cls, elements: Float[Tensor, "B N D"], mask: Bool[Tensor, "B N"] | None = None) -> "SetBatch":
        """Pack padded sets; ``mask`` is True where an element is present, None means all are."""
        if elements.dim() != 3:
            raise ValueError(f"SetBatch.from_padded: elements must have shape (B, N, D); got {tuple(elements.shape)}.")
        if mask is None:
            sizes = torch.full((elements.shape[0],), elements.shape[1], device=elements.device)
            return cls(elements.flatten(0, 1), offsets_of(sizes))
        check_mask(mask, elements, caller="SetBatch.from_padded")
        return cls(elements[mask], offsets_of(mask.sum(dim=1)))

    @property
    def sizes(self) -> Int[Tensor, " B"]:
        """The number of elements of each set."""
        return self.offsets.diff()

    @cached_property
    def largest(self) -> int:
        """The number of elements of the largest set."""
        return int(self.sizes.max()) if len(self) else 0

    @property
    def same_size(self) -> bool:
        """Whether all sets have the same number of elements, so that padding adds none."""
        return len(self) * self.largest == len(self.elements)

    @property
    def owners(self) -> Int[Tensor, " total"]:
        """For each element, the index of its set."""
        index = torch.arange(len(self), device=self.offsets.device)
        return index.repeat_interleave(self.sizes, output_size=len(self.elements))

    def to_padded(self) -> tuple[Float[Tensor, "B N D"], Bool[Tensor, "B N"]]:
        """The padded pair ``(elements, mask)``; absent elements are zero."""
        mask = torch.arange(self.largest, device=self.offsets.device) < self.sizes[:, None]
        if self.same_size:  # nothing to copy
            return self.elements.reshape(len(self), self.largest, self.elements.shape[1]), mask
        padded = self.elements.new_zeros(len(self), self.largest, self.elements.shape[1])
        padded[mask] = self.elements
        return padded, mask

    def with_elements(self, elements: Float[Tensor, "total E"]) -> "SetBatch":
        """The same sets with other features, one row for each element."""
        return SetBatch(elements, self.offsets)

    def to(self, *args: Any, **kwargs: Any) -> "SetBatch":
        """Like ``Tensor.to``: another device, another floating dtype, or both."""
        elements = self.elements.to(*args, **kwargs)
        return SetBatch(elements, self.offsets.to(elements.device))

    def pin_memory(self) -> "SetBatch":
        """In page-locked memory, for a fast copy to a GPU; ``DataLoader(pin_memory=True)`` calls it."""
        return SetBatch(self.elements.pin_memory(), self.offsets.pin_memory())

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> Float[Tensor, "n D"]:
        index = whole_number(index)
        if not -len(self) <= index < len(self):
            raise IndexError(f"SetBatch: no set {index} in a batch of {len(self)}.")
        index %= len(self)
        return self.elements[int(self.offsets[index]) : int(self.offsets[index + 1])]

    def __iter__(self) -> Iterator[Tensor]:
        return (self[index] for index in range(len(self)))

    def __repr__(self) -> str:
        dtype = str(self.elements.dtype).removeprefix("torch.")
        smallest = int(self.sizes.min()) if len(self) else 0
        span = f"{smallest}" if smallest == self.largest else f"{smallest} to {self.largest}"
        return (
            f"SetBatch({len(self)} {'set' if len(self) == 1 else 'sets'} of {span} elements, "
            f"{self.elements.shape[1]} features, {dtype}, {self.elements.device})"
        )


def whole_number(index: object) -> int:
    if not isinstance(index, SupportsIndex):
        raise TypeError(f"SetBatch: index one set at a time, with a whole number; got {type(index).__name__}.")
    return index.__index__()


def offsets_of(sizes: Int[Tensor, " B"]) -> Int[Tensor, " B_plus_1"]:
    """Where each set begins, and where the last one ends."""
    return torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])


def as_set(one: Tensor | NDArray[np.floating], index: int) -> Float[Tensor, "n D"]:
    if isinstance(one, np.ndarray):
        if one.dtype.kind not in "fiub":
            raise TypeError(f"SetBatch.from_list: every set must hold numbers; set {index} holds {one.dtype}.")
        one = np.ascontiguousarray(one) if one.flags.writeable else one.copy()  # torch warns of read-only memory
    elements = torch.as_tensor(one)
    if elements.dim() != 2:
        raise ValueError(
            f"SetBatch.from_list: every set must have shape (n, D); set {index} has {tuple(elements.shape)}."
        )
    check_floating(elements, caller=f"SetBatch.from_list: set {index}")
    check_finite(elements, caller=f"SetBatch.from_list: set {index}")
    return elements


def check_packed(elements: Tensor, offsets: Tensor) -> None:
    if elements.dim() != 2:
        raise ValueError(f"SetBatch: elements must have shape (total, D); got {tuple(elements.shape)}.")
    check_floating(elements, caller="SetBatch")
    if offsets.dim() != 1 or len(offsets) == 0:
        raise ValueError(f"SetBatch: offsets must have shape (B + 1,); got {tuple(offsets.shape)}.")
    if offsets.dtype is not torch.int64:
        raise TypeError(f"SetBatch: offsets must be int64; got {offsets.dtype}. Pass offsets.long().")
    if offsets.device != elements.device:
        raise ValueError(
            f"SetBatch: elements are on {elements.device} and offsets on {offsets.device}; move one to the other."
        )
    if torch.compiler.is_compiling() or offsets.is_meta:
        return  # what follows reads values, which there are none of
    if int(offsets[0]) != 0 or int(offsets[-1]) != len(elements):
        raise ValueError(
            f"SetBatch: offsets must run from 0 to the number of elements, {len(elements)}; "
            f"got {int(offsets[0])} to {int(offsets[-1])}."
        )
    falls = (offsets.diff() < 0).nonzero()
    if len(falls):
        index = int(falls[0])
        raise ValueError(
            f"SetBatch: offsets must not fall, or set {index} has a negative size; "
            f"got {int(offsets[index])} then {int(offsets[index + 1])}."
        )


def collate(samples: Sequence[Any]) -> Any:
    """Gather samples into a batch: sets into a :class:`SetBatch`, everything else as torch does.

    A sample is a set (n, D), or a tuple whose first entry is one: ``(set, label, ...)``.

    Example:
        >>> import torch
        >>> sets, labels = collate([(torch.zeros(3, 2), 0), (torch.ones(5, 2), 1)])
        >>> sets.sizes, labels
        (tensor([3, 5]), tensor([0, 1]))
    """
    if len(samples) == 0:
        raise ValueError("collate: expected at least one sample; got none.")
    if not isinstance(samples[0], (tuple, Tensor, np.ndarray)):
        raise TypeError(
            "collate: a sample must be a set (n, D), or a tuple whose first entry is one; "
            f"got {type(samples[0]).__name__}."
        )
    if isinstance(samples[0], tuple):
        sets, *others = zip(*cast(Sequence[tuple[Any, ...]], samples), strict=True)
        return (SetBatch.from_list(sets), *(default_collate(list(other)) for other in others))
    return SetBatch.from_list(samples)


class SimilarSizeBatches(Sampler[list[int]]):
    """Batches of sets of similar size, in an order drawn anew every epoch.

    Sets are shuffled, sorted by size within pools of ``pool`` batches, cut into batches, and
    the batches shuffled: close to random, with little padding. Every pass is an epoch with an order of its
    own; the same seed and epoch give the same batches, and ``set_epoch`` returns to one.

    Args:
        sizes: The number of elements of every set of the data set.
        batch_size: Sets in a batch; the last batch may be smaller.
        seed: Seeds the shuffling.
        pool: Batches sorted together; 1 is plain shuffling.

    Example:
        >>> batches = SimilarSizeBatches([5, 500, 7, 499], batch_size=2, pool=2)
        >>> sorted(sorted(batch) for batch in batches)
        [[0, 2], [1, 3]]
    """

    def __init__(self, sizes: Sequence[int] | Tensor, batch_size: int, *, seed: int = 0, pool: int = 50) -> None:
        check_positive(caller="SimilarSizeBatches", batch_size=batch_size, pool=pool)
        self.sizes = np.asarray(sizes)
        if self.sizes.ndim != 1 or (self.sizes < 0).any():
            raise ValueError("SimilarSizeBatches: sizes must be one number of elements per set, none negative.")
        self.batch_size = batch_size
        self.seed = seed
        self.pool = pool
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next pass, as when a run is resumed."""
        self.epoch = epoch

    def __len__(self) -> int:
        return -(-len(self.sizes) // self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        generator = np.random.default_rng([self.seed, self.epoch])
        self.epoch += 1
        shuffled = generator.permutation(len(self.sizes))
        batches: list[list[int]] = []
        for start in range(0, len(shuffled), self.batch_size * self.pool):
            pooled = shuffled[start : start + self.batch_size * self.pool]
            by_size = pooled[self.sizes[pooled].argsort(kind="stable")]
            batches += [by_size[i : i + self.batch_size].tolist() for i in range(0, len(by_size), self.batch_size)]
        for index in generator.permutation(len(batches)):
            yield batches[index]
