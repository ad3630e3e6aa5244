r"""Expectation-maximization for many sets and many initial mixtures at once, by matrix products.

With the features f(x) = (1, 2 x, -x^2) of a point, the log-density of a diagonal Gaussian is linear in f, and the
sufficient statistics of a component are sums of f weighted by its responsibilities:

    log pi_k N(x_n; mu_k, var_k) = a_k . f(x_n)        (R_k, 2 sum r x, -sum r x^2) = sum_n r_kn f(x_n)

A step is two matrix products and a softmax over components. It equals :func:`picaset.em_step` and is several times
faster. Squares of large coordinates lose precision, so points must be canonical: zero mean, unit variance.

Dimensions:  B sets   N points (padded)   S mixtures of a set   K components   D coordinates   F = 1 + 2 D features
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

LOG2_E = math.log2(math.e)
CHECK_EVERY = 4
"""Number of steps between two checks for convergence."""


class Mixtures(NamedTuple):
    """Several Gaussian mixtures for each set; a component of weight zero is absent.

    Shapes:
        means        (B, S, K, D)
        variances    (B, S, K, 1) or (B, S, K, D)
        log_weights  (B, S, K)
    """

    means: Float[Tensor, "B S K D"]
    variances: Float[Tensor, "B S K V"]
    log_weights: Float[Tensor, "B S K"]

    def of_sets(self, sets: Int[Tensor, " b"] | slice) -> "Mixtures":
        """Return the mixtures of some of the sets."""
        return Mixtures(*(part[sets] for part in self))

    def select(self, indices: Int[Tensor, "B C"]) -> "Mixtures":
        """Return C of the S mixtures of each set."""
        sets = torch.arange(len(indices), device=indices.device)[:, None]
        return Mixtures(*(part[sets, indices] for part in self))


class PointFeatures(NamedTuple):
    """Features of the points of each set.

    Shapes:
        features  (B, F, N)    zero for padding
        sizes     (B,)         number of points of each set
    """

    features: Float[Tensor, "B F N"]
    sizes: Float[Tensor, " B"]

    def of_sets(self, sets: Int[Tensor, " b"] | slice) -> "PointFeatures":
        """Return the features of some of the sets."""
        return PointFeatures(self.features[sets], self.sizes[sets])


def point_features(points: Float[Tensor, "B N D"], mask: Bool[Tensor, "B N"] | None) -> PointFeatures:
    """Compute the features of canonical points, which are zero where ``mask`` is False."""
    coordinates = points.transpose(1, 2)
    present = torch.ones_like(coordinates[:, :1]) if mask is None else mask[:, None].to(points.dtype)
    features = torch.cat([present, 2 * coordinates, -coordinates.square()], dim=1)
    return PointFeatures(features, present.sum(dim=(1, 2)))


def joint_log2_density(points: PointFeatures, mixtures: Mixtures) -> Float[Tensor, "B S K N"]:
    """Return the joint log-density of every component and point to base 2, whose powers are cheaper than those of e."""
    sets, count, components, dim = mixtures.means.shape
    precisions = (0.5 * LOG2_E / mixtures.variances).expand_as(mixtures.means)
    linear = precisions * mixtures.means
    # The infinity of an absent component times the zero of an absent point would be NaN.
    log_weights = (LOG2_E * mixtures.log_weights).clamp(min=-1e30)
    volume = (precisions.log2().sum(dim=-1) - dim * math.log2(math.pi * LOG2_E)) / 2
    constant = log_weights + volume - (linear * mixtures.means).sum(dim=-1)
    coefficients = torch.cat([constant[..., None], linear, precisions], dim=-1)  # (B, S, K, F)
    return (coefficients.flatten(1, 2) @ points.features).view(sets, count, components, -1)


class Expectation(NamedTuple):
    """Result of the E step.

    Shapes:
        responsibilities  (B, S, K, N)    sum to one over the components
        log2_densities    (B, S, N)       log2 density of each point
    """

    responsibilities: Float[Tensor, "B S K N"]
    log2_densities: Float[Tensor, "B S N"]

    def log_likelihood(self, points: PointFeatures) -> Float[Tensor, "B S"]:
        """Return the average natural log-likelihood over the points of each set."""
        present = points.features[:, :1]
        return (self.log2_densities * present).sum(dim=2) / (LOG2_E * points.sizes[:, None])


def e_step(points: PointFeatures, mixtures: Mixtures) -> Expectation:
    """Return responsibilities and the log2 density of each point."""
    scores = joint_log2_density(points, mixtures)
    largest = scores.amax(dim=2, keepdim=True)
    # Smaller powers contribute nothing, and arithmetic on subnormal numbers is slow.
    lowest = math.log2(torch.finfo(scores.dtype).tiny) + 10
    powers = scores.sub_(largest).clamp_(min=lowest).exp2_()
    total = powers.sum(dim=2, keepdim=True)
    return Expectation(powers.div_(total), largest.add_(total.log2_())[:, :, 0])


def sufficient_statistics(
    points: PointFeatures, responsibilities: Float[Tensor, "B S K N"]
) -> Float[Tensor, "B S K F"]:
    """Sum the features weighted by the responsibilities; the statistics of the chunks of a set add up."""
    sets, count, components, _ = responsibilities.shape
    # With few features, this order of the product is several times faster than the other.
    sums = points.features @ responsibilities.view(sets, count * components, -1).transpose(1, 2)  # (B, F, S K)
    return sums.view(sets, -1, count, components).permute(0, 2, 3, 1)


def m_step(
    statistics: Float[Tensor, "B S K F"], sizes: Float[Tensor, " B"], previous: Mixtures, *, min_variance: float
) -> Mixtures:
    """Return the most likely mixtures for these statistics of sets of these sizes.

    ``previous`` determines the covariance type and the absent components, which stay absent.
    """
    dim = previous.means.shape[3]
    counts = statistics[..., :1]
    moments = statistics[..., 1:] / counts
    means = moments[..., :dim] / 2
    variances = -moments[..., dim:] - means.square()
    if previous.variances.shape[-1] == 1:
        variances = variances.mean(dim=-1, keepdim=True)
    log_weights = (counts[..., 0] / sizes[:, None, None]).log()
    absent = previous.log_weights == -torch.inf
    return Mixtures(means, variances.clamp(min=min_variance), log_weights.masked_fill(absent, -torch.inf))


class FitResult(NamedTuple):
    """Fitted mixtures, their average log-likelihood, and the number of steps and convergence of each set."""

    mixtures: Mixtures
    log_likelihood: Float[Tensor, "B S"]
    steps: Int[Tensor, " B"]
    converged: Bool[Tensor, " B"]


def fit_mixtures(
    points: PointFeatures, mixtures: Mixtures, *, max_steps: int, min_variance: float, tol: float = 0.0
) -> FitResult:
    """Run expectation-maximization from each of the mixtures.

    Every few steps, a set has converged if none of its mixtures has gained ``tol`` per step since the last check; it
    takes no further steps.
    """
    sets, device = len(points.sizes), points.sizes.device
    result = FitResult(
        Mixtures(*(torch.empty_like(part) for part in mixtures)),
        torch.empty_like(mixtures.log_weights[..., 0]),
        torch.empty(sets, dtype=torch.long, device=device),
        torch.empty(sets, dtype=torch.bool, device=device),
    )
    active, previous = torch.arange(sets, device=device), result.log_likelihood.new_tensor(-torch.inf)
    for step in range(max_steps + 1):
        expectation = e_step(points, mixtures)
        responsibilities = expectation.responsibilities
        if step == max_steps or (tol > 0 and step % CHECK_EVERY == 0):
            likelihood = expectation.log_likelihood(points)
            converged = (likelihood - previous < tol * CHECK_EVERY).all(dim=1)
            done = converged if step < max_steps else torch.ones_like(converged)
            previous = likelihood
            if bool(done.any()):
                finished, remaining = active[done], (~done).nonzero()[:, 0]
                for whole, part in zip((*result.mixtures, result.log_likelihood), (*mixtures, likelihood), strict=True):
                    whole[finished] = part[done]
                result.steps[finished], result.converged[finished] = step, converged[done]
                if len(remaining) == 0:
                    break
                active, previous = active[remaining], likelihood[remaining]
                responsibilities = responsibilities[remaining]
                points, mixtures = points.of_sets(remaining), mixtures.of_sets(remaining)
        statistics = sufficient_statistics(points, responsibilities)
        mixtures = m_step(statistics, points.sizes, mixtures, min_variance=min_variance)
    return result
