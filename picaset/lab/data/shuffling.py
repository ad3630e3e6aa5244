"""Which examples a step of training sees: a function of the step alone, so that resuming is exact."""

from functools import lru_cache

import torch
from jaxtyping import Int
from torch import Tensor

from picaset.lab.data.gaussian_mixtures import generator_for


def shuffled(step: int, *, seed: int, num_examples: int, total: int) -> Int[Tensor, " B"]:
    """The examples of a step: every epoch goes through all of them in an order of its own."""
    places = torch.arange(step * num_examples, (step + 1) * num_examples)
    epochs = range(int(places[0]) // total, int(places[-1]) // total + 1)
    order = torch.cat([epoch_order(seed, epoch, total) for epoch in epochs])
    return order[places - epochs[0] * total]


@lru_cache(maxsize=4)
def epoch_order(seed: int, epoch: int, total: int) -> Int[Tensor, " N"]:
    return torch.randperm(total, generator=generator_for(seed, epoch, total))
