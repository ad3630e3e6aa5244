"""Statistical detectors of anomalous elements, each of which judges an element by the other elements of its set.

    mahalanobis    robust Mahalanobis distance, by a model of what sets have in common (``gaussian_sets.py``)
    density        kernel density of the other elements of the set, with one bandwidth for all sets
    lof            local outlier factor (Breunig et al., 2000), by scikit-learn
    forest         isolation forest (Liu et al., 2008), by scikit-learn

All but the isolation forest see features in which the typical set has unit covariance. Nothing but these few shared
numbers is learned, so sets that were not in ``fit`` are scored in the same way.

Dimensions:  B sets   N elements (padded)   D features
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from picaset.estimators.gaussian_sets import GaussianSets, fit_gaussian_sets, linalg
from picaset.estimators.synthetic_anomalies import MIN_SIZE
from picaset.estimators.validation import from_scikit_learn

Floats = NDArray[np.float64]
Member = Literal["mahalanobis", "density", "lof", "forest"]
MAX_FEATURES = 32
"""Maximum number of features; more are replaced by as many principal components."""
MAX_NEIGHBOURS = 20
"""Number of neighbours of the local outlier factor, scikit-learn's default; fewer in smaller sets."""
MAX_REFERENCE = 2000
"""Maximum number of elements of a set that the density and the local outlier factor compare with."""
MAX_PADDED = 200_000
"""Maximum number of elements, including padding, of a batch of sets."""
BANDWIDTHS = (0.1, 0.2, 0.3, 0.45, 0.7, 1.0, 1.5)
"""Bandwidths among which the likelihood chooses, for a set of one element; they shrink with its size (Scott's rule)."""
NUM_BANDWIDTH_SETS = 60
"""Number of sets from which the bandwidth is chosen."""

LocalOutlierFactor: Any = from_scikit_learn("sklearn.neighbors", "LocalOutlierFactor")
IsolationForest: Any = from_scikit_learn("sklearn.ensemble", "IsolationForest")


