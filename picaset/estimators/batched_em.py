r"""Expectation-maximization for many sets and many mixtures of each at once, by matrix products.

With the features f(x) = (1, x, products of two coordinates of x), the log-density of a Gaussian is linear in f, and the
sufficient statistics of a component are sums of f weighted by its responsibilities:

    log pi_k N(x_n; mu_k, Sigma_k) = a_k . f(x_n)        (R_k, sum r x, sum r x x^T) = sum_n w_n r_kn f(x_n)

A step is two matrix products, a softmax, and a Cholesky factorization for each component. Spherical and diagonal
covariances need the squares of the coordinates only; full ones need all products, and tied ones need them once for all
components, because the quadratic form and the sum of the scatter matrices are the same for all. A uniform background is
one more component, whose density does not depend on x. Products of large coordinates lose precision, so points must be
standardized: zero mean and unit variance in every column.

Dimensions:  B sets   N points (padded)   S mixtures of a set   K components   D coordinates   F features
             L = K, or K + 1 with a background, whose weight is the last
"""

import math
from functools import cache
from typing import Literal, NamedTuple, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Covariance = Literal["spherical", "diag", "tied", "full"]
LOG2_E = math.log2(math.e)
CHECK_EVERY = 4
"""Number of steps between two checks for convergence."""


class Mixtures(NamedTuple):
    """Several Gaussian mixtures for each set.

    Shapes:
        means        (B, S, K, D)
        covariances  (B, S, K, D) variances if spherical or diagonal; (B, S, K, D, D) if full, with K = 1 if tied
        log_weights  (B, S, L)
    """

    means: Float[Tensor, "B S K D"]
    covariances: Float[Tensor, "B S ..."]
    log_weights: Float[Tensor, "B S L"]

    def of_sets(self, sets: Int[Tensor, " b"] | slice) -> "Mixtures":
        """Return the mixtures of some of the sets."""
        return Mixtures(*(part[sets] for part in self))

    def select(self, indices: Int[Tensor, "B s"]) -> "Mixtures":
        """Return s of the S mixtures of each set."""
        sets = torch.arange(len(indices), device=indices.device)[:, None]
        return Mixtures(*(part[sets, indices] for part in self))

    def double(self) -> "Mixtures":
        """Return the mixtures in double precision."""
        return Mixtures(*(part.double() for part in self))


class Points(NamedTuple):
    """Features of the points of each set, and what the maximization needs to know about the set.

    Shapes:
        features          (B, F, N)    zero for padding
        weights           (B, N)       zero for padding
        log_background    (B,)         log-density of the uniform background
        relative_scales   (B, D)       squared scale of each column, relative to their mean; for spherical covariances
    """

    features: Float[Tensor, "B F N"]
    weights: Float[Tensor, "B N"]
    log_background: Float[Tensor, " B"]
    relative_scales: Float[Tensor, "B D"]

    @property
    def totals(self) -> Float[Tensor, " B"]:
        """Total weight of the points of each set."""
        return self.weights.sum(dim=1)

    def of_sets(self, sets: Int[Tensor, " b"] | slice) -> "Points":
        """Return the features of some of the sets."""
        return Points(*(part[sets] for part in self))


def is_axis_aligned(covariance: Covariance) -> bool:
    return covariance in ("spherical", "diag")


