"""One set on a Ray cluster: ``picaset.stream(network, dataset)`` takes a ``ray.data.Dataset``.

Every pass over the set sends a function to the blocks and merges what it returns, a few numbers per template and head,
in a tree; no element reaches the driver. A dataset that is materialized stays in the object store: a few tasks for each
CPU fold the blocks of their node. A dataset that is not is executed again in every pass, files read and all, which
needs no memory for the set. Ray repeats the tasks of a worker that dies.

    from_dataset       the source of a dataset, with a choice of columns, or with a set for every key of a column
    PicasoAggregate    one step of a PicasoPool as an aggregate of Ray, for any number of groups
    pool_groups        all steps of a PicasoPool, one aggregate each
"""

import pickle
import re
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from picaset.extras import require
from picaset.large.partitions import (
    SAME_IN_EVERY_PASS,
    Evaluate,
    Merge,
    Partitioned,
    PartResult,
    Selection,
    Table,
    checksum_in_any_order,
    num_rows,
)
from picaset.large.sources import CALLER, ROWS_PER_BATCH, SourceChangedError, stack_columns
from picaset.operators.picaso import PicasoPool
from picaset.operators.state import AttentionState

ray: Any = require("ray", extra="ray", purpose="a Ray dataset")
data: Any = require("ray.data.dataset", extra="ray", purpose="a Ray dataset")
aggregate: Any = require("ray.data.aggregate", extra="ray", purpose="a Ray dataset")
blocks: Any = require("ray.data.block", extra="ray", purpose="a Ray dataset")
scheduling: Any = require("ray.util.scheduling_strategies", extra="ray", purpose="a Ray dataset")
arrow: Any = require("pyarrow", extra="ray", purpose="a Ray dataset")

TASKS_PER_CPU = 2
"""Tasks of a pass for each CPU: more balance the load, and send more."""
FAN_IN = 16
"""Results that one task merges."""


def from_dataset(dataset: Any, columns: Sequence[str] | None = None, *, by: str | None = None) -> "RayDataset":
    """Return the source of a Ray dataset: one element per row, its features in all columns or in those listed.

    A column holds numbers, or vectors of equal length. ``by`` names a column of keys: rows with the same key are a set,
    and results have one row for each of the ``keys`` of the source, which must fit in memory.
    """
    check_columns(dataset, [*([] if by is None else [by]), *(columns or [])])
    if by is None:
        return RayDataset(dataset, Selection("the Ray dataset", columns))
    result = RayDataset(dataset, Selection("the Ray dataset", [by])).run(partial(unique_keys, by), merge_keys)
    keys: set[Any] = set() if result is None else result.value
    if any(key is None or key != key for key in keys):
        raise ValueError(f"{CALLER}: column {by!r} of the Ray dataset has rows without a key; filter them first.")
    return RayDataset(dataset, Selection("the Ray dataset", columns, by, np.array(sorted(keys))))


def check_columns(dataset: Any, columns: Sequence[str]) -> None:
    """Raise an error if a dataset with a schema lacks a column."""
    schema: Any = dataset.schema() if columns else None
    names: list[str] = schema.names if schema else []
    for column in columns:
        if names and column not in names:
            raise ValueError(f"{CALLER}: the Ray dataset has no column {column!r}; it has {', '.join(names)}.")


def unique_keys(by: str, tables: Iterable[Table]) -> PartResult:
    return PartResult({key for table in tables for key in set(table[by].tolist())})


def merge_keys(left: PartResult | None, right: PartResult | None) -> PartResult | None:
    return right if left is None else left if right is None else PartResult(left.value | right.value)


class RayDataset(Partitioned):
    """A ``ray.data.Dataset`` as the source of one set, or of several; see :func:`from_dataset`."""

    def __init__(self, dataset: Any, selection: Selection) -> None:
        super().__init__(selection)
        self.dataset = dataset
        self.groups = group_blocks(dataset) if isinstance(dataset, data.MaterializedDataset) else None
        self.num_tasks = 0
        """Number of tasks of the last pass."""
        self.bytes_of_function = 0
        """Size of the function that every node gets in a pass."""

    def run(self, evaluate: Evaluate, merge: Merge) -> PartResult | None:
        # In one pickle, so that a parameter stays one object, whoever refers to it.
        functions = ray.cloudpickle.dumps((evaluate, merge))
        reference = ray.put(functions)
        if self.groups is None:
            passed = self.selected().map_batches(partial(fold_batch, reference), batch_size=None, batch_format="numpy")
            results = [block for bundle in passed.iter_internal_ref_bundles() for block in bundle.block_refs]
        else:
            results = [
                fold_blocks.options(scheduling_strategy=node).remote(reference, references)
                for node, references in self.groups
            ]
        self.num_tasks, self.bytes_of_function = len(results), len(functions)
        while len(results) > FAN_IN:
            results = [merge_tasks.remote(reference, *some) for some in batched(results, FAN_IN)]
        return merge_serialized(merge, ray.get(results))

    def selected(self) -> Any:
        """Return the dataset with the columns that a pass needs, so that other columns are not read."""
        columns, by = self.selection.columns, self.selection.by
        return self.dataset if columns is None else self.dataset.select_columns([*filter(None, [by]), *columns])

    def map_tables(self, encode: Callable[[Table], Table]) -> Any:
        return self.dataset.map_batches(encode, batch_size=None, batch_format="numpy")

    def schema_width(self) -> int | None:
        schema = self.selected().schema()
        if schema is None or any(str(kind) == "null" for kind in schema.types):
            return None
        kinds = zip(schema.names, schema.types, strict=True)
        return sum(prod(getattr(kind, "shape", ())) for name, kind in kinds if name != self.selection.by) or None


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
def merge_tasks(functions: bytes, *results: Any) -> bytes:
    """Return the merged results of several tasks, serialized."""
    _, merge = pickle.loads(functions)
    return pickle.dumps(merge_serialized(merge, results))


