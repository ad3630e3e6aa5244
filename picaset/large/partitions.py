"""Sets in the partitions of another engine, such as Ray or Dask: the computation goes to the elements.

Chunks of a stream, ranks of a process group and partitions of an engine are the same fold: a function summarizes a part
of the set, and the summaries merge in any order. An engine implements two methods of ``Partitioned``:

    run          a function of every part, with the results merged in a tree
    map_tables   a new dataset, in which every part has the column ``encoded``

What both need is here: parts as sources, errors as values, and the check that all passes read the same elements.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

from picaset.large.sources import CALLER, Chunk, Source, SourceChangedError, sample_checksum, stack_columns

Table = Mapping[str, NDArray[Any]]
"""Columns of equal length by name, each (n,) or (n, D)."""


class Part(Source):
    """The elements of one part of a set: the rows of tables that are read one after the other, once."""

    def __init__(self, tables: Iterable[Table], columns: Sequence[str] | None, name: str, width: int | None = None):
        self.tables, self.columns, self.name, self.width = tables, columns, name, width
        self.count = 0
        self.sizes, self.contents = 0, 0

    def chunks(self, size: int) -> Iterator[Chunk]:
        for table in self.tables:
            for start in range(0, num_rows(table), size):
                rows = torch.from_numpy(stack_columns(table, slice(start, start + size), self.columns, self.name))
                if self.width not in (None, rows.shape[1]):
                    raise different_widths(self.name, rows.shape[1], self.width)
                self.width = rows.shape[1]
                # Sums, because parts come in any order.
                self.sizes += hash((len(rows), 0))
                self.contents += hash((len(rows), sample_checksum(rows)))
                yield Chunk(self.count, rows[None], None)
                self.count += len(rows)


def num_rows(table: Table) -> int:
    return len(next(iter(table.values()), ()))


def different_widths(name: str, width: int, other: int) -> ValueError:
    return ValueError(
        f"{CALLER}: all elements must have the same number of features; {name} has elements of {width} and of {other}."
    )


class PartResult(NamedTuple):
    """Value of a function on some parts of a set, and what identifies these parts."""

    value: Any
    count: int = 0
    width: int = 0
    sizes: int = 0
    """Sum of hashes of the sizes of all chunks."""
    contents: int = 0
    """Sum of hashes of samples of all chunks."""
    error: Exception | None = None


def evaluate_part(
    function: Callable[[Source], Any], columns: Sequence[str] | None, name: str, tables: Iterable[Table]
) -> PartResult | None:
    """Return the result of a function on a part, or the error about its contents; None if it has no rows."""
    tables = (table for table in tables if num_rows(table))
    first = next(tables, None)
    if first is None:
        return None
    part = Part(chain([first], tables), columns, name)
    try:
        value = function(part)
    except (TypeError, ValueError) as error:
        return PartResult(None, error=error)
    assert part.width is not None
    return PartResult(value, part.count, part.width, part.sizes, part.contents)


def merge_results(
    merge: Callable[[Any, Any], Any], name: str, left: PartResult | None, right: PartResult | None
) -> PartResult | None:
    if left is None or right is None:
        return right if left is None else left
    if left.error or right.error:
        return left if left.error else right
    if left.width != right.width:
        return PartResult(None, error=different_widths(name, left.width, right.width))
    sums = (a + b for a, b in zip(left[3:5], right[3:5], strict=True))
    return PartResult(merge(left.value, right.value), left.count + right.count, left.width, *sums)


class Partitioned(Source):
    """A set whose elements are in the partitions of an engine, and stay there.

    Args:
        name: Name of the dataset in error messages.
        columns: Columns whose values are the features of the elements; None means all.
    """

    def __init__(self, name: str, columns: Sequence[str] | None) -> None:
        self.name, self.columns = name, columns
        self.first: PartResult | None = None

    @abstractmethod
    def run(
        self,
        evaluate: Callable[[Iterable[Table]], PartResult | None],
        merge: Callable[[PartResult | None, PartResult | None], PartResult | None],
    ) -> PartResult | None:
        """Return ``evaluate`` of every part, merged; both functions are to be pickled together."""

    @abstractmethod
    def map_tables(self, encode: Callable[[Table], Table]) -> Any:
        """Return a dataset of the engine in which every table is replaced by ``encode`` of it."""

    @abstractmethod
    def schema_width(self) -> int | None:
        """Return the number of features of a dataset without elements, if its schema tells."""

    def chunks(self, size: int) -> Iterator[Chunk]:
        raise TypeError(f"{CALLER}: the elements of {self.name} stay in their partitions; use LargeSet.fold and map.")

    def fold(self, function: Callable[[Source], Any], merge: Callable[[Any, Any], Any]) -> Any:
        """Return ``function`` of every part, merged; parts without elements are left out."""
        result = self.run(
            partial(evaluate_part, function, self.columns, self.name), partial(merge_results, merge, self.name)
        )
        if result is not None and result.error is not None:
            raise result.error
        self.check_pass(PartResult(None) if result is None else result._replace(value=None))
        if result is not None:
            return result.value
        if self.width is None:
            self.width = self.schema_width()
        return function(Part((), self.columns, self.name, self.width))

    def check_pass(self, current: PartResult) -> None:
        """Compare a pass with the first one; contents only where the parts have the same sizes."""
        first = self.first = self.first or current
        hint = "Every pass must return the same elements: keep them by .materialize() (Ray) or .persist() (Dask)."
        if first.count != current.count:
            raise SourceChangedError(
                f"{self.name} changed between passes: it had {first.count} elements, now it has {current.count}. {hint}"
            )
        if first.sizes == current.sizes and first.contents != current.contents:
            raise SourceChangedError(
                f"{self.name} changed between passes: its elements differ from the first pass. {hint}"
            )
        self.count = current.count

    def encode(self, function: Callable[[Source], Tensor]) -> Any:
        """Return the dataset with a column ``encoded``, ``function`` of each part, (n, E)."""
        return self.map_tables(partial(encode_table, function, self.columns, self.name))


def encode_table(
    function: Callable[[Source], Tensor], columns: Sequence[str] | None, name: str, table: Table
) -> dict[str, NDArray[Any]]:
    return {**table, "encoded": function(Part([table], columns, name)).numpy()}
