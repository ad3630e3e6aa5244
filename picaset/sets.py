"""Batches of sets of different sizes.

    SetBatch               sets stored packed, one after the other, without padding; conversions from and to lists,
                           padded tensors, the batch index of PyG, and jagged nested tensors
    collate                ``collate_fn`` of a DataLoader: packs a list of sets into a SetBatch
    SimilarSizeBatches     ``batch_sampler`` of a DataLoader: batches of sets of similar size

A SetBatch stores all elements in one tensor and the position at which each set begins in another:

    elements   x x x x x x x | y | z z z z z        (total, D)
    offsets    0               7   8           13   (B + 1)

Every operator takes a ``SetBatch`` or a padded pair ``(elements, mask)``. The cost of a padded batch grows with the
size of its largest set, so batches of sets of similar size keep the padding small.

Dimensions:  B sets   N elements of the largest set   D features   total elements of all sets
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, SupportsIndex, cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._pytree import register_pytree_node
from torch.utils.data import (
    Sampler,
    default_collate,  # pyright: ignore[reportUnknownVariableType]
)

from picaset.checks import check_finite, check_floating, check_mask, check_positive, check_weights


@dataclass(frozen=True, eq=False)
class SetBatch:
    """A batch of sets in packed form: set ``i`` is ``elements[offsets[i]:offsets[i + 1]]``.

    An element of weight w counts as w copies of it, and one of weight 0 as absent. A batch is a pytree of its tensors,
    so compiled functions take it as an argument.

    Shapes:
        elements  (total, D)
        offsets   (B + 1,)     int64, from 0 to total, non-decreasing
        weights   (total,)     non-negative numbers; None if every element counts once

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
    weights: Shaped[Tensor, " total"] | None = None

    def __post_init__(self) -> None:
        check_packed(self.elements, self.offsets, self.weights)

    @classmethod
    def from_list(cls, sets: Sequence[Tensor | NDArray[np.floating]]) -> "SetBatch":
        """Pack a list of sets, each (n, D); raise if a set contains NaN or infinity."""
        if len(sets) == 0:
            raise ValueError("SetBatch.from_list: expected at least one set; got an empty list.")
        tensors = [as_set(values, index) for index, values in enumerate(sets)]
        first = tensors[0]
        for index, tensor in enumerate(tensors):
            if tensor.shape[1] != first.shape[1]:
                raise ValueError(
                    f"SetBatch.from_list: all sets must have the same number of features; "
                    f"set 0 has {first.shape[1]}, set {index} has {tensor.shape[1]}."
                )
            if (tensor.dtype, tensor.device) != (first.dtype, first.device):
                raise TypeError(
                    f"SetBatch.from_list: all sets must have the same dtype and device; set 0 is {first.dtype} "
                    f"on {first.device}, set {index} is {tensor.dtype} on {tensor.device}. Convert them with .to(...)."
                )
        sizes = torch.tensor([len(tensor) for tensor in tensors], device=first.device)
        return cls(torch.cat(tensors), offsets_from_sizes(sizes))

    @classmethod
    def from_padded(
        cls,
        elements: Float[Tensor, "B N D"],
        mask: Bool[Tensor, "B N"] | None = None,
        weights: Shaped[Tensor, "B N"] | None = None,
    ) -> "SetBatch":
        """Pack padded sets; ``mask`` is True where an element is present, None if all are."""
        if elements.dim() != 3:
            raise ValueError(f"SetBatch.from_padded: elements must have shape (B, N, D); got {tuple(elements.shape)}.")
        if weights is not None:
            check_weights(weights, elements, caller="SetBatch.from_padded")
        if mask is None:
            sizes = torch.full((elements.shape[0],), elements.shape[1], device=elements.device)
            return cls(
                elements.flatten(0, 1), offsets_from_sizes(sizes), None if weights is None else weights.flatten()
            )
        check_mask(mask, elements, caller="SetBatch.from_padded")
        return cls(elements[mask], offsets_from_sizes(mask.sum(dim=1)), None if weights is None else weights[mask])

    @classmethod
    def from_batch_index(
        cls, elements: Float[Tensor, "total D"], index: Int[Tensor, " total"], num_sets: int | None = None
    ) -> "SetBatch":
        """Pack elements that each have the index of their set, as in PyG; ``num_sets`` counts empty sets at the end.

        If the index is not sorted, elements are reordered by set; elements of one set keep their order.

        Example:
            >>> SetBatch.from_batch_index(torch.arange(3.0)[:, None], torch.tensor([2, 0, 2]))
            SetBatch(3 sets of 0 to 2 elements, 1 features, float32, cpu)
        """
        if index.dim() != 1 or len(index) != len(elements):
            raise ValueError(
                f"SetBatch.from_batch_index: index must have shape ({len(elements)},), one number for each element; "
                f"got {tuple(index.shape)}."
            )
        if index.dtype not in (torch.int64, torch.int32):
            raise TypeError(f"SetBatch.from_batch_index: index must be integers; got {index.dtype}. Pass index.long().")
        low, high = (int(index.min()), int(index.max())) if len(index) else (0, -1)
        num_sets = high + 1 if num_sets is None else num_sets
        if low < 0 or high >= num_sets:
            raise ValueError(
                f"SetBatch.from_batch_index: index must be from 0 to {num_sets - 1}, the number of sets less one; "
                f"got {low} to {high}."
            )
        index = index.long()
        if bool((index.diff() < 0).any()):
            elements = elements[index.argsort(stable=True)]
        return cls(elements, offsets_from_sizes(torch.bincount(index, minlength=num_sets)))

    @classmethod
    def from_nested(cls, nested: Tensor) -> "SetBatch":
        """Pack a nested tensor of jagged layout, of shape (B, n, D); shares its memory if it is contiguous."""
        if nested.layout is not torch.jagged or nested.dim() != 3:
            kind = f"layout {nested.layout} and {nested.dim()} dimensions"
            raise ValueError(
                f"SetBatch.from_nested: expected a jagged nested tensor of shape (B, n, D); got one with {kind}. "
                "Make one with torch.nested.nested_tensor(sets, layout=torch.jagged)."
            )
        parts = cast(Any, nested)
        if parts.lengths() is not None:  # with holes between the sets
            sizes = parts.lengths().long()
            return cls(torch.cat(nested.unbind()), offsets_from_sizes(sizes))
        return cls(parts.values(), parts.offsets().long())

    def to_nested(self) -> Tensor:
        """Return a nested tensor of jagged layout, of shape (B, n, D), which shares the memory of the batch."""
        return cast(Any, torch.nested).nested_tensor_from_jagged(self.elements, self.offsets)

    def to_list(self) -> list[Tensor]:
        """Return the sets, each (n, D), as views of the batch."""
        return list(cast(Any, self.elements).split(self.sizes.tolist()))  # pyright: ignore[reportUnknownMemberType]

    @property
    def sizes(self) -> Int[Tensor, " B"]:
        """Number of elements of each set."""
        return self.offsets.diff()

    @cached_property
    def largest(self) -> int:
        """Number of elements of the largest set."""
        return int(self.sizes.max()) if len(self) else 0

    @property
    def same_size(self) -> bool:
        """Whether all sets have the same number of elements."""
        return len(self) * self.largest == len(self.elements)

    @property
    def owners(self) -> Int[Tensor, " total"]:
        """Index of the set that each element belongs to."""
        index = torch.arange(len(self), device=self.offsets.device)
        return index.repeat_interleave(self.sizes, output_size=len(self.elements))

    def to_padded(self) -> tuple[Float[Tensor, "B N D"], Bool[Tensor, "B N"]]:
        """Return the padded pair ``(elements, mask)``; padding is zero."""
        mask = torch.arange(self.largest, device=self.offsets.device) < self.sizes[:, None]
        if self.same_size:  # a view, not a copy
            return self.elements.reshape(len(self), self.largest, self.elements.shape[1]), mask
        padded = self.elements.new_zeros(len(self), self.largest, self.elements.shape[1])
        padded[mask] = self.elements
        return padded, mask

    def padded_weights(self) -> Shaped[Tensor, "B N"] | None:
        """Return the weights in the padded form; padding is zero."""
        if self.weights is None:
            return None
        mask = self.to_padded()[1]
        return torch.zeros_like(mask, dtype=self.weights.dtype).masked_scatter(mask, self.weights)

    def with_elements(self, elements: Float[Tensor, "total E"]) -> "SetBatch":
        """Return a batch of the same set sizes and weights with other features, one row per element."""
        return SetBatch(elements, self.offsets, self.weights)

    def with_weights(self, weights: Shaped[Tensor, " total"] | None) -> "SetBatch":
        """Return a batch of the same sets with other weights, one per element; None for no weights.

        Example:
            >>> from picaset import MeanPool
            >>> MeanPool()(SetBatch.from_list([torch.tensor([[1.0], [4.0]])]).with_weights(torch.tensor([2, 1])))
            tensor([[[2.]]])
        """
        return SetBatch(self.elements, self.offsets, weights)

    def map(self, function: Callable[[Tensor], Tensor]) -> "SetBatch":
        """Apply a function or a module, such as ``nn.Linear``, to every element: (total, D) to (total, E).

        Example:
            >>> batch = SetBatch.from_list([torch.zeros(7, 2), torch.ones(1, 2)])
            >>> batch.map(torch.nn.Linear(2, 5)).map(torch.relu)
            SetBatch(2 sets of 1 to 7 elements, 5 features, float32, cpu)
        """
        elements = function(self.elements)
        if elements.shape[:1] != self.elements.shape[:1]:
            raise ValueError(
                f"SetBatch.map: the function must return one row for each of the {len(self.elements)} elements; "
                f"it returned shape {tuple(elements.shape)}."
            )
        return self.with_elements(elements)

    def to(self, *args: Any, **kwargs: Any) -> "SetBatch":
        """Return the batch on another device or with another floating-point dtype; arguments as for ``Tensor.to``."""
        elements = self.elements.to(*args, **kwargs)
        weights = None if self.weights is None else self.weights.to(elements.device)
        return SetBatch(elements, self.offsets.to(elements.device), weights)

    def pin_memory(self) -> "SetBatch":
        """Return the batch in page-locked memory; called by ``DataLoader(pin_memory=True)``."""
        weights = None if self.weights is None else self.weights.pin_memory()
        return SetBatch(self.elements.pin_memory(), self.offsets.pin_memory(), weights)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> Float[Tensor, "n D"]:
        if not isinstance(cast(object, index), SupportsIndex):
            raise TypeError(
                f"SetBatch: the index must be an integer; got {type(index).__name__}. Index one set at a time."
            )
        index = index.__index__()
        if not -len(self) <= index < len(self):
            raise IndexError(f"SetBatch: index {index} is out of range for a batch of {len(self)} sets.")
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


