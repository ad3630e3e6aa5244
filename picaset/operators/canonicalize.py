r"""Canonicalize: make a network equivariant to shift and scale of its input.

Dimensions:  B sets   N elements (padded)   D features
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn

from picaset.operators.base import check_input_set, read_set
from picaset.operators.buckets import pool_in_buckets
from picaset.operators.simple_pools import count_elements, mean_elements, sum_elements
from picaset.operators.state import Presence, mask_and_weights, present, upcast_half
from picaset.sets import SetBatch


class ShiftAndScale(NamedTuple):
    """Shift and scale of a set."""

    shift: Float[Tensor, "B 1 D"]
    scale: Float[Tensor, "B 1 1"]


class Canonicalize(nn.Module):
    r"""Apply a network to sets with zero mean and unit variance, and transform its prediction back.

    .. math::  f(X) = \mathrm{restore}\!\left(g\!\left(\tfrac{X - m}{s}\right), m, s\right), \qquad
        m = \operatorname{mean}(X), \quad s^2 = \operatorname{mean} (X - m)^2

    The scale is one number per set, so proportions are preserved. A set of equal points has scale 1; an empty set has
    shift 0 and scale 1.

    Args:
        network: Called with the standardized set, as ``(elements, mask)`` or a SetBatch like the input.
        restore: ``restore(prediction, shift, scale)`` returns the prediction in the coordinates of the data. It
            depends on the meaning of the prediction: a mean is shifted and scaled, a weight is not.

    Shapes:
        elements  (B, N, D)    or a SetBatch
        mask      (B, N)       True where an element is present; None if all are
        shift     (B, 1, D)    argument of ``restore``
        scale     (B, 1, 1)    argument of ``restore``
        returns   the result of ``restore``

    Example:
        >>> from picaset import MeanPool
        >>> equivariant = Canonicalize(MeanPool(), lambda mean, shift, scale: mean * scale + shift)
        >>> elements = torch.randn(8, 100, 2)
        >>> torch.allclose(equivariant(100 + elements), 100 + equivariant(elements), atol=1e-4)
        True
    """

    takes_weights = True

    def __init__(self, network: nn.Module, restore: Callable[[Any, Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.network = network
        self.restore = restore

    def forward(
        self,
        elements: Float[Tensor, "B N D"] | SetBatch,
        mask: Bool[Tensor, "B N"] | None = None,
        weights: Shaped[Tensor, "B N"] | None = None,
    ) -> Any:
        """Return the prediction for every set; ``mask`` is True where an element is present, None if all are.

        An element of weight w counts as w copies of it; ``weights`` of None are ones.
        """
        if isinstance(elements, SetBatch):
            check_input_set(self, elements, mask, weights)
            places = pool_in_buckets(elements, packed_place)
            shift, scale = places[..., :-1], places[..., -1:]
            owners = elements.owners
            standardized = (elements.elements - shift[owners, 0]) / scale[owners, 0]
            return self.restore(self.network(elements.with_elements(standardized)), shift, scale)
        padded, merged = read_set(self, elements, mask, weights)
        shift, scale = shift_and_scale(padded, merged)
        size = elements.shape[1]  # read_set adds an absent element to sets of size 0
        standardized = ((padded - shift) / scale)[:, :size]
        mask, weights = (None if part is None else part[:, :size] for part in mask_and_weights(merged))
        # A network that takes no weights is called without them.
        keywords = {} if weights is None else {"weights": weights}
        return self.restore(self.network(standardized, mask, **keywords), shift, scale)


def standardize(
    elements: Float[Tensor, "B N D"], mask: Presence | None
) -> tuple[Float[Tensor, "B N D"], ShiftAndScale]:
    """Return sets with zero mean and unit variance, zero where an element is absent, and their shift and scale."""
    place = shift_and_scale(elements, mask)
    standardized = (elements - place.shift) / place.scale
    return zero_absent(standardized, None if mask is None else ~present(mask)[..., None]), place


def shift_and_scale(elements: Float[Tensor, "B N D"], mask: Presence | None) -> ShiftAndScale:
    """Return the mean of each set, and the root of its mean squared deviation over elements and features."""
    absent = None if mask is None else ~present(mask)[..., None]
    count = count_elements(elements, mask)
    sizes = torch.where(count == 0, 1, count)

    # Relative to the centre of the bounding box, equal points deviate by exactly zero, and sets far from the origin
    # lose no precision. The centre cancels in the mean, so it needs no gradient.
    values = upcast_half(elements)
    centre = box_centre(values.detach(), absent)
    deviations = zero_absent(values - centre, absent)
    offset = mean_elements(deviations, mask)  # (B, 1, D)
    deviations = zero_absent(deviations - offset, absent)

    # In units of the largest deviation, squares neither overflow nor underflow. The unit cancels in the scale.
    largest = deviations.detach().abs().amax(dim=(1, 2), keepdim=True)  # (B, 1, 1)
    unit = torch.where(largest > 0, largest, 1.0)
    squares = sum_elements((deviations / unit).square(), mask).sum(dim=2, keepdim=True)
    variance = squares / (sizes * elements.shape[2])
    # The square root has no gradient at zero.
    scale = unit * torch.where(variance > 0, variance, 1.0).sqrt()
    smallest = torch.finfo(elements.dtype).tiny
    return ShiftAndScale((centre + offset).to(elements.dtype), scale.to(elements.dtype).clamp(min=smallest))


def packed_place(elements: Float[Tensor, "B N D"], mask: Presence | None) -> Float[Tensor, "B 1 P"]:
    """Return shift and scale concatenated, one row per set."""
    return torch.cat(shift_and_scale(elements, mask), dim=-1)


def box_centre(elements: Float[Tensor, "B N D"], absent: Bool[Tensor, "B N 1"] | None) -> Float[Tensor, "B 1 D"]:
    """Return the centre of the bounding box; zero for an empty set."""
    if absent is None:
        return elements.amin(dim=1, keepdim=True) / 2 + elements.amax(dim=1, keepdim=True) / 2
    low = elements.masked_fill(absent, torch.inf).amin(dim=1, keepdim=True)
    high = elements.masked_fill(absent, -torch.inf).amax(dim=1, keepdim=True)
    return (low / 2 + high / 2).masked_fill(absent.all(dim=1, keepdim=True), 0.0)


def zero_absent(values: Float[Tensor, "B N D"], absent: Bool[Tensor, "B N 1"] | None) -> Float[Tensor, "B N D"]:
    """Replace absent elements by zeros."""
    return values if absent is None else values.masked_fill(absent, 0.0)
