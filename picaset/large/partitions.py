"""Sets in the partitions of another engine, such as Ray or Dask: the computation goes to the elements.

Chunks of a stream, ranks of a process group and partitions of an engine are the same fold: a function summarizes a part
of the set, and the summaries merge in any order. An engine implements three methods of ``Partitioned``:

    run            a function of every part, with the results merged in a tree
    map_tables     a new dataset, in which every part has the column ``encoded``
    schema_width   the number of features of a dataset without elements

Shared parts: parts as sources, errors as values, and the check that all passes read the same elements.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from picaset.large.sources import CALLER, Chunk, Source, SourceChangedError, stack_columns

SAME_IN_EVERY_PASS = "Every pass must return the same elements: keep them by .materialize() (Ray) or .persist() (Dask)."

Table = Mapping[str, NDArray[Any]]
"""Columns of equal length by name, each (n,) or (n, D)."""


class Selection(NamedTuple):
    """Selection of the columns of a table that are elements."""

    name: str
    """Name of the dataset in error messages."""
    columns: Sequence[str] | None = None
    """Columns of the features; None means all but the key."""
    by: str | None = None
    """Column of the keys, if the rows belong to several sets."""
    keys: NDArray[Any] = np.empty(0)
    """Keys of the sets, in ascending order."""


class Part(Source):
    """The elements of one part of a set: the rows of tables that are read one after the other, once."""

    def __init__(self, tables: Iterable[Table], selection: Selection, width: int | None = None) -> None:
        self.tables, self.selection, self.width = tables, selection, width
        self.name = selection.name
        self.sets = 1 if selection.by is None else len(selection.keys)
        self.size, self.checksum = 0, 0

    def chunks(self, size: int) -> Iterator[Chunk]:
        for table in self.tables:
            columns = [name for name in self.selection.columns or table if name != self.selection.by]
            for start in range(0, num_rows(table), size):
                rows = slice(start, start + size)
                array = stack_columns(table, rows, columns, self.name)
                elements = torch.as_tensor(array)
                if self.width is not None and elements.shape[1] != self.width:
                    raise different_widths(self.name, elements.shape[1], self.width)
                self.width = elements.shape[1]
                self.checksum = (self.checksum + checksum_in_any_order(array)) % 2**32
                if self.selection.by is None:
                    yield Chunk(self.size, elements[None], None)
                else:
                    yield from self.chunks_by_set(elements, np.asarray(table[self.selection.by][rows]))
                self.size += len(elements)

    def chunks_by_set(self, elements: Tensor, keys: NDArray[Any]) -> Iterator[Chunk]:
        """Yield a chunk for every set that has some of the elements."""
        known = self.selection.keys
        codes = np.searchsorted(known, keys).clip(max=len(known) - 1)
        if not np.array_equal(known[codes], keys):
            raise SourceChangedError(f"{self.name} changed between passes: column {self.selection.by!r} has new keys.")
        order = np.argsort(codes, kind="stable")
        indices, starts = np.unique(codes[order], return_index=True)
        for index, rows in zip(indices, np.split(order, starts[1:]), strict=True):
            yield Chunk(self.size, elements[torch.as_tensor(rows)][None], None, int(index))


def checksum_in_any_order(rows: NDArray[Any]) -> int:
    """Return the sum of the bits of all elements, modulo 2^32; their order may differ between passes."""
    integers = rows.view(f"i{min(rows.itemsize, 4)}")
    return int(integers.sum(dtype=np.int32))  # wraps around, which is much faster than a wider sum


def num_rows(table: Table) -> int:
    return len(next(iter(table.values()), ()))


def different_widths(name: str, width: int, other: int) -> ValueError:
    return ValueError(
        f"{CALLER}: all elements must have the same number of features; {name} has elements of {width} and of {other}."
    )


class PartResult(NamedTuple):
    """Value of a function on some parts of a set, and what identifies these parts."""

    value: Any
    size: int = 0
    width: int = 0
    checksum: int = 0
    error: Exception | None = None
    bytes_sent: int = 0


Evaluate = Callable[[Iterable[Table]], PartResult | None]
"""From the tables of a part to a result; None if they have no rows."""
Merge = Callable[[PartResult | None, PartResult | None], PartResult | None]


def evaluate_part(
    function: Callable[[Source], Any], selection: Selection, tables: Iterable[Table]
) -> PartResult | None:
    """Return the result of a function on a part, or the error about its contents; None if it has no rows."""
    tables = (table for table in tables if num_rows(table))
    first = next(tables, None)
    if first is None:
        return None
    part = Part(chain([first], tables), selection)
    try:
        value = function(part)
    except (TypeError, ValueError, SourceChangedError) as error:
        return PartResult(None, error=error)
    assert part.width is not None
    return PartResult(value, part.size, part.width, part.checksum)


def merge_results(
    merge: Callable[[Any, Any], Any], name: str, left: PartResult | None, right: PartResult | None
) -> PartResult | None:
    if left is None or right is None:
        return right if left is None else left
    if left.error or right.error:
        return left if left.error else right
    if left.width != right.width:
        return PartResult(None, error=different_widths(name, left.width, right.width))
    return PartResult(
        merge(left.value, right.value),
        left.size + right.size,
        left.width,
        (left.checksum + right.checksum) % 2**32,
        bytes_sent=left.bytes_sent + right.bytes_sent,
    )


class Partitioned(Source):
    """A set whose elements are in the partitions of an engine, and stay there.

    Args:
        selection: How tables are read as elements.
    """

    def __init__(self, selection: Selection) -> None:
        self.name, self.selection = selection.name, selection
        self.sets = 1 if selection.by is None else len(selection.keys)
        if self.sets == 0:
            raise ValueError(f"{CALLER}: {self.name} has no rows, so it has no sets by {selection.by!r}.")
        self.first: PartResult | None = None
        self.bytes_sent = 0
        """Number of bytes that the parts returned in the last pass."""

    @property
    def keys(self) -> NDArray[Any]:
        """Keys of the sets, in the order of the results."""
        return self.selection.keys

    @abstractmethod
    def run(self, evaluate: Evaluate, merge: Merge) -> PartResult | None:
        """Return ``evaluate`` of every part, merged; both functions are to be pickled together."""

    @abstractmethod
    def map_tables(self, encode: Callable[[Table], Table]) -> Any:
        """Return a dataset of the engine in which every table is replaced by ``encode`` of it."""

    @abstractmethod
    def schema_width(self) -> int | None:
        """Return the number of features of a dataset without elements, if its schema defines it."""

    def chunks(self, size: int) -> Iterator[Chunk]:
        raise TypeError(f"{CALLER}: the elements of {self.name} stay in their partitions; use LargeSet.fold and map.")

    def fold(self, function: Callable[[Source], Any], merge: Callable[[Any, Any], Any]) -> Any:
        """Apply ``function`` to every partition that has elements, and merge the results."""
        result = self.run(partial(evaluate_part, function, self.selection), partial(merge_results, merge, self.name))
        if result is not None and result.error is not None:
            raise result.error
        self.check_pass(PartResult(None) if result is None else result._replace(value=None))
        if result is not None:
            self.bytes_sent = result.bytes_sent
            return result.value
        if self.width is None:
            self.width = self.schema_width()
        return function(Part((), self.selection, self.width))

    def check_pass(self, current: PartResult) -> None:
        """Compare a pass with the first one."""
        first = self.first = self.first or current
        hint = SAME_IN_EVERY_PASS
        if first.size != current.size:
            raise SourceChangedError(
                f"{self.name} changed between passes: it had {first.size} elements, now it has {current.size}. {hint}"
            )
        if first.checksum != current.checksum:
            raise SourceChangedError(
                f"{self.name} changed between passes: its elements differ from the first pass. {hint}"
            )
        self.count = current.size

    def encode(self, function: Callable[[Source], Tensor]) -> Any:
        """Return the dataset with a column ``encoded``, ``function`` of each part, (n, E)."""
        if self.selection.by is not None:
            raise ValueError(
                f"{CALLER}: an encoder needs a dataset of one set; {self.name} has one for each {self.selection.by!r}. "
                "Call from_dataset(dataset) without by."
            )
        return self.map_tables(partial(encode_table, function, self.selection))


def encode_table(function: Callable[[Source], Tensor], selection: Selection, table: Table) -> dict[str, NDArray[Any]]:
    return {**table, "encoded": np.asarray(function(Part([table], selection)))}
