"""Positions and properties of the objects of generated scenes, by the rules of CLEVR (Johnson et al. 2017).

A scene has three to ten objects. Positions are uniform in a square; surfaces are at least 0.25 apart, and centres at
least 0.4 apart along the left-right and front-behind directions of the camera, so that "left of" is unambiguous. If no
position for an object is found in 50 tries, the scene is started again.

Dimensions:  B scenes   K = 10 slots   A = 4 properties   T positions tried together
"""

from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from picaset.lab.data.scenes import EXTENT, MAX_OBJECTS, NUM_VALUES

MIN_OBJECTS = 3
"""Smallest number of objects in a scene."""
RADII = np.array([0.35, 0.7])
"""Radii, which are also half the heights, of small and large objects."""
MIN_GAP, MIN_OFFSET = 0.25, 0.4
"""Smallest distance between surfaces, and between centres along the directions of the camera."""
MAX_TRIES, TRIES_PER_ROUND = 50, 10
CAMERA = np.array([7.48, -6.5, 5.34])
"""Mean position of the camera, which looks at the origin."""
CAMERA_JITTER = 0.5
"""Largest displacement of the camera from its mean position, in each coordinate."""

Numbers = NDArray[np.float64]


class Layouts(NamedTuple):
    """Objects and cameras of scenes; slots from ``num_objects`` on are empty.

    Shapes:
        num_objects  (B,)
        places       (B, K, 2)    positions on the ground
        properties   (B, K, A)    indices into the values of ``PROPERTIES``
        turns        (B, K)       rotation about the vertical in degrees
        cameras      (B, 3)
    """

    num_objects: NDArray[np.int64]
    places: Numbers
    properties: NDArray[np.int64]
    turns: Numbers
    cameras: Numbers

    def where(self, selection: NDArray[np.bool_] | NDArray[np.int64] | slice) -> "Layouts":
        """Select scenes."""
        return Layouts(*(cast(Any, part)[selection] for part in self))

    @property
    def present(self) -> NDArray[np.bool_]:
        return np.arange(MAX_OBJECTS) < self.num_objects[:, None]

    @property
    def radii(self) -> Numbers:
        return RADII[self.properties[..., 3]]


def draw_layouts(num_scenes: int, generator: np.random.Generator, *, num_objects: int | None = None) -> Layouts:
    """Draw layouts that satisfy all distances; the number of objects is random unless it is given.

    Example:
        >>> layouts = draw_layouts(5, np.random.default_rng(0))
        >>> layouts.places.shape, bool((layouts.num_objects >= 3).all())
        ((5, 10, 2), True)
    """
    shape = (num_scenes, MAX_OBJECTS)
    properties = np.stack([generator.integers(0, count, shape) for count in NUM_VALUES], axis=-1)
    counts = generator.integers(MIN_OBJECTS, MAX_OBJECTS + 1, num_scenes)
    layouts = Layouts(
        num_objects=counts if num_objects is None else np.full_like(counts, num_objects),
        places=np.zeros((*shape, 2)),
        properties=properties,
        turns=generator.uniform(0, 360, shape),
        cameras=CAMERA + generator.uniform(-CAMERA_JITTER, CAMERA_JITTER, (num_scenes, 3)),
    )
    place_objects(layouts, generator)
    return layouts


def place_objects(layouts: Layouts, generator: np.random.Generator) -> None:
    """Fill in the positions by rejection sampling, one object of every unfinished scene per round."""
    placed, tries = np.zeros_like(layouts.num_objects), np.zeros_like(layouts.num_objects)
    directions = ground_directions(layouts.cameras)
    while (unfinished := np.flatnonzero(placed < layouts.num_objects)).size:
        slot = placed[unfinished]
        candidates = generator.uniform(-EXTENT, EXTENT, (len(unfinished), TRIES_PER_ROUND, 2))
        valid = is_free(layouts.where(unfinished), candidates, slot, directions[unfinished])  # (B, T)
        first, any_valid = valid.argmax(axis=1), valid.any(axis=1)
        scenes = unfinished[any_valid]
        layouts.places[scenes, slot[any_valid]] = candidates[any_valid, first[any_valid]]
        placed[scenes] += 1
        tries[unfinished] += TRIES_PER_ROUND
        tries[scenes] = 0
        stuck = tries >= MAX_TRIES
        placed[stuck] = tries[stuck] = 0


def ground_directions(cameras: Numbers) -> Numbers:
    """Return the forward and the right direction of each camera along the ground, (B, 2, 2)."""
    forward = -cameras[:, :2] / np.linalg.norm(cameras[:, :2], axis=1, keepdims=True)
    right = np.stack([forward[:, 1], -forward[:, 0]], axis=1)
    return np.stack([forward, right], axis=1)


def is_free(layouts: Layouts, candidates: Numbers, slot: NDArray[np.int64], directions: Numbers) -> NDArray[np.bool_]:
    """Return whether an object in ``slot`` fits at each candidate position beside the objects of earlier slots."""
    offsets = candidates[:, :, None] - layouts.places[:, None]  # (B, T, K, 2)
    earlier = np.arange(MAX_OBJECTS) < slot[:, None]
    radii = layouts.radii
    min_distance = radii + radii[np.arange(len(slot)), slot][:, None] + MIN_GAP  # (B, K)
    along = np.abs(offsets @ directions.transpose(0, 2, 1)[:, None]).min(axis=3)
    collides = ((offsets**2).sum(axis=3) < min_distance[:, None] ** 2) | (along < MIN_OFFSET)
    return ~collides.any(axis=2, where=earlier[:, None])
