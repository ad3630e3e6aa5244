"""One set in a Dask collection: ``picaset.stream(network, frame)`` takes a ``dask.dataframe`` or a ``dask.array``.

As for Ray (ray.py), a function goes to every partition, and what it returns is merged in a tree.
"""

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

from picaset.extras import require
from picaset.large.partitions import Evaluate, Merge, Partitioned, PartResult, Selection, Table

dask: Any = require("dask", extra="development", purpose="a Dask collection")

FAN_IN = 16
"""Results that one task merges."""


def from_dataset(collection: Any, columns: Sequence[str] | None = None) -> "DaskCollection":
    """Return the source of a Dask data frame, or of an array (N, D): one element per row."""
    return DaskCollection(collection, Selection("the Dask collection", columns))


class DaskCollection(Partitioned):
    """A Dask collection as the source of one set; see :func:`from_dataset`."""

    def __init__(self, collection: Any, selection: Selection) -> None:
        super().__init__(selection)
        self.collection = collection if hasattr(collection, "columns") else collection.rechunk({1: -1})

    def partitions(self, function: Callable[[Table], Any]) -> list[Any]:
        """Return a function of every partition, to be computed."""
        partitions: Any = self.collection.to_delayed()
        delayed = dask.delayed(lambda partition: function(table_of(partition)))  # pyright: ignore
        return [delayed(partition) for partition in getattr(partitions, "flat", partitions)]

    def run(self, evaluate: Evaluate, merge: Merge) -> PartResult | None:
        merge_all = dask.delayed(partial(reduce, merge))
        results = self.partitions(lambda table: evaluate([table]))
        while len(results) > 1:
            results = [merge_all(results[start : start + FAN_IN]) for start in range(0, len(results), FAN_IN)]
        return results[0].compute()

    def map_tables(self, encode: Callable[[Table], Table]) -> Any:
        """Return a delayed table for every partition."""
        return self.partitions(encode)

    def schema_width(self) -> int:
        return len(self.selection.columns or getattr(self.collection, "columns", range(self.collection.shape[1])))


def table_of(partition: Any) -> Table:
    if not hasattr(partition, "columns"):
        return {"data": partition}
    return {name: partition[name].to_numpy() for name in partition.columns}
