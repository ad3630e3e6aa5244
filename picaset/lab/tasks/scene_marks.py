"""What was found, invented and missed in a scene: for figures, and for the studio.

Dimensions:  B scenes   K predictions   M objects   V numbers of a vector
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from picaset.lab.data.scene_vectors import Objects
from picaset.lab.tasks.scene_hits import ranked, right_ones

SURE = 0.5
"""Presence above which a prediction counts as made."""
NEAR = 1.0
"""Distance at which a prediction is right, in CLEVR's units."""


class Marks(NamedTuple):
    """Predictions in the order of their presence, and which of them are right.

    Shapes:
        order   (B, K)    which prediction comes where
        right   (B, K)    of those that are made
        takes   (B, K)    the object that a right one has found
    """

    predicted: Objects
    there: Objects
    order: Int[Tensor, "B K"]
    right: Bool[Tensor, "B K"]
    takes: Int[Tensor, "B K"]

    def num_made(self, scene: int) -> int:
        """Predictions that count; they come first."""
        return int((self.predicted.presence[scene] > SURE).sum())

    def missed(self, scene: int) -> list[int]:
        """Objects that no prediction has found."""
        left = self.there.presence[scene] > 0
        left[self.takes[scene, self.right[scene]]] = False
        return [number for number, is_left in enumerate(left) if is_left]


def mark(vectors: Float[Tensor, "B K V"], there: Objects) -> Marks:
    """Rank predictions by their presence, and judge them within ``NEAR``."""
    predicted, order = ranked(vectors)
    right, takes = right_ones(predicted, there, torch.tensor([NEAR]))
    return Marks(predicted, there, order, right[..., 0] & (predicted.presence > SURE), takes)
