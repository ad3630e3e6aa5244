"""Traced scenes: the stand-in for CLEVR, generated from a seed and rendered by ``ray_tracer.py``.

Properties, placement rules, camera and camera jitter are those of CLEVR. Three lamps with random displacements
illuminate the scene, metal has highlights and reflects its surroundings, and all objects cast shadows. As in CLEVR, a
scene in which an object is almost hidden is drawn again.

    load_traced_scenes    the first scenes of a seed, rendered once and memory-mapped from a file
    trace_scene           one scene, with a given number of objects, rendered at any size

Scenes are generated in blocks that have a random generator each, so that the first scenes of a seed do not depend on
the number of scenes.

Dimensions:  B scenes   K = 10 slots   S pixels a side   L = 3 lamps   R rays
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
from picaset.lab.data.folders import map_rows, with_progress, write_rows
from picaset.lab.data.ray_tracer import (
    ABSENT,
    KINDS,
    Background,
    Cameras,
    Lamps,
    Solids,
    SurfacePoints,
    dot,
    shade,
    to_pixels,
    trace_rays,
)
from picaset.lab.data.scene_layouts import CAMERA, MIN_OBJECTS, Layouts, draw_layouts
from picaset.lab.data.scenes import MAX_OBJECTS, Objects, Scenes, row_type, scene_rows, scenes_from_rows

VERSION = 1
"""Version of the images, part of the file name; to be increased whenever they change."""
BLOCK, BATCH = 100, 10
"""Number of scenes in a block, and number of scenes rendered together."""
VIEW_ASPECT = 1.5
"""Width divided by height of the field of view, as in CLEVR; images are resized to squares."""
DEGREES = 49.1
"""Horizontal field of view of the camera."""
MIN_VISIBLE = 200 / (480 * 320)
"""Share of the image that every object must cover: 200 pixels at the size of CLEVR's images."""
VISIBILITY_SIZE = 64
"""Number of rays in each direction for the visibility check."""
COLOURS = torch.tensor(
    [
        (87, 87, 87), (173, 35, 35), (42, 75, 215), (29, 105, 20), (129, 74, 25), (129, 38, 192), (41, 208, 208),
        (255, 238, 51),
    ]
) / 255  # fmt: skip
"""Colours of CLEVR, in the order of ``PROPERTIES``."""
SHAPE_KINDS = torch.tensor([KINDS.index(kind) for kind in ("box", "ellipsoid", "cylinder")])
LAMPS = torch.tensor([(6.5, -1.5, 7.0), (-2.0, -6.5, 5.0), (-2.0, 4.5, 6.5)])
"""Mean positions of the key, fill and back lamp."""
LAMP_JITTER = 1.0
"""Largest displacement of a lamp from its mean position, in each coordinate."""
STRENGTHS, AMBIENT = torch.tensor([0.65, 0.3, 0.2]), 0.3
GROUND, SKY = 0.62, 0.55
METAL_SHINE, METAL_DIFFUSE, REFLECTIVITY = 0.9, 0.6, 0.9
"""Metal has a highlight, a weaker diffuse reflection than rubber, and reflects its surroundings."""
NOISE = 1.0
"""Standard deviation of the image noise, in levels of 256."""


@cache
def load_traced_scenes(num_scenes: int, *, seed: int, size: int, folder: Path) -> Scenes:
    """Return the first scenes of a seed; the first call renders them into a file in ``folder``."""
    check_positive(caller="load_traced_scenes", num_scenes=num_scenes, size=size)
    path = folder / f"scenes-{VERSION}-seed{seed}-{num_scenes}-{size}.npy"
    if not path.is_file():
        write_rows(path, traced_rows(num_scenes, seed=seed, size=size), count=num_scenes, row=row_type(size))
    return scenes_from_rows(map_rows(path), np.full(num_scenes, VIEW_ASPECT), f"{num_scenes} traced scenes")