def merge_serialized(merge: Callable[[Any, Any], PartResult | None], results: Iterable[Any]) -> PartResult | None:
    """Merge serialized results, or tables of them, and add up their bytes."""
    merged = None
    for result in results:
        rows: list[bytes] = [result] if isinstance(result, bytes) else []
        if not isinstance(result, bytes) and result.num_rows:
            rows = result["result"].to_pylist()
        for serialized in rows:
            part: PartResult | None = pickle.loads(serialized)
            if part is not None:
                merged = merge(merged, part._replace(bytes_sent=part.bytes_sent + len(serialized)))
    return merged


# Aggregates


class PicasoAggregate(aggregate.AggregateFnV2):
    """One step of a :class:`picaset.PicasoPool` for every group of a Ray dataset.

    ``dataset.groupby("patient").aggregate(PicasoAggregate(pool, on="cell", by="patient"))`` pools the rows of each
    patient by a pool of one step; :func:`pool_groups` is for several steps. Softmax statistics of the blocks merge, so
    the rows of a group may be in any blocks and need not fit in memory. Gradients do not pass through an aggregate: to
    train, use ``stream`` with ``from_dataset(dataset, by=...)``.

    Args:
        pool: The pool; an ``AttentionPool`` is one of a single step.
        on: Column of the elements, each a vector.
        by: Column or columns of the groups.
        step: Number of the step; None for a pool of one step.
        templates: Reference to the results of the step before by key; None in the first step.
    """

    def __init__(
        self, pool: PicasoPool, on: str, *, by: str | Sequence[str], step: int | None = None, templates: Any = None
    ) -> None:
        check_pool(pool)
        if step is None and pool.num_steps > 1:
            raise ValueError(
                f"PicasoAggregate: this pool has {pool.num_steps} steps, and each is an aggregate of its own. "
                "Call pool_groups(pool, dataset, by=...)."
            )
        self.pool, self.step, self.templates = pool, step or 0, templates
        self.by, self.on = [by] if isinstance(by, str) else list(by), on
        super().__init__("pooled", zero_factory=lambda: None, on=on, ignore_nulls=True)  # pyright: ignore

    def aggregate_block(self, block: Any) -> bytes:
        """Return the serialized key and softmax statistics of rows of one group."""
        table = table_of(block)
        key = key_of(table, self.by, 0)
        state = None
        for start in range(0, num_rows(table), ROWS_PER_BATCH):
            rows = stack_columns(table, slice(start, start + ROWS_PER_BATCH), [self.on], "the Ray dataset")
            with torch.no_grad():
                elements = torch.as_tensor(rows).to(self.pool.templates)
                part = self.pool.summarize(elements[None], self.templates_of(key), step=self.step)
            part = AttentionState(*(tensor.double() for tensor in part))
            state = part if state is None else state.merge(part)
        return pickle.dumps((key, state))

    def combine(self, current_accumulator: bytes, new: bytes) -> bytes:
        """Return the merged statistics of two parts of a group."""
        (key, left), (_, right) = pickle.loads(current_accumulator), pickle.loads(new)
        return pickle.dumps((key, left.merge(right)))

    def finalize(self, accumulator: bytes) -> Any:
        """Return the templates after the step, (K, D)."""
        key, state = pickle.loads(accumulator)
        with torch.no_grad():
            state = AttentionState(*(tensor.to(self.pool.templates) for tensor in state))
            return self.pool.finish(state, self.templates_of(key), step=self.step)[0].numpy()

    def templates_of(self, key: Any) -> Tensor:
        """Return the templates of a group before the step, (1, K, D)."""
        if self.templates is None:
            return self.pool.initial(1)
        groups = groups_by_key(self.templates)
        if key not in groups:
            raise changed(f"there is a new group, {', '.join(map(str, key))}")
        return torch.tensor(groups[key].pooled)[None]


