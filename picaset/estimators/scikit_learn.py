"""What the estimators take from scikit-learn, which ships no types; without it, one line names the extra to install."""

from typing import Any

from picaset.extras import require


def from_scikit_learn(module: str, name: str) -> Any:
    return getattr(require(module, extra="estimators", purpose="an estimator"), name)


BaseEstimator: Any = from_scikit_learn("sklearn.base", "BaseEstimator")
DensityMixin: Any = from_scikit_learn("sklearn.base", "DensityMixin")
check_random_state: Any = from_scikit_learn("sklearn.utils", "check_random_state")
check_is_fitted: Any = from_scikit_learn("sklearn.utils.validation", "check_is_fitted")
validate_data: Any = from_scikit_learn("sklearn.utils.validation", "validate_data")
