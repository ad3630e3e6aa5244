"""Pools without parameters: mean, sum and maximum (DeepSets, Zaheer et al. 2017).

Each returns one vector per set, (B, 1, D); zero for an empty set.

Dimensions:  B sets   N elements (padded)   D features
"""

import torch
from jaxtyping import Float
from torch import Tensor

from picaset.operators.base import SetPool
from picaset.operators.state import Presence, present, upcast_half


class MeanPool(SetPool):
    r"""Mean of the elements, :math:`\frac{1}{n} \sum_n x_n`; zero for an empty set.

    With weights, :math:`\sum_n w_n x_n / \sum_n w_n`.

    Example:
        >>> MeanPool()(torch.tensor([[[1.0], [3.0], [9.0]]]), torch.tensor([[True, True, False]]))
        tensor([[[2.]]])
    """

    takes_weights = True

    def pool(self, elements: Float[Tensor, "B N D"], mask: Presence | None) -> Float[Tensor, "B 1 D"]:
        return mean_elements(elements, mask).to(elements.dtype)


class SumPool(SetPool):
    r"""Sum of the elements, :math:`\sum_n x_n`; zero for an empty set.

    With weights, :math:`\sum_n w_n x_n`.

    Example:
        >>> SumPool()(torch.tensor([[[1.0], [3.0], [9.0]]]), torch.tensor([[True, True, False]]))
        tensor([[[4.]]])
    """

    takes_weights = True

    def pool(self, elements: Float[Tensor, "B N D"], mask: Presence | None) -> Float[Tensor, "B 1 D"]:
        return sum_elements(elements, mask).to(elements.dtype)


class MaxPool(SetPool):
    r"""Maximum of each feature, :math:`\max_n x_n`; zero for an empty set.

    Weights do not change it, except that an element of weight zero is absent.

    Example:
        >>> MaxPool()(torch.tensor([[[1.0], [3.0], [9.0]]]), torch.tensor([[True, True, False]]))
        tensor([[[3.]]])
    """

    takes_weights = True

    def pool(self, elements: Float[Tensor, "B N D"], mask: Presence | None) -> Float[Tensor, "B 1 D"]:
        if mask is None:
            return elements.amax(dim=1, keepdim=True)
        largest = elements.masked_fill(~present(mask)[..., None], -torch.inf).amax(dim=1, keepdim=True)
        return largest.masked_fill(~mask.any(dim=1)[:, None, None], 0.0)


def mean_elements(elements: Float[Tensor, "B N D"], mask: Presence | None) -> Float[Tensor, "B 1 D"]:
    """Return the mean of the elements, in float32 for half precision; zero for an empty set."""
    count = count_elements(elements, mask)
    return sum_elements(elements, mask) / torch.where(count == 0, 1, count)


def sum_elements(elements: Float[Tensor, "B N D"], mask: Presence | None) -> Float[Tensor, "B 1 D"]:
    """Return the weighted sum of the elements, in float32 for half precision; absent elements are zero."""
    elements = upcast_half(elements)
    if mask is None or mask.dtype is torch.bool:
        return elements.sum(dim=1, keepdim=True)
    return (mask[..., None] * elements).sum(dim=1, keepdim=True)


def count_elements(elements: Float[Tensor, "B N D"], mask: Presence | None) -> Tensor:
    """Return the number of elements of each set, or the sum of their weights; broadcasts with (B, 1, D)."""
    if mask is None:
        return torch.full((1, 1, 1), elements.shape[1], device=elements.device)
    return mask.sum(dim=1)[:, None, None]
