"""A hierarchical Gaussian model of sets, and with it a robust Mahalanobis distance for sets of any size.

Every set has its own mean and covariance. They are drawn from a normal-inverse-Wishart distribution that all sets
share and that is fitted by marginal likelihood, so that it describes how much sets differ in location and in shape. A
set of five elements is then judged mostly by what is common to all sets, a set of five hundred by itself.

    mean_i, covariance_i ~ NIW(mean, strength, scatter, dof)        x ~ Normal(mean_i, covariance_i)

An element is compared with the *other* elements of its set (leave-one-out), without the most deviating of them, as in
the minimum covariance determinant (Rousseeuw and Van Driessen, 1999). The densities of an element, given its set and
given no set, are multivariate Student t (Murphy, "Conjugate Bayesian analysis of the Gaussian distribution", 2007).

Dimensions:  B sets   N elements (padded)   D features
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from picaset.estimators.validation import from_scikit_learn

MIN_VARIANCE = 1e-6
"""Lower bound of the variance within a set, for features of unit variance: constant and tied values stay finite."""
KEPT = 0.75
"""Minimum share of its elements from which the mean and the covariance of a set are estimated."""
TAIL = 0.01
"""Elements beyond this tail probability do not contribute to the estimate of their set, as far as ``KEPT`` allows."""
NUM_STARTS, LARGE = 6, 100
"""Number of starts of the search for typical elements; two for sets of more than ``LARGE`` elements."""
NUM_STEPS = 4
"""Number of concentration steps from each start."""

f_tail: Any = from_scikit_learn("scipy.special", "fdtrc")
linalg = cast(Any, torch.linalg)  # PyTorch has no types for it


class Moments(NamedTuple):
    """Number, mean and scatter matrix of the weighted elements of each set."""

    total: Float[Tensor, " B"]
    mean: Float[Tensor, "B D"]
    scatter: Float[Tensor, "B D D"]


class Densities(NamedTuple):
    """Log density of each element given the other elements of its set."""

    log_density: Float[Tensor, "B N"]
    squared: Float[Tensor, "B N"]
    """Squared Mahalanobis distance; divided by D, it has an F distribution with D and ``dof`` degrees of freedom."""
    dof: Float[Tensor, "B N"]


class GaussianSets(NamedTuple):
    """The normal-inverse-Wishart distribution of the means and covariances of sets; all in float64."""

    mean: Float[Tensor, " D"]
    strength: Float[Tensor, ""]
    """Number of elements that the shared mean counts for."""
    scatter: Float[Tensor, "D D"]
    dof: Float[Tensor, ""]
    """Number of elements that the shared covariance counts for."""

    def score(self, elements: Float[Tensor, "B N D"], mask: Bool[Tensor, "B N"]) -> Float[Tensor, "B N"]:
        """Return the log Bayes factor of each element: from any set, against from this set."""
        typical = self.typical_elements(elements, mask)
        return self.prior_log_density(elements) - self.densities(elements, typical).log_density

    def posterior(self, moments: Moments) -> "GaussianSets":
        """Return the distribution of the mean and covariance of each set given its elements, batched."""
        count, mean, scatter = moments
        strength, shift = self.strength + count, mean - self.mean
        between = (self.strength * count / strength)[:, None, None] * shift[:, :, None] * shift[:, None, :]
        updated = (self.strength * self.mean + count[:, None] * mean) / strength[:, None]
        return GaussianSets(updated, strength, self.scatter + scatter + between, self.dof + count)

    def log_marginal(self, moments: Moments) -> Float[Tensor, " B"]:
        """Return the log probability of the elements of each set, with its mean and covariance integrated out."""
        dim, posterior = moments.mean.shape[1], self.posterior(moments)
        return (
            torch.mvlgamma(posterior.dof / 2, dim)
            - torch.mvlgamma(self.dof / 2, dim)
            + self.dof / 2 * torch.logdet(self.scatter)
            - posterior.dof / 2 * torch.logdet(posterior.scatter)
            + dim / 2 * torch.log(self.strength / posterior.strength)
            - moments.total * dim / 2 * math.log(math.pi)
        )

    def densities(self, elements: Float[Tensor, "B N D"], weights: Float[Tensor, "B N"]) -> Densities:
        """Return the densities given the elements of weight one; an element never counts for itself."""
        dim, posterior = elements.shape[2], self.posterior(moments_of(elements, weights))
        factor: Tensor = linalg.cholesky(posterior.scatter)
        centred = (elements - posterior.mean[:, None]).mT
        distance: Tensor = linalg.solve_triangular(factor, centred, upper=False).square().sum(dim=1)
        log_det = 2 * factor.diagonal(dim1=1, dim2=2).log().sum(dim=1)[:, None]
        # Removing an element is a rank-one change of the scatter matrix, so no matrix is inverted again.
        strength, dof, removed = posterior.strength[:, None], posterior.dof[:, None], weights > 0
        ratio = torch.where(removed, strength / (strength - 1), 1.0)
        remainder = torch.where(removed, (1 - ratio * distance).clamp(min=1e-12), 1.0)
        strength, dof = strength - weights, dof - weights - dim + 1
        scale = (strength + 1) / (strength * dof)
        squared = ratio.square() * distance / remainder / scale
        log_density = student_log_density(squared, dof, log_det + remainder.log() + dim * scale.log(), dim)
        return Densities(log_density, squared, dof)

    def prior_log_density(self, elements: Float[Tensor, "B N D"]) -> Float[Tensor, "B N"]:
        """Return the log density of each element of an unknown set."""
        dim = elements.shape[2]
        dof = self.dof - dim + 1
        scale = (self.strength + 1) / (self.strength * dof)
        factor: Tensor = linalg.cholesky(self.scatter)
        centred = (elements - self.mean).flatten(0, 1).mT
        squared: Tensor = linalg.solve_triangular(factor, centred, upper=False).square().sum(dim=0) / scale
        log_det = 2 * factor.diagonal().log().sum() + dim * scale.log()
        return student_log_density(squared.view(elements.shape[:2]), dof, log_det, dim)

    def typical_elements(self, elements: Float[Tensor, "B N D"], mask: Bool[Tensor, "B N"]) -> Float[Tensor, "B N"]:
        """Return 1 for the share ``KEPT`` of each set whose elements fit each other best, 0 otherwise."""
        sizes = mask.sum(dim=1)
        kept = (KEPT * sizes).ceil().long()
        best, best_value = mask.double(), torch.full((len(mask),), -torch.inf, dtype=torch.float64)
        for start in range(1 + (NUM_STARTS if mask.shape[1] <= LARGE else 1)):
            weights = mask.double()
            if start:
                # The half or quarter of the set around its median in one direction: the same, whatever the order of the
                # elements and the other sets are.
                count = torch.maximum((sizes / (2 if start % 2 else 4)).ceil().long(), kept.clamp(max=2))
                generator = torch.Generator().manual_seed(start)
                projected = elements @ torch.randn(elements.shape[2], generator=generator, dtype=torch.float64)
                ordered = projected.masked_fill(~mask, torch.inf).sort(dim=1).values
                median = ordered.gather(1, ((sizes - 1) // 2)[:, None])
                weights = largest(-(projected - median).abs(), count, mask)
            for _ in range(NUM_STEPS):
                weights = largest(self.densities(elements, weights).log_density, kept, mask)
            value = self.log_marginal(moments_of(elements, weights))
            best = torch.where((value > best_value)[:, None], weights, best)
            best_value = torch.maximum(value, best_value)
        for _ in range(3):
            log_density, squared, dof = self.densities(elements, best)
            tail = torch.as_tensor(f_tail(elements.shape[2], dof.numpy(), (squared / elements.shape[2]).numpy()))
            best = torch.maximum(((tail > TAIL) & mask).double(), largest(log_density, kept, mask))
        return best


def fit_gaussian_sets(
    batches: Sequence[tuple[Float[Tensor, "_ _ D"], Bool[Tensor, "_ _"]]], *, num_rounds: int = 3
) -> GaussianSets:
    """Fit the shared distribution to padded batches of sets, leaving out the least typical elements of each set."""
    weights = [mask.double() for _, mask in batches]
    for last in [*[False] * (num_rounds - 1), True]:
        parts = [moments_of(elements, weight) for (elements, _), weight in zip(batches, weights, strict=True)]
        model = maximize_marginal(Moments(*(torch.cat(part) for part in zip(*parts, strict=True))))
        if not last:
            weights = [model.typical_elements(elements, mask) for elements, mask in batches]
    return model  # pyright: ignore[reportPossiblyUnboundVariable]


def maximize_marginal(moments: Moments) -> GaussianSets:
    """Maximize the marginal likelihood of all sets over the shared distribution, by L-BFGS."""
    dim = moments.mean.shape[1]
    floor = MIN_VARIANCE * torch.eye(dim, dtype=torch.float64)
    within = moments.scatter.sum(dim=0) / (moments.total - 1).clamp(min=0).sum().clamp(min=1) + floor
    start: list[Tensor] = [
        moments.mean.mean(dim=0),
        torch.tensor(-1.0, dtype=torch.float64),
        torch.tensor(1.5, dtype=torch.float64),
        2 * linalg.cholesky(within),
    ]
    mean, log_strength, log_dof, factor = parameters = [value.clone().contiguous().requires_grad_() for value in start]

    def current() -> GaussianSets:
        dof, lower = dim - 0.9 + log_dof.exp(), factor.tril()
        return GaussianSets(mean, log_strength.exp(), lower @ lower.mT + dof * floor, dof)

    optimizer = torch.optim.LBFGS(parameters, max_iter=50, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        # The weak prior keeps both finite where few sets say nothing about them.
        penalty = (log_strength.square() + log_dof.square()) / 16
        loss = (penalty - current().log_marginal(moments).sum()) / moments.total.sum()
        loss.backward()  # pyright: ignore[reportUnknownMemberType]
        return loss

    optimizer.step(closure)  # pyright: ignore[reportUnknownMemberType, reportArgumentType]
    return GaussianSets(*(value.detach() for value in current()))


def moments_of(elements: Float[Tensor, "B N D"], weights: Float[Tensor, "B N"]) -> Moments:
    count = weights.sum(dim=1)
    mean = torch.einsum("bn,bnd->bd", weights, elements) / count.clamp(min=1)[:, None]
    centred = (elements - mean[:, None]) * weights[..., None]
    return Moments(count, mean, centred.mT @ centred)


def student_log_density(squared: Tensor, dof: Tensor, log_det: Tensor, dim: int) -> Tensor:
    """Return the log density of a multivariate Student t at a squared Mahalanobis distance."""
    constant = torch.lgamma((dof + dim) / 2) - torch.lgamma(dof / 2) - dim / 2 * torch.log(dof * math.pi)
    return constant - log_det / 2 - (dof + dim) / 2 * torch.log1p(squared / dof)


def largest(values: Float[Tensor, "B N"], count: Int[Tensor, " B"], mask: Bool[Tensor, "B N"]) -> Float[Tensor, "B N"]:
    """Return 1 for the ``count`` largest values of each set, 0 otherwise."""
    ranks = values.masked_fill(~mask, -torch.inf).argsort(dim=1, descending=True).argsort(dim=1)
    return ((ranks < count[:, None]) & mask).double()
