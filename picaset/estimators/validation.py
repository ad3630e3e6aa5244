"""Sets as users have them: a list of arrays, each with as many rows as it likes.

What the estimators take from scikit-learn, which ships no types; without it, one line names the extra to install.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from picaset.extras import require


def from_scikit_learn(module: str, name: str) -> Any:
    return getattr(require(module, extra="estimators", purpose="an estimator"), name)


BaseEstimator: Any = from_scikit_learn("sklearn.base", "BaseEstimator")
ClassifierMixin: Any = from_scikit_learn("sklearn.base", "ClassifierMixin")
DensityMixin: Any = from_scikit_learn("sklearn.base", "DensityMixin")
RegressorMixin: Any = from_scikit_learn("sklearn.base", "RegressorMixin")
check_random_state: Any = from_scikit_learn("sklearn.utils", "check_random_state")
compute_class_weight: Any = from_scikit_learn("sklearn.utils.class_weight", "compute_class_weight")
check_classification_targets: Any = from_scikit_learn("sklearn.utils.multiclass", "check_classification_targets")
check_is_fitted: Any = from_scikit_learn("sklearn.utils.validation", "check_is_fitted")
validate_data: Any = from_scikit_learn("sklearn.utils.validation", "validate_data")


LARGEST = 1e100
"""Below it, squares and their sums stay finite."""


def read_sets(sets: Sequence[ArrayLike], *, caller: str) -> list[NDArray[np.float64]]:
    """Each as (n, D) of finite double-precision numbers, with one D for all; names the set that does not fit."""
    if isinstance(sets, Mapping | str) or not hasattr(sets, "__len__") or getattr(sets, "ndim", 1) == 0:
        raise ValueError(f"{caller}: expected a list of arrays, one for each set; got a {type(sets).__name__}.")
    if len(sets) == 0:
        raise ValueError(f"{caller}: expected at least one set; got none.")
    arrays = list[NDArray[np.float64]]()
    for index, one in enumerate(sets):
        try:
            if np.iscomplexobj(one):
                raise TypeError("its numbers are complex")
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
        if array.size == 0:
            raise ValueError(f"{caller}: set {index} has no {'columns' if len(array) else 'points'}.")
        for problem, wrong in (
            ("finite", ~np.isfinite(array)),
            (f"between -{LARGEST:g} and {LARGEST:g}", np.abs(array) > LARGEST),
        ):
            if wrong.any():
                row, column = np.argwhere(wrong)[0]
                found = f"{array[row, column]:g} in row {row}, column {column}"
                raise ValueError(f"{caller}: numbers must be {problem}; set {index} has {found}.")
        arrays.append(array)
    return arrays
