"""Detection of the elements that do not belong to their set, with the scikit-learn API."""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from picaset.checks import check_choice, check_positive
from picaset.estimators.base import SetNetworkEstimator, split_by_set
from picaset.estimators.set_training import optimizer_step
from picaset.estimators.synthetic_anomalies import MIN_SIZE, Examples, labelled_examples, swapped_examples
from picaset.estimators.validation import check_above_zero, draw_seed, read_sets, seeded_torch
from picaset.networks.element_scorer import ElementPool, ElementScorer
from picaset.sets import SetBatch
from picaset.terminal import say

Floats = NDArray[np.float64]
ANOMALY_RATE = 0.85
"""Share of the synthetic training sets with an anomaly; from the others the network learns that a set may have none."""
NUM_PROGRESS_LINES = 10
"""Approximate number of lines that a verbose fit prints."""


class SetAnomalyDetector(SetNetworkEstimator):
    """Find the elements that do not belong to their set, even if each is ordinary by itself.

    Without labels, training is self-supervised: an element of a set is replaced by an element of another set, and a
    network (SA + GPB of the paper's Table 4) learns to find it. A few elements of the training sets may be anomalous
    themselves. The network learns from the sets what belongs together, so it needs many; they may have any sizes, and
    sizes other than in training are possible in prediction.

    Args:
        pool: Pooling operator: ``"generalized"`` (GPB), ``"picaso"`` (PB) or ``"attention"`` (PMA).
        dim: Width of the network.
        num_heads: Number of attention heads; divides ``dim``.
        num_steps: Number of steps of the cascade.
        max_iter: Number of training steps.
        batch_size: Number of sets per training step.
        learning_rate: Peak learning rate of Adam.
        contamination: ``"auto"`` predicts an anomaly where its probability exceeds one half; a number between 0 and 1
            is the share of the elements in ``fit`` above the threshold.
        random_state: Seed, ``RandomState`` or None, as in scikit-learn.
        verbose: Whether ``fit`` prints its progress to standard error.

    Attributes:
        network_: The trained network.
        threshold_: Score above which an element is predicted to be an anomaly.
        loss_curve_: Loss of every training step.
        mean_: Mean of each feature in ``fit``.
        scale_: Standard deviation of each feature in ``fit``; 1 for constant features.
        n_features_in_: Number of features of an element.

    Example:
        >>> random = np.random.default_rng(0)
        >>> sets = [random.normal(size=(8, 1)) / 10 + centre for centre in random.normal(size=(50, 1))]
        >>> detector = SetAnomalyDetector(dim=16, max_iter=100, random_state=0).fit(sets)
        >>> detector.find_odd([[[0.1], [0.0], [2.0], [0.05], [-0.1]]])
        array([2])
    """

    _network_class = ElementScorer

    def __init__(
        self,
        *,
        pool: ElementPool = "generalized",
        dim: int = 64,
        num_heads: int = 4,
        num_steps: int = 3,
        max_iter: int = 1000,
        batch_size: int = 32,
        learning_rate: float = 1e-3,
        contamination: float | Literal["auto"] = "auto",
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.pool: ElementPool = pool
        self.dim = dim
        self.num_heads = num_heads
        self.num_steps = num_steps
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.contamination = contamination
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, sets: Sequence[ArrayLike], labels: Sequence[ArrayLike] | None = None) -> "SetAnomalyDetector":
        """Train on sets, arrays (n, D) of any sizes n; ``labels`` has n booleans for each set, True for anomalies."""
        self._check_parameters()
        arrays = read_sets(sets, caller="SetAnomalyDetector.fit")
        element_labels = None if labels is None else read_labels(labels, arrays)
        check_enough(arrays, required=1 if element_labels else 2)
        self._fit_standardization(np.concatenate(arrays))
        standardized = self._standardize(arrays)
        seed = draw_seed(self.random_state)
        generator = np.random.default_rng(seed)

        def draw_examples() -> Examples:
            if element_labels is not None:
                return labelled_examples(standardized, element_labels, self.batch_size, generator=generator)
            return swapped_examples(standardized, self.batch_size, anomaly_rate=ANOMALY_RATE, generator=generator)

        with seeded_torch(seed):
            self.network_ = ElementScorer(
                2 * self.n_features_in_,
                dim=self.dim,
                num_heads=self.num_heads,
                pool=self.pool,
                num_steps=self.num_steps,
                form="authors",
                norm=True,
            )
        self.loss_curve_ = self._train(draw_examples)
        self.threshold_ = 0.0
        if self.contamination != "auto":
            scores = np.concatenate(self.score_elements(arrays))
            self.threshold_ = float(np.quantile(scores, 1 - float(self.contamination)))
        return self

    def score_elements(self, sets: Sequence[ArrayLike]) -> list[Floats]:
        """Return for each set the log-odds that each of its elements is an anomaly."""
        standardized = self._read_standardized(sets, method="score_elements")
        batch = SetBatch.from_list([torch.as_tensor(network_inputs(elements)).float() for elements in standardized])
        with torch.no_grad():
            scores = self.network_(batch)
        return split_by_set(scores.double().numpy(), standardized)

    def predict(self, sets: Sequence[ArrayLike]) -> list[NDArray[np.bool_]]:
        """Return for each set a boolean per element, True for anomalies; a set may have none."""
        return [scores > self.threshold_ for scores in self.score_elements(sets)]

    def fit_predict(self, sets: Sequence[ArrayLike]) -> list[NDArray[np.bool_]]:
        """Train without labels, and return ``predict`` of the same sets."""
        return self.fit(sets).predict(sets)

    def find_odd(self, sets: Sequence[ArrayLike]) -> NDArray[np.int64]:
        """Return the index of the element with the highest score in each set, whether or not it is an anomaly."""
        return np.array([int(scores.argmax()) for scores in self.score_elements(sets)])

    def _fitted_state(self) -> dict[str, Any]:
        return {"threshold": self.threshold_, "loss_curve": self.loss_curve_}

    def _restore_state(self, learned: dict[str, Any]) -> dict[str, int]:
        self.threshold_, self.loss_curve_ = float(learned["threshold"]), list(learned["loss_curve"])
        return {"dim_in": 2 * self.n_features_in_}

    def _check_parameters(self) -> None:
        caller = type(self).__name__
        check_choice(self.pool, ("generalized", "picaso", "attention"), caller=caller, name="pool")
        check_positive(caller=caller, max_iter=self.max_iter, batch_size=self.batch_size)
        check_above_zero(caller=caller, learning_rate=self.learning_rate)
        if self.contamination != "auto" and not (
            isinstance(self.contamination, int | float) and 0 < self.contamination < 1
        ):
            raise ValueError(f"{caller}: contamination must be 'auto' or between 0 and 1; got {self.contamination!r}.")

    def _train(self, draw_examples: Callable[[], Examples]) -> list[float]:
        network, losses = self.network_.train(), list[float]()
        optimizer = torch.optim.Adam(network.parameters(), lr=self.learning_rate)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, self.learning_rate, total_steps=self.max_iter)
        print_every, start = math.ceil(self.max_iter / NUM_PROGRESS_LINES), time.monotonic()
        for step in range(1, self.max_iter + 1):
            losses.append(optimizer_step(network, optimizer, examples_loss(network, draw_examples())))
            schedule.step()
            if self.verbose and (step in (1, self.max_iter) or step % print_every == 0):
                seconds = (time.monotonic() - start) / step * (self.max_iter - step)
                remaining = f", about {seconds:.0f} s to go" if step > 1 else ""
                say(f"step {step} of {self.max_iter}, loss {losses[-1]:.3f}{remaining}", error=True)
        network.eval()
        return losses


