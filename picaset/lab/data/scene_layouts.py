"""Where the objects of generated scenes stand, by the rules of CLEVR's program (Johnson et al. 2017).

Three to ten objects; places uniform in a square, at least 0.25 between any two, and at least 0.4 between their
centres along the camera's left-right and front-behind directions, so that "left of" is never in doubt. An object that
fits nowhere in 50 tries makes the scene start again.

Dimensions:  B scenes   K = 10 slots   A = 4 properties
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from picaset.lab.data.scenes import EXTENT, MOST_OBJECTS, NUM_VALUES

FEWEST_OBJECTS = 3
RADII = np.array([0.35, 0.7])
"""Of small and large objects; half of their height, too."""
APART, MARGIN = 0.25, 0.4
TRIES, TOGETHER = 50, 10
CAMERA = np.array([7.48, -6.5, 5.34])
"""Where the camera stands, before it is moved by up to CAMERA_JITTER in each direction; it looks at the origin."""
CAMERA_JITTER = 0.5

Numbers = NDArray[np.float64]


class Layouts(NamedTuple):
    """Objects and the camera of every scene; slots at or beyond ``num_objects`` are empty.

    Shapes:
        num_objects  (B,)
        places       (B, K, 2)
        properties   (B, K, A)    indices into the values of ``PROPERTIES``
        turns        (B, K)       degrees about the vertical
        cameras      (B, 3)
    """

    num_objects: NDArray[np.int64]
    places: Numbers
    properties: NDArray[np.int64]
    turns: Numbers
    cameras: Numbers

    def where(self, chosen: NDArray[np.bool_] | NDArray[np.int64] | slice) -> "Layouts":
        return Layouts(
            self.num_objects[chosen],
            self.places[chosen],
            self.properties[chosen],
            self.turns[chosen],
            self.cameras[chosen],
        )

    @property
    def present(self) -> NDArray[np.bool_]:
        return np.arange(MOST_OBJECTS) < self.num_objects[:, None]

    @property
    def radii(self) -> Numbers:
        return RADII[self.properties[..., 3]]


def draw_layouts(num_scenes: int, generator: np.random.Generator, *, num_objects: int | None = None) -> Layouts:
    """Scenes that keep all distances, each with any number of objects, or with so many.

    Example:
        >>> layouts = draw_layouts(5, np.random.default_rng(0))
        >>> layouts.places.shape, bool((layouts.num_objects >= 3).all())
        ((5, 10, 2), True)
    """
    shape = (num_scenes, MOST_OBJECTS)
    properties = np.stack([generator.integers(0, count, shape) for count in NUM_VALUES], axis=-1)
    counts = generator.integers(FEWEST_OBJECTS, MOST_OBJECTS + 1, num_scenes)
    layouts = Layouts(
        num_objects=counts if num_objects is None else np.full_like(counts, num_objects),
        places=np.zeros((*shape, 2)),
        properties=properties,
        turns=generator.uniform(0, 360, shape),
        cameras=CAMERA + generator.uniform(-CAMERA_JITTER, CAMERA_JITTER, (num_scenes, 3)),
    )
    place_all(layouts, generator)
    return layouts


def place_all(layouts: Layouts, generator: np.random.Generator) -> None:
    """Fill in the places: in every round, the first of a few tries that fits, for each scene that is not finished."""
    placed, tries = np.zeros_like(layouts.num_objects), np.zeros_like(layouts.num_objects)
    directions = level_directions(layouts.cameras)
    while (unfinished := np.flatnonzero(placed < layouts.num_objects)).size:
        slot = placed[unfinished]
        places = generator.uniform(-EXTENT, EXTENT, (len(unfinished), TOGETHER, 2))
        fits = keeps_away(layouts.where(unfinished), places, slot, directions[unfinished])  # (B, TOGETHER)
        first, found = fits.argmax(axis=1), fits.any(axis=1)
        chosen = unfinished[found]
        layouts.places[chosen, slot[found]] = places[found, first[found]]
        placed[chosen] += 1
        tries[unfinished] += TOGETHER
        tries[chosen] = 0
        stuck = tries >= TRIES
        placed[stuck] = tries[stuck] = 0


def level_directions(cameras: Numbers) -> Numbers:
    """Ahead and to the right of each camera along the ground: (B, 2, 2)."""
    ahead = -cameras[:, :2] / np.linalg.norm(cameras[:, :2], axis=1, keepdims=True)
    right = np.stack([ahead[:, 1], -ahead[:, 0]], axis=1)
    return np.stack([ahead, right], axis=1)


def keeps_away(layouts: Layouts, places: Numbers, slot: NDArray[np.int64], directions: Numbers) -> NDArray[np.bool_]:
    """Whether an object in ``slot`` may stand at each of some places, given those in the slots before it."""
    away = places[:, :, None] - layouts.places[:, None]  # (B, T, K, 2)
    earlier = np.arange(MOST_OBJECTS) < slot[:, None]
    radii = layouts.radii
    reach = radii + radii[np.arange(len(slot)), slot][:, None] + APART  # (B, K)
    along = np.abs(away @ directions.transpose(0, 2, 1)[:, None]).min(axis=3)
    collides = ((away**2).sum(axis=3) < reach[:, None] ** 2) | (along < MARGIN)
    return ~collides.any(axis=2, where=earlier[:, None])
