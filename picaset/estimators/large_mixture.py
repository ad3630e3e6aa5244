"""A Gaussian mixture of one set that is larger than memory: initialized on a sample, fitted on all points.

The sufficient statistics of chunks add up, so a step of expectation-maximization is one pass over the set. The sample
determines the local optimum; the passes converge to it.

Dimensions:  n points of a chunk   K components   D coordinates   F = 1 + 2 D features
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from picaset.estimators.batched_em import LOG2_E, Mixtures, e_step, m_step, point_features, sufficient_statistics
from picaset.estimators.mixture_search import restore
from picaset.large.large_set import LargeSet, Reading
from picaset.large.sources import open_source
from picaset.large.statistics import Sums
from picaset.operators.canonicalize import ShiftAndScale
from picaset.progress import Watcher

CALLER = "AmortizedMixture.fit_stream"
SAMPLE_SIZE = 20_000
"""Number of points to which the initial mixture is fitted."""
CHUNK_SIZE = 2**16
"""Number of points in memory at a time."""


def open_points(source: Any, *, chunk: int | None, watcher: Watcher) -> LargeSet:
    """Open a source of points in double precision; reading raises an error at NaN and infinity."""
    opened = open_source(source)
    reading = Reading(chunk or CHUNK_SIZE, torch.float64, torch.device("cpu"), watcher=watcher)
    return LargeSet(opened, reading).map(require_finite, costs=False)


def require_finite(points: Tensor) -> Tensor:
    if not bool(points.isfinite().all()):
        raise ValueError(f"{CALLER}: points must be finite; got NaN or infinity. Remove or replace it first.")
    return points


def draw_sample(large: LargeSet, generator: torch.Generator) -> tuple[Float[Tensor, "n D"], int]:
    """Draw a uniform sample of a set in one pass; return it and the number of all points."""
    return large.sample(SAMPLE_SIZE, generator)


class LargeFit(NamedTuple):
    """Fitted mixture of a large set, its average log-likelihood, and how the fit ended."""

    mixture: Mixtures
    log_likelihood: float
    steps: int
    converged: bool


def fit_large_mixture(
    large: LargeSet,
    mixture: Mixtures,
    place: ShiftAndScale,
    *,
    max_steps: int,
    min_variance: float,
    tol: float,
    count: int,
) -> LargeFit:
    """Run expectation-maximization on all points, one pass per step and a last one for the log-likelihood.

    ``place`` is the approximate shift and scale of the points, ``count`` their number; the fit has converged when a
    step gains less than ``tol`` in average log-likelihood.
    """

    def statistics_of_chunk(points: Tensor, mask: Tensor | None, *parts: Tensor) -> tuple[Tensor, Tensor]:
        features = point_features((points - place.shift) / place.scale, mask)
        expectation = e_step(features, Mixtures(*parts))
        return sufficient_statistics(features, expectation.responsibilities), expectation.log2_densities.sum(dim=2)

    means, variances, log_weights = mixture
    mixture = Mixtures((means - place.shift) / place.scale, variances / place.scale**2, log_weights)
    sizes = torch.tensor([float(count)], dtype=torch.float64)
    log_volume = len(place.shift[0, 0]) * float(place.scale.log())
    previous, step = -np.inf, 0
    with torch.no_grad():
        while True:
            statistics, log2_density = large.fold(Sums(statistics_of_chunk), *mixture).sums
            likelihood = float(log2_density) / (LOG2_E * count)
            converged = bool(likelihood - previous < tol)
            if converged or step == max_steps:
                return LargeFit(restore(mixture, place), likelihood - log_volume, step, converged)
            previous, step = likelihood, step + 1
            mixture = m_step(statistics, sizes, mixture, min_variance=min_variance)