def flatten_batch(batch: SetBatch) -> tuple[list[Any], None]:
    return [batch.elements, batch.offsets, batch.weights], None


def unflatten_batch(leaves: Iterable[Any], _: Any) -> SetBatch:
    """Build a batch from the leaves of a pytree without checks: they may be fake tensors, or no tensors at all."""
    batch = object.__new__(SetBatch)
    for name, leaf in zip(("elements", "offsets", "weights"), leaves, strict=True):
        object.__setattr__(batch, name, leaf)
    return batch


register_pytree_node(SetBatch, flatten_batch, unflatten_batch, serialized_type_name="picaset.SetBatch")


def offsets_from_sizes(sizes: Int[Tensor, " B"]) -> Int[Tensor, " B_plus_1"]:
    """Return the start of each set in the packed elements, and the end of the last one."""
    return torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])


def as_set(values: Tensor | NDArray[np.floating], index: int) -> Float[Tensor, "n D"]:
    """Return one set of a list as a tensor, after checking it."""
    if isinstance(values, np.ndarray):
        if values.dtype.kind not in "fiub":
            raise TypeError(f"SetBatch.from_list: every set must be numeric; set {index} has dtype {values.dtype}.")
        # torch warns about read-only memory and refuses negative strides.
        values = np.ascontiguousarray(values) if values.flags.writeable else values.copy()
    elements = torch.as_tensor(values)
    if elements.dim() != 2:
        raise ValueError(
            f"SetBatch.from_list: every set must have shape (n, D); set {index} has shape {tuple(elements.shape)}."
        )
    check_floating(elements, caller=f"SetBatch.from_list: set {index}")
    check_finite(elements, caller=f"SetBatch.from_list: set {index}")
    return elements


