"""Classification and regression of sets of vectors, with the scikit-learn API."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy, mse_loss

from picaset.checks import check_choice, check_positive
from picaset.estimators.base import SetNetworkEstimator, mean_and_scale, split_by_set
from picaset.estimators.set_training import (
    Loss,
    draw_validation_indices,
    inference_batches,
    predict_sets,
    train_network,
)
from picaset.estimators.validation import (
    ClassifierMixin,
    RegressorMixin,
    check_above_zero,
    check_classification_targets,
    compute_class_weight,
    draw_seed,
    read_sets,
    seeded_torch,
)
from picaset.networks.set_networks import Encoder
from picaset.networks.set_predictor import ENCODERS, POOLS, PredictorPool, SetPredictor

Floats = NDArray[np.float64]


class SupervisedSetEstimator(SetNetworkEstimator):
    """Base class of :class:`SetClassifier` and :class:`SetRegressor`, which define the targets and the loss."""

    _network_class = SetPredictor
    validation_curve_: list[float]
    best_epoch_: int

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
        """Return for each set the importance of each of its elements for the prediction; sums to one over a set.

        With ``pool="picaso"``, ``"attention"`` or ``"gated"``, importance is the attention weight at the last step,
        averaged over heads. With ``"mean"``, ``"sum"`` and ``"max"``, it is the normalized change of the network's
        output when the element is removed. With an encoder other than ``"elementwise"``, the pool reads encoded
        elements, which also contain information about the other elements of the set.
        """
        standardized = self._read_standardized(sets, method="element_importance")
        with torch.no_grad():
            weights = [self.network_.importance(batch) for batch in inference_batches(to_tensors(standardized))]
        return split_by_set(torch.cat(weights).double().numpy(), standardized)

    def _fitted_state(self) -> dict[str, Any]:
        return {
            "loss_curve": self.loss_curve_,
            "validation_curve": self.validation_curve_,
            "best_epoch": self.best_epoch_,
        }

    def _restore_state(self, learned: dict[str, Any]) -> dict[str, int]:
        self.loss_curve_ = [float(loss) for loss in learned["loss_curve"]]
        self.validation_curve_ = [float(loss) for loss in learned["validation_curve"]]
        self.best_epoch_ = int(learned["best_epoch"])
        return {"dim_in": self.n_features_in_}

    def _fit(
        self,
        arrays: list[Floats],
        groups: NDArray[np.int64],
        num_outputs: int,
        prepare_targets: Callable[[NDArray[np.int64]], tuple[Tensor, Loss]],
    ) -> None:
        """Train the network, with a validation split that is stratified by ``groups``.

        ``prepare_targets`` receives the indices of the training sets, and returns the targets of all sets and the loss.
        """
        seed = draw_seed(self.random_state)
        generator = np.random.default_rng(seed)
        validation_indices = np.array([], dtype=np.int64)
        if self.early_stopping:
            validation_indices = draw_validation_indices(groups, self.validation_fraction, generator=generator)
            if not len(validation_indices):
                raise ValueError(
                    f"{type(self).__name__}.fit: {len(arrays)} sets are too few to use {self.validation_fraction:.0%} "
                    "of them for early stopping; pass early_stopping=False, or a larger validation_fraction."
                )
        training_indices = np.setdiff1d(np.arange(len(arrays)), validation_indices)
        targets, loss_function = prepare_targets(training_indices)
        rows = np.concatenate([arrays[int(index)] for index in training_indices])
        self._fit_standardization(rows)
        with seeded_torch(seed):
            self.network_ = SetPredictor(
                self.n_features_in_,
                num_outputs,
                dim=self.dim,
                pool=self.pool,
                encoder=self.encoder,
                num_heads=self.num_heads,
                num_steps=self.num_steps,
                typical_size=len(rows) / len(training_indices),
                dropout=self.dropout,
            )
            self.loss_curve_, self.validation_curve_, self.best_epoch_ = train_network(
                self.network_,
                to_tensors(self._standardize(arrays)),
                targets,
                loss_function,
                validation_indices=validation_indices,
                max_epochs=self.max_iter,
                patience=self.n_iter_no_change,
                batch_size=self.batch_size,
                learning_rate=self.learning_rate,
                weight_decay=self.weight_decay,
                generator=generator,
            )

    def _outputs(self, sets: Sequence[ArrayLike], *, method: str) -> Floats:
        """Return the outputs of the network for every set, (B, O)."""
        standardized = to_tensors(self._read_standardized(sets, method=method))
        return predict_sets(self.network_, standardized).double().numpy()

    def _read_training_sets(self, sets: Sequence[ArrayLike], targets: NDArray[Any]) -> list[Floats]:
        """Validate the parameters, the sets and the number of targets."""
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
        check_above_zero(caller=caller, learning_rate=self.learning_rate)
        if not self.weight_decay >= 0:
            raise ValueError(f"{caller}: weight_decay must not be negative; got {self.weight_decay}.")
        if not 0 < self.validation_fraction < 1:
            raise ValueError(f"{caller}: validation_fraction must be between 0 and 1; got {self.validation_fraction}.")
        arrays = read_sets(sets, caller=f"{caller}.fit")
        if len(targets) != len(arrays):
            raise ValueError(f"{caller}.fit: expected a target for each of {len(arrays)} sets; got {len(targets)}.")
        return arrays


def to_tensors(arrays: Sequence[Floats]) -> list[Tensor]:
    return [torch.as_tensor(array).float() for array in arrays]


class SetClassifier(ClassifierMixin, SupervisedSetEstimator):
    """Classify sets of vectors (multiple-instance learning: bags have labels, elements have none).

    A small network encodes the elements, pools them to one vector and classifies it. Sets may have any sizes, and the
    order of the elements does not matter. Features are standardized by their mean and standard deviation in the sets
    used for training.

    Args:
        pool: Pooling operator: ``"picaso"`` (repeated attention), ``"attention"`` (attention with one learned query),
            ``"gated"`` (gated attention, Ilse 2018), ``"mean"``, ``"sum"`` or ``"max"``.
        encoder: ``"elementwise"`` encodes every element by itself; with ``"induced"`` and ``"self"`` elements attend to
            each other first, which needs more training sets.
        dim: Width of the network.
        num_heads: Number of attention heads; divides ``dim``.
        num_steps: Number of attention steps of ``"picaso"``.
        dropout: Dropout probability.
        max_iter: Maximum number of epochs.
        early_stopping: Whether to stop when the loss on a validation split has not improved for
            ``n_iter_no_change`` epochs, and to keep the weights with the lowest validation loss.
        validation_fraction: Share of the sets of each class in the validation split.
        n_iter_no_change: Number of epochs without improvement before training stops.
        batch_size: Number of sets per training step.
        learning_rate: Learning rate of AdamW.
        weight_decay: Weight decay of AdamW.
        class_weight: None, ``"balanced"``, or a dictionary with the weight of each class in the loss.
        random_state: Seed, ``RandomState`` or None, as in scikit-learn.

    Attributes:
        classes_: The class labels, sorted.
        network_: The trained network.
        mean_: Mean of each feature in the training sets.
        scale_: Standard deviation of each feature in the training sets; 1 for constant features.
        loss_curve_: Training loss of every epoch.
        validation_curve_: Validation loss of every epoch; empty without early stopping.
        best_epoch_: Epoch whose weights the network has.
        n_features_in_: Number of features of an element.

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
        SupervisedSetEstimator.__init__(
            self, pool, encoder=encoder, dim=dim, num_heads=num_heads, num_steps=num_steps, dropout=dropout,
            max_iter=max_iter, early_stopping=early_stopping, validation_fraction=validation_fraction,
            n_iter_no_change=n_iter_no_change, batch_size=batch_size, learning_rate=learning_rate,
            weight_decay=weight_decay, random_state=random_state,
        )  # fmt: skip
        self.class_weight = class_weight

    def fit(self, sets: Sequence[ArrayLike], y: ArrayLike) -> "SetClassifier":
        """Train on sets, arrays (n, D) of any sizes n, with a class label for each."""
        labels = np.asarray(y)
        if labels.ndim != 1:
            raise ValueError(f"SetClassifier.fit: expected one label for each set; got labels of shape {labels.shape}.")
        arrays = self._read_training_sets(sets, labels)
        if labels.dtype.kind == "f" and not np.isfinite(labels).all():
            index = int(np.argmin(np.isfinite(labels)))
            raise ValueError(f"SetClassifier.fit: labels must be finite; the label of set {index} is {labels[index]}.")
        check_classification_targets(labels)
        classes, codes = np.unique(labels, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(f"SetClassifier.fit: expected at least 2 classes; all sets are {classes.tolist()[0]!r}.")
        if self.class_weight is not None:
            weights = compute_class_weight(self.class_weight, classes=classes, y=labels)
            if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
                raise ValueError(
                    "SetClassifier.fit: class_weight must contain finite numbers, none negative and one above 0; "
                    f"got {self.class_weight}."
                )

        def prepare_targets(training_indices: NDArray[np.int64]) -> tuple[Tensor, Loss]:
            weights = compute_class_weight(self.class_weight, classes=classes, y=labels[training_indices])
            weight = torch.as_tensor(weights).float()
            return torch.as_tensor(codes), lambda outputs, targets: cross_entropy(outputs, targets, weight)

        self._fit(arrays, codes.astype(np.int64), len(classes), prepare_targets)
        self.classes_ = classes
        return self

    def predict_proba(self, sets: Sequence[ArrayLike]) -> Floats:
        """Return the probability of each class for every set; columns are in the order of ``classes_``."""
        logits = self._outputs(sets, method="predict_proba")
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        return powers / powers.sum(axis=1, keepdims=True)

    def predict(self, sets: Sequence[ArrayLike]) -> NDArray[Any]:
        """Return the most likely class of every set."""
        most_likely = self.predict_proba(sets).argmax(axis=1)
        return self.classes_[most_likely]

    def _fitted_state(self) -> dict[str, Any]:
        classes = {"classes": self.classes_.tolist(), "dtype": self.classes_.dtype.str}
        return SupervisedSetEstimator._fitted_state(self) | classes

    def _restore_state(self, learned: dict[str, Any]) -> dict[str, int]:
        self.classes_ = np.array(learned["classes"], dtype=np.dtype(learned["dtype"]))
        return SupervisedSetEstimator._restore_state(self, learned) | {"dim_out": len(self.classes_)}


class SetRegressor(RegressorMixin, SupervisedSetEstimator):
    """Predict one or several numbers for each set of vectors.

    Targets are standardized by their mean and standard deviation in the sets used for training; predictions are in the
    units of the targets. For quantities that add up over the elements use ``pool="sum"``: with the other pools, the
    prediction for a set does not change if all its elements are duplicated.

    Args:
        pool: Pooling operator: ``"picaso"`` (repeated attention), ``"attention"`` (attention with one learned query),
            ``"gated"`` (gated attention, Ilse 2018), ``"mean"``, ``"sum"`` or ``"max"``.
        encoder: ``"elementwise"`` encodes every element by itself; with ``"induced"`` and ``"self"`` elements attend to
            each other first, which needs more training sets.
        dim: Width of the network.
        num_heads: Number of attention heads; divides ``dim``.
        num_steps: Number of attention steps of ``"picaso"``.
        dropout: Dropout probability.
        max_iter: Maximum number of epochs.
        early_stopping: Whether to stop when the loss on a validation split has not improved for
            ``n_iter_no_change`` epochs, and to keep the weights with the lowest validation loss.
        validation_fraction: Share of the sets in the validation split.
        n_iter_no_change: Number of epochs without improvement before training stops.
        batch_size: Number of sets per training step.
        learning_rate: Learning rate of AdamW.
        weight_decay: Weight decay of AdamW.
        random_state: Seed, ``RandomState`` or None, as in scikit-learn.

    Attributes:
        network_: The trained network.
        mean_: Mean of each feature in the training sets.
        scale_: Standard deviation of each feature in the training sets; 1 for constant features.
        target_mean_: Mean of each target in the training sets.
        target_scale_: Standard deviation of each target in the training sets; 1 for constant targets.
        one_number_: Whether the targets were one-dimensional, as the predictions then are.
        loss_curve_: Training loss of every epoch.
        validation_curve_: Validation loss of every epoch; empty without early stopping.
        best_epoch_: Epoch whose weights the network has.
        n_features_in_: Number of features of an element.

    Example:
        >>> random = np.random.default_rng(0)
        >>> bags = [random.normal(size=(random.integers(3, 9), 2)) for _ in range(80)]
        >>> largest = [bag[:, 0].max() for bag in bags]
        >>> regressor = SetRegressor("max", dim=16, max_iter=60, random_state=0).fit(bags, largest)
        >>> regressor.score(bags, largest) > 0.8
        True
    """

    def fit(self, sets: Sequence[ArrayLike], y: ArrayLike) -> "SetRegressor":
        """Train on sets, arrays (n, D) of any sizes n, with targets of shape (sets,) or (sets, outputs)."""
        try:
            values = np.asarray(y, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"SetRegressor.fit: targets must be numbers: {error}.") from None
        if values.ndim not in (1, 2) or values.shape[1:] == (0,):
            raise ValueError(
                f"SetRegressor.fit: expected targets of shape (sets,) or (sets, outputs); got {values.shape}."
            )
        arrays = self._read_training_sets(sets, values)
        if not np.isfinite(values).all():
            index = int(np.argwhere(~np.isfinite(values))[0][0])
            raise ValueError(f"SetRegressor.fit: targets must be finite; the target of set {index} is {values[index]}.")
        columns = values[:, None] if values.ndim == 1 else values

        def prepare_targets(training_indices: NDArray[np.int64]) -> tuple[Tensor, Loss]:
            self.target_mean_, self.target_scale_ = mean_and_scale(columns[training_indices])
            return torch.as_tensor((columns - self.target_mean_) / self.target_scale_).float(), mse_loss

        self._fit(arrays, np.zeros(len(arrays), dtype=np.int64), columns.shape[1], prepare_targets)
        self.one_number_ = values.ndim == 1
        return self

    def predict(self, sets: Sequence[ArrayLike]) -> Floats:
        """Return the prediction for every set, (sets,) or (sets, outputs) as the targets of ``fit``."""
        outputs = self._outputs(sets, method="predict")
        predicted = outputs * self.target_scale_ + self.target_mean_
        return predicted[:, 0] if self.one_number_ else predicted

    def _fitted_state(self) -> dict[str, Any]:
        targets = {
            "target_mean": self.target_mean_.tolist(),
            "target_scale": self.target_scale_.tolist(),
            "one_number": self.one_number_,
        }
        return SupervisedSetEstimator._fitted_state(self) | targets

    def _restore_state(self, learned: dict[str, Any]) -> dict[str, int]:
        self.target_mean_ = np.array(learned["target_mean"], dtype=float)
        self.target_scale_ = np.array(learned["target_scale"], dtype=float)
        self.one_number_ = bool(learned["one_number"])
        return SupervisedSetEstimator._restore_state(self, learned) | {"dim_out": len(self.target_mean_)}
