"""Who shares a set: one process alone, or the ranks of a group (see shard.py)."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from torch import Tensor

from picaset.large.statistics import Statistic, Summary


@runtime_checkable
class Reduction(Protocol):
    """What is done with the results of a pass before anyone uses them."""

    shared: bool
    """Whether others have a part of the set."""

    def combine(self, statistic: Statistic, summary: Summary) -> Summary:
        """The summary of the whole set from those of its parts."""
        ...

    def add(self, gradients: Sequence[Tensor]) -> Sequence[Tensor]:
        """The sums of everyone's gradients."""
        ...

    def same(self, tensor: Tensor) -> Tensor:
        """A tensor as the first has it."""
        ...


class Alone:
    """The whole set is here."""

    shared = False

    def combine(self, statistic: Statistic, summary: Summary) -> Summary:
        return summary

    def add(self, gradients: Sequence[Tensor]) -> Sequence[Tensor]:
        return gradients

    def same(self, tensor: Tensor) -> Tensor:
        return tensor