def check_packed(elements: Tensor, offsets: Tensor, weights: Tensor | None) -> None:
    if elements.dim() != 2:
        raise ValueError(f"SetBatch: elements must have shape (total, D); got {tuple(elements.shape)}.")
    check_floating(elements, caller="SetBatch")
    if offsets.dim() != 1 or len(offsets) == 0:
        raise ValueError(f"SetBatch: offsets must have shape (B + 1,); got {tuple(offsets.shape)}.")
    if offsets.dtype is not torch.int64:
        raise TypeError(f"SetBatch: offsets must be int64; got {offsets.dtype}. Pass offsets.long().")
    if offsets.device != elements.device:
        raise ValueError(
            f"SetBatch: elements are on {elements.device} and offsets on {offsets.device}; move them to one device."
        )
    if weights is not None:
        check_weights(weights, elements, caller="SetBatch")
    if torch.compiler.is_compiling() or offsets.is_meta:
        return  # the checks below read values, and there are none
    if weights is not None and not bool(((weights >= 0) & weights.isfinite()).all()):
        raise ValueError(
            "SetBatch: weights must be finite and not negative, w for an element that counts as w copies; got "
            f"{weights.min().item()} to {weights.max().item()}."
        )
    if int(offsets[0]) != 0 or int(offsets[-1]) != len(elements):
        raise ValueError(
            f"SetBatch: offsets must run from 0 to the number of elements, {len(elements)}; "
            f"got {int(offsets[0])} to {int(offsets[-1])}."
        )
    decreases = (offsets.diff() < 0).nonzero()
    if len(decreases):
        index = int(decreases[0])
        raise ValueError(
            f"SetBatch: offsets must not decrease, since set {index} would have a negative size; "
            f"got {int(offsets[index])} followed by {int(offsets[index + 1])}."
        )


