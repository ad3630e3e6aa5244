"""What the classifier and the regressor of sets share: a small network, its training, its memory on disk."""

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from picaset.checks import check_choice, check_positive
from picaset.estimators.saved import read_estimator, write_estimator
from picaset.estimators.scikit_learn import BaseEstimator, check_is_fitted, check_random_state
from picaset.estimators.set_training import Loss, Schedule, in_batches, kept_for_validation, outputs_of, train_network
from picaset.estimators.sets_of_arrays import read_sets
from picaset.networks.pooled import Encoder
from picaset.networks.set_predictor import ENCODERS, POOLS, PredictorPool, SetPredictor

Floats = NDArray[np.float64]


class SetEstimator(BaseEstimator):
    """A network on sets of vectors of any sizes, fitted until it gets no better on sets that were kept from it.

    Subclasses say what the network predicts and what is lost by a wrong prediction.
    """

    network_: SetPredictor
    n_features_in_: int

    def __init__(
        self,
        pool: PredictorPool = "picaso",
        *,
        encoder: Encoder = "elementwise",
        dim: int = 64,
        num_heads: int = 4,
        num_steps: int = 3,
        dropout: float = 0.1,
        max_iter: int = 300,
        early_stopping: bool = True,
        validation_fraction: float = 0.2,
        n_iter_no_change: int = 40,
        batch_size: int = 16,
        learning_rate: float = 3e-3,
        weight_decay: float = 0.01,
        random_state: Any = None,
    ) -> None:
        self.pool: PredictorPool = pool
        self.encoder: Encoder = encoder
        self.dim = dim
        self.num_heads = num_heads
        self.num_steps = num_steps
        self.dropout = dropout
        self.max_iter = max_iter
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.random_state = random_state

    def element_importance(self, sets: Sequence[ArrayLike]) -> list[Floats]:
        """For each set, the share that each of its elements has in the prediction; the shares of a set sum to one.

        With ``pool="picaso"``, ``"attention"`` or ``"gated"`` these are the weights of attention (of the last step,
        averaged over heads): where the network looks. With ``"mean"``, ``"sum"`` and ``"max"``, which look everywhere,
        they are how much the network's output changes when the element is left out. With an encoder other than
        ``"elementwise"`` an element also stands for what it learned of the others.
        """
        shown = self._shown(sets, method="element_importance")
        with torch.no_grad():
            shares = torch.cat([self.network_.importance(batch) for batch in in_batches(shown)])
        return np.split(shares.double().numpy(), np.cumsum([len(one) for one in shown])[:-1])

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to a directory, as JSON and safetensors."""
        check_is_fitted(self)
        learned = dict(
            mean=self.mean_.tolist(),
            scale=self.scale_.tolist(),
            loss_curve=self.loss_curve_,
            validation_curve=self.validation_curve_,
            best_epoch=self.best_epoch_,
            **self._learned(),
        )
        write_estimator(directory, self, self.network_, learned)

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> Any:
        """An estimator as it was saved; runs nothing of a stranger's."""
        parameters, learned, path = read_estimator(directory, name=cls.__name__)
        try:
            estimator = cls(**parameters)
            estimator.mean_, estimator.scale_ = (np.array(learned[name], dtype=float) for name in ("mean", "scale"))
            estimator.loss_curve_ = [float(loss) for loss in learned["loss_curve"]]
            estimator.validation_curve_ = [float(loss) for loss in learned["validation_curve"]]
            estimator.best_epoch_ = int(learned["best_epoch"])
            num_outputs = estimator._learn(learned)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} does not fit a {cls.__name__}: {error}.") from None
        estimator.n_features_in_ = len(estimator.mean_)
        estimator.network_ = SetPredictor.from_pretrained(directory)
        config = estimator.network_.config
        if (config["dim_in"], config["dim_out"]) != (estimator.n_features_in_, num_outputs):
            raise ValueError(f"{directory} holds the network of another estimator than {path.name} describes.")
        return estimator

    def _learned(self) -> dict[str, Any]:
        """What ``fit`` found beyond the network, as JSON values."""
        raise NotImplementedError

    def _learn(self, learned: dict[str, Any]) -> int:
        """Take that from where it was saved; returns how many numbers the network has to predict."""
        raise NotImplementedError

    def _fit(
        self,
        arrays: list[Floats],
        groups: NDArray[np.int64],
        num_outputs: int,
        prepare: Callable[[NDArray[np.int64]], tuple[Tensor, Loss]],
    ) -> None:
        """Train on sets; ``prepare`` gives targets and loss, knowing which sets are trained on."""
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        generator = np.random.default_rng(seed)
        kept = np.array([], dtype=np.int64)
        if self.early_stopping:
            kept = kept_for_validation(groups, self.validation_fraction, generator=generator)
            if not len(kept):
                raise ValueError(
                    f"{type(self).__name__}.fit: {len(arrays)} sets are too few to keep {self.validation_fraction:.0%} "
                    "of them for early stopping; pass early_stopping=False, or a larger validation_fraction."
                )
        used = np.setdiff1d(np.arange(len(arrays)), kept)
        targets, loss_of = prepare(used)
        rows = np.concatenate([arrays[int(index)] for index in used])
        self.n_features_in_ = int(rows.shape[1])
        self.mean_, self.scale_ = standard(rows)
        with torch.random.fork_rng(devices=[]):  # pyright: ignore[reportUnknownMemberType]
            torch.manual_seed(seed)  # pyright: ignore[reportUnknownMemberType]
            self.network_ = SetPredictor(
                self.n_features_in_,
                num_outputs,
                dim=self.dim,
                pool=self.pool,
                encoder=self.encoder,
                num_heads=self.num_heads,
                num_steps=self.num_steps,
                typical_size=len(rows) / len(used),
                dropout=self.dropout,
            )
            curves = train_network(
                self.network_,
                self._standardised(arrays),
                targets,
                loss_of,
                Schedule(
                    max_iter=self.max_iter,
                    patience=self.n_iter_no_change,
                    batch_size=self.batch_size,
                    learning_rate=self.learning_rate,
                    weight_decay=self.weight_decay,
                ),
                kept=kept,
                generator=generator,
            )
        self.loss_curve_, self.validation_curve_, self.best_epoch_ = curves.training, curves.validation, curves.best

    def _outputs(self, sets: Sequence[ArrayLike], *, method: str) -> Floats:
        """What the network says of every set, (B, O)."""
        shown = self._shown(sets, method=method)
        return outputs_of(self.network_, shown).double().numpy()

    def _shown(self, sets: Sequence[ArrayLike], *, method: str) -> list[Tensor]:
        """Sets as the network was trained to see them."""
        check_is_fitted(self)
        caller = type(self).__name__
        arrays = read_sets(sets, caller=f"{caller}.{method}")
        if arrays[0].shape[1] != self.n_features_in_:
            raise ValueError(
                f"{caller}: sets must have {self.n_features_in_} columns, as in fit; got {arrays[0].shape[1]}."
            )
        return self._standardised(arrays)

    def _standardised(self, arrays: Sequence[Floats]) -> list[Tensor]:
        found = [torch.as_tensor((one - self.mean_) / self.scale_).float() for one in arrays]
        for index, one in enumerate(found):
            wrong = (~one.isfinite()).nonzero()
            if len(wrong):
                row, column = map(int, wrong[0])
                raise ValueError(
                    f"{type(self).__name__}: numbers must be like those of fit, whose column {column} has mean "
                    f"{self.mean_[column]:.4g} and deviation {self.scale_[column]:.4g}; set {index} has "
                    f"{arrays[index][row, column]:.4g} in row {row}. Is it in other units?"
                )
        return found

    def _read(self, sets: Sequence[ArrayLike], y: Any) -> list[Floats]:
        """The sets to be fitted; refuses parameters that make no sense, and targets that are not theirs."""
        caller = type(self).__name__
        check_choice(self.pool, POOLS, caller=caller, name="pool")
        check_choice(self.encoder, ENCODERS, caller=caller, name="encoder")
        check_positive(
            caller=caller,
            max_iter=self.max_iter,
            n_iter_no_change=self.n_iter_no_change,
            batch_size=self.batch_size,
            num_steps=self.num_steps,
        )
        if not self.learning_rate > 0:
            raise ValueError(f"{caller}: learning_rate must be above 0; got {self.learning_rate}.")
        if not self.weight_decay >= 0:
            raise ValueError(f"{caller}: weight_decay must not be negative; got {self.weight_decay}.")
        if not 0 < self.validation_fraction < 1:
            raise ValueError(f"{caller}: validation_fraction must be between 0 and 1; got {self.validation_fraction}.")
        arrays = read_sets(sets, caller=f"{caller}.fit")
        if len(y) != len(arrays):
            raise ValueError(f"{caller}.fit: expected a target for each of {len(arrays)} sets; got {len(y)}.")
        return arrays


def standard(rows: Floats) -> tuple[Floats, Floats]:
    """The mean and the deviation of each column; one where it does not vary."""
    deviation = rows.std(axis=0)
    return rows.mean(axis=0), np.where(deviation > 0, deviation, 1.0)
