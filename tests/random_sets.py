"""Random sets for tests; Hypothesis chooses their number, their sizes and a seed."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from torch import Tensor

from picaset import SetBatch
from tests.operators import DIM


@dataclass(frozen=True)
class Sets:
    """A few sets and a random generator."""

    sets: list[Tensor]
    generator: torch.Generator

    @property
    def packed(self) -> SetBatch:
        return SetBatch.from_list(self.sets)

    def padded(self) -> tuple[Tensor, Tensor]:
        """Return elements and mask, with absent elements at random positions."""
        elements, mask = SetBatch.from_list(self.sets).to_padded()
        elements = torch.cat([elements, elements.new_zeros(len(elements), 2, DIM)], dim=1)
        mask = torch.cat([mask, torch.zeros(len(mask), elements.shape[1] - mask.shape[1], dtype=torch.bool)], dim=1)
        order = torch.stack([torch.randperm(mask.shape[1], generator=self.generator) for _ in self.sets])
        # Present elements keep their order, so that packing gives the same sets.
        scattered = mask.gather(1, order)
        result = torch.zeros_like(elements)
        result[scattered] = self.packed.elements
        return result, scattered


def draw_sets(sizes: list[int], seed: int, dtype: torch.dtype = torch.float64) -> Sets:
    generator = torch.Generator().manual_seed(seed)
    return Sets([torch.randn(size, DIM, generator=generator, dtype=dtype) for size in sizes], generator)


def with_every_bucket_size(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test of packed sets with default and with small buckets, which all its examples may share."""
    test = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])(test)
    return pytest.mark.usefixtures("bucket_sizes")(test)


def sets(min_size: int = 0, max_size: int = 6) -> st.SearchStrategy[Sets]:
    """Strategy for one to four sets of different sizes, some of them empty."""
    return st.builds(
        draw_sets, st.lists(st.integers(min_size, max_size), min_size=1, max_size=4), st.integers(0, 2**31)
    )
