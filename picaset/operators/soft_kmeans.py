r"""Soft K-means as an operator: the two readings of the paper's Proposition 2.

The proposition says that a cascade without maps, residual and feed-forward is soft K-means. Its
softmax, though, runs over the points for each template, while K-means assigns each point to
a cluster:

    compete=False    T_k' = sum_n softmax_n(T_k . x_n / sqrt(D)) x_n                the paper's identity
    compete=True     T_k' = sum_n p_kn x_n / sum_n p_kn,
                     p_kn = softmax_k(-|x_n - T_k|^2 / temperature)                 soft K-means itself

In the first, templates do not know of each other and nothing keeps them apart; in the second they
share the points out among themselves. Means are taken in log space, so that a far centroid is moved
by the points that are least far from it instead of dividing zero by zero.

Dimensions:  B sets   N elements (padded)   K templates   D features   L steps
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from picaset.checks import check_positive
from picaset.operators.base import SetPool, Trace, learned_templates, read_set, write_attention
from picaset.operators.state import AttentionState, softmax_over_present, wide, without_autocast
from picaset.sets import SetBatch


class SoftKMeans(SetPool):
    r"""Soft K-means from learned initial centroids (Proposition 2).

    As the temperature falls, ``compete=True`` becomes K-means. A centroid whose share of every point is beyond
    the smallest number stays where it is; an empty set returns the initial centroids, or zero with
    ``compete=False``.

    Args:
        dim: Features of an element.
        num_templates: Centroids.
        num_steps: Updates of the centroids.
        compete: Whether clusters compete for points, as in K-means, or points for clusters, as in the paper.
        temperature: Softness; divides squared distances, or with ``compete=False`` the paper's scores.

    Shapes:
        elements  (B, N, D)    or a SetBatch
        mask      (B, N)       True where an element is present; None means all are
        returns   (B, K, D)

    Example:
        >>> kmeans = SoftKMeans(1, num_templates=2, num_steps=5, temperature=0.1)
        >>> kmeans.templates.data = torch.tensor([[-1.0], [1.0]])
        >>> kmeans(torch.tensor([[[-4.0], [-6.0], [7.0], [9.0]]])).detach()
        tensor([[[-5.],
                 [ 8.]]])
    """

    def __init__(
        self,
        dim: int,
        *,
        num_templates: int,
        num_steps: int = 3,
        compete: bool = True,
        temperature: float = 1.0,
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

    def pool(self, elements: Float[Tensor, "B N D"], mask: Bool[Tensor, "B N"] | None) -> Float[Tensor, "B K D"]:
        elements = wide(elements)
        templates = wide(self.templates).expand(elements.shape[0], -1, -1)
        for _ in range(self.num_steps):
            templates = self.step(templates, elements, mask)
        return templates.to(self.templates.dtype)

    def step(
        self,
        templates: Float[Tensor, "B K D"],
        elements: Float[Tensor, "B N D"],
        mask: Bool[Tensor, "B N"] | None,
    ) -> Float[Tensor, "B K D"]:
        """The centroids after one update."""
        with without_autocast(elements):
            state = AttentionState.of(self.scores(templates, elements)[:, None], elements[:, None], mask)
        if not self.compete:
            return state.mean()[:, 0]
        return torch.where(state.seen(), state.mean(), templates[:, None])[:, 0]

    def scores(self, templates: Float[Tensor, "B K D"], elements: Float[Tensor, "B N D"]) -> Float[Tensor, "B K N"]:
        """What a centroid weighs the points by: agreement, or the logarithm of its share of each."""
        if not self.compete:
            return templates @ elements.transpose(1, 2) / (math.sqrt(elements.shape[-1]) * self.temperature)
        return log_shares(templates, elements, temperature=self.temperature)

    def trace(
        self,
        elements: Float[Tensor, "B N D"] | SetBatch,
        mask: Bool[Tensor, "B N"] | None = None,
    ) -> Trace:
        """The centroids of every step, and the weight or share of each point in each: (L, B, 1, K, N)."""
        padded, present = read_set(self, elements, mask)
        padded = wide(padded)
        templates, attention = [wide(self.templates).expand(padded.shape[0], -1, -1)], list[Tensor]()
        for _ in range(self.num_steps):
            scores = self.scores(templates[-1], padded)[:, None]
            if self.compete:
                attention.append(scores.exp() if present is None else scores.exp() * present[:, None, None, :])
            else:
                attention.append(softmax_over_present(scores, present))
            templates.append(self.step(templates[-1], padded, present))
        return Trace(torch.stack(templates), write_attention(torch.stack(attention), present, like=elements))


def log_shares(
    templates: Float[Tensor, "B K D"], elements: Float[Tensor, "B N D"], *, temperature: float
) -> Float[Tensor, "B K N"]:
    """The logarithm of the share of each point that each centroid holds; a point's shares add up to one."""
    # Differences, not the expanded square: far from the origin that would cancel.
    distances = (elements[:, None] - templates[:, :, None]).square().sum(dim=-1)  # (B, K, N)
    # Relative to the nearest centroid, so that a low temperature cannot make all of them infinite.
    nearest = distances.detach().amin(dim=1, keepdim=True)
    return ((nearest - distances) / temperature).log_softmax(dim=1)
