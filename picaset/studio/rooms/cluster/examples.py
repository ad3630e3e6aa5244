"""Example sets of points: Gaussian mixtures as in training, and shapes that the networks were not trained on."""

import csv
import math
from importlib import resources

import torch
from torch import Tensor

from picaset.lab.data.gaussian_mixtures import draw_mixtures, seeded_generator
from picaset.studio.rooms.cluster.schemas import ExampleName, PointsResponse, round_point

NUM_POINTS = 400


def draw_example(name: ExampleName, *, seed: int, components: int) -> PointsResponse:
    """Draw the points of an example; equal seeds give equal points."""
    generator = seeded_generator(seed, list(ExampleName).index(name))
    if name is ExampleName.ISLAND:
        points = read_island(seed)
    elif name is ExampleName.MOONS:
        points = draw_moons(generator)
    elif name is ExampleName.RING:
        angles = 2 * math.pi * torch.rand(NUM_POINTS, generator=generator)
        points = 3 * torch.stack([angles.cos(), angles.sin()], dim=1)
        points = points + 0.15 * torch.randn(NUM_POINTS, 2, generator=generator)
    elif name is ExampleName.UNEVEN:
        centres = torch.tensor([[-1.5, -1.0], [2.8, 2.8], [2.8, 0.6], [0.6, 2.8]])
        sizes, deviations = (310, 30, 30, 30), (0.9, 0.18, 0.18, 0.18)
        clusters = [
            centre + deviation * torch.randn(size, 2, generator=generator)
            for centre, size, deviation in zip(centres, sizes, deviations, strict=True)
        ]
        points = torch.cat(clusters)
    else:
        number = 4 if name is ExampleName.FOUR else components
        points = draw_mixtures(1, NUM_POINTS, generator=generator, num_components=number)[0][0]
    return PointsResponse(points=[round_point(point) for point in points.numpy()], about=name.about)


def draw_moons(generator: torch.Generator) -> Tensor:
    half = NUM_POINTS // 2
    angles = math.pi * torch.rand(NUM_POINTS, generator=generator)
    upper = torch.stack([angles.cos() - 0.5, angles.sin() - 0.25], dim=1)[:half]
    lower = torch.stack([0.5 - angles.cos(), 0.25 - angles.sin()], dim=1)[half:]
    return 2.2 * torch.cat([upper, lower]) + 0.15 * torch.randn(NUM_POINTS, 2, generator=generator)


def read_island(seed: int) -> Tensor:
    """Return the nests of one island of the shipped example table, scaled to the range of the training data."""
    text = (resources.files("picaset") / "tables" / "islands.csv").read_text()
    rows = list(csv.DictReader(text.splitlines()))
    names = sorted({row["island"] for row in rows})
    island = names[seed % len(names)]
    nests = torch.tensor([[float(row["east"]), float(row["north"])] for row in rows if row["island"] == island])
    low, high = nests.amin(dim=0), nests.amax(dim=0)
    return 8 * (nests - (low + high) / 2) / (high - low).amax()