def traced_rows(num_scenes: int, *, seed: int, size: int) -> Iterator[bytes]:
    """Yield the scenes as rows of a file; a pool with one thread per core renders the blocks."""
    starts = list(range(0, num_scenes, BLOCK))
    workers = os.cpu_count() or 1
    threads = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="scenes")
    try:
        blocks = (
            threads.submit(trace_block, start // BLOCK, seed=seed, size=size, most=num_scenes - start)
            for start in starts
        )
        # Two blocks per thread keep the pool busy; more would only occupy memory until they are written.
        pending = deque(islice(blocks, 2 * workers))
        for _ in with_progress(starts, f"rendering {num_scenes} scenes, once"):
            images, objects = pending.popleft().result()
            pending.extend(islice(blocks, 1))
            yield from scene_rows(images.numpy(), objects.numpy())
    finally:
        threads.shutdown(cancel_futures=True)


def trace_block(
    number: int, *, seed: int, size: int, most: int = BLOCK
) -> tuple[UInt8[Tensor, "B S S 3"], Float[Tensor, "B K 8"]]:
    """Render a block, or its first ``most`` scenes; return images, and presence, coordinates and properties by slot."""
    generator = np.random.default_rng([seed, number])
    layouts = visible_layouts(BLOCK, generator).where(slice(most))
    lamps = draw_lamps(BLOCK, generator)[:most]
    images = torch.cat([photographs(layouts.where(batch), lamps[batch], size) for batch in batches(layouts)])
    return with_noise(images, generator), slots_of(layouts)


def draw_lamps(num_scenes: int, generator: np.random.Generator) -> Float[Tensor, "B L 3"]:
    """Draw the positions of the lamps."""
    offsets = generator.uniform(-LAMP_JITTER, LAMP_JITTER, (num_scenes, len(LAMPS), 3))
    return LAMPS + torch.as_tensor(offsets).float()


def with_noise(images: Float[Tensor, "B 3 S S"], generator: np.random.Generator) -> UInt8[Tensor, "B S S 3"]:
    """Add noise to images and convert them to bytes."""
    noisy = 255 * images + NOISE * torch.as_tensor(generator.standard_normal(images.shape, dtype=np.float32))
    return noisy.round().clamp(0, 255).to(torch.uint8).movedim(1, -1)


def batches(layouts: Layouts) -> list[slice]:
    return [slice(first, first + BATCH) for first in range(0, len(layouts.num_objects), BATCH)]


def photographs(layouts: Layouts, lamps: Float[Tensor, "B L 3"], size: int) -> Float[Tensor, "B 3 S S"]:
    """Render layouts with values from 0 to 1, without noise."""
    solids, cameras, background = ray_tracer_inputs(layouts)
    points = trace_rays(solids, cameras, background, size=(size, size), stretch=VIEW_ASPECT)
    lit = shade(points, solids, Lamps(lamps, STRENGTHS.expand(len(lamps), -1), torch.full((len(lamps),), AMBIENT)))
    return to_pixels(lit + reflections(points), (size, size), 2)


def reflections(points: SurfacePoints) -> Float[Tensor, "B R 3"]:
    """Return what metal reflects, tinted by its colour: a bright sky above a darker ground."""
    height = 2 * dot(points.normal, points.towards) * points.normal[..., 2] - points.towards[..., 2]
    surroundings = torch.where(height > 0, 1 - 0.5 * height, 0.35)
    return (REFLECTIVITY * (points.shine > 0) * surroundings)[..., None] * points.colour


def visible_layouts(num_scenes: int, generator: np.random.Generator, *, num_objects: int | None = None) -> Layouts:
    """Draw layouts, and draw those again in which an object is almost hidden."""
    layouts = draw_layouts(num_scenes, generator, num_objects=num_objects)
    hidden = ~all_visible(layouts)
    while hidden.any():
        replacements = draw_layouts(int(hidden.sum()), generator, num_objects=num_objects)
        for part, replacement in zip(layouts, replacements, strict=True):
            part[hidden] = replacement
        hidden[hidden] = ~all_visible(replacements)
    return layouts


def all_visible(layouts: Layouts) -> Bool[np.ndarray, " B"]:
    """Return in which scenes every object covers enough of the image."""
    return np.concatenate([batch_visible(layouts.where(batch)) for batch in batches(layouts)])


def batch_visible(layouts: Layouts) -> Bool[np.ndarray, " B"]:
    owner = trace_rays(
        *ray_tracer_inputs(layouts), size=(VISIBILITY_SIZE, VISIBILITY_SIZE), samples=1, stretch=VIEW_ASPECT
    ).owner
    rays = torch.stack([(owner == slot).sum(dim=1) for slot in range(MAX_OBJECTS)], dim=1).numpy()
    return np.all((rays >= MIN_VISIBLE * VISIBILITY_SIZE**2) | ~layouts.present, axis=1)


def ray_tracer_inputs(layouts: Layouts) -> tuple[Solids, Cameras, Background]:
    """Convert layouts to the inputs of the ray tracer."""
    count = len(layouts.num_objects)
    shape, material, colour, _ = torch.as_tensor(layouts.properties).unbind(dim=-1)
    radius = torch.as_tensor(layouts.radii).float()
    angle = torch.deg2rad(torch.as_tensor(layouts.turns).float())
    zero, one = torch.zeros_like(angle), torch.ones_like(angle)
    turn = torch.stack([angle.cos(), -angle.sin(), zero, angle.sin(), angle.cos(), zero, zero, zero, one], dim=-1)
    metal = (material == 1).float()
    solids = Solids(
        kind=torch.where(torch.as_tensor(layouts.present), SHAPE_KINDS[shape], ABSENT),
        centre=torch.cat([torch.as_tensor(layouts.places).float(), radius[..., None]], dim=-1),
        turn=turn.unflatten(-1, (3, 3)),
        half_size=radius[..., None].expand(-1, -1, 3),
        colour=COLOURS[colour] * (1 - (1 - METAL_DIFFUSE) * metal)[..., None],
        shine=METAL_SHINE * metal,
    )
    background = Background(torch.full((count, 3), GROUND), torch.full((count, 3), SKY))
    return solids, cameras_at(layouts.cameras), background


def cameras_at(positions: NDArray[np.float64]) -> Cameras:
    """Return cameras at these positions that look at the origin, as in CLEVR."""
    count = len(positions)
    return Cameras(torch.as_tensor(positions).float(), torch.zeros(count, 3), torch.full((count,), DEGREES))


def scene_cameras(num_scenes: int, *, seed: int) -> Cameras:
    """Return the cameras of the first scenes of a seed."""
    return cameras_at(visible_layouts(BLOCK, np.random.default_rng([seed, 0])).cameras[:num_scenes])


def default_cameras(num_scenes: int) -> Cameras:
    """Return CLEVR's mean camera, for scenes whose camera is unknown."""
    return cameras_at(np.tile(CAMERA, (num_scenes, 1)))


def slots_of(layouts: Layouts) -> Float[Tensor, "B K 8"]:
    """Return presence, coordinates and properties of each slot; empty slots are zero."""
    present = layouts.present[..., None]
    slots = np.concatenate([present, layouts.places, layouts.radii[..., None], layouts.properties], axis=-1)
    return torch.as_tensor(slots * present).float()


@dataclass(frozen=True, eq=False)
class TracedScene:
    """One scene: a batch of one layout and its lamps."""

    layouts: Layouts
    lamps: Tensor
    seed: int

    @property
    def cameras(self) -> Cameras:
        return cameras_at(self.layouts.cameras)

    @property
    def objects(self) -> Objects:
        """The objects of the scene, as a batch of one."""
        slots = slots_of(self.layouts)
        return Objects(slots[..., 0], slots[..., 1:4], slots[..., 4:].long())

    def picture(self, size: int) -> UInt8[np.ndarray, "S S 3"]:
        """Render the scene, with noise."""
        images = photographs(self.layouts, self.lamps, size)
        pixels: NDArray[np.uint8] = with_noise(images, np.random.default_rng([self.seed, size]))[0].numpy()
        return pixels


@lru_cache(maxsize=256)
def trace_scene(seed: int, num_objects: int | None = None) -> TracedScene:
    """Generate one scene, which depends on the arguments alone.

    Example:
        >>> scene = trace_scene(0, 4)
        >>> int(scene.objects.presence.sum()), scene.picture(32).shape
        (4, (32, 32, 3))
    """
    if num_objects is not None and not MIN_OBJECTS <= num_objects <= MAX_OBJECTS:
        raise ValueError(f"A scene has from {MIN_OBJECTS} to {MAX_OBJECTS} objects; got {num_objects}.")
    generator = np.random.default_rng([seed, num_objects or 0])
    layouts = visible_layouts(1, generator, num_objects=num_objects)
    return TracedScene(layouts, draw_lamps(1, generator), seed)
