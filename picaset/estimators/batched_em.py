r"""Expectation-maximization for many sets from many starts at once, by matrix products.

With the features f(x) = (1, x, x^2) of a point, the logarithm of a diagonal Gaussian's density is linear in f, and so
are the sums that its new moments are made of:

    log pi_k N(x_n; mu_k, var_k) = a_k . f(x_n)        (R_k, sum r x, sum r x^2) = sum_n r_kn f(x_n)

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
"""Powers of two are cheaper than those of e."""


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
    return Points(torch.cat([present, across, across.square()], dim=1), present.sum(dim=(1, 2)))


def em_step(points: Points, starts: Starts, *, min_variance: float) -> tuple[Float[Tensor, "B S"], Starts]:
    """The average log-likelihood of each start, and the mixtures one step after them."""
    (sets, count, components, dim), one_variance = starts.means.shape, starts.variances.shape[-1] == 1
    scores = (densities(starts).flatten(1, 2) @ points.features).view(sets, count, components, -1)  # (B, S, K, N)
    largest = scores.amax(dim=2, keepdim=True)
    # Numbers too small for the format are slow to compute with and contribute nothing: they are cut off.
    lowest = math.log2(torch.finfo(scores.dtype).tiny) + 10
    shares = scores.sub_(largest).clamp_(min=lowest).exp2_()
    total = shares.sum(dim=2, keepdim=True)
    per_point = largest.add_(total.log2())[:, :, 0]  # (B, S, N)
    likelihood = (per_point * points.features[:, :1]).sum(dim=2) / (LOG2_E * points.sizes[:, None])
    shares.div_(total)

    # Features times shares: with few features, this way round is several times faster than the other.
    sums = points.features @ shares.view(sets, count * components, -1).transpose(1, 2)  # (B, F, S K)
    sums = sums.view(sets, -1, count, components).permute(0, 2, 3, 1)  # (B, S, K, F)
    held = sums[..., :1]
    means = sums[..., 1 : 1 + dim] / held
    variances = sums[..., 1 + dim :] / held - means.square()
    if one_variance:
        variances = variances.mean(dim=-1, keepdim=True)
    log_weights = (held[..., 0] / points.sizes[:, None, None]).log()
    log_weights = log_weights.masked_fill(starts.log_weights == -torch.inf, -torch.inf)
    return likelihood, Starts(means, variances.clamp(min=min_variance), log_weights)


def densities(starts: Starts) -> Float[Tensor, "B S K F"]:
    """What the features of a point are multiplied with to give the logarithm of the joint density, to the base 2."""
    precisions = starts.variances.reciprocal().expand_as(starts.means)
    log_volume = starts.means.shape[-1] * math.log(2 * math.pi) - precisions.log().sum(dim=-1)
    constant = starts.log_weights - 0.5 * ((starts.means.square() * precisions).sum(dim=-1) + log_volume)
    constant = constant.clamp(min=-1e30)  # of an absent component; infinity times an absent point would be NaN
    return LOG2_E * torch.cat([constant[..., None], starts.means * precisions, -0.5 * precisions], dim=-1)


class Climbed(NamedTuple):
    """Where each start arrived, its average log-likelihood there, and the steps that its set took."""

    starts: Starts
    log_likelihood: Float[Tensor, "B S"]
    steps: Int[Tensor, " B"]
    converged: Bool[Tensor, " B"]


def climb(
    points: Points, starts: Starts, *, steps: int, min_variance: float, tol: float = 0.0, look_every: int = 5
) -> Climbed:
    """Take at most ``steps`` steps; a set of which no start gains ``tol`` in a step any more takes no further ones."""
    sets, device = len(points.sizes), points.sizes.device
    found = Climbed(
        Starts(*(torch.empty_like(part) for part in starts)),
        torch.empty_like(starts.log_weights[..., 0]),
        torch.empty(sets, dtype=torch.long, device=device),
        torch.empty(sets, dtype=torch.bool, device=device),
    )
    going, previous = torch.arange(sets, device=device), found.log_likelihood.new_tensor(-torch.inf)
    for step in range(steps + 1):
        likelihood, following = em_step(points, starts, min_variance=min_variance)
        if step == steps or (tol > 0 and step > 0 and step % look_every == 0):
            converged = (likelihood - previous < tol).all(dim=1)
            ends = converged | (step == steps)
            there = going[ends]
            for whole, part in zip((*found.starts, *found[1:]), (*starts, likelihood, None, converged), strict=True):
                whole[there] = step if part is None else part[ends]
            if bool(ends.all()):
                break
            stays = (~ends).nonzero()[:, 0]
            going, likelihood, points, following = (
                going[stays],
                likelihood[stays],
                points.of(stays),
                following.of(stays),
            )
        previous, starts = likelihood, following
    return found
