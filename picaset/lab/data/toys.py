"""Generated toys: the stand-in for smallNORB, rendered in grey on the same grid of viewpoints and lightings.

    load_toys      the training and the test half, rendered once and cached on disk
    render_toys    the same, rendered now
    build_toy      one toy

A toy consists of boxes, ellipsoids, cylinders and cones with random sizes and positions. There are five families, one
per category, and any number of instances of each. A toy faces +x, its left is +y, and it stands on the ground, z = 0.

Dimensions:  P solids   V viewpoints of a toy   L lightings   S = 48 pixels
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from picaset.checks import check_choice
from picaset.lab.data.folders import cache_folder
from picaset.lab.data.gaussian_mixtures import seeded_generator
from picaset.lab.data.ray_tracer import KINDS, Background, Cameras, Lamps, Solids, shade, to_pixels, trace_rays
from picaset.lab.data.views import CATEGORIES, SIZE, TEST_INSTANCES, TRAINING_INSTANCES, Views, read_views, write_views

Number = int | float
Vector = tuple[Number, Number, Number]

RADIUS = 1.2
"""Approximate radius of a toy."""
VERSION = 1
"""Version of the images, part of the file name; to be increased whenever they change."""
SEED = 2021
DISTANCE, DEGREES = 7.0, 27.0
"""Distance of the cameras, and their field of view."""
CAMERA_ANGLE = 5.0
"""Angle between the two cameras in degrees."""
LAMPS: tuple[tuple[tuple[float, float, float], float, float], ...] = (
    ((4.0, 6.0, 9.0), 0.75, 0.35),
    ((4.0, -6.0, 9.0), 0.75, 0.35),
    ((-6.0, 5.0, 8.0), 0.70, 0.40),
    ((-6.0, -5.0, 8.0), 0.70, 0.40),
    ((0.5, 0.5, 12.0), 0.80, 0.25),
    ((7.0, 0.5, 5.0), 0.50, 0.60),
)
"""Position of the lamp (x points to the camera), its strength, and the ambient light, for each lighting."""
NOISE = 1.5
"""Standard deviation of the image noise, in levels of 256."""
BATCH = 12
"""Number of viewpoints rendered together."""


@dataclass
class Toy:
    """Solids of a toy: kind, centre, half sizes, and rotations about x, y and z in degrees."""

    parts: list[tuple[str, Vector, Vector, Vector]] = field(default_factory=list[tuple[str, Vector, Vector, Vector]])

    def add(self, kind: str, centre: Vector, half_size: Vector, turn: Vector = (0, 0, 0)) -> None:
        self.parts.append((kind, centre, half_size, turn))

    def add_pair(self, kind: str, centre: Vector, half_size: Vector, turn: Vector = (0, 0, 0)) -> None:
        """Add a solid on the left and its mirror image on the right."""
        (x, y, z), (roll, pitch, yaw) = centre, turn
        self.add(kind, (x, y, z), half_size, (roll, pitch, yaw))
        self.add(kind, (x, -y, z), half_size, (-roll, pitch, -yaw))

    def add_wheels(self, places: list[float], *, across: float, radius: float, width: float) -> None:
        for place in places:
            self.add_pair("cylinder", (place, across, radius), (radius, radius, width), (90, 0, 0))


Draw = Callable[[Number, Number], float]
"""Function that returns a uniform random number between two bounds."""


def animal(draw: Draw) -> Toy:
    toy = Toy()
    length, girth, legs = draw(0.7, 1.0), draw(0.24, 0.42), draw(0.35, 0.75)
    body = legs + 0.7 * girth
    toy.add("ellipsoid", (0, 0, body), (length, girth, girth * draw(0.9, 1.15)))
    thick = draw(0.08, 0.15)
    for place in (0.6 * length, -0.6 * length):
        toy.add_pair("cylinder", (place, 0.55 * girth, legs / 2), (thick, thick, legs / 2), (0, draw(-12, 12), 0))
    neck, lean = draw(0.15, 0.75), math.radians(draw(15, 60))
    root = (0.8 * length, 0.0, body + 0.4 * girth)
    tip = (root[0] + neck * math.sin(lean), 0.0, root[2] + neck * math.cos(lean))
    middle = tuple((a + b) / 2 for a, b in zip(root, tip, strict=True))
    toy.add("cylinder", (middle[0], 0, middle[2]), (0.13, 0.13, neck / 2 + 0.1), (0, math.degrees(lean), 0))
    head = draw(0.17, 0.26)
    toy.add("ellipsoid", (tip[0] + 0.05, 0, tip[2] + 0.05), (head * 1.2, head, head))
    snout, droop = draw(0.15, 0.45), draw(70, 150)
    along = math.radians(droop)
    place = (tip[0] + 0.1 + snout * math.sin(along), 0.0, tip[2] + snout * math.cos(along))
    toy.add("cone", place, (0.6 * head, 0.6 * head, snout), (0, droop, 0))
    ear = draw(0.08, 0.28)
    toy.add_pair("ellipsoid", (tip[0] - 0.02, 0.9 * head, tip[2] + head), (0.05, 0.5 * ear, ear), (draw(-50, 10), 0, 0))
    tail, hang = draw(0.2, 0.6), draw(-150, -70)
    turn = math.radians(hang)
    end = (-length + tail * math.sin(turn), 0.0, body + tail * math.cos(turn))
    toy.add("cone", end, (draw(0.05, 0.16), 0.06, tail), (0, hang, 0))
    return toy


def human(draw: Draw) -> Toy:
    toy = Toy()
    legs, torso, broad = draw(0.8, 1.0), draw(0.6, 0.8), draw(0.24, 0.34)
    stride = draw(0, 25)
    swing = 0.5 * legs * math.sin(math.radians(stride))
    for side, turn in ((1, stride), (-1, -stride)):
        toy.add("cylinder", (side * swing * -1, side * 0.14, legs / 2), (0.11, 0.11, legs / 2), (0, turn, 0))
    toy.add("ellipsoid", (0, 0, legs + torso / 2), (0.19, broad, 0.58 * torso), (0, draw(-5, 15), 0))
    toy.add("box", (0, 0, legs + 0.05), (0.15, 0.8 * broad, 0.12))
    top = legs + torso
    toy.add("ellipsoid", (0.03, 0, top + 0.22), (0.17, 0.16, 0.2))
    arm = draw(0.32, 0.42)
    for side in (1, -1):
        lift, out = math.radians(draw(-30, 110)), math.radians(draw(5, 50))
        way = (math.sin(lift) * math.cos(out), side * math.sin(out), -math.cos(lift) * math.cos(out))
        shoulder = (0.0, side * (broad + 0.04), top - 0.08)
        place = tuple(a + arm * b for a, b in zip(shoulder, way, strict=True))
        pitch = math.degrees(math.atan2(way[0], way[2]))
        roll = -math.degrees(math.asin(way[1]))
        toy.add("cylinder", (place[0], place[1], place[2]), (0.075, 0.075, arm), (roll, pitch, 0))
    hat = draw(0, 3)
    if hat < 1:
        toy.add("cone", (0.03, 0, top + 0.5), (0.2, 0.2, 0.16))
    elif hat < 2:
        toy.add("cylinder", (0.03, 0, top + 0.4), (0.22, 0.22, 0.05))
    if draw(0, 1) < 0.5:
        toy.add("cylinder", (0.35, draw(-0.4, 0.4), 0.75 * top), (0.04, 0.04, 0.55), (draw(-30, 30), draw(20, 100), 0))
    toy.add("cylinder", (0, 0, 0.03), (0.5, 0.36, 0.03))
    return toy


def airplane(draw: Draw) -> Toy:
    toy = Toy()
    length, radius, high = draw(0.9, 1.15), draw(0.11, 0.2), draw(0.3, 0.45)
    toy.add("ellipsoid", (0, 0, high), (length, radius, radius))
    toy.add("cone", (-0.55 * length, 0, high), (0.9 * radius, 0.9 * radius, 0.55 * length), (0, -90, 0))
    span, chord, sweep = draw(0.65, 1.1), draw(0.14, 0.26), draw(-5, 40)
    slant = math.radians(sweep)
    lift = high + draw(-0.6, 0.9) * radius
    place = (0.1 - 0.5 * span * math.sin(slant), 0.5 * span * math.cos(slant), lift)
    toy.add_pair("box", place, (chord, 0.52 * span, 0.03), (draw(-2, 8), 0, sweep))
    tail = draw(0.25, 0.4)
    back = -0.88 * length
    toy.add_pair("box", (back, 0.5 * tail, high + draw(0, 0.3)), (0.1, 0.5 * tail, 0.025), (0, 0, sweep))
    toy.add("box", (back, 0, high + 0.2), (0.12, 0.025, 0.24), (0, draw(-30, -5), 0))
    engines = draw(0, 3)
    if engines < 2:
        under = (0.2 - 0.4 * span * math.sin(slant), 0.4 * span, lift - 0.09)
        toy.add_pair("cylinder", under, (0.075, 0.075, draw(0.12, 0.22)), (0, 90, 0))
    else:
        toy.add("box", (length + 0.02, 0, high), (0.02, 0.05, 0.32), (draw(0, 90), 0, 0))
    toy.add("ellipsoid", (0.5 * length, 0, high + 0.75 * radius), (0.22, 0.7 * radius, 0.6 * radius))
    toy.add("cylinder", (0.55 * length, 0, high / 2), (0.04, 0.04, high / 2))
    toy.add_pair("cylinder", (-0.1, 0.2, high / 2), (0.04, 0.04, high / 2))
    return toy


def truck(draw: Draw) -> Toy:
    toy = Toy()
    wide, wheel = draw(0.34, 0.42), draw(0.15, 0.22)
    floor = wheel * 1.3
    toy.add("box", (0, 0, floor), (1.1, 0.8 * wide, 0.07))
    cab, high = draw(0.24, 0.34), draw(0.34, 0.5)
    toy.add("box", (1.1 - cab, 0, floor + high), (cab, wide, high))
    hood = draw(0, 0.35)
    if hood > 0.12:
        toy.add("box", (1.1 + hood / 2, 0, floor + 0.5 * high), (0.5 * hood + 0.05, 0.9 * wide, 0.45 * high))
    load, reach = draw(0, 4), 1.05 - cab
    middle = -1.1 + reach
    if load < 1:
        tank = 0.95 * wide
        toy.add("cylinder", (middle, 0, floor + tank), (tank, tank, reach), (0, 90, 0))
    elif load < 2:
        toy.add("box", (middle, 0, floor + 0.12), (reach, wide, 0.1))
        toy.add_pair("box", (middle, wide, floor + 0.3), (reach, 0.03, 0.2))
        toy.add("ellipsoid", (middle, 0, floor + 0.25), (0.8 * reach, 0.8 * wide, draw(0.1, 0.4)))
    elif load < 3:
        crane = draw(20, 70)
        toy.add("box", (middle, 0, floor + 0.15), (0.6 * reach, wide, 0.14))
        toy.add("cylinder", (middle, 0, floor + 0.5), (0.08, 0.08, 0.8), (0, crane, 0))
    else:
        tall = draw(0.4, 0.62)
        toy.add("box", (middle, 0, floor + tall), (reach, wide * 1.05, tall))
    places = [0.75, -0.5, -0.5 - 2.2 * wheel] if draw(0, 1) < 0.6 else [0.75, -0.7]
    toy.add_wheels(places, across=0.85 * wide, radius=wheel, width=0.09)
    return toy


def car(draw: Draw) -> Toy:
    toy = Toy()
    length, wide, wheel = draw(0.95, 1.15), draw(0.4, 0.5), draw(0.15, 0.2)
    low, high = wheel * 0.7, draw(0.14, 0.2)
    belt = low + 2 * high
    toy.add("box", (0, 0, low + high), (0.92 * length, wide, high))
    toy.add("ellipsoid", (0, 0, low + high), (length, 0.98 * wide, high * draw(1.05, 1.5)))
    roof, place = draw(0.3, 0.55), draw(-0.3, 0.1)
    style = draw(0, 3)
    if style < 1.2:
        tall = draw(0.13, 0.2)
        toy.add("box", (place, 0, belt + tall), (roof, 0.8 * wide, tall))
        slope = draw(30, 55)
        run = 1.3 * tall
        toy.add("box", (place + roof, 0, belt + 0.6 * tall), (run, 0.78 * wide, 0.4 * tall), (0, slope, 0))
        toy.add("box", (place - roof, 0, belt + 0.6 * tall), (run, 0.78 * wide, 0.4 * tall), (0, -draw(0, slope), 0))
    elif style < 2.2:
        toy.add("ellipsoid", (place, 0, belt), (roof * 1.3, 0.82 * wide, draw(0.26, 0.4)))
    else:
        toy.add("box", (place + 0.35, 0, belt + 0.1), (0.03, 0.75 * wide, 0.14), (0, -35, 0))
        toy.add_pair("box", (place - 0.1, 0.4 * wide, belt + 0.05), (0.07, 0.3 * wide, 0.13))
    if draw(0, 1) < 0.4:
        toy.add("box", (-0.9 * length, 0, belt + 0.12), (0.1, 0.9 * wide, 0.02))
        toy.add_pair("box", (-0.88 * length, 0.6 * wide, belt), (0.03, 0.03, 0.12))
    toy.add_wheels([0.6 * length, -0.6 * length], across=0.95 * wide, radius=wheel, width=0.08)
    return toy


FAMILIES = {"animal": animal, "human": human, "airplane": airplane, "truck": truck, "car": car}


def build_toy(category: int, instance: int, *, seed: int) -> Solids:
    """Build a toy of random shape and standard size, as a batch of one scene; it depends on the arguments alone."""
    random = np.random.default_rng([seed, category, instance])

    def draw(low: Number, high: Number) -> float:
        return float(random.uniform(low, high))

    toy = FAMILIES[CATEGORIES[category]](draw)
    centres = torch.tensor([part[1] for part in toy.parts], dtype=torch.float32)
    half_sizes = torch.tensor([part[2] for part in toy.parts], dtype=torch.float32)
    middle = (centres.amin(dim=0) + centres.amax(dim=0)) / 2
    extent = (centres - middle).square().sum(dim=1).sqrt() + 0.7 * half_sizes.amax(dim=1)
    scale = RADIUS * draw(0.92, 1.08) / float(extent.max())
    middle[2] = 0.0  # the toy stays on the ground
    paint = draw(0.3, 0.55) * torch.ones(1, len(centres), 1)
    return Solids(
        kind=torch.tensor([[KINDS.index(part[0]) for part in toy.parts]]),
        centre=scale * (centres - middle)[None],
        turn=torch.stack([rotation(*part[3]) for part in toy.parts])[None],
        half_size=scale * half_sizes[None],
        colour=paint,
        shine=torch.full((1, len(centres)), draw(0.0, 0.25)),
    )


def rotation(roll: Number, pitch: Number, yaw: Number) -> Tensor:
    """Return the matrix of rotations about x, then y, then z, in degrees."""
    matrix = torch.eye(3)
    for (i, j), angle in zip(((1, 2), (2, 0), (0, 1)), (roll, pitch, yaw), strict=True):
        step = torch.eye(3)
        step[i, i] = step[j, j] = math.cos(math.radians(angle))
        step[j, i] = math.sin(math.radians(angle))
        step[i, j] = -step[j, i]
        matrix = step @ matrix
    return matrix


@dataclass(frozen=True)
class Grid:
    """Instances, viewpoints and lightings to render."""

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
"""The grid of smallNORB, one that renders in a minute, and one that renders in a second."""


def load_toys(size: str = "whole") -> tuple[Views, Views]:
    """Return the training and the test half of a grid; the first call renders them into the cache folder."""
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


def render_toys(grid: Grid, instances: tuple[int, ...], *, categories: tuple[str, ...] = CATEGORIES) -> Views:
    """Render instances of categories from every viewpoint and in every lighting of a grid."""
    images, labels = list[Tensor](), list[tuple[int, ...]]()
    for category, instance in product(map(CATEGORIES.index, categories), instances):
        images.append(render_toy(category, instance, grid, seed=SEED))
        for elevation, azimuth in product(grid.elevations, grid.azimuths):
            labels += [(category, instance, elevation, azimuth, lighting) for lighting in grid.lightings]
    return Views(torch.cat(images), *torch.tensor(labels).unbind(dim=1))


def render_toy(
    category: int, instance: int, grid: Grid, *, seed: int, size: int = SIZE, cameras: int = 2
) -> UInt8[Tensor, "N {cameras} {size} {size}"]:
    """Render one toy; images are ordered by elevation, azimuth and lighting."""
    toy = build_toy(category, instance, seed=seed)
    generator = seeded_generator(seed, category, instance)
    ground = 0.62 + 0.12 * float(torch.rand((), generator=generator))
    viewpoints = torch.tensor(list(product(grid.elevations, grid.azimuths)))
    batches = list[Tensor]()
    for first in range(0, len(viewpoints), BATCH):
        batch = viewpoints[first : first + BATCH]
        elevation, azimuth = 30 + 5 * batch[:, 0], 10 * batch[:, 1]
        pair = [
            render_views(toy, elevation, azimuth + offset, azimuth, grid.lightings, ground, size)
            for offset in (CAMERA_ANGLE / 2, -CAMERA_ANGLE / 2)[:cameras]
        ]
        batches.append(torch.stack(pair, dim=2).flatten(0, 1))  # (V L, cameras, size, size)
    images = 255 * torch.cat(batches)
    noisy = images + NOISE * torch.randn(images.shape, generator=generator)
    return noisy.round().clamp(0, 255).to(torch.uint8)


def render_views(
    toy: Solids,
    elevation: Tensor,
    azimuth: Tensor,
    lamp_azimuth: Tensor,
    lightings: tuple[int, ...],
    ground: float,
    size: int,
) -> Float[Tensor, "V L {size} {size}"]:
    """Render the views of one camera.

    smallNORB turns the toy while cameras and lamps stand still; here cameras and lamps turn around the toy.
    """
    count = len(elevation)
    solids = toy.expand(count)
    height = float((toy.centre[..., 2].amin() + toy.centre[..., 2].amax()) / 2)
    target = torch.tensor([[0.0, 0.0, height]]).expand(count, 3)
    cameras = Cameras(target + DISTANCE * on_sphere(azimuth, elevation), target, torch.full((count,), DEGREES))
    background = Background(torch.full((count, 1), ground), torch.full((count, 1), ground))
    points = trace_rays(solids, cameras, background, size=(size, size))
    pictures = list[Tensor]()
    for lighting in lightings:
        position, strength, ambient = LAMPS[lighting]
        lamps = Lamps(
            position=rotated(torch.tensor(position), lamp_azimuth)[:, None],
            strength=torch.full((count, 1), strength),
            ambient=torch.full((count,), ambient),
        )
        pictures.append(to_pixels(shade(points, solids, lamps), (size, size), 2)[:, 0])
    return torch.stack(pictures, dim=1)


def on_sphere(azimuth: Tensor, elevation: Tensor) -> Float[Tensor, "V 3"]:
    """Return points on the unit sphere from angles in degrees."""
    angle, height = azimuth * (math.pi / 180), elevation * (math.pi / 180)
    return torch.stack([height.cos() * angle.cos(), height.cos() * angle.sin(), height.sin()], dim=1)


def rotated(position: Float[Tensor, "3"], azimuth: Tensor) -> Float[Tensor, "V 3"]:
    """Rotate a point about the vertical by angles in degrees."""
    angle = azimuth * (math.pi / 180)
    x, y, z = position.unbind()
    return torch.stack(
        [x * angle.cos() - y * angle.sin(), x * angle.sin() + y * angle.cos(), z.expand(len(angle))], dim=1
    )
