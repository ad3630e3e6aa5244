"""Face images with named binary attributes, in the three parts that their owners give: what every source provides.

Dimensions:  F faces   A attributes   S pixels a side
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Int, UInt8

Part = Literal["train", "validation", "test"]
PARTS: tuple[Part, ...] = ("train", "validation", "test")
"""In the order of their numbers in ``list_eval_partition.txt``."""


@dataclass(frozen=True, eq=False)
class Faces:
    """Images with attributes; an image belongs to one part only.

    Shapes:
        images      (F, S, S, 3)    bytes, red green blue; may be a memory map
        attributes  (F, A)          True where a face has an attribute
        parts       (F,)            0, 1, 2 for training, validation, test
    """

    images: UInt8[np.ndarray, "F S S 3"]
    attributes: Bool[np.ndarray, "F A"]
    names: tuple[str, ...]
    """Of the attributes, in the order of the columns."""
    parts: Int[np.ndarray, " F"]
    description: str
    """What the images are, in words that a table can carry."""

    def __len__(self) -> int:
        return len(self.images)

    def of_part(self, part: Part) -> Int[np.ndarray, " P"]:
        """Which images belong to a part, in rising order."""
        return np.flatnonzero(self.parts == PARTS.index(part))

    def __repr__(self) -> str:
        counts = ", ".join(f"{len(self.of_part(part))} {part}" for part in PARTS)
        return f"Faces({self.description}: {counts}; {len(self.names)} attributes)"


def with_attributes(faces: Faces, names: Sequence[str]) -> Bool[np.ndarray, " F"]:
    """Which faces have all of these attributes.

    Example:
        >>> from picaset.lab.data.drawn_faces import draw_faces
        >>> faces = draw_faces(40, seed=0)
        >>> bool(with_attributes(faces, ["Bald", "Bangs"]).any())
        False
    """
    for name in names:
        if name not in faces.names:
            raise ValueError(f"There is no attribute {name!r}; attributes are {', '.join(faces.names)}.")
    return np.asarray(faces.attributes[:, [faces.names.index(name) for name in names]].all(axis=1))