@dataclass(frozen=True)
class StatisticalDetectors:
    """The statistical detectors, with the numbers that they share between sets."""

    components: Floats
    """Principal components, (D, at most ``MAX_FEATURES``)."""
    gaussian: GaussianSets
    bandwidth: float
    seed: int

    @classmethod
    def fit(cls, sets: Sequence[Floats], *, seed: int) -> "StatisticalDetectors":
        """Fit to sets of standardized features."""
        rows = np.concatenate(sets)
        components = np.eye(rows.shape[1])
        if rows.shape[1] > MAX_FEATURES:
            components = np.linalg.eigh(rows.T @ rows)[1][:, -MAX_FEATURES:]
        batches = [batch[1:] for batch in padded_batches([elements @ components for elements in sets])]
        gaussian = fit_gaussian_sets(batches)
        detectors = cls(components, gaussian, 1.0, seed)
        chosen = np.random.default_rng(seed).permutation(len(sets))[:NUM_BANDWIDTH_SETS]
        examples = [detectors.whiten(sets[int(index)]) for index in chosen if len(sets[int(index)]) >= MIN_SIZE]

        def likelihood(bandwidth: float) -> float:
            values = np.sort(np.concatenate([log_density(elements, bandwidth, seed=seed) for elements in examples]))
            return float(values[len(values) // 10 :].mean())  # without a tenth, which may be anomalies

        return cls(components, gaussian, max(BANDWIDTHS, key=likelihood), seed)

    def score(self, member: Member, sets: Sequence[Floats]) -> list[Floats]:
        """Return the scores of one detector for the elements of each set; higher means more anomalous."""
        if member == "mahalanobis":
            return self.score_mahalanobis(sets)
        one_set: dict[str, Callable[[Floats], Floats]] = {
            "density": lambda elements: -log_density(self.whiten(elements), self.bandwidth, seed=self.seed),
            "lof": lambda elements: np.log(local_outlier_factors(self.whiten(elements), seed=self.seed)),
            "forest": lambda elements: -IsolationForest(random_state=self.seed).fit(elements).score_samples(elements),
        }
        # Of fewer elements none can be told from the others.
        return [
            one_set[member](elements) if len(elements) >= MIN_SIZE else np.zeros(len(elements)) for elements in sets
        ]

    def score_mahalanobis(self, sets: Sequence[Floats]) -> list[Floats]:
        result = [np.zeros(0)] * len(sets)
        for indices, elements, mask in padded_batches([elements @ self.components for elements in sets]):
            scores = self.gaussian.score(elements, mask).numpy()
            for index, values in zip(indices, scores, strict=True):
                result[index] = values[: len(sets[index])]
        return result

    def whiten(self, elements: Floats) -> Floats:
        factor: Tensor = linalg.cholesky(self.gaussian.scatter / self.gaussian.dof)
        whitened: Tensor = linalg.solve_triangular(factor, torch.as_tensor((elements @ self.components).T), upper=False)
        return whitened.mT.numpy()

    def to_json(self) -> dict[str, Any]:
        gaussian = [value.numpy().tolist() for value in self.gaussian]
        return dict(components=self.components.tolist(), gaussian=gaussian, bandwidth=self.bandwidth, seed=self.seed)

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> "StatisticalDetectors":
        gaussian = GaussianSets(*(torch.tensor(value, dtype=torch.float64) for value in saved["gaussian"]))
        return cls(np.array(saved["components"]), gaussian, float(saved["bandwidth"]), int(saved["seed"]))


def padded_batches(sets: Sequence[Floats]) -> Iterator[tuple[list[int], Tensor, Tensor]]:
    """Yield sets of similar size, padded: their indices, elements (B, N, D) and mask (B, N)."""
    groups = list[list[int]]()
    for index in sorted(range(len(sets)), key=lambda index: len(sets[index])):
        size = len(sets[index])
        if not groups or size * (len(groups[-1]) + 1) > MAX_PADDED or size > 4 + 1.5 * len(sets[groups[-1][0]]):
            groups.append([])
        groups[-1].append(index)
    for indices in groups:
        sizes = torch.tensor([len(sets[index]) for index in indices])
        mask = torch.arange(int(sizes.max())) < sizes[:, None]
        elements = torch.zeros(*mask.shape, sets[0].shape[1], dtype=torch.float64)
        elements[mask] = torch.as_tensor(np.concatenate([sets[index] for index in indices]))
        yield indices, elements, mask


def log_density(elements: Floats, bandwidth: float, *, seed: int) -> Floats:
    """Return the log of the Gaussian kernel density of the other elements at each element."""
    size, dim = elements.shape
    width = bandwidth * size ** (-1 / (dim + 4))
    reference = reference_rows(size, seed)
    exponents = np.empty(size)
    for start in range(0, size, MAX_REFERENCE):
        rows = np.arange(start, min(start + MAX_REFERENCE, size))
        distances = torch.cdist(torch.as_tensor(elements[rows]), torch.as_tensor(elements[reference]))
        others = torch.as_tensor(rows[:, None] != reference)
        exponents[rows] = (-(distances / width).square() / 2).masked_fill(~others, -math.inf).logsumexp(1).numpy()
    # Distances of 100 bandwidths are alike.
    exponents = np.maximum(exponents, -5000.0)
    return exponents - math.log(len(reference)) - dim * math.log(width * math.sqrt(2 * math.pi))


def local_outlier_factors(elements: Floats, *, seed: int) -> Floats:
    size = len(elements)
    neighbours = min(MAX_NEIGHBOURS, size // 2)
    if size <= MAX_REFERENCE:
        return -LocalOutlierFactor(neighbours).fit(elements).negative_outlier_factor_
    fitted = LocalOutlierFactor(neighbours, novelty=True).fit(elements[reference_rows(size, seed)])
    return -fitted.score_samples(elements)


def reference_rows(size: int, seed: int) -> NDArray[np.int64]:
    return np.random.default_rng(seed).permutation(size)[:MAX_REFERENCE]
