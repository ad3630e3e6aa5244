"""Which elements do not belong to their set, with scikit-learn's face."""

import math
import os
import sys
import time
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from picaset.checks import check_choice, check_positive
from picaset.estimators.saved import read_estimator, write_estimator
from picaset.estimators.synthetic_anomalies import SMALLEST, Examples, labelled, made_odd
from picaset.estimators.validation import BaseEstimator, check_is_fitted, check_random_state, read_sets
from picaset.networks.element_scorer import ElementPool, ElementScorer
from picaset.sets import SetBatch

Floats = NDArray[np.float64]
SHARE_ODD = 0.85
"""Of the training sets that are made, those with an odd element: the network also has to know when there is none."""

TOLD = 10
"""About how often a verbose fit tells how far it is, beside the first step."""


class SetAnomalyDetector(BaseEstimator):
    """Find the elements that do not belong to their set, though each may be ordinary by itself.

    Without labels it learns by making odd sets: an element of a set is swapped for one of another set, and a network
    (SA + GPB of the paper's Table 4) learns to find it. A few elements of the given sets may be odd themselves. It
    needs many sets, since what belongs together is learned from them; their sizes do not matter, neither in training
    nor later.

    Args:
        pool: ``"generalized"`` (GPB), ``"picaso"`` (PB) or ``"attention"`` (PMA).
        dim: Features inside the network.
        num_heads: Attention heads; divides ``dim``.
        num_steps: Steps of the cascade.
        max_iter: Training steps.
        batch_size: Sets of a step.
        learning_rate: Of Adam, at its highest.
        contamination: ``"auto"`` calls an element odd if it is more likely so than not; a number calls this share of
            the elements seen in ``fit`` odd.
        random_state: Seed, generator or None, as everywhere in scikit-learn.
        verbose: Tell on the error stream how far ``fit`` is.

    Attributes:
        network_: The trained network.
        threshold_: Elements with a higher score are called odd.
        loss_curve_: The loss at each training step.

    Example:
        >>> random = np.random.default_rng(0)
        >>> sets = [random.normal(size=(8, 1)) / 10 + centre for centre in random.normal(size=(50, 1))]
        >>> detector = SetAnomalyDetector(dim=16, max_iter=100, random_state=0).fit(sets)
        >>> detector.find_odd([[[0.1], [0.0], [2.0], [0.05], [-0.1]]])
        array([2])
    """

    n_features_in_: int

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
        """Learn from sets, each (n, D) with an n of its own.

        ``labels``, if there are any, are for each set a row of truth values, True for an element that is odd.
        """
        self._check_parameters()
        arrays = read_sets(sets, caller="SetAnomalyDetector.fit")
        marks = None if labels is None else read_labels(labels, arrays)
        check_enough(arrays, needed=1 if marks else 2)
        rows = np.concatenate(arrays)
        self.n_features_in_ = int(rows.shape[1])
        self.mean_: Floats = rows.mean(axis=0)
        deviation = rows.std(axis=0)
        self.scale_: Floats = np.where(deviation > 0, deviation, 1.0)
        shown = [(one - self.mean_) / self.scale_ for one in arrays]
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        generator = np.random.default_rng(seed)

        def examples() -> Examples:
            if marks is not None:
                return labelled(shown, marks, self.batch_size, generator=generator)
            return made_odd(shown, self.batch_size, share_odd=SHARE_ODD, generator=generator)

        with torch.random.fork_rng(devices=[]):  # pyright: ignore[reportUnknownMemberType]
            torch.manual_seed(seed)  # pyright: ignore[reportUnknownMemberType]
            self.network_ = ElementScorer(
                2 * self.n_features_in_,
                dim=self.dim,
                num_heads=self.num_heads,
                pool=self.pool,
                num_steps=self.num_steps,
                form="authors",
                norm=True,
            )
        self.loss_curve_ = self._train(examples)
        self.threshold_ = 0.0
        if self.contamination != "auto":
            scores = np.concatenate(self.score_elements(arrays))
            self.threshold_ = float(np.quantile(scores, 1 - float(self.contamination)))
        return self

    def score_elements(self, sets: Sequence[ArrayLike]) -> list[Floats]:
        """For each set, the logarithm of the odds that each of its elements does not belong to it."""
        check_is_fitted(self)
        arrays = read_sets(sets, caller="SetAnomalyDetector.score_elements")
        if arrays[0].shape[1] != self.n_features_in_:
            raise ValueError(
                f"SetAnomalyDetector: sets must have {self.n_features_in_} columns, as in fit; "
                f"got {arrays[0].shape[1]}."
            )
        shown = [beside_their_middle((one - self.mean_) / self.scale_) for one in arrays]
        with torch.no_grad():
            scores = self.network_(SetBatch.from_list([torch.as_tensor(one).float() for one in shown]))
        return np.split(scores.double().numpy(), np.cumsum([len(one) for one in arrays])[:-1])

    def predict(self, sets: Sequence[ArrayLike]) -> list[NDArray[np.bool_]]:
        """For each set, which of its elements are odd; there may be none."""
        return [scores > self.threshold_ for scores in self.score_elements(sets)]

    def fit_predict(self, sets: Sequence[ArrayLike]) -> list[NDArray[np.bool_]]:
        """Learn from sets, and say which of their own elements are odd."""
        return self.fit(sets).predict(sets)

    def find_odd(self, sets: Sequence[ArrayLike]) -> NDArray[np.int64]:
        """The most suspicious element of each set, odd or not."""
        return np.array([int(scores.argmax()) for scores in self.score_elements(sets)])

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Write the detector to a directory, as JSON and safetensors."""
        check_is_fitted(self)
        learned = {
            "mean": self.mean_.tolist(),
            "scale": self.scale_.tolist(),
            "threshold": self.threshold_,
            "loss_curve": self.loss_curve_,
        }
        write_estimator(directory, self, self.network_, learned)

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> "SetAnomalyDetector":
        """A detector as it was saved; runs nothing of a stranger's."""
        parameters, learned, path = read_estimator(directory, name=cls.__name__)
        try:
            detector = cls(**parameters)
            detector.mean_, detector.scale_ = (np.array(learned[name], dtype=float) for name in ("mean", "scale"))
            detector.threshold_, detector.loss_curve_ = float(learned["threshold"]), list(learned["loss_curve"])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} does not fit a detector: {error}.") from None
        detector.n_features_in_ = len(detector.mean_)
        detector.network_ = ElementScorer.from_pretrained(directory)
        if detector.network_.dim_in != 2 * detector.n_features_in_:
            raise ValueError(f"{directory} holds the network of another detector than its {path.name} describes.")
        return detector

    def _check_parameters(self) -> None:
        caller = type(self).__name__
        check_choice(self.pool, ("generalized", "picaso", "attention"), caller=caller, name="pool")
        check_positive(caller=caller, max_iter=self.max_iter, batch_size=self.batch_size)
        if not self.learning_rate > 0:
            raise ValueError(f"{caller}: learning_rate must be above 0; got {self.learning_rate}.")
        if self.contamination != "auto" and not (
            isinstance(self.contamination, int | float) and 0 < self.contamination < 1
        ):
            raise ValueError(f"{caller}: contamination must be 'auto' or between 0 and 1; got {self.contamination!r}.")

    def _train(self, examples: Any) -> list[float]:
        network, losses = self.network_.train(), list[float]()
        optimizer = torch.optim.Adam(network.parameters(), lr=self.learning_rate)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, self.learning_rate, total_steps=self.max_iter)
        told, began = math.ceil(self.max_iter / TOLD), time.monotonic()
        for step in range(1, self.max_iter + 1):
            loss = loss_of(network, examples())
            optimizer.zero_grad()
            loss.backward()  # pyright: ignore[reportUnknownMemberType]
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()  # pyright: ignore[reportUnknownMemberType]
            schedule.step()
            losses.append(float(loss.detach()))
            if self.verbose and (step in (1, self.max_iter) or step % told == 0):
                seconds = time.monotonic() - began
                left = f", about {seconds / step * (self.max_iter - step):.0f} s to go" if step > 1 else ""
                print(f"step {step} of {self.max_iter}, loss {losses[-1]:.3f}{left}", file=sys.stderr, flush=True)
        network.eval()
        return losses


