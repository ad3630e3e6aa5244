"""One set on a Ray cluster: ``picaset.stream(network, dataset)`` takes a ``ray.data.Dataset``.

Every pass over the set sends a function to the blocks and merges what it returns, a few numbers per template and head,
in a tree; no element reaches the driver. A dataset that is materialized stays in the object store: a few tasks for each
CPU fold the blocks of their node. A dataset that is not is executed again in every pass, files read and all, which
needs no memory for the set. Ray repeats the tasks of a worker that dies.
"""

import pickle
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial, reduce
from math import prod
from typing import Any

from picaset.extras import require
from picaset.large.partitions import Partitioned, PartResult, Table

ray: Any = require("ray", extra="ray", purpose="a Ray dataset")
data: Any = require("ray.data.dataset", extra="ray", purpose="a Ray dataset")
blocks: Any = require("ray.data.block", extra="ray", purpose="a Ray dataset")
scheduling: Any = require("ray.util.scheduling_strategies", extra="ray", purpose="a Ray dataset")
arrow: Any = require("pyarrow", extra="ray", purpose="a Ray dataset")

TASKS_PER_CPU = 2
"""Tasks of a pass for each CPU: more balance the load, and send more."""
FAN_IN = 16
"""Results that one task merges."""


def from_dataset(dataset: Any, columns: Sequence[str] | None = None) -> "RayDataset":
    """Return the source of a Ray dataset: one element per row, its features in all columns or in those listed.

    A column holds numbers, or vectors of equal length.
    """
    return RayDataset(dataset, columns)


class RayDataset(Partitioned):
    """A ``ray.data.Dataset`` as the source of one set; see :func:`from_dataset`."""

    def __init__(self, dataset: Any, columns: Sequence[str] | None) -> None:
        super().__init__("the Ray dataset", columns)
        self.dataset = dataset if columns is None else dataset.select_columns(list(columns))
        self.groups = group_blocks(dataset) if isinstance(dataset, data.MaterializedDataset) else None
        self.tasks = 0
        """Number of tasks of the last pass."""
        self.bytes_sent = 0
        """Number of bytes that the tasks of the last pass returned; the function that they got is not included."""
        self.bytes_of_function = 0

    def run(
        self,
        evaluate: Callable[[Iterable[Table]], PartResult | None],
        merge: Callable[[PartResult | None, PartResult | None], PartResult | None],
    ) -> PartResult | None:
        # In one pickle, so that a parameter stays one object, whoever refers to it.
        functions = ray.cloudpickle.dumps((evaluate, merge))
        reference = ray.put(functions)
        if self.groups is None:
            passed = self.dataset.map_batches(partial(fold_batch, reference), batch_size=None, batch_format="numpy")
            results = [block for bundle in passed.iter_internal_ref_bundles() for block in bundle.block_refs]
        else:
            results = [
                fold_blocks.options(scheduling_strategy=node).remote(reference, references)
                for node, references in self.groups
            ]
        self.tasks, self.bytes_of_function = len(results), len(functions)
        while len(results) > FAN_IN:
            results = [merge_tasks.remote(functions, *some) for some in batched(results, FAN_IN)]
        result, self.bytes_sent = merge_serialized(merge, ray.get(results))
        return result

    def map_tables(self, encode: Callable[[Table], Table]) -> Any:
        return self.dataset.map_batches(encode, batch_size=None, batch_format="numpy")

    def schema_width(self) -> int | None:
        schema = self.dataset.schema()
        return None if schema is None else sum(prod(getattr(kind, "shape", ())) for kind in schema.types)


def batched(items: list[Any], size: int) -> Iterator[list[Any]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def group_blocks(dataset: Any) -> list[tuple[Any, list[Any]]]:
    """Return the blocks of a materialized dataset in groups of one task each, with the node that has them."""
    references = [reference for bundle in dataset.iter_internal_ref_bundles() for reference in bundle.block_refs]
    locations: Any = ray.experimental.get_object_locations(references)
    by_node = defaultdict[str | None, list[Any]](list)
    for reference in references:
        nodes = locations[reference]["node_ids"]
        by_node[nodes[0] if nodes else None].append(reference)  # small blocks have no node
    cpus = {node["NodeID"]: node["Resources"].get("CPU", 1) for node in ray.nodes() if node["Alive"]}
    groups = list[tuple[Any, list[Any]]]()
    for node, of_node in by_node.items():
        strategy = "DEFAULT" if node is None else scheduling.NodeAffinitySchedulingStrategy(node, soft=True)
        count = max(TASKS_PER_CPU * int(cpus.get(node, sum(cpus.values()))), 1)
        groups += [(strategy, of_node[start::count]) for start in range(min(count, len(of_node)))]
    return groups


def table_of(block: Any) -> Table:
    return blocks.BlockAccessor.for_block(block).to_batch_format("numpy")


@ray.remote
def fold_blocks(functions: bytes, references: list[Any]) -> bytes:
    """Return the serialized result of a pass over blocks, which are in memory one at a time."""
    evaluate, _ = pickle.loads(functions)
    return pickle.dumps(evaluate(table_of(ray.get(reference)) for reference in references))


def fold_batch(reference: Any, table: Table) -> Any:
    """Return the serialized result of a pass over one block, as a table of one row."""
    evaluate, _ = pickle.loads(ray.get(reference))
    return arrow.table({"result": arrow.array([pickle.dumps(evaluate([table]))], arrow.binary())})


@ray.remote
def merge_tasks(functions: bytes, *results: Any) -> Any:
    """Return the merged results of several tasks, serialized, and the number of bytes that were sent so far."""
    _, merge = pickle.loads(functions)
    result, sent = merge_serialized(merge, results)
    return pickle.dumps(result), sent


def merge_serialized(merge: Callable[[Any, Any], Any], results: Iterable[Any]) -> tuple[Any, int]:
    """Merge results of ``fold_blocks``, ``fold_batch`` or ``merge_tasks``; also return the number of bytes sent."""
    serialized, sent = list[bytes](), 0
    for result in results:
        if isinstance(result, tuple):
            serialized.append(result[0])
            sent += result[1]
        elif isinstance(result, bytes):
            serialized.append(result)
        else:
            serialized += result["result"].to_pylist() if result.num_rows else []
    values = map(pickle.loads, serialized)
    return reduce(merge, values, None), sent + sum(map(len, serialized))
