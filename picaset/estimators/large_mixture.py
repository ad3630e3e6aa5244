"""A Gaussian mixture of one set that is larger than memory: initialized on a sample, fitted on all points.

The sufficient statistics of chunks add up, so a step of expectation-maximization is one pass over the set. The sample
determines the local optimum; the passes converge to it.

Dimensions:  n points of a chunk   K components   D coordinates   F features
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from picaset.estimators.batched_em import (
    LOG2_E,
    Covariance,
    FitResult,
    Mixtures,
    e_step,
    m_step,
    point_features,
    sufficient_statistics,
)
from picaset.estimators.mixture_search import Frame, StandardizedSets
from picaset.large.large_set import LargeSet, Reading
from picaset.large.rules import signed_values
from picaset.large.sources import open_source
from picaset.large.statistics import Maxima, Sums
from picaset.terminal import Watcher

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


class Sample(NamedTuple):
    """A uniform sample of a large set, the number of all points, and their bounding box."""

    points: Float[Tensor, "n D"]
    total: int
    box: Float[Tensor, "2 D"]


def draw_sample(large: LargeSet, generator: torch.Generator) -> Sample:
    """Draw a uniform sample of a set in one pass, and measure its bounding box in another."""
    points, total = large.sample(SAMPLE_SIZE, generator)
    (corners,) = large.fold(Maxima(signed_values)).sums  # (1, 1, 2 D)
    highest, negative_lowest = corners[0, 0].chunk(2)
    return Sample(points, total, torch.stack([-negative_lowest, highest]))


def fit_large_mixture(
    large: LargeSet,
    mixtures: Mixtures,
    covariance: Covariance,
    sample: StandardizedSets,
    frame: Frame,
    *,
    max_steps: int,
    min_variance: float,
    tol: float,
    count: int,
) -> FitResult:
    """Run expectation-maximization on all points, one pass per step and a last one for the log-likelihood.

    ``frame`` is the approximate shift and scale of the points, ``count`` their number; the fit has converged when a
    step gains less than ``tol`` in average log-likelihood.
    """

    def statistics_of_chunk(points: Tensor, mask: Tensor | None, *parts: Tensor) -> tuple[Tensor, Tensor]:
        features = point_features(
            (points - frame.shift) / frame.scale,
            None if mask is None else mask.to(points.dtype),
            covariance=covariance,
            log_background=sample.log_background,
            relative_scales=sample.relative_scales,
        )
        expectation = e_step(features, Mixtures(*parts), covariance)
        log2_density = (expectation.log2_densities * features.weights[:, None]).sum(dim=2)
        statistics = sufficient_statistics(
            features, expectation.responsibilities, covariance, num_components=mixtures.means.shape[2]
        )
        return statistics, log2_density

    previous, step = -np.inf, 0
    with torch.no_grad():
        while True:
            statistics, log2_density = large.fold(Sums(statistics_of_chunk), *mixtures).sums
            likelihood = log2_density / (LOG2_E * count)
            converged = bool(float(likelihood) - previous < tol)
            if converged or step == max_steps:
                return FitResult(mixtures, likelihood, torch.tensor([step]), torch.tensor([converged]))
            previous, step = float(likelihood), step + 1
            mixtures = m_step(
                statistics, covariance, sample.relative_scales,
                num_components=mixtures.means.shape[2], min_variance=min_variance,
            )  # fmt: skip