def loss_of(network: ElementScorer, examples: Examples) -> Tensor:
    """Of every element by itself, and where a set has odd ones, of these among the others."""
    mask, odd = torch.as_tensor(examples.mask), torch.as_tensor(examples.odd)
    sets = [beside_their_middle(one[here]) for one, here in zip(examples.elements, examples.mask, strict=True)]
    elements = torch.zeros(*mask.shape, sets[0].shape[1])
    elements[mask] = torch.as_tensor(np.concatenate(sets)).float()
    scores = network(elements, mask)
    loss = binary_cross_entropy_with_logits(scores[mask], odd[mask].float())
    if not bool(odd.any()):
        return loss
    return loss - scores.log_softmax(dim=1)[odd].mean()


def beside_their_middle(elements: Floats) -> Floats:
    """The elements, and how far each is from the median of its set: (n, 2 D)."""
    return np.concatenate([elements, elements - np.median(elements, axis=0)], axis=1)


def read_labels(labels: Sequence[ArrayLike], arrays: Sequence[Floats]) -> list[NDArray[np.bool_]]:
    if len(labels) != len(arrays):
        raise ValueError(f"SetAnomalyDetector.fit: expected labels for {len(arrays)} sets; got {len(labels)}.")
    marks = list[NDArray[np.bool_]]()
    for index, (one, array) in enumerate(zip(labels, arrays, strict=True)):
        mark = np.asarray(one)
        if mark.shape != (len(array),) or not np.isin(mark, (0, 1)).all():
            raise ValueError(
                f"SetAnomalyDetector.fit: the labels of set {index} must be {len(array)} truth values, one for each "
                f"element; got {mark.tolist()!r}."
            )
        marks.append(mark.astype(np.bool_))
    if not any(mark.any() for mark in marks):
        raise ValueError("SetAnomalyDetector.fit: no element is labelled as odd; fit without labels instead.")
    return marks


def check_enough(arrays: Sequence[Floats], *, needed: int) -> None:
    large = sum(len(one) >= SMALLEST for one in arrays)
    if large < needed or len(arrays) < needed:
        raise ValueError(
            f"SetAnomalyDetector.fit: expected at least {needed} sets of {SMALLEST} elements or more; got {large}."
        )
