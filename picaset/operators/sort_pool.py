"""Featurewise sort pooling: each feature sorted, then weighed by rank (FSPool, Zhang et al. 2020).

Dimensions:  B sets   N elements (padded)   P pieces   D features
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from picaset.checks import check_positive
from picaset.operators.base import SetPool
from picaset.operators.state import wide


class SortPool(SetPool):
    r"""FSPool: sort each feature, and weigh the sorted values by a learned function of their rank (Zhang 2020).

    .. math::  z_d = \sum_{i=1}^{n} f_d\!\left(\tfrac{i - 1}{n - 1}\right) x^{\downarrow}_{i, d}

    :math:`f_d` is piecewise linear with ``num_pieces`` pieces, so that sets of any size share it; a single
    element has rank 0. An empty set gives zero.

    Args:
        dim: Features of an element, in and out.
        num_pieces: Linear pieces of each rank function.

    Shapes:
        elements  (B, N, D)    or a SetBatch
        mask      (B, N)       True where an element is present; None means all are
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
        last_first = elements.masked_fill(~present[..., None], -torch.inf)
        sizes = present.sum(dim=1, keepdim=True)  # (B, 1)
        rank = torch.arange(elements.shape[1], device=elements.device)
        in_order = last_first.sort(dim=1, descending=True).values
        in_order = in_order.masked_fill(~(rank < sizes)[..., None], 0.0)  # (B, N, D)
        weights = self.rank_weights(rank.to(wide(self.knots).dtype) / (sizes - 1).clamp(min=1))
        return (wide(in_order) * weights).sum(dim=1, keepdim=True).to(elements.dtype)

    def rank_weights(self, relative: Float[Tensor, "B N"]) -> Float[Tensor, "B N D"]:
        """The piecewise linear functions at ranks between 0 and 1."""
        position = relative.clamp(max=1) * self.num_pieces
        left = position.floor().clamp(max=self.num_pieces - 1)
        left, share = left.long(), (position - left)[..., None]
        knots = wide(self.knots)
        return torch.lerp(knots[left], knots[left + 1], share)
