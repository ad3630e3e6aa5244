"""Pool a set that lies in the partitions of another engine: one map over the partitions for every step of the cascade.

    python examples/pool_partitions.py               # here, as the others do it
    python examples/pool_partitions.py --engine ray

Ray, Dask and Spark are installed by whoever has them. In each, a worker returns the state of its partition, a few
numbers for every template and head, and states merge in any order.
"""

import argparse
import importlib
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from picaset import AttentionState, PicasoPool

Summarize = Callable[[Tensor], AttentionState]
Engine = Callable[[Summarize, Sequence[Tensor]], AttentionState]


def here(summarize: Summarize, partitions: Sequence[Tensor]) -> AttentionState:
    return reduce(AttentionState.merge, map(summarize, partitions))


def ray(summarize: Summarize, partitions: Sequence[Tensor]) -> AttentionState:
    engine: Any = importlib.import_module("ray")
    task = engine.remote(summarize)
    return reduce(AttentionState.merge, engine.get([task.remote(part) for part in partitions]))


def dask(summarize: Summarize, partitions: Sequence[Tensor]) -> AttentionState:
    engine: Any = importlib.import_module("dask")
    return reduce(AttentionState.merge, engine.compute(*[engine.delayed(summarize)(part) for part in partitions]))


def spark(summarize: Summarize, partitions: Sequence[Tensor]) -> AttentionState:
    context: Any = importlib.import_module("pyspark").SparkContext.getOrCreate()
    return context.parallelize(partitions, len(partitions)).map(summarize).reduce(AttentionState.merge)


ENGINES: dict[str, Engine] = {"here": here, "ray": ray, "dask": dask, "spark": spark}


@torch.no_grad()
def pool_partitions(pool: PicasoPool, partitions: Sequence[Tensor], engine: Engine) -> Tensor:
    """What ``pool`` makes of all partitions (1, n, D) together."""
    templates = pool.initial(1)
    for step in range(pool.num_steps):

        def summarize(part: Tensor, templates: Tensor = templates, step: int = step) -> AttentionState:
            with torch.no_grad():
                return pool.summarize(part, templates, step=step)

        templates = pool.finish(engine(summarize, partitions), templates, step=step)
    return templates


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=list(ENGINES), default="here")
    chosen = ENGINES[parser.parse_args().engine]
    torch.manual_seed(0)
    cascade = PicasoPool(8, num_templates=2, num_heads=2)
    elements = torch.randn(1, 1000, 8)
    pooled = pool_partitions(cascade, elements.split(300, dim=1), chosen)
    print(f"differs from the whole set by {float((pooled - cascade(elements).detach()).abs().max()):.1e}")
