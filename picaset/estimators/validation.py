"""Input validation of the estimators, and the parts of scikit-learn that they use.

scikit-learn ships no types, so its names are imported as ``Any``. Without it, importing an estimator raises an error
that names the extra to install.
"""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from picaset.extras import require

MAX_MAGNITUDE = 1e100
"""Largest absolute value of a feature; squares of smaller values and their sums stay finite."""


def from_scikit_learn(module: str, name: str) -> Any:
    """Import a name of scikit-learn, or raise an error that names the extra to install."""
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


def check_above_zero(*, caller: str, **values: float) -> None:
    for name, value in values.items():
        if not value > 0:
            raise ValueError(f"{caller}: {name} must be above 0; got {value}.")


def draw_seed(random_state: Any) -> int:
    """Draw the seed of a fit from a ``random_state``: an int, a ``RandomState`` or None."""
    return int(check_random_state(random_state).randint(2**31 - 1))


@contextmanager
def seeded_torch(seed: int) -> Generator[None]:
    """Seed PyTorch's global generator, and restore its state at the end."""
    with torch.random.fork_rng(devices=[]):  # pyright: ignore[reportUnknownMemberType]
        torch.manual_seed(seed)  # pyright: ignore[reportUnknownMemberType]
        yield


def read_sets(sets: Sequence[ArrayLike], *, caller: str, allow_nan: bool = False) -> list[NDArray[np.float64]]:
    """Convert a list of sets to arrays (n, D) of float64 with the same D, or name the set that is invalid."""
    if isinstance(sets, Mapping | str) or not hasattr(sets, "__len__") or getattr(sets, "ndim", 1) == 0:
        raise ValueError(f"{caller}: expected a list of arrays, one for each set; got a {type(sets).__name__}.")
    if len(sets) == 0:
        raise ValueError(f"{caller}: expected at least one set; got none.")
    arrays = list[NDArray[np.float64]]()
    for index, values in enumerate(sets):
        try:
            if np.iscomplexobj(values):
                raise TypeError("its numbers are complex")
            array = np.asarray(values, dtype=np.float64)
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
        for requirement, invalid in (
            ("finite", np.isinf(array) if allow_nan else ~np.isfinite(array)),
            (f"between -{MAX_MAGNITUDE:g} and {MAX_MAGNITUDE:g}", np.abs(array) > MAX_MAGNITUDE),
        ):
            if invalid.any():
                row, column = np.argwhere(invalid)[0]
                value = f"{array[row, column]:g} in row {row}, column {column}"
                raise ValueError(f"{caller}: numbers must be {requirement}; set {index} has {value}.")
        arrays.append(array)
    return arrays
