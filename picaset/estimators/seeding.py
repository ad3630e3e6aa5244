"""Starts for expectation-maximization without any network: k-means++ (Arthur and Vassilvitskii 2007).

The first centre is a point at random; each further one is a point drawn with a chance that grows with the square of
its distance to the nearest centre so far. Many starts of many sets are drawn at once.

Dimensions:  B sets   N points (padded)   S starts   K components   D coordinates
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from picaset.estimators.batched_em import Starts


def seeds(
    points: Float[Tensor, "B N D"],
    mask: Bool[Tensor, "B N"] | None,
    *,
    num_components: int,
    num_starts: int,
    generator: torch.Generator,
) -> Starts:
    """Equal weights, centres among the points, and the spread of the points about their nearest centres."""
    present = torch.ones_like(points[..., 0]) if mask is None else mask.to(points.dtype)
    centres = list[Tensor]()
    nearest = torch.full_like(present, torch.inf)[:, None]  # (B, 1 or S, N): squared distances
    chances = present[:, None].expand(-1, num_starts, -1)
    for _ in range(num_components):
        chosen = drawn(chances, generator)  # (B, S)
        centres.append(points.gather(1, chosen[..., None].expand(-1, -1, points.shape[2])))
        nearest = torch.minimum(nearest, distances(points, centres[-1]))
        chances = nearest * present[:, None]
    spread = chances.sum(dim=2) / (present.sum(dim=1, keepdim=True) * points.shape[2])  # (B, S)
    means = torch.stack(centres, dim=2)
    variances = spread.clamp(min=1e-4)[..., None, None].expand(-1, -1, num_components, 1)
    return Starts(means, variances, means.new_full(means.shape[:3], -math.log(num_components)))


def drawn(chances: Float[Tensor, "B S N"], generator: torch.Generator) -> Tensor:
    """An index for each start, with these chances; where all are zero, the first."""
    summed = chances.cumsum(dim=2)
    thrown = torch.rand(*chances.shape[:2], 1, generator=generator, dtype=chances.dtype) * summed[..., -1:]
    return torch.searchsorted(summed, thrown, right=True)[..., 0].clamp(max=chances.shape[2] - 1)


def distances(points: Float[Tensor, "B N D"], centres: Float[Tensor, "B S D"]) -> Float[Tensor, "B S N"]:
    """Squared, from every centre to every point."""
    return torch.cdist(centres, points, compute_mode="donot_use_mm_for_euclid_dist").square()
