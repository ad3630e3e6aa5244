"""Scenes: images, and the three to ten objects that stand in each, as CLEVR has them (Johnson et al. 2017).

An object has a place in [-3, 3] in each direction, the ground being z = 0, and four properties. Where a scene has fewer
than ten objects, the slots that are left hold zeros and are absent.

Dimensions:  F scenes   S pixels a side   K = 10 slots   A = 4 properties

Objects as vectors, as networks predict them, and back.

    presence | three coordinates, from [-3, 3] to [0, 1] | shape | material | colour | size, each one-hot

Where there is no object, the vector is zero.

Dimensions:  B scenes   K slots   A = 4 properties   V = 19 numbers of a vector
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import one_hot

MOST_OBJECTS = 10
EXTENT = 3.0
"""Coordinates lie in [-EXTENT, EXTENT]."""
PROPERTIES: dict[str, tuple[str, ...]] = {
    "shape": ("cube", "sphere", "cylinder"),
    "material": ("rubber", "metal"),
    "color": ("gray", "red", "blue", "green", "brown", "purple", "cyan", "yellow"),
    "size": ("small", "large"),
}
"""What an object can be, by the names in CLEVR's files."""
NUM_VALUES = tuple(len(values) for values in PROPERTIES.values())
"""Values of each property."""

Row = np.dtype[np.void]


@dataclass(frozen=True)
class Scenes:
    """Images with what is in them.

    Shapes:
        images        (F, S, S, 3)    bytes, often mapped from a file
        present       (F, K)          whether a slot holds an object
        coordinates   (F, K, 3)
        properties    (F, K, A)       indices into the values of ``PROPERTIES``
        aspects       (F,)            width over height of each image before it was made a square
    """

    images: UInt8[np.ndarray, "F S S 3"]
    present: Bool[np.ndarray, "F K"]
    coordinates: Float[np.ndarray, "F K 3"]
    properties: Int[np.ndarray, "F K A"]
    aspects: Float[np.ndarray, " F"]
    description: str

    def __len__(self) -> int:
        return len(self.images)


def in_words(properties: Sequence[int] | Int[np.ndarray, " A"]) -> str:
    """An object's properties as one says them.

    Example:
        >>> in_words([2, 1, 3, 1])
        'large green metal cylinder'
    """
    shape, material, colour, size = (
        values[int(index)] for values, index in zip(PROPERTIES.values(), properties, strict=True)
    )
    return f"{size} {colour} {material} {shape}"


def row_of(size: int) -> Row:
    """One scene in a file: its image, and for each slot presence, coordinates and the indices of the properties."""
    width = 1 + 3 + len(PROPERTIES)
    return np.dtype([("image", "u1", (size, size, 3)), ("objects", "<f4", (MOST_OBJECTS, width))])


def rows_from(images: NDArray[np.uint8], objects: NDArray[np.float32], row: Row) -> Iterator[bytes]:
    """Scenes as the bytes of their rows."""
    for image, slots in zip(images, objects, strict=True):
        yield row_bytes(image, slots, row)


def row_bytes(image: NDArray[np.uint8], slots: NDArray[np.float32], row: Row) -> bytes:
    one = np.zeros((), dtype=row)
    one["image"], one["objects"] = image, slots
    return one.tobytes()


def scenes_in(rows: NDArray[Any], aspects: Float[np.ndarray, " F"], description: str) -> Scenes:
    """Scenes from the rows of a file; images stay where they are."""
    objects: NDArray[np.float32] = np.array(rows["objects"])
    return Scenes(
        images=rows["image"],
        present=objects[..., 0] > 0,
        coordinates=objects[..., 1:4],
        properties=objects[..., 4:].astype(np.int64),
        aspects=aspects,
        description=description,
    )


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
