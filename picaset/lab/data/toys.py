"""The stand-in for smallNORB: generated toys, rendered in grey on the same grid of viewpoints and lightings.

    load_toys      the training and the test objects, rendered once and kept on disk
    render_toys    the same, rendered now

Dimensions:  V viewpoints of a toy   S = 48 pixels
"""

import math
from dataclasses import dataclass
from itertools import product

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from picaset.checks import check_choice
from picaset.lab.data.folders import cache_folder
from picaset.lab.data.gaussian_mixtures import generator_for
from picaset.lab.data.render import Background, Cameras, Lamps, light, see, to_pixels
from picaset.lab.data.solids import Solids
from picaset.lab.data.toy_shapes import build_toy
from picaset.lab.data.views import CATEGORIES, SIZE, TEST_INSTANCES, TRAINING_INSTANCES, Views
from picaset.lab.data.views_file import read_views, write_views

VERSION = 1
"""Changes whenever the pictures do, so that old ones are not mistaken for new ones."""
SEED = 2021
DISTANCE, DEGREES = 7.0, 27.0
"""Of the cameras: how far away, and how wide they see."""
APART = 5.0
"""Degrees between the two cameras."""
LAMPS: tuple[tuple[tuple[float, float, float], float, float], ...] = (
    ((4.0, 6.0, 9.0), 0.75, 0.35),
    ((4.0, -6.0, 9.0), 0.75, 0.35),
    ((-6.0, 5.0, 8.0), 0.70, 0.40),
    ((-6.0, -5.0, 8.0), 0.70, 0.40),
    ((0.5, 0.5, 12.0), 0.80, 0.25),
    ((7.0, 0.5, 5.0), 0.50, 0.60),
)
"""Of each lighting: where its lamp stands, x being towards the camera, its strength, and the ambient light."""
NOISE = 1.5
"""Deviation of the camera's noise, in grey levels of 256."""
AT_ONCE = 12
"""Viewpoints that are rendered together."""


@dataclass(frozen=True)
class Grid:
    """Which instances, viewpoints and lightings are rendered, of all five categories."""

    training: tuple[int, ...] = TRAINING_INSTANCES
    test: tuple[int, ...] = TEST_INSTANCES
    elevations: tuple[int, ...] = tuple(range(9))
    azimuths: tuple[int, ...] = tuple(range(0, 36, 2))
    lightings: tuple[int, ...] = tuple(range(6))


GRIDS = {
    "whole": Grid(),
    "small": Grid((4, 6, 7), (0, 1, 2), elevations=(0, 2, 4, 6, 8), lightings=(0, 3)),
    "tiny": Grid((4,), (0,), elevations=(0, 4, 8), azimuths=(0, 6, 12, 18, 24, 30), lightings=(1,)),
}
"""All that smallNORB has; what renders in a minute; what renders in a second."""


def load_toys(size: str = "whole") -> tuple[Views, Views]:
    """The training and the test objects of a grid; rendered the first time, read from the cache folder after that."""
    check_choice(size, tuple(GRIDS), caller="load_toys", name="size")
    grid = GRIDS[size]
    halves = list[Views]()
    for half, instances in (("training", grid.training), ("test", grid.test)):
        path = cache_folder() / f"toys-{VERSION}-{size}-{half}.npz"
        if not path.is_file():
            write_views(path, render_toys(grid, instances))
        halves.append(read_views(path, instances))
    training, test = halves
    return training, test


def render_toys(
    grid: Grid, instances: tuple[int, ...], *, categories: tuple[str, ...] = CATEGORIES, seed: int = SEED
) -> Views:
    """These categories in these instances, from every viewpoint of a grid, in every lighting."""
    images, labels = list[Tensor](), list[tuple[int, ...]]()
    for category, instance in product(map(CATEGORIES.index, categories), instances):
        images.append(photograph(category, instance, grid, seed=seed))
        for elevation, azimuth in product(grid.elevations, grid.azimuths):
            labels += [(category, instance, elevation, azimuth, lighting) for lighting in grid.lightings]
    return Views(torch.cat(images), *torch.tensor(labels).unbind(dim=1))


def photograph(category: int, instance: int, grid: Grid, *, seed: int) -> UInt8[Tensor, "N 2 S S"]:
    """One toy: viewpoints in the order of elevation and azimuth, lightings one after the other."""
    toy = build_toy(category, instance, seed=seed)
    generator = generator_for(seed, category, instance)
    table = 0.62 + 0.12 * float(torch.rand((), generator=generator))
    viewpoints = torch.tensor(list(product(grid.elevations, grid.azimuths)))
    taken = list[Tensor]()
    for first in range(0, len(viewpoints), AT_ONCE):
        some = viewpoints[first : first + AT_ONCE]
        elevation, azimuth = 30 + 5 * some[:, 0], 10 * some[:, 1]
        pairs = [
            lit_views(toy, elevation, azimuth + offset, azimuth, grid.lightings, table)
            for offset in (APART / 2, -APART / 2)
        ]
        taken.append(torch.stack(pairs, dim=2).flatten(0, 1))  # (V L, 2, S, S)
    images = 255 * torch.cat(taken)
    noisy = images + NOISE * torch.randn(images.shape, generator=generator)
    return noisy.round().clamp(0, 255).to(torch.uint8)


def lit_views(
    toy: Solids,
    elevation: Tensor,
    azimuth: Tensor,
    table_turn: Tensor,
    lightings: tuple[int, ...],
    table: float,
) -> Float[Tensor, "V L S S"]:
    """Views of one camera; the toy turns on the table, the lamps stand still, so they turn with the camera here."""
    count = len(elevation)
    solids = toy.expand(count)
    height = float((toy.centre[..., 2].amin() + toy.centre[..., 2].amax()) / 2)
    target = torch.tensor([[0.0, 0.0, height]]).expand(count, 3)
    cameras = Cameras(target + DISTANCE * place(azimuth, elevation), target, torch.full((count,), DEGREES))
    background = Background(torch.full((count, 1), table), torch.full((count, 1), table))
    seen = see(solids, cameras, background, size=(SIZE, SIZE))
    pictures = list[Tensor]()
    for lighting in lightings:
        position, strength, ambient = LAMPS[lighting]
        lamps = Lamps(
            position=turned(torch.tensor(position), table_turn)[:, None],
            strength=torch.full((count, 1), strength),
            ambient=torch.full((count,), ambient),
        )
        pictures.append(to_pixels(light(seen, solids, lamps), (SIZE, SIZE), 2)[:, 0])
    return torch.stack(pictures, dim=1)


def place(azimuth: Tensor, elevation: Tensor) -> Float[Tensor, "V 3"]:
    """On the unit sphere, from angles in degrees."""
    around, up = azimuth * (math.pi / 180), elevation * (math.pi / 180)
    return torch.stack([up.cos() * around.cos(), up.cos() * around.sin(), up.sin()], dim=1)


def turned(position: Float[Tensor, "3"], azimuth: Tensor) -> Float[Tensor, "V 3"]:
    """A place turned about the vertical by angles in degrees."""
    around = azimuth * (math.pi / 180)
    x, y, z = position.unbind()
    return torch.stack(
        [x * around.cos() - y * around.sin(), x * around.sin() + y * around.cos(), z.expand(len(around))], dim=1
    )
