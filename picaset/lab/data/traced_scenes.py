"""Traced scenes: the stand-in for CLEVR, endless from a seed, rendered by our own ray tracer.

The factors are CLEVR's, and so are the rules of placement, the camera and its jitter; three lamps are moved, metal
shines and shows its surroundings, and everything casts a shadow. As there, a scene in which an object is nearly hidden
is drawn again. Scenes come in blocks, each from a generator of its own, so that the first thousand of a seed are the
same however many are asked for.

Dimensions:  B scenes   K = 10 slots   S pixels a side   L = 3 lamps

One traced scene by itself: from a seed, with as many objects as are wanted, pictured at any size.

``traced_scenes.py`` makes them by the thousand.

Dimensions:  K = 10 slots   S pixels a side
"""

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, UInt8
from numpy.typing import NDArray
from torch import Tensor

from picaset.checks import check_positive
from picaset.lab.data.folders import map_rows, watched, write_rows
from picaset.lab.data.ray_tracer import (
    ABSENT,
    KINDS,
    Background,
    Cameras,
    Lamps,
    Seen,
    Solids,
    dot,
    light,
    see,
    to_pixels,
)
from picaset.lab.data.scene_layouts import CAMERA, FEWEST_OBJECTS, Layouts, draw_layouts
from picaset.lab.data.scenes import MOST_OBJECTS, Objects, Scenes, row_of, rows_from, scenes_in

VERSION = 1
"""Changes whenever the pictures do, so that old ones are not mistaken for new ones."""
BLOCK, AT_ONCE = 100, 10
"""Scenes of a block, and those of them that are rendered together."""
STRETCH = 1.5
"""Pictures are 3 : 2, as CLEVR's are, shown in a square."""
DEGREES = 49.1
"""That the camera sees from left to right."""
VISIBLE = 200 / (480 * 320)
"""Share of the picture that must be seen of every object: 200 pixels of the published size."""
LOOK = 64
"""Rays in each direction that decide what is visible."""
COLOURS = torch.tensor(
    [
        (87, 87, 87), (173, 35, 35), (42, 75, 215), (29, 105, 20), (129, 74, 25), (129, 38, 192), (41, 208, 208),
        (255, 238, 51),
    ]
) / 255  # fmt: skip
"""Of CLEVR, in the order of ``PROPERTIES``."""
SHAPE_KINDS = torch.tensor([KINDS.index(kind) for kind in ("box", "ellipsoid", "cylinder")])
LAMPS = torch.tensor([(6.5, -1.5, 7.0), (-2.0, -6.5, 5.0), (-2.0, 4.5, 6.5)])
"""Key, fill and back, each moved by up to LAMP_JITTER in each direction."""
STRENGTHS, AMBIENT, LAMP_JITTER = torch.tensor([0.65, 0.3, 0.2]), 0.3, 1.0
GROUND, SKY = 0.62, 0.55
METAL_SHINE, METAL_DARKER, MIRROR = 0.9, 0.6, 0.9
"""Metal has a highlight, and shows its surroundings more and its lamps less."""
NOISE = 1.0
"""Deviation of the camera's noise, in levels of 256."""


@cache
def load_traced_scenes(num_scenes: int, *, seed: int, size: int, folder: Path) -> Scenes:
    """The first scenes of a seed; rendered the first time, mapped from a file in ``folder`` after that."""
    check_positive(caller="load_traced_scenes", num_scenes=num_scenes, size=size)
    path = folder / f"scenes-{VERSION}-seed{seed}-{num_scenes}-{size}.npy"
    if not path.is_file():
        write_rows(path, traced_rows(num_scenes, seed=seed, size=size), count=num_scenes, row=row_of(size))
    return scenes_in(map_rows(path), np.full(num_scenes, STRETCH), f"{num_scenes} traced scenes")


