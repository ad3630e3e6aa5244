"""One or several numbers for each set, with scikit-learn's face."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn.functional import mse_loss

from picaset.estimators.scikit_learn import RegressorMixin
from picaset.estimators.set_estimator import Floats, SetEstimator, standard
from picaset.estimators.set_training import Loss


class SetRegressor(RegressorMixin, SetEstimator):
    """Predict numbers from sets of vectors of any sizes; see :class:`SetClassifier` for the parameters.

    Targets are standardised by what the sets that it trains on have, and predictions are given back in the units of
    the targets: one number for each set, or several if it was fitted to several. ``pool="sum"`` is for what adds up
    over the elements; all others answer alike for a set and for the same set twice.

    Attributes:
        network_: The trained network.
        mean_, scale_: What features are standardised by; ``target_mean_`` and ``target_scale_`` are those of targets.
        loss_curve_, validation_curve_: The loss of every epoch, on the sets trained on and on those kept.
        best_epoch_: The epoch whose network was taken.

    Example:
        >>> random = np.random.default_rng(0)
        >>> bags = [random.normal(size=(random.integers(3, 9), 2)) for _ in range(80)]
        >>> largest = [bag[:, 0].max() for bag in bags]
        >>> regressor = SetRegressor("max", dim=16, max_iter=60, random_state=0).fit(bags, largest)
        >>> regressor.score(bags, largest) > 0.8
        True
    """

    def fit(self, sets: Sequence[ArrayLike], y: ArrayLike) -> "SetRegressor":
        """Learn from sets, each (n, D) with an n of its own, and a number, or a row of numbers, for each."""
        try:
            values = np.asarray(y, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"SetRegressor.fit: targets must be numbers: {error}.") from None
        if values.ndim not in (1, 2) or values.shape[1:] == (0,):
            raise ValueError(
                f"SetRegressor.fit: expected targets of shape (sets,) or (sets, outputs); got {values.shape}."
            )
        arrays = self._read(sets, values)
        if not np.isfinite(values).all():
            wrong = int(np.argwhere(~np.isfinite(values))[0][0])
            raise ValueError(f"SetRegressor.fit: targets must be finite; that of set {wrong} is not.")
        columns = values[:, None] if values.ndim == 1 else values

        def prepare(used: NDArray[np.int64]) -> tuple[Tensor, Loss]:
            self.target_mean_, self.target_scale_ = standard(columns[used])
            return torch.as_tensor((columns - self.target_mean_) / self.target_scale_).float(), mse_loss

        self._fit(arrays, np.zeros(len(arrays), dtype=np.int64), columns.shape[1], prepare)
        self.one_number_ = values.ndim == 1
        return self

    def predict(self, sets: Sequence[ArrayLike]) -> Floats:
        """The number of every set, (sets,); or (sets, outputs) if fitted to several."""
        outputs = self._outputs(sets, method="predict")
        predicted = outputs * self.target_scale_ + self.target_mean_
        return predicted[:, 0] if self.one_number_ else predicted

    def _learned(self) -> dict[str, Any]:
        return {
            "target_mean": self.target_mean_.tolist(),
            "target_scale": self.target_scale_.tolist(),
            "one_number": self.one_number_,
        }

    def _learn(self, learned: dict[str, Any]) -> int:
        self.target_mean_, self.target_scale_ = (
            np.array(learned[name], dtype=float) for name in ("target_mean", "target_scale")
        )
        self.one_number_ = bool(learned["one_number"])
        return len(self.target_mean_)
