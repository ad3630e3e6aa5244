"""Pools without parameters: mean, sum and maximum (DeepSets, Zaheer et al. 2017).

Each returns one vector per set, (B, 1, D); zero for an empty set.

Dimensions:  B sets   N elements (padded)   D features
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from picaset.operators.base import SetPool
from picaset.operators.state import upcast_half


class MeanPool(SetPool):
    r"""Mean of the elements, :math:`\frac{1}{n} \sum_n x_n`; zero for an empty set.

    Example:
        >>> MeanPool()(torch.tensor([[[1.0], [3.0], [9.0]]]), torch.tensor([[True, True, False]]))
        tensor([[[2.]]])
    """

    def pool(self, elements: Float[Tensor, "B N D"], mask: Bool[Tensor, "B N"] | None) -> Float[Tensor, "B 1 D"]:
        return (sum_elements(elements) / count_elements(elements, mask).clamp(min=1)).to(elements.dtype)


class SumPool(SetPool):
    r"""Sum of the elements, :math:`\sum_n x_n`; zero for an empty set.

    Example:
        >>> SumPool()(torch.tensor([[[1.0], [3.0], [9.0]]]), torch.tensor([[True, True, False]]))
        tensor([[[4.]]])
    """

    def pool(self, elements: Float[Tensor, "B N D"], mask: Bool[Tensor, "B N"] | None) -> Float[Tensor, "B 1 D"]:
        return sum_elements(elements).to(elements.dtype)


class MaxPool(SetPool):
    r"""Maximum of each feature, :math:`\max_n x_n`; zero for an empty set.

    Example:
        >>> MaxPool()(torch.tensor([[[1.0], [3.0], [9.0]]]), torch.tensor([[True, True, False]]))
        tensor([[[3.]]])
    """

    def pool(self, elements: Float[Tensor, "B N D"], mask: Bool[Tensor, "B N"] | None) -> Float[Tensor, "B 1 D"]:
        if mask is None:
            return elements.amax(dim=1, keepdim=True)
        largest = elements.masked_fill(~mask[..., None], -torch.inf).amax(dim=1, keepdim=True)
        return largest.masked_fill(~mask.any(dim=1)[:, None, None], 0.0)


def sum_elements(elements: Float[Tensor, "B N D"]) -> Float[Tensor, "B 1 D"]:
    """Return the sum of the elements, in float32 for half precision; absent elements are zero."""
    return upcast_half(elements).sum(dim=1, keepdim=True)


def count_elements(elements: Float[Tensor, "B N D"], mask: Bool[Tensor, "B N"] | None) -> Tensor:
    """Return the number of present elements of each set, in a shape that broadcasts with (B, 1, D)."""
    if mask is None:
        return torch.full((1, 1, 1), elements.shape[1], device=elements.device)
    return mask.sum(dim=1)[:, None, None]