def traced_rows(num_scenes: int, *, seed: int, size: int) -> Iterator[bytes]:
    """The scenes as rows of a file; blocks are rendered by as many threads as there are cores."""
    firsts, row = list(range(0, num_scenes, BLOCK)), row_of(size)
    workers = os.cpu_count() or 1
    threads = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="scenes")
    try:
        blocks = (
            threads.submit(trace_block, first // BLOCK, seed=seed, size=size, most=num_scenes - first)
            for first in firsts
        )
        # A few blocks ahead keep the threads busy; more would only wait in memory to be written.
        ahead = deque(islice(blocks, 2 * workers))
        for _ in watched(firsts, f"rendering {num_scenes} scenes, once"):
            images, objects = ahead.popleft().result()
            ahead.extend(islice(blocks, 1))
            yield from rows_from(images.numpy(), objects.numpy(), row)
    finally:
        threads.shutdown(cancel_futures=True)


def trace_block(
    number: int, *, seed: int, size: int, most: int = BLOCK
) -> tuple[UInt8[Tensor, "B S S 3"], Float[Tensor, "B K 8"]]:
    """A block of scenes, or the first of it: images, and for each slot presence, coordinates and properties."""
    generator = np.random.default_rng([seed, number])
    layouts = visible_layouts(BLOCK, generator).where(slice(most))
    moved = torch.as_tensor(generator.uniform(-LAMP_JITTER, LAMP_JITTER, (BLOCK, len(LAMPS), 3))).float()
    images = torch.cat(
        [photographs(layouts.where(some), LAMPS + moved[:most][some], size) for some in parts(len(layouts.num_objects))]
    )
    return as_bytes(images, generator), objects_of(layouts)


def as_bytes(images: Float[Tensor, "B 3 S S"], generator: np.random.Generator) -> UInt8[Tensor, "B S S 3"]:
    """With the camera's noise."""
    noisy = 255 * images + NOISE * torch.as_tensor(generator.standard_normal(images.shape, dtype=np.float32))
    return noisy.round().clamp(0, 255).to(torch.uint8).movedim(1, -1)


def parts(num_scenes: int) -> list[slice]:
    return [slice(first, first + AT_ONCE) for first in range(0, num_scenes, AT_ONCE)]


def photographs(layouts: Layouts, lamps: Float[Tensor, "B L 3"], size: int) -> Float[Tensor, "B 3 S S"]:
    solids, cameras, background = furnish(layouts)
    seen = see(solids, cameras, background, size=(size, size), stretch=STRETCH)
    lit = light(seen, solids, Lamps(lamps, STRENGTHS.expand(len(lamps), -1), torch.full((len(lamps),), AMBIENT)))
    return to_pixels(lit + mirrored(seen), (size, size), 2)


def mirrored(seen: Seen) -> Float[Tensor, "B R 3"]:
    """What metal shows of its surroundings, in its own colour: a bright sky, a darker ground."""
    upwards = 2 * dot(seen.normal, seen.towards) * seen.normal[..., 2] - seen.towards[..., 2]
    surroundings = torch.where(upwards > 0, 1 - 0.5 * upwards, 0.35)
    return (MIRROR * (seen.shine > 0) * surroundings)[..., None] * seen.colour


def visible_layouts(num_scenes: int, generator: np.random.Generator, *, num_objects: int | None = None) -> Layouts:
    """Layouts in which enough of every object is seen; the others are drawn again."""
    kept = draw_layouts(num_scenes, generator, num_objects=num_objects)
    hidden = ~all_visible(kept)
    while hidden.any():
        again = draw_layouts(int(hidden.sum()), generator, num_objects=num_objects)
        for part, fresh in zip(kept, again, strict=True):
            part[hidden] = fresh
        hidden[hidden] = ~all_visible(again)
    return kept


def all_visible(layouts: Layouts) -> Bool[np.ndarray, " B"]:
    return np.concatenate([visible(layouts.where(some)) for some in parts(len(layouts.num_objects))])


def visible(layouts: Layouts) -> Bool[np.ndarray, " B"]:
    owner = see(*furnish(layouts), size=(LOOK, LOOK), samples=1, stretch=STRETCH).owner
    rays = torch.stack([(owner == slot).sum(dim=1) for slot in range(MOST_OBJECTS)], dim=1).numpy()
    return np.all((rays >= VISIBLE * LOOK * LOOK) | ~layouts.present, axis=1)


def furnish(layouts: Layouts) -> tuple[Solids, Cameras, Background]:
    """What the ray tracer needs to see the objects of layouts."""
    count = len(layouts.num_objects)
    shape, material, colour, _ = torch.as_tensor(layouts.properties).unbind(dim=-1)
    radius = torch.as_tensor(layouts.radii).float()
    around = torch.deg2rad(torch.as_tensor(layouts.turns).float())
    zero, one = torch.zeros_like(around), torch.ones_like(around)
    turn = torch.stack([around.cos(), -around.sin(), zero, around.sin(), around.cos(), zero, zero, zero, one], dim=-1)
    metal = (material == 1).float()
    solids = Solids(
        kind=torch.where(torch.as_tensor(layouts.present), SHAPE_KINDS[shape], ABSENT),
        centre=torch.cat([torch.as_tensor(layouts.places).float(), radius[..., None]], dim=-1),
        turn=turn.unflatten(-1, (3, 3)),
        half_size=radius[..., None].expand(-1, -1, 3),
        colour=COLOURS[colour] * (1 - (1 - METAL_DARKER) * metal)[..., None],
        shine=METAL_SHINE * metal,
    )
    return solids, looking(layouts.cameras), Background(torch.full((count, 3), GROUND), torch.full((count, 3), SKY))


def looking(positions: NDArray[np.float64]) -> Cameras:
    """Cameras at these places, as CLEVR has them: all look at the origin."""
    count = len(positions)
    return Cameras(torch.as_tensor(positions).float(), torch.zeros(count, 3), torch.full((count,), DEGREES))


def cameras_of(num_scenes: int, *, seed: int) -> Cameras:
    """Where the first scenes of a seed were seen from."""
    return looking(visible_layouts(BLOCK, np.random.default_rng([seed, 0])).cameras[:num_scenes])


def usual_cameras(num_scenes: int) -> Cameras:
    """CLEVR's camera before it is moved, for scenes that do not say where theirs was."""
    return looking(np.tile(CAMERA, (num_scenes, 1)))


def objects_of(layouts: Layouts) -> Float[Tensor, "B K 8"]:
    """Presence, coordinates and properties; zeros in empty slots."""
    present = layouts.present[..., None]
    objects = np.concatenate([present, layouts.places, layouts.radii[..., None], layouts.properties], axis=-1)
    return torch.as_tensor(objects * present).float()


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
