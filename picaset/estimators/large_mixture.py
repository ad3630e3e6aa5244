"""A mixture of one set that is never held: found on a sample of it, finished on all of its points.

A step of expectation-maximization is one pass over the set, since the sums that new moments are made of add up over
chunks. The sample decides between summits; the passes then climb the one that was chosen.

Dimensions:  n points of a chunk   K components   D coordinates   F = 1 + 2 D features
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from picaset.estimators.batched_em import LOG2_E, Starts, expect, features, from_sums, sums_of
from picaset.estimators.mixture_search import in_place
from picaset.large.file_sources import open_source
from picaset.large.large_set import LargeSet
from picaset.large.reading import Reading, Watcher
from picaset.large.statistics import Sums
from picaset.operators.canonicalize import Place

CALLER = "AmortizedMixture.fit_stream"
SAMPLE = 20_000
"""Points on which the mixture is looked for."""
CHUNK = 2**16
"""Points in memory at a time."""


def open_points(source: Any, *, chunk: int | None, watcher: Watcher) -> LargeSet:
    """The points of a source, in double precision; NaN and infinity are refused where they are read."""
    opened = open_source(source)
    reading = Reading(chunk or CHUNK, torch.float64, torch.device("cpu"), watcher=watcher)
    return LargeSet(opened, reading).map(finite, costs=False)


def finite(points: Tensor) -> Tensor:
    if not bool(points.isfinite().all()):
        raise ValueError(f"{CALLER}: points must be finite; found NaN or infinity. Remove or replace it first.")
    return points


def draw_sample(large: LargeSet, generator: torch.Generator) -> tuple[Float[Tensor, "n D"], int]:
    """Points drawn from all of a set in one pass, each as likely as any other, and how many there are."""
    kept, keys, count = list[Tensor](), torch.empty(0), 0
    for _, elements, _ in large.chunks("sampling"):
        points = elements[0]
        count += len(points)
        # A random number for each point; those with the smallest are the sample.
        drawn = torch.rand(len(points), generator=generator)
        keys, chosen = torch.cat([keys, drawn]).topk(min(SAMPLE, len(keys) + len(points)), largest=False)
        kept = [torch.cat([*kept, points])[chosen]]
    return kept[0], count


class LargeFit(NamedTuple):
    """Where a climb arrived, and what it took."""

    starts: Starts
    log_likelihood: float
    steps: int
    converged: bool


def climb_large(
    large: LargeSet, starts: Starts, place: Place, *, steps: int, min_variance: float, tol: float, count: int
) -> LargeFit:
    """Take at most ``steps`` steps from a mixture, in one pass for each, and one to see where it is.

    Args:
        large: The points.
        starts: One mixture.
        place: What brings the points to the origin and to unit spread, about.
        steps: At most.
        min_variance: Of a component, in units of the spread.
        tol: Gain in log-likelihood per point below which the climb ends.
        count: Points of the set.
    """

    def gather(points: Tensor, mask: Tensor | None, *parts: Tensor) -> tuple[Tensor, Tensor]:
        looked_at = features((points - place.shift) / place.scale, mask)
        expected = expect(looked_at, Starts(*parts))
        return sums_of(looked_at, expected.shares), expected.per_point.sum(dim=2)

    starts = Starts((starts.means - place.shift) / place.scale, starts.variances / place.scale**2, starts.log_weights)
    sizes = torch.tensor([float(count)], dtype=torch.float64)
    units = len(place.shift[0, 0]) * float(place.scale.log())
    before = -np.inf
    with torch.no_grad():
        for step in range(steps + 1):
            sums, densities = large.fold(Sums(gather), *starts).sums
            likelihood = float(densities) / (LOG2_E * count)
            converged = likelihood - before < tol
            if converged or step == steps:
                return LargeFit(in_place(starts, place), likelihood - units, step, bool(converged))
            before, starts = likelihood, from_sums(sums, sizes, starts, min_variance=min_variance)
    raise AssertionError("a climb ends")
