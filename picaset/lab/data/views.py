"""Pictures of toys from many viewpoints: one value for smallNORB and for its stand-in.

A toy of one of five categories and ten instances stands on a turntable and is photographed by two cameras at nine
elevations, eighteen azimuths and six lightings. Azimuths are counted in tens of degrees (0, 2, ..., 34), elevations in
steps of five degrees from 30 (0, ..., 8), as the original files count them.

Dimensions:  N photographs, each by two cameras   S = 48 pixels
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Int, UInt8
from numpy.typing import NDArray
from torch import Tensor

CATEGORIES = ("animal", "human", "airplane", "truck", "car")
"""By label."""
SIZE = 48
"""Pixels of an image, in each direction."""
LABELS = {"category": range(5), "instance": range(10), "elevation": range(9), "azimuth": range(0, 36, 2),
          "lighting": range(6)}  # fmt: skip
"""What each label may be."""
TRAINING_INSTANCES = (4, 6, 7, 8, 9)
TEST_INSTANCES = (0, 1, 2, 3, 5)
TRAINING_AZIMUTHS = (30, 32, 34, 0, 2, 4)
"""300 to 40 degrees."""
TRAINING_ELEVATIONS = (0, 1, 2)
"""30 to 40 degrees."""

Split = Literal["azimuth", "elevation"]


@dataclass(frozen=True, eq=False)
class Views:
    """Photographs with everything that is known of them.

    Shapes:
        images      (N, 2, S, S)    8 bits, the two cameras side by side
        category    (N,)            and so the other labels; see ``LABELS``
    """

    images: UInt8[Tensor, "N 2 S S"]
    category: Int[Tensor, " N"]
    instance: Int[Tensor, " N"]
    elevation: Int[Tensor, " N"]
    azimuth: Int[Tensor, " N"]
    lighting: Int[Tensor, " N"]

    def __len__(self) -> int:
        return len(self.images)

    def where(self, chosen: Bool[Tensor, " N"]) -> "Views":
        """Those photographs that are chosen."""
        return Views(self.images[chosen], *(getattr(self, name)[chosen] for name in LABELS))

    def familiar(self, split: Split) -> Bool[Tensor, " N"]:
        """Which photographs are from viewpoints that training has, of any object."""
        if split == "azimuth":
            return torch.isin(self.azimuth, torch.tensor(TRAINING_AZIMUTHS))
        return torch.isin(self.elevation, torch.tensor(TRAINING_ELEVATIONS))


def degrees_from_training(split: Split, value: int) -> int:
    """How far an azimuth or elevation is from the nearest that training has.

    Example:
        >>> [degrees_from_training("azimuth", azimuth) for azimuth in (0, 6, 16, 18, 28)]
        [0, 20, 120, 120, 20]
        >>> [degrees_from_training("elevation", elevation) for elevation in (1, 3, 8)]
        [0, 5, 30]
    """
    if split == "elevation":
        return 5 * min(abs(value - known) for known in TRAINING_ELEVATIONS)
    around = [(value - known) % 36 for known in TRAINING_AZIMUTHS]
    return 10 * min(min(turn, 36 - turn) for turn in around)


def check_labels(labels: Mapping[str, NDArray[np.integer]], instances: tuple[int, ...], *, where: str) -> None:
    """Whether these are labels of a whole grid of viewpoints, each of them once, of objects with these instances.

    A single wrong label makes two photographs of one viewpoint, or a viewpoint that the grid does not have.
    """
    allowed = {name: instances if name == "instance" else tuple(values) for name, values in LABELS.items()}
    for name, values in allowed.items():
        wrong = ~np.isin(labels[name], values)
        if wrong.any():
            row = int(wrong.argmax())
            raise ValueError(
                f"{where}: {name} must be one of {', '.join(map(str, values))}; example {row} has "
                f"{int(labels[name][row])}. Is this the right file, and whole?"
            )
    count = len(labels["category"])
    grid = int(np.prod([len(np.unique(labels[name])) for name in LABELS]))
    different = len(np.unique(np.stack([labels[name] for name in LABELS]), axis=1).T)
    if not count == grid == different:
        raise ValueError(
            f"{where}: every combination of category, instance, elevation, azimuth and lighting must be there once; "
            f"{count} examples have {different} different of {grid} combinations. Is this the right file, and whole?"
        )
