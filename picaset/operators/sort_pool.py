"""Featurewise sort pooling: each feature is sorted and weighted by rank (FSPool, Zhang et al. 2020).

Dimensions:  B sets   N elements (padded)   P pieces   D features
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from picaset.checks import check_positive
from picaset.operators.base import SetPool
from picaset.operators.state import upcast_half


class SortPool(SetPool):
    r"""FSPool: sort each feature, and weight the sorted values by a learned function of the rank (Zhang 2020).

    .. math::  z_d = \sum_{i=1}^{n} f_d\!\left(\tfrac{i - 1}{n - 1}\right) x^{\downarrow}_{i, d}

    :math:`f_d` is piecewise linear on [0, 1] and serves sets of any size. A single element has rank 0. The result of
    an empty set is zero.

    Args:
        dim: Features of an element, in and out.
        num_pieces: Number of linear pieces of each rank function.

    Shapes:
        elements  (B, N, D)    or a SetBatch
        mask      (B, N)       True where an element is present; None if all are
        returns   (B, 1, D)

    Example:
        >>> SortPool(16)(torch.randn(8, 100, 16)).shape
        torch.Size([8, 1, 16])
    """

    def __init__(self, dim: int, *, num_pieces: int = 20) -> None:
        super().__init__()
        check_positive(caller="SortPool", dim=dim, num_pieces=num_pieces)
        self.dim_in = dim
        self.num_pieces = num_pieces
        self.knots = nn.Parameter(torch.randn(num_pieces + 1, dim))

    def pool(self, elements: Float[Tensor, "B N D"], mask: Bool[Tensor, "B N"] | None) -> Float[Tensor, "B 1 D"]:
        present = torch.ones_like(elements[..., 0], dtype=torch.bool) if mask is None else mask
        absent_last = elements.masked_fill(~present[..., None], -torch.inf)
        sizes = present.sum(dim=1, keepdim=True)  # (B, 1)
        rank = torch.arange(elements.shape[1], device=elements.device)
        ordered = absent_last.sort(dim=1, descending=True).values
        ordered = ordered.masked_fill(~(rank < sizes)[..., None], 0.0)  # (B, N, D)
        weights = self.rank_weights(rank.to(upcast_half(self.knots).dtype) / (sizes - 1).clamp(min=1))
        return (upcast_half(ordered) * weights).sum(dim=1, keepdim=True).to(elements.dtype)

    def rank_weights(self, relative: Float[Tensor, "B N"]) -> Float[Tensor, "B N D"]:
        """Return the values of the rank functions at relative ranks between 0 and 1."""
        position = relative.clamp(max=1) * self.num_pieces
        left = position.floor().clamp(max=self.num_pieces - 1)
        left, fraction = left.long(), (position - left)[..., None]
        knots = upcast_half(self.knots)
        return torch.lerp(knots[left], knots[left + 1], fraction)
