r"""Gaussian mixtures of many sets at once: log-likelihood, and the EM step that raises it.

    E   r_kn = softmax_k(log pi_k + log N(x_n; mu_k, var_k))
    M   mu_k = sum_n r_kn x_n / R_k,   var_k = sum_n r_kn (x_n - mu_k)^2 / R_k,   pi_k = R_k / n

Batched, masked and differentiable. A component that holds no point keeps its mean and variance;
an empty set keeps its mixture. Dempster, Laird and Rubin 1977.

Dimensions:  B sets   N elements (padded)   K components   D features
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from picaset.operators.inputs import read_elements
from picaset.sets import SetBatch


class Mixture(NamedTuple):
    """A Gaussian mixture for each set; one variance per component is spherical, D are diagonal.

    Shapes:
        means        (B, K, D)
        variances    (B, K, 1) or (B, K, D)
        log_weights  (B, K)
    """

    means: Float[Tensor, "B K D"]
    variances: Float[Tensor, "B K V"]
    log_weights: Float[Tensor, "B K"]


def joint_log_density(mixture: Mixture, elements: Float[Tensor, "B N D"]) -> Float[Tensor, "B K N"]:
    r"""log of :math:`\pi_k N(x_n; \mu_k, \sigma_k^2)` for every component and element."""
    means, variances, log_weights = mixture
    variances = variances.expand_as(means)
    differences = elements[:, None] - means[:, :, None]  # (B, K, N, D)
    exponent = (differences.square() / variances[:, :, None]).sum(dim=-1)  # (B, K, N)
    log_volume = variances.log().sum(dim=-1) + means.shape[-1] * math.log(2 * math.pi)
    return log_weights[..., None] - 0.5 * (exponent + log_volume[..., None])


def log_likelihood(
    mixture: Mixture,
    elements: Float[Tensor, "B N D"] | SetBatch,
    mask: Bool[Tensor, "B N"] | None = None,
) -> Float[Tensor, " B"]:
    """The average log-likelihood of a set's elements (Eq. 8 per point); zero for an empty set.

    Example:
        >>> standard = Mixture(torch.zeros(1, 1, 2), torch.ones(1, 1, 1), torch.zeros(1, 1))
        >>> log_likelihood(standard, torch.zeros(1, 7, 2))          # log 1 / (2 pi)
        tensor([-1.8379])
    """
    elements, mask = read_elements(elements, mask, caller="log_likelihood")
    per_point = joint_log_density(mixture, elements).logsumexp(dim=1)  # (B, N)
    if mask is None:
        return per_point.mean(dim=1)
    return per_point.masked_fill(~mask, 0.0).sum(dim=1) / mask.sum(dim=1).clamp(min=1)


def em_step(
    mixture: Mixture,
    elements: Float[Tensor, "B N D"] | SetBatch,
    mask: Bool[Tensor, "B N"] | None = None,
    *,
    min_variance: float = 1e-6,
) -> Mixture:
    """One step of expectation-maximization; never lowers the likelihood above the smallest variance.

    Example:
        >>> elements = torch.tensor([[[-5.0], [-4.0], [4.0], [5.0]]])
        >>> start = Mixture(torch.tensor([[[-1.0], [1.0]]]), torch.ones(1, 2, 1), torch.zeros(1, 2))
        >>> em_step(start, elements).means.round(decimals=2)
        tensor([[[-4.5000],
                 [ 4.5000]]])
    """
    elements, mask = read_elements(elements, mask, caller="em_step")
    shares = joint_log_density(mixture, elements).softmax(dim=1)  # (B, K, N)
    if mask is not None:
        shares = shares.masked_fill(~mask[:, None, :], 0.0)
    held = shares.sum(dim=-1, keepdim=True)  # (B, K, 1)
    nothing = held <= torch.finfo(held.dtype).tiny
    divisor = torch.where(nothing, 1.0, held)

    means = torch.where(nothing, mixture.means, shares @ elements / divisor)
    squares = (elements[:, None] - means[:, :, None]).square()  # (B, K, N, D)
    if mixture.variances.shape[-1] == 1:
        squares = squares.mean(dim=-1, keepdim=True)
    variances = (shares[:, :, None] @ squares).squeeze(2) / divisor
    variances = torch.where(nothing, mixture.variances, variances.clamp(min=min_variance))

    # A weight of exactly zero could never be raised again, and its logarithm has no gradient.
    weights = held.squeeze(-1).clamp(min=torch.finfo(held.dtype).tiny)
    log_weights = weights.log() - weights.sum(dim=1, keepdim=True).log()
    empty = nothing.all(dim=1)  # (B, 1)
    return Mixture(means, variances, torch.where(empty, mixture.log_weights, log_weights))