@cache
def pairs(dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the row and column of each product of two coordinates, and the product of each entry of a matrix."""
    rows, columns = torch.triu_indices(dim, dim)
    entries = torch.empty(dim, dim, dtype=torch.long)
    entries[rows, columns] = entries[columns, rows] = torch.arange(len(rows))
    return rows, columns, entries.flatten()


def products(points: Float[Tensor, "B N D"], covariance: Covariance) -> Float[Tensor, "B F N"]:
    """Return the features of standardized points, without the effect of padding."""
    coordinates = points.transpose(1, 2).contiguous()
    if is_axis_aligned(covariance):
        quadratic = [coordinates.square()]
    else:  # in the order of ``pairs``
        quadratic = [coordinates[:, row : row + 1] * coordinates[:, row:] for row in range(points.shape[2])]
    return torch.cat([torch.ones_like(coordinates[:, :1]), coordinates, *quadratic], dim=1)


def point_features(
    points: Float[Tensor, "B N D"],
    weights: Float[Tensor, "B N"] | None = None,
    *,
    covariance: Covariance,
    log_background: Float[Tensor, " B"] | None = None,
    relative_scales: Float[Tensor, "B D"] | None = None,
) -> Points:
    """Compute the features of standardized points; points of weight zero are padding."""
    if weights is None:
        weights = torch.ones_like(points[..., 0])
    present = weights > 0
    features = products(points * present[..., None], covariance)
    features[:, 0] = present
    if log_background is None:
        log_background = points.new_zeros(len(points))
    if relative_scales is None:
        relative_scales = torch.ones_like(points[:, 0])
    return Points(features, weights, log_background, relative_scales)


def cholesky(covariances: Float[Tensor, "*batch D D"]) -> Float[Tensor, "*batch D D"]:
    """Factorize covariances; off-diagonal entries of a matrix that is not positive definite are ignored."""
    factors, failures = cast(tuple[Tensor, Tensor], torch.linalg.cholesky_ex(covariances))  # pyright: ignore[reportUnknownMemberType]
    if bool(failures.any()):
        variances = covariances.diagonal(dim1=-2, dim2=-1)
        factors = torch.where((failures > 0)[..., None, None], variances.sqrt().diag_embed(), factors)
    return factors


def log2_coefficients(
    mixtures: Mixtures, covariance: Covariance, log_background: Float[Tensor, " B"]
) -> Float[Tensor, "B S L F"]:
    """Return the coefficients of the joint log-density to base 2, whose powers are cheaper than those of e."""
    means, covariances, log_weights = mixtures
    components, dim = means.shape[2:]
    if is_axis_aligned(covariance):
        precisions = covariances.reciprocal()
        linear, log_volume = precisions * means, covariances.log().sum(dim=-1)
        quadratic = -0.5 * precisions
    else:
        factors = cholesky(covariances)
        precisions = torch.cholesky_inverse(factors)
        linear = (precisions @ means[..., None])[..., 0]
        log_volume = 2 * factors.diagonal(dim1=-2, dim2=-1).log().sum(dim=-1)
        rows, columns, _ = pairs(dim)
        quadratic = precisions[..., rows, columns] * torch.where(rows == columns, -0.5, -1.0).to(means)
        quadratic = quadratic.expand(*means.shape[:3], -1)
    constant = -0.5 * (log_volume + (linear * means).sum(dim=-1) + dim * math.log(2 * math.pi))
    # The infinity of an absent component times the zero of an absent point would be NaN.
    constant = constant + log_weights[..., :components].clamp(min=-1e30)
    coefficients = torch.cat([constant[..., None], linear, quadratic], dim=-1)
    if log_weights.shape[2] > components:
        background = torch.zeros_like(coefficients[:, :, :1])
        background[..., 0] = log_weights[..., components:].clamp(min=-1e30) + log_background[:, None, None]
        coefficients = torch.cat([coefficients, background], dim=2)
    return LOG2_E * coefficients


class Expectation(NamedTuple):
    """Result of the E step.

    Shapes:
        responsibilities  (B, S, L, N)    sum to the weight of the point over the components
        log2_densities    (B, S, N)       log2 density of each point
    """

    responsibilities: Float[Tensor, "B S L N"]
    log2_densities: Float[Tensor, "B S N"]

    def log_likelihood(self, points: Points) -> Float[Tensor, "B S"]:
        """Return the average natural log-likelihood over the points of each set."""
        return (self.log2_densities * points.weights[:, None]).sum(dim=2) / (LOG2_E * points.totals[:, None])


def e_step(points: Points, mixtures: Mixtures, covariance: Covariance) -> Expectation:
    """Return responsibilities and the log2 density of each point."""
    coefficients = log2_coefficients(mixtures, covariance, points.log_background)
    sets, count, components, _ = coefficients.shape
    num_linear = num_separate_features(points, covariance)
    features = points.features[:, :num_linear]
    scores = (coefficients[..., :num_linear].flatten(1, 2) @ features).view(sets, count, components, -1)
    if covariance == "tied":
        shared = coefficients[:, :, 0, num_linear:] @ points.features[:, num_linear:]
        scores[:, :, : mixtures.means.shape[2]] += shared[:, :, None]
    largest = scores.amax(dim=2, keepdim=True)
    # Smaller powers contribute nothing, and arithmetic on subnormal numbers is slow.
    lowest = math.log2(torch.finfo(scores.dtype).tiny) + 10
    powers = scores.sub_(largest).clamp_(min=lowest).exp2_()
    total = powers.sum(dim=2, keepdim=True)
    return Expectation(powers.mul_(points.weights[:, None, None] / total), largest.add_(total.log2_())[:, :, 0])


def num_separate_features(points: Points, covariance: Covariance) -> int:
    """Return how many features have coefficients for each component; tied covariances share those of the products."""
    return 1 + points.relative_scales.shape[1] if covariance == "tied" else points.features.shape[1]


def sufficient_statistics(
    points: Points, responsibilities: Float[Tensor, "B S L N"], covariance: Covariance, *, num_components: int
) -> Float[Tensor, "B S L F"]:
    """Sum the features weighted by the responsibilities; the statistics of the chunks of a set add up.

    Tied covariances need the products summed over all components only; they are returned with the first.
    """
    sets, count, components, _ = responsibilities.shape
    num_separate = num_separate_features(points, covariance)
    features = points.features[:, :num_separate]
    sums = features @ responsibilities.reshape(sets, count * components, -1).transpose(1, 2)  # (B, F, S L)
    statistics = sums.view(sets, -1, count, components).permute(0, 2, 3, 1)
    if covariance == "tied":
        total = responsibilities[:, :, :num_components].sum(dim=2)
        shared = total @ points.features[:, num_separate:].transpose(1, 2)  # (B, S, F)
        statistics = torch.cat([statistics, shared.new_zeros(*statistics.shape[:3], shared.shape[2])], dim=3)
        statistics[:, :, 0, num_separate:] = shared
    return statistics


def m_step(
    statistics: Float[Tensor, "B S L F"],
    covariance: Covariance,
    relative_scales: Float[Tensor, "B D"],
    *,
    num_components: int,
    min_variance: float,
) -> Mixtures:
    """Return the most likely mixtures for these statistics; ``min_variance`` is added to every variance."""
    dim = relative_scales.shape[1]
    counts = statistics[:, :, :num_components, :1]
    sums = statistics[:, :, :num_components, 1 : 1 + dim]
    squares = statistics[:, :, :num_components, 1 + dim :]
    positive = counts.clamp(min=torch.finfo(counts.dtype).tiny ** 0.5)  # an absent component must not divide by zero
    means = sums / positive
    if is_axis_aligned(covariance):
        covariances = (squares / positive - means.square()).clamp(min=0)
        if covariance == "spherical":
            scales = relative_scales[:, None, None]
            covariances = ((covariances * scales).mean(dim=-1, keepdim=True) + min_variance) / scales
        else:
            covariances = covariances + min_variance
    else:
        matrices = squares[..., pairs(dim)[2]].view(*squares.shape[:3], dim, dim)
        outer = means[..., :, None] * means[..., None, :]
        if covariance == "tied":
            matrices = matrices.sum(dim=2, keepdim=True) - (counts[..., None] * outer).sum(dim=2, keepdim=True)
            covariances = matrices / counts.sum(dim=2, keepdim=True).clamp(min=1e-30)[..., None]
        else:
            covariances = matrices / positive[..., None] - outer
        diagonal = covariances.diagonal(dim1=-2, dim2=-1)
        diagonal.clamp_(min=0).add_(min_variance)
    weights = statistics[..., 0]
    return Mixtures(means, covariances, (weights / weights.sum(dim=2, keepdim=True)).log())


def statistics_of_mixtures(mixtures: Mixtures, covariance: Covariance, *, min_variance: float) -> Tensor:
    """Return the statistics per point, (B, S, L, F), from which the M step gives these mixtures."""
    means, covariances, log_weights = mixtures
    dim = means.shape[3]
    if is_axis_aligned(covariance):
        seconds = covariances - min_variance + means.square()
    else:
        matrices = covariances - min_variance * torch.eye(dim, dtype=means.dtype, device=means.device)
        rows, columns, _ = pairs(dim)
        seconds = (matrices + means[..., :, None] * means[..., None, :])[..., rows, columns]
    moments = torch.cat([torch.ones_like(means[..., :1]), means, seconds], dim=-1)
    background = torch.zeros_like(moments[:, :, :1])
    background[..., 0] = 1.0
    moments = torch.cat([moments, background], dim=2)[:, :, : log_weights.shape[2]]
    return moments * log_weights.exp()[..., None]


class FitResult(NamedTuple):
    """Fitted mixtures, their average log-likelihood, and the number of steps and convergence of each set."""

    mixtures: Mixtures
    log_likelihood: Float[Tensor, "B S"]
    steps: Int[Tensor, " B"]
    converged: Bool[Tensor, " B"]


def fit_mixtures(
    points: Points,
    mixtures: Mixtures,
    covariance: Covariance,
    *,
    max_steps: int,
    min_variance: float,
    tol: float = 0.0,
    prior: Float[Tensor, "B S L F"] | None = None,
) -> FitResult:
    """Run expectation-maximization from each of the mixtures.

    Every few steps, a set has converged if none of its mixtures has gained ``tol`` per step since the last check; it
    takes no further steps. ``prior`` are statistics of points that were seen before; they are added in every step.
    """
    sets, device = len(points.features), points.features.device
    result = FitResult(
        Mixtures(*(torch.empty_like(part) for part in mixtures)),
        torch.empty_like(mixtures.log_weights[..., 0]),
        torch.empty(sets, dtype=torch.long, device=device),
        torch.empty(sets, dtype=torch.bool, device=device),
    )
    active, previous = torch.arange(sets, device=device), result.log_likelihood.new_tensor(-torch.inf)
    for step in range(max_steps + 1):
        expectation = e_step(points, mixtures, covariance)
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
                prior = None if prior is None else prior[remaining]
        components = mixtures.means.shape[2]
        statistics = sufficient_statistics(points, responsibilities, covariance, num_components=components)
        if prior is not None:
            statistics = statistics + prior
        mixtures = m_step(
            statistics, covariance, points.relative_scales, num_components=components, min_variance=min_variance
        )
    return result
