"""One traced scene by itself: from a seed, with as many objects as are wanted, pictured at any size.

``traced_scenes.py`` makes them by the thousand.

Dimensions:  K = 10 slots   S pixels a side
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from jaxtyping import UInt8
from numpy.typing import NDArray

from picaset.lab.data.render import Cameras
from picaset.lab.data.scene_layouts import FEWEST_OBJECTS, Layouts
from picaset.lab.data.scene_vectors import Objects
from picaset.lab.data.scenes import MOST_OBJECTS
from picaset.lab.data.traced_scenes import (
    LAMP_JITTER,
    LAMPS,
    as_bytes,
    looking,
    objects_of,
    photographs,
    visible_layouts,
)


@dataclass(frozen=True, eq=False)
class TracedScene:
    """Where everything stands."""

    layouts: Layouts
    lamps: torch.Tensor
    seed: int

    @property
    def cameras(self) -> Cameras:
        return looking(self.layouts.cameras)

    @property
    def objects(self) -> Objects:
        """What is in it, as a batch of one."""
        slots = objects_of(self.layouts)
        return Objects(slots[..., 0], slots[..., 1:4], slots[..., 4:].long())

    def picture(self, size: int) -> UInt8[np.ndarray, "S S 3"]:
        """The scene, with the camera's noise."""
        images = photographs(self.layouts, self.lamps, size)
        pixels: NDArray[np.uint8] = as_bytes(images, np.random.default_rng([self.seed, size]))[0].numpy()
        return pixels


@lru_cache(maxsize=256)
def trace_scene(seed: int, num_objects: int | None = None) -> TracedScene:
    """The same for the same seed and number.

    Example:
        >>> scene = trace_scene(0, 4)
        >>> int(scene.objects.presence.sum()), scene.picture(32).shape
        (4, (32, 32, 3))
    """
    if num_objects is not None and not FEWEST_OBJECTS <= num_objects <= MOST_OBJECTS:
        raise ValueError(f"A scene has from {FEWEST_OBJECTS} to {MOST_OBJECTS} objects; got {num_objects}.")
    generator = np.random.default_rng([seed, num_objects or 0])
    layouts = visible_layouts(1, generator, num_objects=num_objects)
    moved = torch.as_tensor(generator.uniform(-LAMP_JITTER, LAMP_JITTER, (1, len(LAMPS), 3))).float()
    return TracedScene(layouts, LAMPS + moved, seed)
