"""Moments of the points that answers claim: of a set in memory, and, in two passes, of one that is read in chunks.

Dimensions:  B sets   N elements   n elements of a chunk   K answers   D coordinates   E features
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from picaset.large.large_set import LargeSet
from picaset.large.statistics import Sums
from picaset.networks.mixture_proposer import SMALLEST_DEVIATION


def moments(
    answers: Float[Tensor, "B K E"],
    encoded: Float[Tensor, "B N E"],
    elements: Float[Tensor, "B N D"],
    mask: Bool[Tensor, "B N"] | None,
) -> Float[Tensor, "B K D_plus_2"]:
    """Mean, spread and number of the points that each answer claims; answers compete for every point."""
    scores = answers @ encoded.transpose(1, 2) / math.sqrt(encoded.shape[2])  # (B, K, N)
    claims = scores.softmax(dim=1)
    if mask is not None:
        claims = claims.masked_fill(~mask[:, None], 0.0)
    claimed = claims.sum(dim=2, keepdim=True) + 1e-6  # (B, K, 1)
    means = claims @ elements / claimed
    squares = (elements[:, None] - means[:, :, None]).square().mean(dim=-1)  # (B, K, N)
    variances = (claims * squares).sum(dim=2, keepdim=True) / claimed + SMALLEST_DEVIATION**2
    weights = claimed / claimed.sum(dim=1, keepdim=True)
    return torch.cat([means, variances.log(), weights.log()], dim=-1)


def moments_of_large(
    answers: Float[Tensor, "B K E"], large: LargeSet, encoded: LargeSet
) -> Float[Tensor, "B K D_plus_2"]:
    """The same, of points that are read in chunks."""
    both = large.beside(encoded)
    total, weighted = both.fold(Sums(claimed_sums), answers).sums
    claimed = total + 1e-6  # (B, K, 1)
    means = weighted / claimed
    (squares,) = both.fold(Sums(claimed_squares), answers, means).sums
    variances = squares / claimed + SMALLEST_DEVIATION**2
    weights = claimed / claimed.sum(dim=1, keepdim=True)
    return torch.cat([means, variances.log(), weights.log()], dim=-1)


def claims_of(both: Tensor, mask: Tensor | None, answers: Tensor) -> tuple[Tensor, Tensor]:
    """The share of every point that each answer claims, (B, K, n), and the points."""
    width = answers.shape[2]
    points, encoded = both[..., :-width], both[..., -width:]
    claims = (answers @ encoded.transpose(1, 2) / math.sqrt(width)).softmax(dim=1)
    return (claims if mask is None else claims.masked_fill(~mask[:, None], 0.0)), points


def claimed_sums(both: Tensor, mask: Tensor | None, answers: Tensor) -> tuple[Tensor, Tensor]:
    claims, points = claims_of(both, mask, answers)
    return claims.sum(dim=2, keepdim=True), claims @ points


def claimed_squares(both: Tensor, mask: Tensor | None, answers: Tensor, means: Tensor) -> tuple[Tensor]:
    claims, points = claims_of(both, mask, answers)
    squares = (points[:, None] - means[:, :, None]).square().mean(dim=-1)  # (B, K, n)
    return ((claims * squares).sum(dim=2, keepdim=True),)
