r"""Gaussian mixtures of points with missing values (NaN), which are integrated over (Ghahramani and Jordan 1994).

The density of a point is that of its observed coordinates o. In the M step, a missing part m counts with its
conditional mean and covariance in each component:

    x_m = mu_m + Sigma_mo Sigma_oo^-1 (x_o - mu_o)        C_mm = Sigma_mm - Sigma_mo Sigma_oo^-1 Sigma_om

Points with the same observed coordinates are processed together.

Dimensions:  N points   n points of a pattern   K components   D coordinates   o, m of them   L = K (+ 1: noise)
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from picaset.estimators.batched_em import Covariance, FitResult, Mixtures, cholesky, is_axis_aligned, m_step, pairs


def patterns(points: Float[Tensor, "N D"]) -> Iterator[tuple[Int[Tensor, " n"], Bool[Tensor, " D"]]]:
    """Yield each group of points with equal observed coordinates, and these coordinates."""
    observed, inverse = np.unique(~np.isnan(points.numpy()), axis=0, return_inverse=True)
    for index, pattern in enumerate(observed):
        yield torch.tensor(np.flatnonzero(inverse == index)), torch.tensor(pattern)


def covariance_matrices(
    covariances: Float[Tensor, "..."], covariance: Covariance, num_components: int
) -> Float[Tensor, "K D D"]:
    """Return one matrix for each component, for any covariance type."""
    matrices = covariances.diag_embed() if is_axis_aligned(covariance) else covariances
    return matrices.expand(num_components, -1, -1)


def observed_log_density(
    points: Float[Tensor, "n D"],
    observed: Bool[Tensor, " D"],
    means: Float[Tensor, "K D"],
    matrices: Float[Tensor, "K D D"],
) -> tuple[Float[Tensor, "K n"], Float[Tensor, "K n o"], Float[Tensor, "K o o"]]:
    """Return the log-density of the observed coordinates, their differences to the means, and the Cholesky factors."""
    factors = cholesky(matrices[:, observed][:, :, observed])
    differences = points[:, observed] - means[:, None, observed]
    linalg: Any = torch.linalg
    whitened: Tensor = linalg.solve_triangular(factors, differences.transpose(1, 2), upper=False)  # (K, o, n)
    log_volume = factors.diagonal(dim1=1, dim2=2).log().sum(dim=1, keepdim=True)
    log_density = -0.5 * whitened.square().sum(dim=1) - log_volume - 0.5 * int(observed.sum()) * math.log(2 * math.pi)
    return log_density, differences, factors


def joint_log_density(
    points: Float[Tensor, "N D"],
    means: Float[Tensor, "K D"],
    matrices: Float[Tensor, "K D D"],
    log_weights: Float[Tensor, " L"],
    widths: Float[Tensor, " D"] | None,
) -> Float[Tensor, "N L"]:
    """Return the log of the joint density of every point and component; ``widths`` is the box of the background."""
    joint = points.new_empty(len(points), len(log_weights))
    for rows, observed in patterns(points):
        joint[rows, : len(means)] = observed_log_density(points[rows], observed, means, matrices)[0].T
        if widths is not None:
            joint[rows, -1] = -widths[observed].log().sum()
    return joint + log_weights


def expected_statistics(
    points: Float[Tensor, "N D"],
    weights: Float[Tensor, " N"],
    means: Float[Tensor, "K D"],
    matrices: Float[Tensor, "K D D"],
    log_weights: Float[Tensor, " L"],
    widths: Float[Tensor, " D"] | None,
) -> tuple[Float[Tensor, "L F"], float]:
    """Return the expected sufficient statistics of all components, and the average log-likelihood."""
    dim, count = points.shape[1], len(means)
    joint = joint_log_density(points, means, matrices, log_weights, widths)
    log_likelihood = float((joint.logsumexp(dim=1) * weights).sum() / weights.sum())
    responsibilities = joint.softmax(dim=1) * weights[:, None]
    sums, seconds = torch.zeros_like(means), torch.zeros_like(matrices)
    for rows, observed in patterns(points):
        shares = responsibilities[rows, :count].T  # (K, n)
        expected = points[rows].expand(count, -1, -1).clone()
        if not bool(observed.all()):
            _, differences, factors = observed_log_density(points[rows], observed, means, matrices)
            cross = matrices[:, observed][:, :, ~observed]  # (K, o, m)
            gain = torch.cholesky_solve(cross, factors)
            expected[:, :, ~observed] = means[:, None, ~observed] + differences @ gain
            spread = torch.zeros_like(matrices)
            missing = (~observed).nonzero()[:, 0]
            conditional = matrices[:, ~observed][:, :, ~observed] - cross.transpose(1, 2) @ gain
            spread[:, missing[:, None], missing] = conditional
            seconds += shares.sum(dim=1)[:, None, None] * spread
        sums += (shares[..., None] * expected).sum(dim=1)
        seconds += (shares[..., None] * expected).transpose(1, 2) @ expected
    first, second, _ = pairs(dim)
    statistics = points.new_zeros(len(log_weights), 1 + dim + len(first))
    statistics[:, 0] = responsibilities.sum(dim=0)
    statistics[:count, 1:] = torch.cat([sums, seconds[:, first, second]], dim=1)
    return statistics, log_likelihood


@torch.inference_mode()
def fit_incomplete(
    points: Float[Tensor, "N D"],
    weights: Float[Tensor, " N"],
    mixtures: Mixtures,
    covariance: Covariance,
    relative_scales: Float[Tensor, "1 D"],
    widths: Float[Tensor, " D"] | None,
    *,
    max_steps: int,
    min_variance: float,
    tol: float,
) -> FitResult:
    """Run expectation-maximization on one set with missing values, from one mixture; see ``fit_mixtures``."""
    count, dim = mixtures.means.shape[2:]
    rows, columns, _ = pairs(dim)
    kept = torch.arange(1 + dim + len(rows))
    if is_axis_aligned(covariance):
        kept = torch.cat([kept[: 1 + dim], kept[1 + dim :][rows == columns]])
    previous, step = -np.inf, 0
    while True:
        means, covariances, log_weights = (part[0, 0] for part in mixtures)
        matrices = covariance_matrices(covariances, covariance, count)
        statistics, likelihood = expected_statistics(points, weights, means, matrices, log_weights, widths)
        converged = bool(likelihood - previous < tol)
        if converged or step == max_steps:
            return FitResult(
                mixtures, points.new_tensor([[likelihood]]), torch.tensor([step]), torch.tensor([converged])
            )
        previous, step = likelihood, step + 1
        mixtures = m_step(
            statistics[None, None, :, kept], covariance, relative_scales,
            num_components=count, min_variance=min_variance,
        )  # fmt: skip


def impute(points: Float[Tensor, "N D"], weights: Float[Tensor, " N"]) -> Float[Tensor, "N D"]:
    """Replace missing values of standardized points by their conditional mean under one Gaussian."""
    dim = points.shape[1]
    start = Mixtures(
        points.new_zeros(1, 1, 1, dim), torch.eye(dim)[None, None, None].to(points), points.new_zeros(1, 1, 1)
    )
    fit = fit_incomplete(
        points, weights, start, "full", torch.ones_like(points[:1]), None, max_steps=20, min_variance=1e-3, tol=1e-3
    )
    means, matrices = fit.mixtures.means[0, 0], fit.mixtures.covariances[0, 0]
    complete = points.clone()
    for rows, observed in patterns(points):
        _, differences, factors = observed_log_density(points[rows], observed, means, matrices)
        gain = torch.cholesky_solve(matrices[:, observed][:, :, ~observed], factors)
        complete[rows[:, None], (~observed).nonzero()[:, 0]] = means[0, ~observed] + (differences @ gain)[0]
    return complete
