"""Pool a set that is partitioned by another engine, with one map over the partitions for every step of the cascade.

    python examples/pool_partitions.py               # in this process
    python examples/pool_partitions.py --engine ray

Ray, Dask or Spark must be installed separately. A worker returns the attention state of its partition, a few numbers
per template and head; states can be merged in any order.
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
    """Apply ``pool`` to the union of all partitions, each of shape (1, n, D)."""
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
    engine = ENGINES[parser.parse_args().engine]
    torch.manual_seed(0)
    cascade = PicasoPool(8, num_templates=2, num_heads=2)
    elements = torch.randn(1, 1000, 8)
    pooled = pool_partitions(cascade, elements.split(300, dim=1), engine)
    print(
        f"largest difference from pooling the whole set: {float((pooled - cascade(elements).detach()).abs().max()):.1e}"
    )
