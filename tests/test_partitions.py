"""The examples for other engines, run through stand-ins that do here, one by one, what each engine would."""

import sys
from functools import reduce
from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

from examples.pool_partitions import ENGINES, pool_partitions
from picaset import PicasoPool


class LocalRay:
    """Tasks run when their results are asked for, in an order of the engine's own."""

    def remote(self, function):
        return SimpleNamespace(remote=lambda *arguments: (function, arguments))

    def get(self, tasks):
        return [function(*arguments) for function, arguments in reversed(tasks)]


class LocalDask:
    def delayed(self, function):
        return lambda *arguments: (function, arguments)

    def compute(self, *tasks):
        return tuple(function(*arguments) for function, arguments in tasks)


class LocalSpark:
    """``reduce`` merges by pairs, as Spark does with its partitions."""

    def __init__(self, items=()):
        self.items = list(items)
        self.SparkContext = SimpleNamespace(getOrCreate=lambda: self)

    def parallelize(self, items, slices):
        assert slices == len(items)
        return LocalSpark(items)

    def map(self, function):
        return LocalSpark(map(function, self.items))

    def reduce(self, function):
        half = len(self.items) // 2
        return function(reduce(function, self.items[half:]), reduce(function, self.items[:half]))


@pytest.mark.parametrize("engine", list(ENGINES))
def test_partitions_are_pooled_as_the_whole_set(engine, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", LocalRay())
    monkeypatch.setitem(sys.modules, "dask", LocalDask())
    monkeypatch.setitem(sys.modules, "pyspark", LocalSpark())
    torch.manual_seed(0)
    pool = PicasoPool(8, num_templates=3, num_heads=2).double()
    elements = torch.randn(1, 101, 8, dtype=torch.float64)
    partitions = [*elements.split((1, 40, 0, 53, 7), dim=1)]
    assert_close(pool_partitions(pool, partitions, ENGINES[engine]), pool(elements), rtol=1e-12, atol=1e-12)
