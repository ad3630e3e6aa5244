r"""Canonicalize: a network whose result moves and grows with its data, exactly.

Dimensions:  B sets   N elements (padded)   D features
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from picaset.operators.base import check_fits, read_set
from picaset.operators.buckets import pool_in_buckets
from picaset.operators.simple_pools import count
from picaset.operators.state import wide
from picaset.sets import SetBatch


class Place(NamedTuple):
    """Where a set lies, and how large it is."""

    shift: Float[Tensor, "B 1 D"]
    scale: Float[Tensor, "B 1 1"]


class Canonicalize(nn.Module):
    r"""Show a network every set at the origin with unit spread, and put its prediction back in place.

    .. math::  f(X) = \mathrm{restore}\!\left(g\!\left(\tfrac{X - m}{s}\right), m, s\right), \qquad
        m = \operatorname{mean}(X), \quad s^2 = \operatorname{mean} (X - m)^2

    The scale is one number per set, so shapes are kept. A set of equal points, or of none, has scale 1; an empty
    set has shift 0.

    Args:
        network: Called with the canonical set, ``(elements, mask)`` or a SetBatch, as this module was.
        restore: ``restore(prediction, shift, scale)`` returns the prediction in the coordinates of the
            data. What a prediction means only the caller knows: a mean moves and grows, a weight does not.

    Shapes:
        elements  (B, N, D)    or a SetBatch
        mask      (B, N)       True where an element is present; None means all are
        shift     (B, 1, D)    as ``restore`` gets it
        scale     (B, 1, 1)    as ``restore`` gets it
        returns   whatever ``restore`` does

    Example:
        >>> from picaset import MeanPool
        >>> moves = Canonicalize(MeanPool(), lambda mean, shift, scale: mean * scale + shift)
        >>> elements = torch.randn(8, 100, 2)
        >>> torch.allclose(moves(100 + elements), 100 + moves(elements), atol=1e-4)
        True
    """

    def __init__(self, network: nn.Module, restore: Callable[[Any, Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.network = network
        self.restore = restore

    def forward(
        self,
        elements: Float[Tensor, "B N D"] | SetBatch,
        mask: Bool[Tensor, "B N"] | None = None,
    ) -> Any:
        if isinstance(elements, SetBatch):
            check_fits(self, elements, mask)
            places = pool_in_buckets(elements, place_side_by_side)
            shift, scale = places[..., :-1], places[..., -1:]
            owners = elements.owners
            canonical = (elements.elements - shift[owners, 0]) / scale[owners, 0]
            return self.restore(self.network(elements.with_elements(canonical)), shift, scale)
        padded, present = read_set(self, elements, mask)
        shift, scale = place_of(padded, present)
        slots = elements.shape[1]  # reading may have added one to a set without any
        canonical = ((padded - shift) / scale)[:, :slots]
        return self.restore(self.network(canonical, None if present is None else present[:, :slots]), shift, scale)


def canonical_of(
    elements: Float[Tensor, "B N D"], mask: Bool[Tensor, "B N"] | None
) -> tuple[Float[Tensor, "B N D"], Place]:
    """The set at the origin with unit spread, zero where an element is absent, and where it was."""
    place = place_of(elements, mask)
    canonical = (elements - place.shift) / place.scale
    return without(canonical, None if mask is None else ~mask[..., None]), place


def place_of(elements: Float[Tensor, "B N D"], mask: Bool[Tensor, "B N"] | None) -> Place:
    """The mean of a set, and the root of its mean squared deviation over elements and features."""
    absent = None if mask is None else ~mask[..., None]
    sizes = count(elements, mask).clamp(min=1)

    # Measured from the middle of its bounding box, a set of equal points deviates by exactly zero, and a
    # far one loses no digits. The middle cancels in the mean, so it carries no gradient.
    exact = wide(elements)
    middle = middle_of(exact.detach(), absent)
    deviations = without(exact - middle, absent)
    offset = deviations.sum(dim=1, keepdim=True) / sizes  # (B, 1, D)
    deviations = without(deviations - offset, absent)

    # In units of the largest deviation, squares neither overflow nor vanish. It cancels, so it carries no gradient.
    largest = deviations.detach().abs().amax(dim=(1, 2), keepdim=True)  # (B, 1, 1)
    unit = torch.where(largest > 0, largest, 1.0)
    variance = (deviations / unit).square().sum(dim=(1, 2), keepdim=True) / (sizes * elements.shape[2])
    # The root of zero has no gradient; take that of one instead.
    scale = unit * torch.where(variance > 0, variance, 1.0).sqrt()
    smallest = torch.finfo(elements.dtype).tiny
    return Place((middle + offset).to(elements.dtype), scale.to(elements.dtype).clamp(min=smallest))


def place_side_by_side(elements: Float[Tensor, "B N D"], mask: Bool[Tensor, "B N"] | None) -> Float[Tensor, "B 1 P"]:
    """Shift and scale in one tensor, as an operator returns it."""
    return torch.cat(place_of(elements, mask), dim=-1)


def middle_of(elements: Float[Tensor, "B N D"], absent: Bool[Tensor, "B N 1"] | None) -> Float[Tensor, "B 1 D"]:
    """The middle of the bounding box; zero for an empty set."""
    if absent is None:
        return elements.amin(dim=1, keepdim=True) / 2 + elements.amax(dim=1, keepdim=True) / 2
    low = elements.masked_fill(absent, torch.inf).amin(dim=1, keepdim=True)
    high = elements.masked_fill(absent, -torch.inf).amax(dim=1, keepdim=True)
    return (low / 2 + high / 2).masked_fill(absent.all(dim=1, keepdim=True), 0.0)


def without(values: Float[Tensor, "B N D"], absent: Bool[Tensor, "B N 1"] | None) -> Float[Tensor, "B N D"]:
    """Zero where an element is absent."""
    return values if absent is None else values.masked_fill(absent, 0.0)
