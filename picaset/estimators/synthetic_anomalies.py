"""Training sets for a detector of odd elements: parts of the given sets, with known odd ones.

Dimensions:  B sets   N elements (padded)   D features
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import NDArray

LARGEST = 64
"""Elements of a training set at most; a larger set is shown in parts."""
SMALLEST = 3
"""Below it nobody can tell which is odd."""


class Examples(NamedTuple):
    """Padded sets, which of their elements are present, and which of these are odd."""

    elements: Float[np.ndarray, "B N D"]
    mask: Bool[np.ndarray, "B N"]
    odd: Bool[np.ndarray, "B N"]


def made_odd(
    sets: Sequence[NDArray[np.float64]], num_sets: int, *, share_odd: float, generator: np.random.Generator
) -> Examples:
    """Parts of sets, most of them with one element swapped for one of another set; the rest are left as they are."""
    largest = int(generator.integers(SMALLEST, max(len(one) for one in sets) + 1))
    chosen = generator.integers(len(sets), size=num_sets)
    others = (chosen + generator.integers(1, len(sets), size=num_sets)) % len(sets)  # never the set itself
    parts, odd = list[NDArray[np.float64]](), list[NDArray[np.bool_]]()
    for index, other in zip(map(int, chosen), map(int, others), strict=True):
        part = sets[index][part_of(len(sets[index]), largest, generator)].copy()
        swapped = np.zeros(len(part), dtype=np.bool_)
        if len(part) >= SMALLEST and generator.random() < share_odd:
            place = generator.integers(len(part))
            part[place] = sets[other][generator.integers(len(sets[other]))]
            swapped[place] = True
        parts.append(part)
        odd.append(swapped)
    return padded(parts, odd)


def labelled(
    sets: Sequence[NDArray[np.float64]],
    labels: Sequence[NDArray[np.bool_]],
    num_sets: int,
    *,
    generator: np.random.Generator,
) -> Examples:
    """Parts of sets with the labels that came with them."""
    largest = int(generator.integers(SMALLEST, max(len(one) for one in sets) + 1))
    parts, odd = list[NDArray[np.float64]](), list[NDArray[np.bool_]]()
    for index in map(int, generator.integers(len(sets), size=num_sets)):
        rows = part_of(len(sets[index]), largest, generator)
        parts.append(sets[index][rows])
        odd.append(labels[index][rows])
    return padded(parts, odd)


def part_of(size: int, largest: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Rows of a set, at most so many, in any order."""
    return generator.permutation(size)[: min(largest, LARGEST)]


def padded(parts: Sequence[NDArray[np.float64]], odd: Sequence[NDArray[np.bool_]]) -> Examples:
    largest = max(len(part) for part in parts)
    elements = np.zeros((len(parts), largest, parts[0].shape[1]))
    mask, marked = (np.zeros((len(parts), largest), dtype=np.bool_) for _ in range(2))
    for index, (part, mark) in enumerate(zip(parts, odd, strict=True)):
        elements[index, : len(part)], mask[index, : len(part)], marked[index, : len(part)] = part, True, mark
    return Examples(elements, mask, marked)
