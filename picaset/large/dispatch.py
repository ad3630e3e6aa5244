"""How an operator reads a large set: found by its type, or said by the operator itself.

A network of one's own takes part by having a method ``read_large(large)``, which calls ``read_large`` of its parts one
after the other, as :class:`picaset.networks.pooled.PooledNetwork` does.
"""

from functools import singledispatch
from typing import Any, Protocol, runtime_checkable

from torch import nn

from picaset.large.large_set import LargeSet
from picaset.operators.encoders import InducedSelfAttention, SelfAttention
from picaset.operators.janossy_pool import JanossyPool
from picaset.operators.sort_pool import SortPool


@runtime_checkable
class ReadsLargeSets(Protocol):
    """A module that says itself how it reads a large set."""

    def read_large(self, large: LargeSet) -> Any: ...


def read_large(operator: nn.Module, large: LargeSet) -> Any:
    """The result of an operator on a large set: a large set again from an encoder, tensors from anything else."""
    return operator.read_large(large) if isinstance(operator, ReadsLargeSets) else read_by_type(operator, large)


@singledispatch
def read_by_type(operator: nn.Module, large: LargeSet) -> Any:
    raise TypeError(
        f"{type(operator).__name__} cannot read a set in chunks: nobody said how. If it treats every element by itself,"
        " wrap it in picaset.Elementwise; a network says how by a method read_large(large)."
    )


@read_by_type.register
def _(operator: SelfAttention, large: LargeSet) -> Any:
    raise TypeError(
        "SelfAttention cannot read a set in chunks: every element attends to every other, so that its cost grows with "
        "the square of the set. InducedSelfAttention passes the same knowledge through a few learned points; in a "
        "network, encoder='induced'."
    )


@read_by_type.register
def _(operator: JanossyPool, large: LargeSet) -> Any:
    raise TypeError(
        "JanossyPool cannot read a set in chunks: it averages over all tuples of elements, which meet across chunks. "
        "PicasoPool or AttentionPool can."
    )


@read_by_type.register
def _(operator: SortPool, large: LargeSet) -> Any:
    raise TypeError(
        "SortPool cannot read a set in chunks: it sorts the whole set. PicasoPool or FeaturewiseAttentionPool can."
    )


@read_by_type.register
def _(operator: nn.Sequential, large: LargeSet) -> Any:
    result: Any = large
    for module in operator:
        result = read_large(module, result) if isinstance(result, LargeSet) else module(result)
    return result


def num_passes(operator: nn.Module) -> int:
    """How often the set that an operator is given is read: once for each step, by an encoder once more to be mapped."""
    return 2 if isinstance(operator, InducedSelfAttention) else int(getattr(operator, "num_steps", 1))
