"""One or several numbers for each set, with scikit-learn's face.

What the classifier and the regressor of sets share: a small network, its training, its memory on disk.

Which class a set belongs to, with scikit-learn's face.
"""

import os
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy, mse_loss

from picaset.checks import check_choice, check_positive
from picaset.estimators.saved import read_estimator, write_estimator
from picaset.estimators.set_training import Loss, Schedule, in_batches, kept_for_validation, outputs_of, train_network
from picaset.estimators.validation import (
    BaseEstimator,
    ClassifierMixin,
    RegressorMixin,
    check_classification_targets,
    check_is_fitted,
    check_random_state,
    compute_class_weight,
    read_sets,
)
from picaset.networks.set_networks import Encoder
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


class SetClassifier(ClassifierMixin, SetEstimator):
    """Classify sets of vectors of any sizes (multiple-instance learning: bags have labels, elements have none).

    A small network reads the elements, pools them and decides; the order of the elements does not matter. It is
    trained until it gets no better on some sets that are kept from it. Features are standardised by what the sets
    that it trains on have.

    Args:
        pool: How elements become one vector: ``"picaso"`` asks again and again, ``"attention"`` once, ``"gated"``
            weighs each element by itself (Ilse 2018), ``"mean"``, ``"sum"`` and ``"max"`` weigh nothing.
        encoder: ``"elementwise"`` reads every element by itself; ``"induced"`` and ``"self"`` let elements attend to
            each other first, which needs more sets to learn from.
        dim: Features inside the network.
        num_heads: Attention heads; divides ``dim``.
        num_steps: Steps of the cascade of ``"picaso"``.
        dropout: Share of features left out while training.
        max_iter: Epochs at most.
        early_stopping: Whether to keep some sets, to stop when the loss on them has not fallen for
            ``n_iter_no_change`` epochs, and to take the network that was best on them.
        validation_fraction: Share of the sets of each class that is kept.
        n_iter_no_change: Epochs to wait for something better.
        batch_size: Sets of a training step.
        learning_rate: Of AdamW.
        weight_decay: Of AdamW.
        class_weight: None, ``"balanced"``, or a weight for each class.
        random_state: Seed, generator or None, as everywhere in scikit-learn.

    Attributes:
        classes_: The labels, sorted.
        network_: The trained network.
        mean_, scale_: What features are standardised by.
        loss_curve_, validation_curve_: The loss of every epoch, on the sets trained on and on those kept.
        best_epoch_: The epoch whose network was taken.

    Example:
        >>> random = np.random.default_rng(0)
        >>> bags = [random.normal(size=(random.integers(3, 9), 2)) for _ in range(80)]
        >>> labels = ["some" if (bag[:, 0] > 1).any() else "none" for bag in bags]
        >>> classifier = SetClassifier(dim=16, max_iter=60, random_state=0).fit(bags, labels)
        >>> bag = [[-1.0, 0.3], [3.0, 0.1], [-0.5, -0.2]]
        >>> classifier.predict([bag]).tolist(), classifier.element_importance([bag])[0].shape
        (['some'], (3,))
    """

    classes_: NDArray[Any]

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
        class_weight: Literal["balanced"] | dict[Any, float] | None = None,
        random_state: Any = None,
    ) -> None:
        SetEstimator.__init__(
            self,
            pool,
            encoder=encoder,
            dim=dim,
            num_heads=num_heads,
            num_steps=num_steps,
            dropout=dropout,
            max_iter=max_iter,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            n_iter_no_change=n_iter_no_change,
            batch_size=batch_size,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            random_state=random_state,
        )
        self.class_weight = class_weight

    def fit(self, sets: Sequence[ArrayLike], y: ArrayLike) -> "SetClassifier":
        """Learn from sets, each (n, D) with an n of its own, and a label for each."""
        labels = np.asarray(y)
        if labels.ndim != 1:
            raise ValueError(f"SetClassifier.fit: expected one label for each set; got labels of shape {labels.shape}.")
        arrays = self._read(sets, labels)
        if labels.dtype.kind == "f" and not np.isfinite(labels).all():
            wrong = int(np.argmin(np.isfinite(labels)))
            raise ValueError(f"SetClassifier.fit: labels must be finite; that of set {wrong} is {labels[wrong]}.")
        check_classification_targets(labels)
        classes, codes = np.unique(labels, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(f"SetClassifier.fit: expected at least 2 classes; all sets are {classes.tolist()[0]!r}.")
        if self.class_weight is not None:
            weights = compute_class_weight(self.class_weight, classes=classes, y=labels)
            if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
                raise ValueError(
                    "SetClassifier.fit: class_weight must give finite numbers, none negative and one above 0; "
                    f"got {self.class_weight}."
                )

        def prepare(used: NDArray[np.int64]) -> tuple[Tensor, Loss]:
            weights = compute_class_weight(self.class_weight, classes=classes, y=labels[used])
            return torch.as_tensor(codes), weighted_loss(torch.as_tensor(weights).float())

        self._fit(arrays, codes.astype(np.int64), len(classes), prepare)
        self.classes_ = classes
        return self

    def predict_proba(self, sets: Sequence[ArrayLike]) -> Floats:
        """How likely each class is, for every set; columns are in the order of ``classes_``."""
        outputs = self._outputs(sets, method="predict_proba")
        likely = np.exp(outputs - outputs.max(axis=1, keepdims=True))
        return likely / likely.sum(axis=1, keepdims=True)

    def predict(self, sets: Sequence[ArrayLike]) -> NDArray[Any]:
        """The most likely class of every set."""
        likely = self.predict_proba(sets)
        return self.classes_[likely.argmax(axis=1)]

    def _learned(self) -> dict[str, Any]:
        return {"classes": self.classes_.tolist(), "dtype": self.classes_.dtype.str}

    def _learn(self, learned: dict[str, Any]) -> int:
        self.classes_ = np.array(learned["classes"], dtype=np.dtype(learned["dtype"]))
        return len(self.classes_)


def weighted_loss(weights: Tensor) -> Loss:
    """Cross-entropy, each set counting what its class weighs."""
    return lambda outputs, targets: cross_entropy(outputs, targets, weights)


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