def collate(samples: Sequence[Any]) -> Any:
    """Collate samples into a batch: sets into a :class:`SetBatch`, everything else by ``default_collate``.

    A sample is a set (n, D), a tuple that begins with one, ``(set, label, ...)``, or a dictionary, in which every
    two-dimensional tensor or array is a set.

    Example:
        >>> import torch
        >>> sets, labels = collate([(torch.zeros(3, 2), 0), (torch.ones(5, 2), 1)])
        >>> sets.sizes, labels
        (tensor([3, 5]), tensor([0, 1]))
        >>> collate([{"points": torch.zeros(3, 2), "label": 0}, {"points": torch.ones(5, 2), "label": 1}])
        {'points': SetBatch(2 sets of 3 to 5 elements, 2 features, float32, cpu), 'label': tensor([0, 1])}
    """
    if len(samples) == 0:
        raise ValueError("collate: expected at least one sample; got an empty list.")
    first = samples[0]
    if isinstance(first, Mapping):
        return collate_dicts(cast(Sequence[Mapping[Any, Any]], samples))
    if isinstance(first, tuple):
        sets, *others = zip(*cast(Sequence[tuple[Any, ...]], samples), strict=True)
        return (SetBatch.from_list(sets), *(default_collate(list(other)) for other in others))
    if not isinstance(first, Tensor | np.ndarray):
        raise TypeError(
            "collate: a sample must be a set (n, D), a tuple that begins with one, or a dictionary; "
            f"got {type(first).__name__}."
        )
    return SetBatch.from_list(samples)


def collate_dicts(samples: Sequence[Mapping[Any, Any]]) -> dict[Any, Any]:
    """Collate dictionaries key by key; all must have the keys of the first."""
    batch = dict[Any, Any]()
    for index, sample in enumerate(samples):
        if sample.keys() != samples[0].keys():
            raise ValueError(
                f"collate: all samples must have the same keys; sample 0 has {sorted(samples[0])}, "
                f"sample {index} has {sorted(sample)}."
            )
    for key, first in samples[0].items():
        values = [sample[key] for sample in samples]
        is_set = isinstance(first, Tensor | np.ndarray) and cast(Any, first).ndim == 2
        batch[key] = SetBatch.from_list(values) if is_set else default_collate(values)
    return batch


class SimilarSizeBatches(Sampler[list[int]]):
    """Batch sampler that groups sets of similar size, in a new random order every epoch.

    The sets are shuffled, sorted by size within pools of ``pool`` batches and divided into batches, and the batches
    are shuffled: nearly random, with little padding. Each iteration is an epoch. The batches depend on the seed and the
    epoch alone; ``set_epoch`` repeats or resumes one.

    Args:
        sizes: Number of elements of every set of the data set.
        batch_size: Sets per batch; the last batch may be smaller.
        seed: Seed of the shuffling.
        pool: Batches that are sorted together; 1 is plain shuffling.

    Example:
        >>> batches = SimilarSizeBatches([5, 500, 7, 499], batch_size=2, pool=2)
        >>> sorted(sorted(batch) for batch in batches)
        [[0, 2], [1, 3]]
    """

    def __init__(self, sizes: Sequence[int] | Tensor, batch_size: int, *, seed: int = 0, pool: int = 50) -> None:
        check_positive(caller="SimilarSizeBatches", batch_size=batch_size, pool=pool)
        self.sizes = np.asarray(sizes)
        if self.sizes.ndim != 1 or (self.sizes < 0).any():
            raise ValueError(
                "SimilarSizeBatches: sizes must be one-dimensional and non-negative, one number of elements per set; "
                f"got shape {self.sizes.shape} with minimum {self.sizes.min(initial=0)}."
            )
        self.batch_size = batch_size
        self.seed = seed
        self.pool = pool
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration, for example when a run resumes."""
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
