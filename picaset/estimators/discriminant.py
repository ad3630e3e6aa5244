"""Linear discriminant analysis with a shrunk covariance and weights of the rows, which scikit-learn's does not take."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from picaset.estimators.validation import BaseEstimator, ClassifierMixin, ledoit_wolf_shrinkage

Floats = NDArray[np.float64]


class ShrunkDiscriminant(ClassifierMixin, BaseEstimator):
    """Linear discriminant analysis (Fisher 1936) with the covariance within classes shrunk by Ledoit and Wolf (2004).

    The covariance is shrunk towards a multiple of the identity, so that it is invertible for any number of rows. The
    scores of the classes are their log-probabilities under Gaussians, up to a constant for each row.
    """

    classes_: NDArray[Any]
    coef_: Floats
    intercept_: Floats

    def fit(self, matrix: Floats, targets: NDArray[Any], sample_weight: Floats | None = None) -> "ShrunkDiscriminant":
        weights = np.ones(len(matrix)) if sample_weight is None else sample_weight
        present = weights > 0
        rows, weights = matrix[present], weights[present]
        self.classes_, classes = np.unique(targets[present], return_inverse=True)
        shares = np.eye(len(self.classes_))[classes] * weights[:, None]
        totals = shares.sum(axis=0)
        means = shares.T @ rows / totals[:, None]
        deviations = rows - means[classes]
        covariance = (deviations.T * weights) @ deviations / weights.sum()
        shrinkage = float(ledoit_wolf_shrinkage(deviations, assume_centered=True))
        variance = float(np.trace(covariance)) / len(covariance)
        covariance = (1 - shrinkage) * covariance + shrinkage * variance * np.eye(len(covariance))
        self.coef_ = np.asarray(np.linalg.lstsq(covariance, means.T, rcond=None)[0], dtype=np.float64).T
        self.intercept_ = np.log(totals / weights.sum()) - (self.coef_ * means).sum(axis=1) / 2
        return self

    def decision_function(self, matrix: Floats) -> Floats:
        """Return the score of every class, (B, C)."""
        return matrix @ self.coef_.T + self.intercept_

    def predict(self, matrix: Floats) -> NDArray[Any]:
        return self.classes_[self.decision_function(matrix).argmax(axis=1)]
