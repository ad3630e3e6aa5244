"""Input validation of the estimators, and the parts of scikit-learn that they use.

scikit-learn ships no types, so its names are imported as ``Any``. Without it, importing an estimator raises an error
that names the extra to install.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from picaset.checks import has_device
from picaset.estimators.set_inputs import read_set_list
from picaset.extras import require
from picaset.files import describe_value


def from_scikit_learn(module: str, name: str) -> Any:
    """Import a name of scikit-learn, or raise an error that names the extra to install."""
    return getattr(require(module, extra="estimators", purpose="an estimator"), name)


ExtraTreesClassifier: Any = from_scikit_learn("sklearn.ensemble", "ExtraTreesClassifier")
ExtraTreesRegressor: Any = from_scikit_learn("sklearn.ensemble", "ExtraTreesRegressor")
GroupKFold: Any = from_scikit_learn("sklearn.model_selection", "GroupKFold")
KFold: Any = from_scikit_learn("sklearn.model_selection", "KFold")
MultiOutputRegressor: Any = from_scikit_learn("sklearn.multioutput", "MultiOutputRegressor")
RandomForestClassifier: Any = from_scikit_learn("sklearn.ensemble", "RandomForestClassifier")
RandomForestRegressor: Any = from_scikit_learn("sklearn.ensemble", "RandomForestRegressor")
RidgeCV: Any = from_scikit_learn("sklearn.linear_model", "RidgeCV")
StandardScaler: Any = from_scikit_learn("sklearn.preprocessing", "StandardScaler")
StratifiedGroupKFold: Any = from_scikit_learn("sklearn.model_selection", "StratifiedGroupKFold")
StratifiedKFold: Any = from_scikit_learn("sklearn.model_selection", "StratifiedKFold")
SVC: Any = from_scikit_learn("sklearn.svm", "SVC")
SVR: Any = from_scikit_learn("sklearn.svm", "SVR")
clone: Any = from_scikit_learn("sklearn.base", "clone")
ledoit_wolf_shrinkage: Any = from_scikit_learn("sklearn.covariance", "ledoit_wolf_shrinkage")
minimize: Any = from_scikit_learn("scipy.optimize", "minimize")
make_pipeline: Any = from_scikit_learn("sklearn.pipeline", "make_pipeline")
BaseEstimator: Any = from_scikit_learn("sklearn.base", "BaseEstimator")
ClassifierMixin: Any = from_scikit_learn("sklearn.base", "ClassifierMixin")
DensityMixin: Any = from_scikit_learn("sklearn.base", "DensityMixin")
KMeans: Any = from_scikit_learn("sklearn.cluster", "KMeans")
RegressorMixin: Any = from_scikit_learn("sklearn.base", "RegressorMixin")
TransformerMixin: Any = from_scikit_learn("sklearn.base", "TransformerMixin")
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


def available_device(device: Any) -> Any:
    """Return the device of a saved estimator, or the CPU if this machine does not have it."""
    try:
        torch.device(device)
    except (RuntimeError, TypeError):
        raise ValueError(f"device must be one of PyTorch, such as 'cpu'; got {describe_value(device)}") from None
    return device if has_device(device) else "cpu"


@contextmanager
def seeded_torch(seed: int) -> Generator[None]:
    """Seed PyTorch's global generator, and restore its state at the end."""
    with torch.random.fork_rng(devices=[]):  # pyright: ignore[reportUnknownMemberType]
        torch.manual_seed(seed)  # pyright: ignore[reportUnknownMemberType]
        yield


def read_sets(sets: Any, *, caller: str, allow_nan: bool = False) -> list[NDArray[np.float64]]:
    """Convert sets to arrays (n, D) of float64 with the same D, or name the set that is invalid."""
    read = read_set_list(sets, caller=caller, allow_missing=allow_nan)
    return [read.array(index)[0] for index in range(len(read))]
