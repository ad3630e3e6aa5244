r"""Gaussian mixtures of batches of sets: log-likelihood and EM step (Dempster, Laird and Rubin 1977).

    E   r_kn = softmax_k(log pi_k + log N(x_n; mu_k, var_k))
    M   mu_k = sum_n r_kn x_n / R_k,   var_k = sum_n r_kn (x_n - mu_k)^2 / R_k,   pi_k = R_k / n

Both are batched, masked and differentiable. Sums over points use log weights, so that a component far from all points
moves to the nearest of them instead of dividing zero by zero. The mixture of an empty set does not change.

Dimensions:  B sets   N elements (padded)   K components   D features
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from picaset.operators.base import read_elements, zero_padding
from picaset.operators.simple_pools import mean_elements
from picaset.operators.state import AttentionState, upcast_half, without_autocast
from picaset.sets import SetBatch


class Mixture(NamedTuple):
    """A Gaussian mixture for each set, with spherical (one variance per component) or diagonal covariances.

    Shapes:
        means        (B, K, D)
        variances    (B, K, 1) or (B, K, D)
        log_weights  (B, K)
    """

    means: Float[Tensor, "B K D"]
    variances: Float[Tensor, "B K V"]
    log_weights: Float[Tensor, "B K"]


def joint_log_density(mixture: Mixture, elements: Float[Tensor, "B N D"]) -> Float[Tensor, "B K N"]:
    r"""Return the log of :math:`\pi_k N(x_n; \mu_k, \sigma_k^2)` for every component and element."""
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
    weights: Shaped[Tensor, "B N"] | None = None,
) -> Float[Tensor, " B"]:
    """Return the mean log-likelihood of the elements of each set (Eq. 10 per point); zero for an empty set.

    An element of weight w counts as w copies of it.

    Example:
        >>> standard = Mixture(torch.zeros(1, 1, 2), torch.ones(1, 1, 1), torch.zeros(1, 1))
        >>> log_likelihood(standard, torch.zeros(1, 7, 2))          # log 1 / (2 pi)
        tensor([-1.8379])
    """
    elements, mask = read_elements(elements, mask, weights, caller="log_likelihood")
    check_mixture(mixture, elements, caller="log_likelihood")
    mixture, elements = Mixture(*(upcast_half(part) for part in mixture)), upcast_half(elements)
    per_point = joint_log_density(mixture, elements).logsumexp(dim=1)  # (B, N)
    return mean_elements(zero_padding(per_point[..., None], mask), mask)[:, 0, 0]


def em_step(
    mixture: Mixture,
    elements: Float[Tensor, "B N D"] | SetBatch,
    mask: Bool[Tensor, "B N"] | None = None,
    weights: Shaped[Tensor, "B N"] | None = None,
    *,
    min_variance: float = 1e-6,
) -> Mixture:
    """Perform one step of expectation-maximization.

    The likelihood never decreases unless a variance is raised to ``min_variance``. An element of weight w counts as w
    copies of it.

    Example:
        >>> elements = torch.tensor([[[-5.0], [-4.0], [4.0], [5.0]]])
        >>> start = Mixture(torch.tensor([[[-1.0], [1.0]]]), torch.ones(1, 2, 1), torch.zeros(1, 2))
        >>> em_step(start, elements).means.round(decimals=2)
        tensor([[[-4.5000],
                 [ 4.5000]]])
    """
    elements, mask = read_elements(elements, mask, weights, caller="em_step")
    check_mixture(mixture, elements, caller="em_step")
    elements, before = upcast_half(elements), Mixture(*(upcast_half(part) for part in mixture))
    with without_autocast(elements):
        # Attention with one head per component and one query per head, whose scores are log responsibilities.
        scores = joint_log_density(before, elements).log_softmax(dim=1)[:, :, None]  # (B, K, 1, N)
        state = AttentionState.of(scores, elements[:, None], mask)
        means = state.mean()  # (B, K, 1, D)
        squares = (elements[:, None] - means).square()  # (B, K, N, D)
        if mixture.variances.shape[-1] == 1:
            squares = squares.mean(dim=-1, keepdim=True)
        variances = AttentionState.of(scores, squares, mask).mean().clamp(min=min_variance)
    log_counts = state.largest + state.total.log()  # log of the sum of responsibilities
    after = Mixture(means[:, :, 0], variances[:, :, 0], log_counts[:, :, 0, 0].log_softmax(dim=1))
    nonempty = state.is_nonempty()[:, :1, 0]  # (B, 1, 1)
    return Mixture(
        torch.where(nonempty, after.means, before.means).to(mixture.means.dtype),
        torch.where(nonempty, after.variances, before.variances).to(mixture.variances.dtype),
        torch.where(nonempty[..., 0], after.log_weights, before.log_weights).to(mixture.log_weights.dtype),
    )


def check_mixture(mixture: Mixture, elements: Float[Tensor, "B N D"], *, caller: str) -> None:
    sets, components, dim = mixture.means.shape
    if (sets, dim) != (elements.shape[0], elements.shape[2]):
        raise ValueError(
            f"{caller}: means must have shape (B, K, D) with B = {elements.shape[0]} and D = {elements.shape[2]}, like "
            f"the elements; got {tuple(mixture.means.shape)}."
        )
    if mixture.variances.shape not in ((sets, components, 1), (sets, components, dim)):
        raise ValueError(
            f"{caller}: variances must have shape {(sets, components, 1)} or {(sets, components, dim)} to match means "
            f"of shape {tuple(mixture.means.shape)}; got {tuple(mixture.variances.shape)}."
        )
    if mixture.log_weights.shape != (sets, components):
        raise ValueError(
            f"{caller}: log_weights must have shape {(sets, components)} to match means of shape "
            f"{tuple(mixture.means.shape)}; got {tuple(mixture.log_weights.shape)}."
        )
