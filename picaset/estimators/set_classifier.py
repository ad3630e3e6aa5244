"""Which class a set belongs to, with scikit-learn's face."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from picaset.estimators.scikit_learn import ClassifierMixin, check_classification_targets, compute_class_weight
from picaset.estimators.set_estimator import Floats, SetEstimator
from picaset.estimators.set_training import Loss
from picaset.networks.pooled import Encoder
from picaset.networks.set_predictor import PredictorPool


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
