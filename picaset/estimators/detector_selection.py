"""Choice among detectors of anomalous elements, and the threshold of the chosen one, without labels.

Elements of other sets are planted in every set. The detector that finds them best is chosen. Its scores give the
threshold: the scores of the planted elements are those of anomalies, the scores of the original sets are a mixture of
scores of anomalies and of normal elements.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from picaset.estimators.synthetic_anomalies import plant_anomalies
from picaset.estimators.validation import from_scikit_learn

Floats = NDArray[np.float64]
ScoreFunction = Callable[[Sequence[Floats]], list[Floats]]
MAX_SHARE = 0.25
"""Maximum share of anomalies that is assumed; with more, normal elements cannot be identified."""
MIN_PLANTED = 100
"""Minimum number of planted anomalies from which a threshold is chosen; few sets are used several times."""
MIN_SLOPE = 0.2
"""Detectors of a smaller weight, relative to the largest of a combination, are left out."""

average_precision_score: Any = from_scikit_learn("sklearn.metrics", "average_precision_score")
LogisticRegression: Any = from_scikit_learn("sklearn.linear_model", "LogisticRegression")
GroupKFold: Any = from_scikit_learn("sklearn.model_selection", "GroupKFold")
cross_val_predict: Any = from_scikit_learn("sklearn.model_selection", "cross_val_predict")


@dataclass(frozen=True)
class Trial:
    """Scores of a detector for the original sets and for sets with planted anomalies."""

    scores: Floats
    """Scores of all elements of the original sets."""
    planted: list[Floats]
    """The sets with planted anomalies."""
    labels: NDArray[np.bool_]
    """Whether each element of these is planted."""
    planted_scores: Floats

    @property
    def average_precision(self) -> float:
        return float(average_precision_score(self.labels, self.planted_scores))


def try_detector(score: ScoreFunction, sets: Sequence[Floats], *, seed: int) -> Trial:
    scores = score(sets)
    planted, labels = plant_anomalies(sets, scores, generator=np.random.default_rng(seed))
    return Trial(np.concatenate(scores), planted, np.concatenate(labels), np.concatenate(score(planted)))


@dataclass(frozen=True)
class Weight:
    """Transformation of the scores of a detector in a combination: standardized, compressed, and weighted."""

    location: float
    scale: float
    weight: float = 1.0

    @classmethod
    def of(cls, scores: Floats) -> "Weight":
        """Return the median and the interquartile range of scores, as location and scale."""
        low, median, high = (float(value) for value in np.quantile(scores, (0.25, 0.5, 0.75)))
        return cls(median, high - low or 1.0)

    def apply(self, scores: Floats) -> Floats:
        return self.weight * np.arcsinh((scores - self.location) / self.scale)


def combine_detectors(
    detectors: Mapping[str, ScoreFunction], trials: Mapping[str, Trial]
) -> tuple[dict[str, Weight], float]:
    """Return a weighted sum of detectors, and its average precision; the best of them where others add nothing.

    The best of several estimates is too high, so the sum is preferred unless it is worse by a standard error.
    """
    precisions = {name: trial.average_precision for name, trial in trials.items()}
    best = max(precisions, key=lambda name: precisions[name])
    names, standard = list(trials), {name: Weight.of(trial.scores) for name, trial in trials.items()}
    trial, single = trials[best], ({best: standard[best]}, precisions[best])
    sizes = [len(elements) for elements in trial.planted]
    if len(names) == 1 or len(sizes) < 6:
        return single
    columns = {
        name: standard[name].apply(
            trial.planted_scores if name == best else np.concatenate(detectors[name](trial.planted))
        )
        for name in names
    }
    groups = np.repeat(np.arange(len(sizes)), sizes)
    while len(names) > 1:
        features = np.stack([columns[name] for name in names], axis=1)
        slopes = LogisticRegression().fit(features, trial.labels).coef_[0]
        if (slopes > MIN_SLOPE * slopes.max()).all():
            scores = cross_val_predict(
                LogisticRegression(),
                features,
                trial.labels,
                groups=groups,
                cv=GroupKFold(3),
                method="decision_function",
            )
            precision = float(average_precision_score(trial.labels, scores))
            standard_error = np.sqrt(precisions[best] * (1 - precisions[best]) / trial.labels.sum())
            if precision < precisions[best] - standard_error:
                return single
            weights = {
                name: Weight(standard[name].location, standard[name].scale, float(slope))
                for name, slope in zip(names, slopes, strict=True)
            }
            return weights, precision
        names.pop(int(slopes.argmin()))
    return single


def choose_threshold(score: ScoreFunction, sets: Sequence[Floats], *, seed: int) -> float:
    """Return the threshold of a detector for sets, from the scores that anomalies planted at random places have."""
    generator = np.random.default_rng(seed)
    planted, labels = list[Floats](), list[NDArray[np.bool_]]()
    while sum(int(label.sum()) for label in labels) < MIN_PLANTED:
        positions = [generator.random(len(elements)) for elements in sets]
        for total, part in zip((planted, labels), plant_anomalies(sets, positions, generator=generator), strict=True):
            total.extend(part)  # pyright: ignore[reportArgumentType]
    anomalous = np.concatenate(score(planted))[np.concatenate(labels)]
    return best_threshold(np.concatenate(score(sets)), anomalous)


def best_threshold(scores: Floats, anomalous_scores: Floats) -> float:
    """Return the threshold with the best expected F1 score, or one above all scores if too much would be wrong.

    The share of anomalies is the largest that the scores allow: of a share p, at least p times the fraction of
    ``anomalous_scores`` above a value lie above this value, for every value. Elements
    are not called anomalies where the expected precision is below one half, or if they score below all
    ``anomalous_scores``.
    """
    ordered, anomalous_scores = np.sort(scores)[::-1], np.sort(anomalous_scores)
    counts, num_planted = np.arange(1, len(ordered) + 1), len(anomalous_scores)
    thresholds = (ordered + np.append(ordered[1:], ordered[-1])) / 2
    recall = 1 - np.searchsorted(anomalous_scores, thresholds) / num_planted
    # Both counts are random: one standard deviation more of the one, and less of the other.
    upper = (counts + np.sqrt(counts) + 1) / len(ordered)
    lower = np.maximum(recall - np.sqrt(recall * (1 - recall) / num_planted) - 1 / num_planted, 0)
    share = min(MAX_SHARE, float(np.min(upper / np.maximum(lower, 1e-9))))
    precision = share * lower * len(ordered) / counts
    true_positives = np.minimum(share * recall, upper)
    f1 = np.where(precision >= 0.5, 2 * true_positives / (share + counts / len(ordered)), 0.0)
    if f1.max() == 0:
        return float(np.nextafter(ordered[0], np.inf))
    return float(max(thresholds[f1.argmax()], np.nextafter(anomalous_scores[0], -np.inf)))
