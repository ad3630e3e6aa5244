"""Janossy pooling: the mean of a function over all ordered tuples of elements (Murphy et al. 2018).

Dimensions:  B sets   N elements (padded)   k order   D features   E features out
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from picaset.checks import check_positive
from picaset.operators.base import SetPool
from picaset.operators.state import upcast_half


class JanossyPool(SetPool):
    r"""k-ary Janossy pooling: average a network over all ordered k-tuples of elements (Murphy et al. 2018, Eq. 3).

    .. math::  z = \frac{(n - k)!}{n!} \sum_{(i_1, \dots, i_k) \text{ distinct}} f(x_{i_1}, \dots, x_{i_k})

    ``f`` is a network with one hidden layer. Order 1 is DeepSets with a mean; the cost grows as :math:`n^k`. The
    tuples of a set of fewer than k elements are its permutations, padded with zero elements.

    Args:
        dim: Features of an element.
        order: Number of elements of a tuple, k.
        dim_hidden: Features of the hidden layer.
        dim_out: Features of the result; defaults to ``dim``.

    Shapes:
        elements  (B, N, D)    or a SetBatch
        mask      (B, N)       True where an element is present; None if all are
        returns   (B, 1, E)

    Example:
        >>> JanossyPool(16, order=2)(torch.randn(8, 10, 16)).shape
        torch.Size([8, 1, 16])
    """

    def __init__(self, dim: int, *, order: int = 2, dim_hidden: int = 64, dim_out: int | None = None) -> None:
        super().__init__()
        check_positive(caller="JanossyPool", dim=dim, order=order, dim_hidden=dim_hidden)
        self.dim_in = dim
        self.order = order
        # The first layer is a sum of one map per position, so tuples need not be concatenated.
        self.places = nn.ModuleList(nn.Linear(dim, dim_hidden, bias=place == 0) for place in range(order))
        self.last = nn.Linear(dim_hidden, dim if dim_out is None else dim_out)

    def pool(self, elements: Float[Tensor, "B N D"], mask: Bool[Tensor, "B N"] | None) -> Float[Tensor, "B 1 E"]:
        present = torch.ones_like(elements[..., 0], dtype=torch.bool) if mask is None else mask
        filled = nn.functional.pad(elements, (0, 0, 0, 1))  # a zero element, for sets of fewer than k elements
        hidden = torch.zeros((), dtype=elements.dtype, device=elements.device)
        for place, layer in enumerate(self.places):
            hidden = hidden + place_on_axis(place, self.order, layer(filled))  # (B, N+1, ..., N+1, hidden)
        outputs = upcast_half(self.last(torch.relu(hidden)))
        tuples = valid_tuples(present, self.order)[..., None]  # (B, N+1, ..., N+1, 1)
        every = tuple(range(1, self.order + 1))
        mean = outputs.masked_fill(~tuples, 0.0).sum(dim=every) / tuples.sum(dim=every)
        return mean[:, None].to(elements.dtype)


def place_on_axis(place: int, order: int, values: Tensor) -> Tensor:
    """Reshape values (B, M, ...) to broadcast along axis ``place`` of ``order`` axes of length M."""
    for axis in range(order):
        if axis != place:
            values = values.unsqueeze(axis + 1)
    return values


def valid_tuples(present: Bool[Tensor, "B N"], order: int) -> Tensor:
    """Return a mask (B, N+1, ..., N+1) of the tuples to average; index N is the zero element."""
    sizes = present.sum(dim=1, keepdim=True)  # (B, 1)
    element = nn.functional.pad(present, (0, 1))  # (B, N+1)
    index = torch.arange(element.shape[1], device=element.device)[None]  # (1, N+1)
    filler = index == present.shape[1]
    valid = torch.ones((), dtype=torch.bool, device=present.device)
    for place in range(order):
        # Not torch.where, which ONNX Runtime does not have for booleans.
        valid = valid & place_on_axis(place, order, (element & (sizes > place)) | (filler & (sizes <= place)))
        for other in range(place):
            differ = place_on_axis(place, order, index) != place_on_axis(other, order, index)
            valid = valid & (differ | place_on_axis(place, order, filler))
    return valid
