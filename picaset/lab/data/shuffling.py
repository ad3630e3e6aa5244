"""The examples of each training step, as a function of the step, so that a resumed run sees the same batches."""

from functools import lru_cache

import torch
from jaxtyping import Int
from torch import Tensor

from picaset.lab.data.gaussian_mixtures import seeded_generator


def batch_indices(step: int, *, seed: int, num_examples: int, total: int) -> Int[Tensor, " B"]:
    """Return the indices of the examples of a step; every epoch visits all examples in a new random order."""
    positions = torch.arange(step * num_examples, (step + 1) * num_examples)
    epochs = range(int(positions[0]) // total, int(positions[-1]) // total + 1)
    order = torch.cat([epoch_order(seed, epoch, total) for epoch in epochs])
    return order[positions - epochs[0] * total]


@lru_cache(maxsize=4)
def epoch_order(seed: int, epoch: int, total: int) -> Int[Tensor, " N"]:
    return torch.randperm(total, generator=seeded_generator(seed, epoch, total))
