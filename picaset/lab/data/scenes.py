"""Scenes as in CLEVR (Johnson et al. 2017): images of up to ten objects, and the vectors that networks predict.

An object has coordinates in [-3, 3], the ground being z = 0, and four properties. Slots beyond the number of objects
hold zeros and are marked absent. As a vector, an object is

    presence | three coordinates, scaled from [-3, 3] to [0, 1] | shape | material | colour | size, each one-hot

and an absent object is the zero vector.

Dimensions:  F or B scenes   S pixels a side   K slots, 10 in files   A = 4 properties   V = 19 numbers of a vector
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

MAX_OBJECTS = 10
"""Largest number of objects in a scene."""
EXTENT = 3.0
"""Coordinates lie in [-EXTENT, EXTENT]."""
PROPERTIES: dict[str, tuple[str, ...]] = {
    "shape": ("cube", "sphere", "cylinder"),
    "material": ("rubber", "metal"),
    "color": ("gray", "red", "blue", "green", "brown", "purple", "cyan", "yellow"),
    "size": ("small", "large"),
}
"""Values of each property, as CLEVR's files name them."""
NUM_VALUES = tuple(len(values) for values in PROPERTIES.values())
"""Number of values of each property."""
PRESENCE, COORDINATES, PROPERTY_VALUES = 0, slice(1, 4), slice(4, None)
"""Indices of the parts of a vector."""
VECTOR_DIM = 4 + sum(NUM_VALUES)
"""Length of a vector."""
SPLITS = tuple(accumulate((1, 3, *NUM_VALUES)))[:-1]
"""Indices at which a vector is split into presence, coordinates and each property."""

RowType = np.dtype[np.void]


@dataclass(frozen=True)
class Scenes:
    """Images and the objects in them.

    Shapes:
        images        (F, S, S, 3)    bytes, often memory-mapped
        present       (F, K)          True where a slot holds an object
        coordinates   (F, K, 3)
        properties    (F, K, A)       indices into the values of ``PROPERTIES``
        aspects       (F,)            width divided by height of each image before it was resized to a square
    """

    images: UInt8[np.ndarray, "F S S 3"]
    present: Bool[np.ndarray, "F K"]
    coordinates: Float[np.ndarray, "F K 3"]
    properties: Int[np.ndarray, "F K A"]
    aspects: Float[np.ndarray, " F"]
    description: str

    def __len__(self) -> int:
        return len(self.images)


class Objects(NamedTuple):
    """Objects decoded from vectors.

    Shapes:
        presence      (B, K)       1 where there is an object; in predictions, the confidence that there is one
        coordinates   (B, K, 3)    in [-3, 3]
        properties    (B, K, A)    indices into the values of ``PROPERTIES``
    """

    presence: Float[Tensor, "B K"]
    coordinates: Float[Tensor, "B K 3"]
    properties: Int[Tensor, "B K A"]


def describe_object(properties: Sequence[int] | Int[np.ndarray, " A"]) -> str:
    """Describe an object by its properties.

    Example:
        >>> describe_object([2, 1, 3, 1])
        'large green metal cylinder'
    """
    shape, material, colour, size = (
        values[int(index)] for values, index in zip(PROPERTIES.values(), properties, strict=True)
    )
    return f"{size} {colour} {material} {shape}"


def row_type(size: int) -> RowType:
    """Return the dtype of a scene in a file: its image, and presence, coordinates and property indices per slot."""
    width = 1 + 3 + len(PROPERTIES)
    return np.dtype([("image", "u1", (size, size, 3)), ("objects", "<f4", (MAX_OBJECTS, width))])


def scene_rows(images: NDArray[np.uint8], objects: NDArray[np.float32]) -> Iterator[bytes]:
    """Yield each scene as the bytes of a row of a file."""
    row = np.zeros((), dtype=row_type(images.shape[1]))
    for image, slots in zip(images, objects, strict=True):
        row["image"], row["objects"] = image, slots
        yield row.tobytes()


def scenes_from_rows(rows: NDArray[Any], aspects: Float[np.ndarray, " F"], description: str) -> Scenes:
    """Create scenes from the rows of a file; the images are not copied."""
    objects: NDArray[np.float32] = np.array(rows["objects"])
    return Scenes(
        images=rows["image"],
        present=objects[..., 0] > 0,
        coordinates=objects[..., 1:4],
        properties=objects[..., 4:].astype(np.int64),
        aspects=aspects,
        description=description,
    )


def to_vectors(
    present: Bool[Tensor, "B K"], coordinates: Float[Tensor, "B K 3"], properties: Int[Tensor, "B K A"]
) -> Float[Tensor, "B K V"]:
    """Encode objects as vectors.

    Example:
        >>> present, coordinates = torch.ones(1, 1, dtype=torch.bool), torch.zeros(1, 1, 3)
        >>> to_vectors(present, coordinates, torch.tensor([[[2, 1, 3, 0]]]))[0, 0, :7].tolist()
        [1.0, 0.5, 0.5, 0.5, 0.0, 0.0, 1.0]
    """
    encoded = [one_hot(values, count) for values, count in zip(properties.unbind(dim=-1), NUM_VALUES, strict=True)]
    scaled = (coordinates + EXTENT) / (2 * EXTENT)
    return torch.cat([torch.ones_like(scaled[..., :1]), scaled, *encoded], dim=-1) * present[..., None]


def from_vectors(vectors: Float[Tensor, "B K V"]) -> Objects:
    """Decode vectors into objects; each property is the value with the largest score.

    Example:
        >>> present, properties = torch.ones(1, 1, dtype=torch.bool), torch.tensor([[[2, 1, 3, 0]]])
        >>> from_vectors(to_vectors(present, torch.ones(1, 1, 3), properties)).properties.tolist()
        [[[2, 1, 3, 0]]]
    """
    check_vector_length(vectors, caller="from_vectors")
    presence, coordinates, *properties = torch.tensor_split(vectors, SPLITS, dim=-1)
    return Objects(
        presence=presence[..., 0],
        coordinates=coordinates * (2 * EXTENT) - EXTENT,
        properties=torch.stack([values.argmax(dim=-1) for values in properties], dim=-1),
    )


def check_vector_length(vectors: Tensor, *, caller: str) -> None:
    if vectors.shape[-1] != VECTOR_DIM:
        raise ValueError(
            f"{caller}: the vector of an object must have {VECTOR_DIM} numbers; got vectors of shape "
            f"{tuple(vectors.shape)}."
        )
