"""Detection of the elements that do not belong to their set, with the scikit-learn API."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from picaset.checks import check_choice, check_device, check_positive
from picaset.estimators.base import SetNetworkEstimator, check_finite, split_by_set
from picaset.estimators.detector_selection import (
    ScoreFunction,
    Weight,
    choose_threshold,
    combine_detectors,
    try_detector,
)
from picaset.estimators.element_detectors import StatisticalDetectors
from picaset.estimators.set_training import inference_batches, optimizer_step
from picaset.estimators.synthetic_anomalies import (
    MIN_SIZE,
    Examples,
    labelled_examples,
    swapped_examples,
    without_suspicious,
)
from picaset.estimators.validation import available_device, check_above_zero, draw_seed, read_sets, seeded_torch
from picaset.networks.element_scorer import ElementPool, ElementScorer
from picaset.pretrained import PretrainedNetwork
from picaset.terminal import say
from picaset.threads import few_threads

Floats = NDArray[np.float64]
Method = Literal["auto", "network", "mahalanobis", "density", "lof", "forest"]
ANOMALY_RATE = 0.85
"""Share of the synthetic training sets with an anomaly; from the others the network learns that a set may have none."""
NUM_PROGRESS_LINES = 10
"""Approximate number of lines that a verbose fit prints."""
SUFFICIENT = 0.9
"""Average precision for planted anomalies above which ``method="auto"`` skips slower detectors."""
MIN_SETS_NETWORK = 40
"""Number of sets from which ``method="auto"`` may train the network."""
MAX_SETS_FOREST = 200
"""Number of sets up to which ``method="auto"`` tries isolation forests, which take a tenth of a second for each set."""
VALIDATION_FRACTION = 0.25
"""Share of the sets with which ``method="auto"`` compares the network; it does not train on them."""
MAX_TRIAL_SETS, MAX_TRIAL_ELEMENTS, MAX_TRIAL_SIZE = 300, 50_000, 2000
"""Maximum number of sets, of elements in all sets, and of elements in one, with which detectors are compared."""


@dataclass(kw_only=True, eq=False, repr=False)
class SetAnomalyDetector(SetNetworkEstimator):
    """Find the elements that do not belong to their set, even if each is ordinary by itself.

    No labels are needed. ``method="auto"`` plants elements of other sets in every set and chooses the detector that
    finds them best: statistics of the set (seconds at most), or, where these find too few and there are many sets, a
    network (SA + GPB of the paper's Table 4) that learns from the sets what belongs together. *Anomalous* therefore
    means *as if from another set*. A few elements of the training sets may be anomalous themselves. Sets may have any
    sizes, and new sets are scored without training.

    ``decision_scores_``, ``labels_``, ``threshold_`` and ``decision_function`` are those of PyOD, one array per set.

    Args:
        method: ``"auto"``; or one of the statistics ``"mahalanobis"`` (robust distance, with what sets have in common),
            ``"density"`` (kernel density within the set), ``"lof"`` (local outlier factor) and ``"forest"`` (isolation
            forest); or ``"network"``, trained to find elements of other sets.
        pool: Pooling operator of the network: ``"generalized"`` (GPB), ``"picaso"`` (PB) or ``"attention"`` (PMA).
        dim: Width of the network.
        num_heads: Number of attention heads; divides ``dim``.
        num_steps: Number of steps of the cascade.
        max_iter: Number of training steps of the network.
        batch_size: Number of sets per training step.
        learning_rate: Peak learning rate of Adam.
        contamination: ``"auto"`` estimates the share of anomalies, and the threshold, from the scores of planted
            anomalies; a number between 0 and 1 is the share of the elements in ``fit`` above the threshold. With
            ``method="network"`` and ``"auto"``, an element is an anomaly if its probability exceeds one half.
        device: Device of the network, such as ``"cuda"``; the statistics are computed on the CPU.
        random_state: Seed, ``RandomState`` or None, as in scikit-learn.
        verbose: Whether ``fit`` prints its progress to standard error.

    Attributes:
        members_: Name and weight of each detector in use.
        report_: Average precision with which each detector tried found planted anomalies.
        decision_scores_: Score of each element in ``fit``, one array for each set.
        labels_: 1 for the anomalies in ``fit``, 0 for the other elements, one array for each set.
        threshold_: Score above which an element is predicted to be an anomaly; 0 with ``contamination="auto"``.
        network_: The trained network, or None.
        loss_curve_: Loss of every training step of the network.
        mean_: Mean of each feature in ``fit``.
        scale_: Standard deviation of each feature in ``fit``; 1 for constant features.
        n_features_in_: Number of features of an element.
        feature_names_in_: Names of the features, if fitted to a table by ``picaset odd``.

    Example:
        >>> random = np.random.default_rng(0)
        >>> sets = [random.normal(size=(8, 1)) / 10 + centre for centre in random.normal(size=(50, 1))]
        >>> detector = SetAnomalyDetector(random_state=0).fit(sets)
        >>> detector.predict([[[0.1], [0.0], [2.0], [0.05], [-0.1]]])
        [array([False, False,  True, False, False])]
    """

    _network_class: ClassVar[type[PretrainedNetwork]] = ElementScorer
    network_: ElementScorer | None = field(init=False)

    method: Method = "auto"
    pool: ElementPool = "generalized"
    dim: int = 64
    num_heads: int = 4
    num_steps: int = 3
    max_iter: int = 1000
    batch_size: int = 32
    learning_rate: float = 1e-3
    contamination: float | Literal["auto"] = "auto"
    device: str = "cpu"
    random_state: Any = None
    verbose: bool = False

    def fit(self, sets: Sequence[ArrayLike], labels: Sequence[ArrayLike] | None = None) -> "SetAnomalyDetector":
        """Fit to sets, arrays (n, D) of any sizes n.

        ``labels`` has n booleans for each set, True for anomalies; the network is trained with them.
        """
        self._check_parameters()
        arrays = read_sets(sets, caller="SetAnomalyDetector.fit")
        element_labels = None if labels is None else self._read_labels(labels, arrays)
        check_enough(arrays, required=1 if element_labels else 2)
        self._fit_standardization(np.concatenate(arrays))
        standardized, seed = self._standardize(arrays), draw_seed(self.random_state)
        self._statistics, self.network_ = None, None
        self._weights, self._offset = dict[str, Weight](), 0.0
        self.report_, self.loss_curve_ = dict[str, float](), list[float]()
        with few_threads(self.batch_size * self.dim * self.dim):
            if element_labels is not None or self.method == "network":
                self._train_network(standardized, element_labels, seed=seed)
            else:
                self._fit_unlabelled(standardized, seed=seed)
            self.decision_scores_ = self._score(standardized)
        self.threshold_ = 0.0
        if self.contamination != "auto":
            self.threshold_ = float(np.quantile(np.concatenate(self.decision_scores_), 1 - float(self.contamination)))
        self.labels_ = [(scores > self.threshold_).astype(np.int64) for scores in self.decision_scores_]
        return self

    @property
    def members_(self) -> dict[str, float]:
        """Weight of each detector in use, by its name."""
        return {name: member.weight for name, member in self._weights.items()} or {"network": 1.0}

    def score_elements(self, sets: Sequence[ArrayLike]) -> list[Floats]:
        """Return for each set the score of each of its elements; higher means more anomalous.

        With ``method="network"``, the scores are log-odds.
        """
        standardized = self._read_standardized(sets, method="score_elements")
        with few_threads(sum(elements.size for elements in standardized)):
            scores = self._score(standardized)
        check_finite(np.concatenate(scores), caller="SetAnomalyDetector.score_elements")
        return scores

    def decision_function(self, sets: Sequence[ArrayLike]) -> list[Floats]:
        """Return ``score_elements``, under the name that PyOD uses."""
        return self.score_elements(sets)

    def predict(self, sets: Sequence[ArrayLike]) -> list[NDArray[np.bool_]]:
        """Return for each set a boolean per element, True for anomalies; a set may have none."""
        return [scores > self.threshold_ for scores in self.score_elements(sets)]

    def fit_predict(self, sets: Sequence[ArrayLike], labels: None = None) -> list[NDArray[np.bool_]]:
        """Fit without labels, and return the anomalies of the same sets."""
        return [values > 0 for values in self.fit(sets, labels).labels_]

    def find_odd(self, sets: Sequence[ArrayLike]) -> NDArray[np.int64]:
        """Return the index of the element with the highest score in each set, whether or not it is an anomaly."""
        return np.array([int(scores.argmax()) for scores in self.score_elements(sets)])

    @classmethod
    def _upgrade(cls, parameters: dict[str, Any]) -> dict[str, Any]:
        # Version 0.1 had only the network, and no parameter of this name.
        return {"method": "network"} | parameters

    def _save_networks(self, directory: Path) -> None:
        if self.network_ is not None:
            super()._save_networks(directory)

    def _load_networks(self, directory: Path, learned: dict[str, Any], sizes: dict[str, int]) -> None:
        if not self._weights or "network" in self._weights:
            super()._load_networks(directory, learned, sizes)

    def _fitted_state(self) -> dict[str, Any]:
        statistics = None if self._statistics is None else self._statistics.to_json()
        weights = {name: astuple(weight) for name, weight in self._weights.items()}
        return dict(
            threshold=self.threshold_, loss_curve=self.loss_curve_, report=self.report_, statistics=statistics,
            weights=weights, offset=self._offset,
        )  # fmt: skip

    def _restore_state(self, learned: dict[str, Any]) -> dict[str, int]:
        self.threshold_, self.loss_curve_ = float(learned["threshold"]), list(learned["loss_curve"])
        self.report_, self._offset = dict(learned.get("report", {})), float(learned.get("offset", 0))
        self._weights = {name: Weight(*values) for name, values in learned.get("weights", {}).items()}
        statistics = learned.get("statistics")
        self._statistics = None if statistics is None else StatisticalDetectors.from_json(statistics)
        self.network_, self.device = None, available_device(self.device)
        return {"dim_in": 2 * self.n_features_in_}

    def _predict_trial(self, elements: Floats) -> Any:
        return self._score([elements])[0]

    def _check_parameters(self) -> None:
        caller = type(self).__name__
        check_choice(self.method, get_args(Method), caller=caller, name="method")
        check_choice(self.pool, ("generalized", "picaso", "attention"), caller=caller, name="pool")
        check_positive(caller=caller, max_iter=self.max_iter, batch_size=self.batch_size)
        check_above_zero(caller=caller, learning_rate=self.learning_rate)
        if self.contamination != "auto" and not (
            isinstance(self.contamination, int | float) and 0 < self.contamination < 1  # pyright: ignore[reportUnnecessaryIsInstance]
        ):
            raise ValueError(f"{caller}: contamination must be 'auto' or between 0 and 1; got {self.contamination!r}.")
        check_device(self.device, caller=caller)

    def _read_labels(self, labels: Sequence[ArrayLike], arrays: Sequence[Floats]) -> list[NDArray[np.bool_]]:
        if self.method not in ("auto", "network"):
            raise ValueError(
                f"SetAnomalyDetector.fit: method {self.method!r} does not learn from labels; use 'auto' or 'network'."
            )
        return read_labels(labels, arrays)

    def _print(self, line: str) -> None:
        if self.verbose:
            say(line, error=True)

    def _score(self, standardized: Sequence[Floats]) -> list[Floats]:
        if not self._weights:
            return self._score_by("network", standardized)
        total = np.full(sum(map(len, standardized)), -self._offset)
        for name, weight in self._weights.items():
            total += weight.apply(np.concatenate(self._score_by(name, standardized)))
        return split_by_set(total, standardized)

    def _score_by(self, name: str, standardized: Sequence[Floats]) -> list[Floats]:
        """Return the scores of one detector."""
        if name != "network":
            assert self._statistics is not None
            return self._statistics.score(name, standardized)  # pyright: ignore[reportArgumentType]
        assert self.network_ is not None
        network = self.network_
        inputs = [torch.as_tensor(network_inputs(elements)).float().to(self.device) for elements in standardized]
        with torch.no_grad():
            scores = torch.cat([network(batch) for batch in inference_batches(inputs)])
        return split_by_set(scores.double().cpu().numpy(), standardized)

    def _fit_unlabelled(self, standardized: Sequence[Floats], *, seed: int) -> None:
        """Choose detectors by how well they find synthetic anomalies, and the threshold by the scores of these."""
        self._statistics = StatisticalDetectors.fit(standardized, seed=seed)
        examples = trial_sets(standardized, generator=np.random.default_rng(seed))
        names = ["mahalanobis", "density", "lof"] if self.method == "auto" else [self.method]
        self._choose(names, examples, seed=seed)
        slower = ["forest"] if len(standardized) <= MAX_SETS_FOREST else []
        if self.method == "auto" and max(self.report_.values()) < SUFFICIENT:
            # The network learns from some of the sets, and all detectors are compared with the others.
            order = np.random.default_rng(seed).permutation(len(standardized))
            num_validation = math.ceil(VALIDATION_FRACTION * len(standardized))
            if len(standardized) < MIN_SETS_NETWORK:
                num_validation = len(standardized)
            else:
                # Or it would learn by heart that the anomalies of these sets are normal.
                typical = without_suspicious(standardized, self._score(standardized))
                self._train_network([typical[int(index)] for index in order[num_validation:]], None, seed=seed)
                slower.append("network")
            validation = [standardized[int(index)] for index in order[:num_validation]]
            validation = trial_sets(validation, generator=np.random.default_rng(seed))
            self._choose([*names, *slower], validation, seed=seed)
        if "network" not in self._weights:
            self.network_ = None
        self._offset = choose_threshold(self._score, examples, seed=seed)
        self._print(f"chosen: {', '.join(self.members_)}")

    def _choose(self, names: Sequence[str], sets: Sequence[Floats], *, seed: int) -> None:
        """Choose the best of some detectors, or a combination of them."""
        detectors: dict[str, ScoreFunction] = {name: partial(self._score_by, name) for name in names}
        trials = {name: try_detector(score, sets, seed=seed) for name, score in detectors.items()}
        self.report_ = {name: trial.average_precision for name, trial in trials.items()}
        best = max(trials, key=lambda name: self.report_[name])
        if self.report_[best] >= SUFFICIENT:
            trials = {best: trials[best]}
        self._weights, precision = combine_detectors(detectors, trials)
        if len(self._weights) > 1:
            self.report_[" + ".join(self._weights)] = precision
        for name, value in self.report_.items():
            self._print(f"{name}: average precision {value:.3f} for planted anomalies")

    def _train_network(
        self, standardized: Sequence[Floats], labels: Sequence[NDArray[np.bool_]] | None, *, seed: int
    ) -> None:
        generator = np.random.default_rng(seed)

        def draw_examples() -> Examples:
            if labels is not None:
                return labelled_examples(standardized, labels, self.batch_size, generator=generator)
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
            ).to(self.device)
        self.loss_curve_ = self._train(self.network_, draw_examples)

    def _train(self, network: ElementScorer, draw_examples: Callable[[], Examples]) -> list[float]:
        losses = list[float]()
        network.train()
        optimizer = torch.optim.Adam(network.parameters(), lr=self.learning_rate)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, self.learning_rate, total_steps=self.max_iter)
        print_every, start = math.ceil(self.max_iter / NUM_PROGRESS_LINES), time.monotonic()
        for step in range(1, self.max_iter + 1):
            loss = examples_loss(network, draw_examples(), device=self.device)
            losses.append(optimizer_step(network, optimizer, loss))
            schedule.step()
            if step in (1, self.max_iter) or step % print_every == 0:
                seconds = (time.monotonic() - start) / step * (self.max_iter - step)
                remaining = f", about {seconds:.0f} s to go" if step > 1 else ""
                self._print(f"step {step} of {self.max_iter}, loss {losses[-1]:.3f}{remaining}")
        network.eval()
        return losses


def trial_sets(sets: Sequence[Floats], *, generator: np.random.Generator) -> list[Floats]:
    """Draw sets with which detectors are compared."""
    examples, total = list[Floats](), 0
    for index in generator.permutation(len(sets))[:MAX_TRIAL_SETS]:
        elements = sets[int(index)]
        examples.append(elements[np.sort(generator.permutation(len(elements))[:MAX_TRIAL_SIZE])])
        total += len(examples[-1])
        if total >= MAX_TRIAL_ELEMENTS and len(examples) > 1:
            break
    return examples


def examples_loss(network: ElementScorer, examples: Examples, *, device: str) -> Tensor:
    """Return the binary cross-entropy of all elements plus the cross-entropy of the anomalies among their set."""
    mask, anomalous = (torch.as_tensor(values, device=device) for values in (examples.mask, examples.anomalous))
    inputs = [network_inputs(values[present]) for values, present in zip(examples.elements, examples.mask, strict=True)]
    elements = torch.zeros(*mask.shape, inputs[0].shape[1], device=device)
    elements[mask] = torch.as_tensor(np.concatenate(inputs)).float().to(device)
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
