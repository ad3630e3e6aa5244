"""What the estimators take from scikit-learn, which ships no types; without it, one line names the extra to install."""

from typing import Any

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
