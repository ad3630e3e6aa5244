r"""Expectation-maximization for many sets from many starts at once, by matrix products.

With the features f(x) = (1, 2 x, -x^2) of a point, the logarithm of a diagonal Gaussian's density is linear in f, and
so are the sums that its new moments are made of:

    log pi_k N(x_n; mu_k, var_k) = a_k . f(x_n)        (R_k, 2 sum r x, -sum r x^2) = sum_n r_kn f(x_n)

A step is two products and a softmax over components: the step of :func:`picaset.em_step`, several times faster. The
squares of far points lose digits, so points must be canonical: at the origin, with unit spread.

Dimensions:  B sets   N points (padded)   S starts   K components   D coordinates   F = 1 + 2 D features
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

LOG2_E = math.log2(math.e)


class Starts(NamedTuple):
    """Mixtures from which one set is climbed; a component of weight zero is absent.

    Shapes:
        means        (B, S, K, D)
        variances    (B, S, K, 1) or (B, S, K, D)
        log_weights  (B, S, K)
    """

    means: Float[Tensor, "B S K D"]
    variances: Float[Tensor, "B S K V"]
    log_weights: Float[Tensor, "B S K"]

    def of(self, sets: Int[Tensor, " b"]) -> "Starts":
        """Those of some of the sets."""
        return Starts(*(part[sets] for part in self))

    def best(self, chosen: Int[Tensor, "B C"]) -> "Starts":
        """The chosen starts of each set."""
        rows = torch.arange(len(chosen), device=chosen.device)[:, None]
        return Starts(*(part[rows, chosen] for part in self))


class Points(NamedTuple):
    """The features of points.

    Shapes:
        features  (B, F, N)    zero for absent points
        sizes     (B,)
    """

    features: Float[Tensor, "B F N"]
    sizes: Float[Tensor, " B"]

    def of(self, sets: Int[Tensor, " b"]) -> "Points":
        """Those of some of the sets."""
        return Points(self.features[sets], self.sizes[sets])


def features(points: Float[Tensor, "B N D"], mask: Bool[Tensor, "B N"] | None) -> Points:
    """Of canonical points, zero where absent."""
    across = points.transpose(1, 2)
    present = torch.ones_like(across[:, :1]) if mask is None else mask[:, None].to(points.dtype)
    return Points(torch.cat([present, 2 * across, -across.square()], dim=1), present.sum(dim=(1, 2)))


def log_densities(points: Points, starts: Starts) -> Float[Tensor, "B S K N"]:
    """Of every component, times its weight, at every point; to the base 2, whose powers are cheaper than those of e."""
    sets, count, components, dim = starts.means.shape
    precisions = (0.5 * LOG2_E / starts.variances).expand_as(starts.means)
    linear = precisions * starts.means
    # Infinity, of an absent component, times zero, of an absent point, would be NaN.
    log_weights = (LOG2_E * starts.log_weights).clamp(min=-1e30)
    volume = (precisions.log2().sum(dim=-1) - dim * math.log2(math.pi * LOG2_E)) / 2
    constant = log_weights + volume - (linear * starts.means).sum(dim=-1)
    coefficients = torch.cat([constant[..., None], linear, precisions], dim=-1)  # (B, S, K, F)
    return (coefficients.flatten(1, 2) @ points.features).view(sets, count, components, -1)


class Expectation(NamedTuple):
    """Whose each point is, and how likely it is to the base 2.

    Shapes:
        shares     (B, S, K, N)    of the components, for each point adding up to one
        per_point  (B, S, N)       logarithm of the density
    """

    shares: Float[Tensor, "B S K N"]
    per_point: Float[Tensor, "B S N"]

    def log_likelihood(self, points: Points) -> Float[Tensor, "B S"]:
        """The average over the points of a set; absent ones count zero."""
        return (self.per_point * points.features[:, :1]).sum(dim=2) / (LOG2_E * points.sizes[:, None])


def expect(points: Points, starts: Starts) -> Expectation:
    """The first half of a step."""
    scores = log_densities(points, starts)
    largest = scores.amax(dim=2, keepdim=True)
    # Smaller powers contribute nothing, and numbers too small for the format are slow to compute with.
    lowest = math.log2(torch.finfo(scores.dtype).tiny) + 10
    shares = scores.sub_(largest).clamp_(min=lowest).exp2_()
    total = shares.sum(dim=2, keepdim=True)
    return Expectation(shares.div_(total), largest.add_(total.log2_())[:, :, 0])


def maximize(points: Points, shares: Float[Tensor, "B S K N"], starts: Starts, *, min_variance: float) -> Starts:
    """The second half of a step: the mixtures after it. A component of weight zero keeps it."""
    return from_sums(sums_of(points, shares), points.sizes, starts, min_variance=min_variance)


def sums_of(points: Points, shares: Float[Tensor, "B S K N"]) -> Float[Tensor, "B S K F"]:
    """Features times shares, added up over the points: what a mixture is made of. Those of parts of a set add up."""
    sets, count, components, _ = shares.shape
    # With few features, this way round is several times faster than the other.
    sums = points.features @ shares.view(sets, count * components, -1).transpose(1, 2)  # (B, F, S K)
    return sums.view(sets, -1, count, components).permute(0, 2, 3, 1)


def from_sums(
    sums: Float[Tensor, "B S K F"], sizes: Float[Tensor, " B"], starts: Starts, *, min_variance: float
) -> Starts:
    """The mixtures that the sums of sets of these sizes make."""
    dim = starts.means.shape[3]
    held = sums[..., :1]
    moments = sums[..., 1:] / held
    means = moments[..., :dim] / 2
    variances = -moments[..., dim:] - means.square()
    if starts.variances.shape[-1] == 1:
        variances = variances.mean(dim=-1, keepdim=True)
    log_weights = (held[..., 0] / sizes[:, None, None]).log()
    absent = starts.log_weights == -torch.inf
    return Starts(means, variances.clamp(min=min_variance), log_weights.masked_fill(absent, -torch.inf))


class Climbed(NamedTuple):
    """Where each start arrived, its average log-likelihood there, and the steps that its set took."""

    starts: Starts
    log_likelihood: Float[Tensor, "B S"]
    steps: Int[Tensor, " B"]
    converged: Bool[Tensor, " B"]


def climb(
    points: Points, starts: Starts, *, steps: int, min_variance: float, tol: float = 0.0, look_every: int = 4
) -> Climbed:
    """Take at most ``steps`` steps.

    Every few steps, sets of which no start gained ``tol`` per step since the last look have arrived, and take no more.
    """
    sets, device = len(points.sizes), points.sizes.device
    found = Climbed(
        Starts(*(torch.empty_like(part) for part in starts)),
        torch.empty_like(starts.log_weights[..., 0]),
        torch.empty(sets, dtype=torch.long, device=device),
        torch.empty(sets, dtype=torch.bool, device=device),
    )
    going, previous = torch.arange(sets, device=device), found.log_likelihood.new_tensor(-torch.inf)
    for step in range(steps + 1):
        expected = expect(points, starts)
        shares = expected.shares
        if step == steps or (tol > 0 and step % look_every == 0):
            likelihood = expected.log_likelihood(points)
            converged = (likelihood - previous < tol * look_every).all(dim=1)
            ends = converged if step < steps else torch.ones_like(converged)
            previous = likelihood
            if bool(ends.any()):
                there, stays = going[ends], (~ends).nonzero()[:, 0]
                for whole, part in zip((*found.starts, found.log_likelihood), (*starts, likelihood), strict=True):
                    whole[there] = part[ends]
                found.steps[there], found.converged[there] = step, converged[ends]
                if len(stays) == 0:
                    break
                going, previous, shares = going[stays], likelihood[stays], shares[stays]
                points, starts = points.of(stays), starts.of(stays)
        starts = maximize(points, shares, starts, min_variance=min_variance)
    return found
