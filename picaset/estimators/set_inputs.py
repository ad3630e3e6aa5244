"""Sets in every form that the estimators accept.

    list of arrays (n, D), array (B, N, D)      in memory
    SetBatch                                    packed sets
    list of paths of .npy or .parquet files     one set per file, read in chunks and never as a whole
    long data frame (pandas, polars)            one row per element; ``set_column`` names the column of the set

``read_set_list`` returns a :class:`SetList`, which the estimators read in chunks of elements and their weights.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from picaset.large.sources import open_source
from picaset.sets import SetBatch

Floats = NDArray[np.float64]
MAX_MAGNITUDE = 1e100
"""Largest absolute value of a feature; squares of smaller values and their sums stay finite."""
CHUNK_VALUES = 2**20
"""Number of values of a file that are in memory at a time."""
FILE_SUFFIXES = (".npy", ".parquet")


@dataclass(frozen=True)
class SetFile:
    """A set in a .npy or .parquet file, one row per element."""

    path: Path
    index: int

    @cached_property
    def shape(self) -> tuple[int, int]:
        source = open_source(self.path)
        if source.count is None or source.width is None:
            chunks = [chunk.elements.shape[1:] for chunk in source.chunks(CHUNK_VALUES)]
            return sum(rows for rows, _ in chunks), chunks[0][1] if chunks else 0
        return source.count, source.width

    def __len__(self) -> int:
        return self.shape[0]

    def chunks(self) -> Iterator[Floats]:
        for chunk in open_source(self.path).chunks(max(CHUNK_VALUES // max(self.shape[1], 1), 1)):
            yield chunk.elements[0].numpy().astype(np.float64)


Elements = Floats | SetFile


@dataclass(frozen=True)
class SetList:
    """Sets of vectors with the same features; a column may hold the weights of the elements."""

    sets: Sequence[Elements]
    num_columns: int
    caller: str
    names: Sequence[str] | None = None
    """Names of the columns, if the sets came from a data frame."""
    owners: NDArray[np.int64] | None = None
    """Set of each row of the data frame."""
    weight_index: int | None = None
    """Column with the weights of the elements."""
    fill: Floats | None = None
    """Values that replace NaN, for each feature."""
    allow_missing: bool = False

    def __len__(self) -> int:
        return len(self.sets)

    @property
    def num_features(self) -> int:
        return self.num_columns - (self.weight_index is not None)

    @property
    def feature_names(self) -> list[str] | None:
        names = self.names
        return None if names is None else [name for i, name in enumerate(names) if i != self.weight_index]

    @property
    def in_memory(self) -> bool:
        return not any(isinstance(elements, SetFile) for elements in self.sets)

    def sizes(self) -> NDArray[np.int64]:
        return np.array([len(elements) for elements in self.sets], dtype=np.int64)

    def subset(self, indices: Sequence[int] | NDArray[np.int64]) -> "SetList":
        return replace(self, sets=[self.sets[int(index)] for index in indices], owners=None)

    def chunks(self, index: int) -> Iterator[tuple[Floats, Floats | None]]:
        """Yield the features (n, D) and the weights (n,) of consecutive elements of a set."""
        elements = self.sets[index]
        if isinstance(elements, SetFile):
            for values in elements.chunks():
                check_values(values, index, caller=self.caller, allow_missing=self.allow_missing)
                yield self.split(values, index)
        else:
            yield self.split(elements, index)

    def split(self, values: Floats, index: int) -> tuple[Floats, Floats | None]:
        """Separate features and weights, and replace NaN."""
        weights = None
        if self.weight_index is not None:
            weights = values[:, self.weight_index]
            if not (weights >= 0).all():
                raise ValueError(
                    f"{self.caller}: weights of elements must not be negative or missing; set {index} has "
                    f"{weights[~(weights >= 0)][0]:g}."
                )
            values = np.delete(values, self.weight_index, axis=1)
        if self.fill is not None:
            values = np.where(np.isnan(values), self.fill, values)
        return values, weights

    def array(self, index: int) -> tuple[Floats, Floats | None]:
        """Return the features and the weights of a whole set."""
        parts = list(self.chunks(index))
        if len(parts) == 1:
            return parts[0]
        weights = None if self.weight_index is None else np.concatenate([cast(Floats, weights) for _, weights in parts])
        return np.concatenate([values for values, _ in parts]), weights

    def per_set(self, values: Any, *, name: str) -> NDArray[Any]:
        """Return one value for each set from values for each set, or for each row of the data frame."""
        array = np.asarray(values)
        if self.owners is None or len(array) == len(self) or len(array) != len(self.owners):
            return array
        first = np.unique(self.owners, return_index=True)[1]
        result = array[first]
        differs = np.flatnonzero((result[self.owners] != array).reshape(len(array), -1).any(axis=1))
        if len(differs):
            row = int(differs[0])
            raise ValueError(
                f"{self.caller}: the {name} of all rows of a set must be equal; set {int(self.owners[row])} has "
                f"{result[self.owners[row]].tolist()!r} and {array[row].tolist()!r}."
            )
        return result


def read_set_list(
    sets: Any,
    *,
    caller: str,
    set_column: str | None = None,
    weight_column: int | str | None = None,
    allow_missing: bool = False,
) -> SetList:
    """Read sets of any form, or raise an error that names the set that is invalid."""
    names: list[str] | None = None
    owners: NDArray[np.int64] | None = None
    if is_data_frame(sets):
        sets, names, owners = split_data_frame(sets, set_column, caller=caller)
    elif isinstance(sets, SetBatch):
        sets = np.split(sets.elements.numpy(force=True), sets.offsets.cpu().numpy()[1:-1])
    if isinstance(sets, Mapping | str | os.PathLike) or not hasattr(sets, "__len__") or getattr(sets, "ndim", 1) == 0:
        raise ValueError(
            f"{caller}: expected a list of arrays, one for each set; got a {type(cast(object, sets)).__name__}."
        )
    if len(sets) == 0:
        raise ValueError(f"{caller}: expected at least one set; got none.")
    elements = list[Elements]()
    for index, values in enumerate(sets):
        item = read_elements(values, index, caller=caller, allow_missing=allow_missing)
        if item.shape[1] != (elements or [item])[0].shape[1]:
            raise ValueError(
                f"{caller}: all sets must have the same number of columns; set 0 has {elements[0].shape[1]}, "
                f"set {index} has {item.shape[1]}."
            )
        if 0 in item.shape:
            raise ValueError(f"{caller}: set {index} has no {'columns' if len(item) else 'points'}.")
        elements.append(item)
    width = elements[0].shape[1]
    weight_index = None if weight_column is None else find_column(weight_column, names, width, caller=caller)
    if weight_index is not None and width == 1:
        raise ValueError(f"{caller}: the sets have no column other than that of the weights, {weight_column!r}.")
    return SetList(elements, width, caller, names, owners, weight_index, allow_missing=allow_missing)


def read_elements(values: Any, index: int, *, caller: str, allow_missing: bool) -> Elements:
    """Read one set."""
    if isinstance(values, str | os.PathLike):
        path = Path(cast(str, values))
        if path.suffix.lower() not in FILE_SUFFIXES:
            raise ValueError(f"{caller}: the file of set {index} must end in .npy or .parquet; got {str(path)!r}.")
        if not path.is_file():
            raise ValueError(f"{caller}: the file of set {index} does not exist: {path}.")
        return SetFile(path, index)
    try:
        values = values.numpy(force=True) if isinstance(values, torch.Tensor) else values
        if np.iscomplexobj(values):
            raise TypeError("its numbers are complex")
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{caller}: set {index} is not an array of numbers: {error}.") from None
    if array.ndim != 2:
        raise ValueError(f"{caller}: set {index} must have shape (n, D); got {array.shape}.")
    check_values(array, index, caller=caller, allow_missing=allow_missing)
    return array


def check_values(array: Floats, index: int, *, caller: str, allow_missing: bool) -> None:
    """Raise for infinite, huge and, unless allowed, missing values."""
    magnitude = np.abs(array)
    for requirement, valid in (
        ("finite", np.isfinite(array) | np.isnan(array) if allow_missing else np.isfinite(array)),
        (f"between -{MAX_MAGNITUDE:g} and {MAX_MAGNITUDE:g}", ~(magnitude > MAX_MAGNITUDE)),
    ):
        if not valid.all():
            row, column = np.argwhere(~valid)[0]
            value = f"{array[row, column]:g} in row {row}, column {column}"
            raise ValueError(f"{caller}: numbers must be {requirement}; set {index} has {value}.")


def is_data_frame(sets: Any) -> bool:
    return hasattr(sets, "columns") and hasattr(sets, "shape") and hasattr(sets, "__getitem__")


def split_data_frame(
    frame: Any, set_column: str | None, *, caller: str
) -> tuple[list[Floats], list[str], NDArray[np.int64]]:
    """Return the sets of a long data frame in the order of their first rows, the feature names and each row's set."""
    columns = [str(name) for name in frame.columns]
    if set_column is None or set_column not in columns:
        problem = "set_column is None" if set_column is None else f"there is no column {set_column!r}"
        raise ValueError(
            f"{caller}: a data frame needs set_column, the name of the column that identifies the set of each row; "
            f"{problem}. "
            f"Its columns are {', '.join(columns)}."
        )
    names = [name for name in columns if name != set_column]
    keys = np.asarray(frame[set_column].to_numpy())
    if len(keys) == 0 or not names:
        raise ValueError(f"{caller}: the data frame has no {'rows' if names else 'columns of features'}.")
    values = np.empty((len(keys), len(names)))
    for index, name in enumerate(names):
        try:
            values[:, index] = np.asarray(frame[name].to_numpy(), dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError(
                f"{caller}: column {name!r} of the data frame is not numeric; drop it or encode it as numbers."
            ) from None
    positions = dict[Any, int]()
    owners = np.array([positions.setdefault(key, len(positions)) for key in keys.tolist()], dtype=np.int64)
    members = np.split(np.argsort(owners, kind="stable"), np.cumsum(np.bincount(owners))[:-1])
    return [values[rows] for rows in members], names, owners


def find_column(column: int | str, names: Sequence[str] | None, width: int, *, caller: str) -> int:
    """Return the index of a column given by index, or by name for a data frame."""
    if isinstance(column, str):
        if names is None or column not in names:
            where = "the sets have no column names" if names is None else f"the columns are {', '.join(names)}"
            raise ValueError(f"{caller}: there is no column {column!r} for the weights; {where}.")
        return list(names).index(column)
    if not -width <= column < width:
        raise ValueError(f"{caller}: weight_column must be between {-width} and {width - 1}; got {column}.")
    return column % width


def sample_elements(read: SetList, index: int, count: int, generator: np.random.Generator) -> Floats:
    """Draw at most ``count`` elements of a set in one pass, likelier if their weight is larger (Efraimidis 2006)."""
    values, keys = np.zeros((0, read.num_features)), np.zeros(0)
    for chunk, weights in read.chunks(index):
        if weights is not None:
            chunk, weights = chunk[weights > 0], weights[weights > 0]
        new_keys = np.log(generator.random(len(chunk))) / (1.0 if weights is None else weights)
        values, keys = np.concatenate([values, chunk]), np.concatenate([keys, new_keys])
        largest = np.argsort(-keys)[:count]
        values, keys = values[largest], keys[largest]
    return values
