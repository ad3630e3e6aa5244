"""Objects as vectors, as networks predict them, and back.

    presence | three coordinates, from [-3, 3] to [0, 1] | shape | material | colour | size, each one-hot

Where there is no object, the vector is zero.

Dimensions:  B scenes   K slots   A = 4 properties   V = 19 numbers of a vector
"""

from itertools import accumulate
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import one_hot

from picaset.lab.data.scenes import EXTENT, NUM_VALUES

PRESENCE, COORDINATES, PROPERTY_VALUES = 0, slice(1, 4), slice(4, None)
"""Where things are in a vector."""
DIM = 4 + sum(NUM_VALUES)
ENDS = tuple(accumulate((1, 3, *NUM_VALUES)))[:-1]
"""Of the parts of a vector, without the last."""


class Objects(NamedTuple):
    """What vectors say.

    Shapes:
        presence      (B, K)       1 where there is an object; of predictions, how sure of it
        coordinates   (B, K, 3)    in [-3, 3]
        properties    (B, K, A)    indices into the values of ``PROPERTIES``
    """

    presence: Float[Tensor, "B K"]
    coordinates: Float[Tensor, "B K 3"]
    properties: Int[Tensor, "B K A"]


def to_vectors(
    present: Bool[Tensor, "B K"], coordinates: Float[Tensor, "B K 3"], properties: Int[Tensor, "B K A"]
) -> Float[Tensor, "B K V"]:
    """The vectors that a network should predict.

    Example:
        >>> there, place = torch.ones(1, 1, dtype=torch.bool), torch.zeros(1, 1, 3)
        >>> to_vectors(there, place, torch.tensor([[[2, 1, 3, 0]]]))[0, 0, :7].tolist()
        [1.0, 0.5, 0.5, 0.5, 0.0, 0.0, 1.0]
    """
    hot = [one_hot(values, count) for values, count in zip(properties.unbind(dim=-1), NUM_VALUES, strict=True)]
    places = (coordinates + EXTENT) / (2 * EXTENT)
    return torch.cat([torch.ones_like(places[..., :1]), places, *hot], dim=-1) * present[..., None]


def from_vectors(vectors: Float[Tensor, "B K V"]) -> Objects:
    """The objects that vectors speak of: the largest number of each property decides.

    Example:
        >>> one = to_vectors(torch.ones(1, 1, dtype=torch.bool), torch.ones(1, 1, 3), torch.tensor([[[2, 1, 3, 0]]]))
        >>> from_vectors(one).properties.tolist()
        [[[2, 1, 3, 0]]]
    """
    check_length(vectors, caller="from_vectors")
    presence, coordinates, *properties = torch.tensor_split(vectors, ENDS, dim=-1)
    return Objects(
        presence=presence[..., 0],
        coordinates=coordinates * (2 * EXTENT) - EXTENT,
        properties=torch.stack([values.argmax(dim=-1) for values in properties], dim=-1),
    )


def check_length(vectors: Tensor, *, caller: str) -> None:
    if vectors.shape[-1] != DIM:
        raise ValueError(
            f"{caller}: the vector of an object must have {DIM} numbers; got vectors of shape {tuple(vectors.shape)}."
        )
