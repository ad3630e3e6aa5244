"""From a data set of sets to batches: how sets are gathered, and which go together.

    collate                a DataLoader's ``collate_fn``: a list of sets becomes a SetBatch
    SimilarSizeBatches     a DataLoader's ``batch_sampler``: sets of similar size share a batch

Packed batches cost what their elements cost in any grouping; padded ones cost the size of
their largest set, so grouping by size is what keeps padding small.
"""

from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
from torch import Tensor
from torch.utils.data import (
    Sampler,
    default_collate,  # pyright: ignore[reportUnknownVariableType]
)

from picaset.checks import check_positive
from picaset.sets import SetBatch


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
