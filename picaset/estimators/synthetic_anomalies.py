"""Sets with known anomalous elements, which are elements of other sets: to train on, and to compare detectors.

Dimensions:  B sets   N elements (padded)   D features
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import NDArray

MAX_SIZE = 64
"""Maximum number of elements of an example; larger sets are subsampled."""
MIN_SIZE = 3
"""Minimum number of elements of a set in which an anomaly can be recognized."""
PLANTED_SHARE = 0.05
"""Share of the elements of a set that are replaced to compare detectors; at least one."""


class Examples(NamedTuple):
    """A padded batch of sets, with the presence and the label of each element."""

    elements: Float[np.ndarray, "B N D"]
    mask: Bool[np.ndarray, "B N"]
    anomalous: Bool[np.ndarray, "B N"]


def swapped_examples(
    sets: Sequence[NDArray[np.float64]], num_sets: int, *, anomaly_rate: float, generator: np.random.Generator
) -> Examples:
    """Draw subsets of sets; in a share ``anomaly_rate`` of them, replace elements by elements of another set.

    One element is replaced, or one to a tenth of the elements in larger sets.
    """
    max_size = draw_max_size(sets, generator)
    indices = generator.integers(len(sets), size=num_sets)
    others = (indices + generator.integers(1, len(sets), size=num_sets)) % len(sets)  # never the set itself
    subsets, labels = list[NDArray[np.float64]](), list[NDArray[np.bool_]]()
    for index, other in zip(map(int, indices), map(int, others), strict=True):
        subset = sets[index][draw_rows(len(sets[index]), max_size, generator)].copy()
        anomalous = np.zeros(len(subset), dtype=np.bool_)
        if len(subset) >= MIN_SIZE and generator.random() < anomaly_rate:
            positions = generator.permutation(len(subset))[: 1 + generator.integers(max(1, len(subset) // 10))]
            subset[positions] = sets[other][generator.integers(len(sets[other]), size=len(positions))]
            anomalous[positions] = True
        subsets.append(subset)
        labels.append(anomalous)
    return pad_examples(subsets, labels)


def plant_anomalies(
    sets: Sequence[NDArray[np.float64]], scores: Sequence[NDArray[np.float64]], *, generator: np.random.Generator
) -> tuple[list[NDArray[np.float64]], list[NDArray[np.bool_]]]:
    """Replace the elements with the highest scores of each set by elements of other sets; also return their positions.

    The anomalies that the sets already have are replaced as far as the scores find them, and so do not count against
    the detector that the scores are from.
    """
    planted, labels = list[NDArray[np.float64]](), list[NDArray[np.bool_]]()
    for index, (elements, values) in enumerate(zip(sets, scores, strict=True)):
        elements, anomalous = elements.copy(), np.zeros(len(elements), dtype=np.bool_)
        if len(elements) >= MIN_SIZE:
            positions = most_suspicious(values)
            others = (index + generator.integers(1, len(sets), size=len(positions))) % len(sets)  # never the set itself
            elements[positions] = [sets[int(other)][generator.integers(len(sets[int(other)]))] for other in others]
            anomalous[positions] = True
        planted.append(elements)
        labels.append(anomalous)
    return planted, labels


def without_suspicious(
    sets: Sequence[NDArray[np.float64]], scores: Sequence[NDArray[np.float64]]
) -> list[NDArray[np.float64]]:
    """Leave out the elements with the highest scores of each set, as many as are planted to compare detectors."""
    return [
        np.delete(elements, most_suspicious(values), axis=0) if len(elements) > MIN_SIZE else elements
        for elements, values in zip(sets, scores, strict=True)
    ]


def most_suspicious(scores: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the indices of the elements of a set in whose place anomalies are planted."""
    return np.argsort(-scores)[: max(1, round(PLANTED_SHARE * len(scores)))]


def labelled_examples(
    sets: Sequence[NDArray[np.float64]],
    labels: Sequence[NDArray[np.bool_]],
    num_sets: int,
    *,
    generator: np.random.Generator,
) -> Examples:
    """Draw subsets of sets together with the labels of their elements."""
    max_size = draw_max_size(sets, generator)
    indices = map(int, generator.integers(len(sets), size=num_sets))
    rows = [(index, draw_rows(len(sets[index]), max_size, generator)) for index in indices]
    return pad_examples(
        [sets[index][chosen] for index, chosen in rows], [labels[index][chosen] for index, chosen in rows]
    )


def draw_max_size(sets: Sequence[NDArray[np.float64]], generator: np.random.Generator) -> int:
    """Draw the maximum size of the examples of a batch, so that the network learns from sets of all sizes."""
    return min(int(generator.integers(MIN_SIZE, max(map(len, sets)) + 1)), MAX_SIZE)


def draw_rows(size: int, max_size: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Draw at most ``max_size`` rows of a set, in random order."""
    return generator.permutation(size)[:max_size]


def pad_examples(sets: Sequence[NDArray[np.float64]], labels: Sequence[NDArray[np.bool_]]) -> Examples:
    max_size = max(map(len, sets))
    elements = np.zeros((len(sets), max_size, sets[0].shape[1]))
    mask, anomalous = (np.zeros((len(sets), max_size), dtype=np.bool_) for _ in range(2))
    for index, (values, label) in enumerate(zip(sets, labels, strict=True)):
        present = slice(0, len(values))
        elements[index, present], mask[index, present], anomalous[index, present] = values, True, label
    return Examples(elements, mask, anomalous)
