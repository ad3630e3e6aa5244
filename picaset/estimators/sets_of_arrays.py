"""Sets as users have them: a list of arrays, each with as many rows as it likes."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray


def read_sets(sets: Sequence[ArrayLike], *, caller: str) -> list[NDArray[np.float64]]:
    """Each as (n, D) of finite double-precision numbers, with one D for all; names the set that does not fit."""
    if len(sets) == 0:
        raise ValueError(f"{caller}: expected at least one set; got none.")
    arrays = list[NDArray[np.float64]]()
    for index, one in enumerate(sets):
        try:
            array = np.asarray(one, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{caller}: set {index} is not an array of numbers: {error}.") from None
        if array.ndim != 2:
            raise ValueError(f"{caller}: set {index} must have shape (n, D); got {array.shape}.")
        if array.shape[1] != (arrays or [array])[0].shape[1]:
            raise ValueError(
                f"{caller}: all sets must have the same number of columns; set 0 has {arrays[0].shape[1]}, "
                f"set {index} has {array.shape[1]}."
            )
        if len(array) == 0:
            raise ValueError(f"{caller}: set {index} has no points.")
        if not np.isfinite(array).all():
            row, column = np.argwhere(~np.isfinite(array))[0]
            raise ValueError(
                f"{caller}: numbers must be finite; set {index} has {array[row, column]} in row {row}, column {column}."
            )
        arrays.append(array)
    return arrays