def examples_loss(network: ElementScorer, examples: Examples) -> Tensor:
    """Return the binary cross-entropy of all elements plus the cross-entropy of the anomalies among their set."""
    mask, anomalous = torch.as_tensor(examples.mask), torch.as_tensor(examples.anomalous)
    inputs = [network_inputs(values[present]) for values, present in zip(examples.elements, examples.mask, strict=True)]
    elements = torch.zeros(*mask.shape, inputs[0].shape[1])
    elements[mask] = torch.as_tensor(np.concatenate(inputs)).float()
    scores = network(elements, mask)
    loss = binary_cross_entropy_with_logits(scores[mask], anomalous[mask].float())
    return loss - scores.log_softmax(dim=1)[anomalous].mean() if bool(anomalous.any()) else loss


def network_inputs(elements: Floats) -> Floats:
    """Concatenate the features of each element and their difference from the median of the set, (n, 2 D)."""
    return np.concatenate([elements, elements - np.median(elements, axis=0)], axis=1)


def read_labels(labels: Sequence[ArrayLike], arrays: Sequence[Floats]) -> list[NDArray[np.bool_]]:
    if len(labels) != len(arrays):
        raise ValueError(f"SetAnomalyDetector.fit: expected labels for {len(arrays)} sets; got {len(labels)}.")
    result = list[NDArray[np.bool_]]()
    for index, (values, array) in enumerate(zip(labels, arrays, strict=True)):
        label = np.asarray(values)
        if label.shape != (len(array),) or not np.isin(label, (0, 1)).all():
            raise ValueError(
                f"SetAnomalyDetector.fit: the labels of set {index} must be {len(array)} booleans, one for each "
                f"element; got {label.tolist()!r}."
            )
        result.append(label.astype(np.bool_))
    if not any(label.any() for label in result):
        raise ValueError("SetAnomalyDetector.fit: no element is labelled as an anomaly; fit without labels instead.")
    return result


def check_enough(arrays: Sequence[Floats], *, required: int) -> None:
    count = sum(len(array) >= MIN_SIZE for array in arrays)
    if count < required:
        raise ValueError(
            f"SetAnomalyDetector.fit: expected at least {required} sets of {MIN_SIZE} elements or more; got {count}."
        )
