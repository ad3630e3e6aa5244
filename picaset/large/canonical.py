"""Canonicalize over a large set: three passes to find where it lies, then those of the network.

Importing this file teaches ``read_large`` this operator.

Dimensions:  B sets   n elements of a chunk   D features
"""

from typing import Any

import torch
from torch import Tensor

from picaset.large.dispatch import read_by_type, read_large
from picaset.large.large_set import LargeSet
from picaset.large.statistics import Maxima, Sums
from picaset.operators.canonicalize import Canonicalize, Place
from picaset.operators.numerics import wide
from picaset.operators.simple_pools import count


@read_by_type.register
def _(operator: Canonicalize, large: LargeSet) -> Any:
    shift, scale = place_of(large)
    prediction = read_large(operator.network, large.map(put_at_the_origin, shift, scale))
    if isinstance(prediction, LargeSet):
        raise TypeError(
            "Canonicalize cannot read a set in chunks around an encoder: its prediction is a set, which restore would "
            "need as a whole. Put a pool behind the encoder."
        )
    return operator.restore(prediction, shift, scale)


def put_at_the_origin(elements: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    return (elements - shift) / scale


def place_of(large: LargeSet) -> Place:
    """The mean of a set, and the root of its mean squared deviation over elements and features."""
    # As in the operator: measured from the middle of the bounding box, which carries no gradient.
    with torch.no_grad():
        (ends,) = large.fold(Maxima(both_ways)).sums  # (B, 1, 2 D)
    high, low = ends.chunk(2, dim=-1)[0], -ends.chunk(2, dim=-1)[1]
    empty = high == -torch.inf
    middle = (low / 2 + high / 2).masked_fill(empty, 0.0)
    extent = (high / 2 - low / 2).masked_fill(empty, 0.0).amax(dim=(1, 2), keepdim=True)  # (B, 1, 1)
    unit = torch.where(extent > 0, extent, 1.0)

    total, size = large.fold(Sums(deviations), middle).sums
    size = size.clamp(min=1)
    offset = total / size
    (squares,) = large.fold(Sums(squared_deviations), middle, offset, unit).sums
    variance = squares / (size * middle.shape[2])
    # The root of zero has no gradient; take that of one instead.
    scale = unit * torch.where(variance > 0, variance, 1.0).sqrt()
    scale = torch.where(extent > 0, scale, 1.0)
    dtype = large.reading.dtype
    return Place((middle + offset).to(dtype), scale.to(dtype).clamp(min=torch.finfo(dtype).tiny))


def both_ways(elements: Tensor, mask: Tensor | None) -> tuple[Tensor]:
    return (torch.cat([wide(elements), -wide(elements)], dim=-1),)


def deviations(elements: Tensor, mask: Tensor | None, middle: Tensor) -> tuple[Tensor, Tensor]:
    deviation = absent_as_zero(wide(elements) - middle, mask)
    return deviation.sum(dim=1, keepdim=True), count(elements, mask).expand(len(elements), 1, 1).double()


def squared_deviations(
    elements: Tensor, mask: Tensor | None, middle: Tensor, offset: Tensor, unit: Tensor
) -> tuple[Tensor]:
    deviation = absent_as_zero((wide(elements) - middle - offset) / unit, mask)
    return (deviation.square().sum(dim=(1, 2), keepdim=True),)


def absent_as_zero(values: Tensor, mask: Tensor | None) -> Tensor:
    return values if mask is None else values.masked_fill(~mask[..., None], 0.0)
