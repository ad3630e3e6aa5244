"""What was found, invented and missed in a scene: for figures, and for the studio.

Dimensions:  B scenes   K predictions   M objects   V numbers of a vector
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from picaset.data.scene_vectors import Objects, from_vectors
from picaset.tasks.scene_hits import right_ones

SURE = 0.5
"""Presence above which a prediction counts as made."""
NEAR = 1.0
"""Distance at which a prediction is right, in CLEVR's units."""


class Marks(NamedTuple):
    """Predictions in the order of their presence, and which of them are right.

    Shapes:
        order  (B, K)    which prediction comes where
        right  (B, K)    of those that are made
    """

    predicted: Objects
    there: Objects
    order: Int[Tensor, "B K"]
    right: Bool[Tensor, "B K"]

    def num_made(self, scene: int) -> int:
        """Predictions that count; they come first."""
        return int((self.predicted.presence[scene] > SURE).sum())

    def taken_by(self, scene: int, place: int) -> int:
        """The object that a right prediction has found: the nearest with its properties."""
        predicted, there = self.predicted, self.there
        same = (there.properties[scene] == predicted.properties[scene, place]).all(dim=1)
        away = (there.coordinates[scene] - predicted.coordinates[scene, place]).square().sum(dim=1)
        return int(torch.where(same & (there.presence[scene] > 0), away, torch.inf).argmin())

    def missed(self, scene: int) -> list[int]:
        """Objects that no prediction has found."""
        taken = {self.taken_by(scene, place) for place in range(self.num_made(scene)) if self.right[scene, place]}
        return [
            number for number, presence in enumerate(self.there.presence[scene]) if presence > 0 and number not in taken
        ]


def mark(vectors: Float[Tensor, "B K V"], there: Objects) -> Marks:
    """Rank predictions by their presence, and judge them within ``NEAR``."""
    order = vectors[..., 0].argsort(dim=1, descending=True)
    predicted = from_vectors(vectors.gather(1, order[..., None].expand_as(vectors)))
    right = right_ones(predicted, there, torch.tensor([NEAR]))[..., 0] & (predicted.presence > SURE)
    return Marks(predicted, there, order, right)
