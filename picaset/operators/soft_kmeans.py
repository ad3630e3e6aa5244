r"""Soft K-means as an operator, in the two readings of the paper's Proposition 2.

The proposition states that a cascade without maps, residual and feed-forward layers is soft K-means. Its softmax,
however, is over the points for each template, while K-means assigns each point to a cluster:

    compete=False    T_k' = sum_n softmax_n(T_k . x_n / sqrt(D)) x_n                the paper's identity
    compete=True     T_k' = sum_n p_kn x_n / sum_n p_kn,
                     p_kn = softmax_k(-|x_n - T_k|^2 / temperature)                 soft K-means itself

In the first, templates are independent of each other and may coincide; in the second they compete for the points. Means
are computed from log weights, so that a distant centroid moves to its nearest points instead of dividing zero by zero.

Dimensions:  B sets   N elements (padded)   K templates   D features   L steps
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from picaset.checks import check_positive
from picaset.operators.base import CascadePool, CascadeStep, learned_templates
from picaset.operators.state import (
    AttentionState,
    Presence,
    present,
    softmax_over_present,
    upcast_half,
    without_autocast,
)


class SoftKMeans(CascadePool):
    r"""Soft K-means from learned initial centroids (Proposition 2).

    As the temperature approaches zero, ``compete=True`` approaches K-means. A centroid whose share of every point
    underflows does not move. An empty set returns the initial centroids, or zero with ``compete=False``.

    Args:
        dim: Features of an element.
        num_templates: Number of centroids.
        num_steps: Number of updates of the centroids.
        compete: Whether clusters compete for points, as in K-means, or points for clusters, as in the paper.
        temperature: Divisor of the squared distances, or with ``compete=False`` of the paper's scores.

    Shapes:
        elements  (B, N, D)    or a SetBatch
        mask      (B, N)       True where an element is present; None if all are
        returns   (B, K, D)

    Example:
        >>> kmeans = SoftKMeans(1, num_templates=2, num_steps=5, temperature=0.1)
        >>> kmeans.templates.data = torch.tensor([[-1.0], [1.0]])
        >>> kmeans(torch.tensor([[[-4.0], [-6.0], [7.0], [9.0]]])).detach()
        tensor([[[-5.],
                 [ 8.]]])
    """

    takes_weights = True

    def __init__(
        self, dim: int, *, num_templates: int, num_steps: int = 3, compete: bool = True, temperature: float = 1.0
    ) -> None:
        super().__init__()
        check_positive(caller="SoftKMeans", dim=dim, num_templates=num_templates, num_steps=num_steps)
        if not temperature > 0:
            raise ValueError(f"SoftKMeans: temperature must be positive; got {temperature}.")
        self.dim_in = dim
        self.num_steps = num_steps
        self.compete = compete
        self.temperature = temperature
        self.templates = learned_templates(num_templates, dim)

    def pool(self, elements: Float[Tensor, "B N D"], mask: Presence | None) -> Float[Tensor, "B K D"]:
        return super().pool(elements, mask).to(self.templates.dtype)

    def begin(self, elements: Float[Tensor, "B N D"], mask: Presence | None) -> CascadeStep:
        return CascadeStep(upcast_half(self.templates).expand(elements.shape[0], -1, -1), (upcast_half(elements), mask))

    def advance(self, step: CascadeStep, index: int, *, with_attention: bool) -> CascadeStep:
        elements, mask = step.inputs
        with without_autocast(elements):
            scores = self.scores(step.templates, elements)[:, None]  # (B, 1, K, N)
            state = AttentionState.of(scores, elements[:, None], mask)
        templates = state.mean()
        if self.compete:
            templates = torch.where(state.is_nonempty(), templates, step.templates[:, None])
        return CascadeStep(templates[:, 0], step.inputs, self.weights(scores, mask) if with_attention else None)

    def scores(self, templates: Float[Tensor, "B K D"], elements: Float[Tensor, "B N D"]) -> Float[Tensor, "B K N"]:
        """Return the log weight of each point in each centroid, up to a constant per centroid."""
        if not self.compete:
            return templates @ elements.transpose(1, 2) / (math.sqrt(elements.shape[-1]) * self.temperature)
        return log_shares(templates, elements, temperature=self.temperature)

    def weights(self, scores: Float[Tensor, "B 1 K N"], mask: Presence | None) -> Float[Tensor, "B 1 K N"]:
        """Return the share of each centroid in each point, or with ``compete=False`` the weight of each point."""
        if not self.compete:
            return softmax_over_present(scores, mask)
        return scores.exp() if mask is None else scores.exp() * present(mask)[:, None, None, :]


def log_shares(
    templates: Float[Tensor, "B K D"], elements: Float[Tensor, "B N D"], *, temperature: float
) -> Float[Tensor, "B K N"]:
    """Return the log of the share of each centroid in each point; the shares of a point sum to one."""
    # The expanded square would lose precision far from the origin.
    distances = (elements[:, None] - templates[:, :, None]).square().sum(dim=-1)  # (B, K, N)
    # Relative to the nearest centroid, so that at least one quotient stays finite at low temperatures.
    nearest = distances.detach().amin(dim=1, keepdim=True)
    return ((nearest - distances) / temperature).log_softmax(dim=1)