def check_pool(pool: Any) -> None:
    if not isinstance(pool, PicasoPool):
        raise TypeError(
            f"PicasoAggregate: pool must be a PicasoPool or AttentionPool; got {type(pool).__name__}. For others, "
            "use stream with from_dataset(dataset, by=...)."
        )


class Fingerprint(aggregate.AggregateFnV2):
    """The number of rows of a group and a checksum that does not depend on their order, to compare passes."""

    def __init__(self, on: str) -> None:
        super().__init__("fingerprint", zero_factory=lambda: None, on=on, ignore_nulls=True)  # pyright: ignore
        self.on = on

    def aggregate_block(self, block: Any) -> bytes:
        rows = stack_columns(table_of(block), slice(None), [self.on], "the Ray dataset")
        return pickle.dumps((len(rows), checksum_in_any_order(rows)))

    def combine(self, current_accumulator: bytes, new: bytes) -> bytes:
        (size, checksum), (more, other) = pickle.loads(current_accumulator), pickle.loads(new)
        return pickle.dumps((size + more, (checksum + other) % 2**32))

    def finalize(self, accumulator: bytes) -> str:
        size, checksum = pickle.loads(accumulator)
        return f"{size} rows, {checksum % 2**32}"


class Group(NamedTuple):
    """Result of a step for one group."""

    pooled: NDArray[Any]
    fingerprint: str


@lru_cache(maxsize=1)
def groups_by_key(reference: Any) -> dict[Any, Group]:
    return ray.get(reference)


@ray.remote(num_returns=2)
def collect_groups(by: list[str], before: dict[Any, Group] | None, *results: Any) -> tuple[dict[Any, Group], None]:
    """Return the results of a step by key, compared with the step before, and None when this is done."""
    tables = [table for block in results if num_rows(table := table_of(block))]
    groups = {
        key_of(table, by, row): Group(table["pooled"][row], str(table["fingerprint"][row]))
        for table in tables
        for row in range(num_rows(table))
    }
    before = before or {}
    different = [key for key in before if key not in groups or groups[key].fingerprint != before[key].fingerprint]
    if different:
        raise changed(f"the rows of {len(different)} groups differ from the first pass")
    return groups, None


def changed(what: str) -> SourceChangedError:
    return SourceChangedError(f"the Ray dataset changed between passes: {what}. {SAME_IN_EVERY_PASS}")


@contextmanager
def errors_of_workers() -> Generator[None]:
    """Raise the error of a worker about the contents of a dataset as it is, without the traces of Ray."""
    try:
        yield
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, (TypeError, ValueError, SourceChangedError)):
            raise error.cause from None
        # Ray keeps errors of functions that are mapped as text only.
        if messages := re.findall(rf"^(?:Type|Value)Error: ({CALLER}: .*)", str(error), flags=re.MULTILINE):
            raise ValueError(messages[-1]) from None
        raise


def key_of(table: Table, by: list[str], row: int) -> tuple[Any, ...]:
    values = (table[column][row : row + 1].tolist()[0] for column in by)
    return tuple(None if value != value else value for value in values)  # NaN is a missing key


def pool_groups(
    pool: PicasoPool, dataset: Any, *, by: str | Sequence[str], columns: Sequence[str] | None = None
) -> Any:
    """Pool every group of a Ray dataset: return a dataset with the columns ``by`` and ``pooled``, (K, D).

    The dataset is read once for every step. Between steps, the templates of all groups are one object in Ray's object
    store, so there may be millions of groups; none of it reaches the driver. A dataset whose groups differ between
    steps is refused.

    Example::

        pool_groups(pool, ray.data.read_parquet("cells/"), by="patient", columns=genes).write_parquet("pooled/")
    """
    keys, templates, result = [by] if isinstance(by, str) else list(by), None, dataset
    check_pool(pool)
    check_columns(dataset, [*keys, *(columns or [])])
    dataset = dataset.map_batches(partial(join_features, keys, columns), batch_size=None, batch_format="numpy")
    with errors_of_workers():
        for step in range(pool.num_steps):
            fold = PicasoAggregate(pool, "features", by=by, step=step, templates=templates)
            result = dataset.groupby(by).aggregate(fold, Fingerprint("features")).materialize()
            bundles = result.iter_internal_ref_bundles()
            results = [block for bundle in bundles for block in bundle.block_refs]
            templates, compared = collect_groups.remote(keys, templates, *results)
            ray.get(compared)
    return result.drop_columns(["fingerprint"]) if result.schema() else result


def join_features(by: list[str], columns: Sequence[str] | None, table: Table) -> dict[str, NDArray[Any]]:
    """Return the keys and, as one column, the features."""
    columns = [name for name in table if name not in by] if columns is None else columns
    features = stack_columns(table, slice(None), columns, "the Ray dataset")
    return {**{name: table[name] for name in by}, "features": features}
