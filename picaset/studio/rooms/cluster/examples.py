"""Points to begin with: drawn as in training, and as no training ever did."""

import csv
import math
from importlib import resources

import torch
from torch import Tensor

from picaset.lab.data.gaussian_mixtures import draw_mixtures, generator_for
from picaset.studio.rooms.cluster.schemas import Example, ExampleName, SomePoints, as_point

TITLES = {
    ExampleName.FOUR: "Four Gaussians, as in training",
    ExampleName.AS_MANY: "As many Gaussians as the slider says",
    ExampleName.UNEVEN: "One large, three small",
    ExampleName.MOONS: "Two moons",
    ExampleName.RING: "A ring",
    ExampleName.ISLAND: "Nests on an island, from a file",
}
NUM_POINTS = 400


def examples() -> list[Example]:
    return [Example(name=name, title=title) for name, title in TITLES.items()]


def example(name: ExampleName, *, seed: int, components: int) -> SomePoints:
    """The same points for the same seed."""
    generator = generator_for(seed, list(TITLES).index(name))
    if name is ExampleName.ISLAND:
        return SomePoints(points=island(seed), about="Nests on one of six islands of the example file, made to fit.")
    if name is ExampleName.MOONS:
        points = moons(generator)
    elif name is ExampleName.RING:
        angles = 2 * math.pi * torch.rand(NUM_POINTS, generator=generator)
        points = 3 * torch.stack([angles.cos(), angles.sin()], dim=1)
        points = points + 0.15 * torch.randn(NUM_POINTS, 2, generator=generator)
    elif name is ExampleName.UNEVEN:
        centres = torch.tensor([[-1.5, -1.0], [2.8, 2.8], [2.8, 0.6], [0.6, 2.8]])
        sizes, deviations = (310, 30, 30, 30), (0.9, 0.18, 0.18, 0.18)
        points = torch.cat(
            [
                centre + deviation * torch.randn(size, 2, generator=generator)
                for centre, size, deviation in zip(centres, sizes, deviations, strict=True)
            ]
        )
    else:
        number = 4 if name is ExampleName.FOUR else components
        points = draw_mixtures(1, NUM_POINTS, generator=generator, num_components=number)[0][0]
    return SomePoints(points=[as_point(point) for point in points.numpy()], about=f"{TITLES[name]}; seed {seed}.")


def moons(generator: torch.Generator) -> Tensor:
    half = NUM_POINTS // 2
    angles = math.pi * torch.rand(NUM_POINTS, generator=generator)
    upper = torch.stack([angles.cos() - 0.5, angles.sin() - 0.25], dim=1)[:half]
    lower = torch.stack([0.5 - angles.cos(), 0.25 - angles.sin()], dim=1)[half:]
    return 2.2 * torch.cat([upper, lower]) + 0.15 * torch.randn(NUM_POINTS, 2, generator=generator)


def island(seed: int) -> list[list[float]]:
    """One island of the file that comes with picaset, moved and scaled to where the networks were trained."""
    text = (resources.files("picaset") / "tables" / "islands.csv").read_text()
    rows = list(csv.DictReader(text.splitlines()))
    names = sorted({row["island"] for row in rows})
    chosen = names[seed % len(names)]
    nests = torch.tensor([[float(row["east"]), float(row["north"])] for row in rows if row["island"] == chosen])
    low, high = nests.amin(dim=0), nests.amax(dim=0)
    fitting = 8 * (nests - (low + high) / 2) / (high - low).amax()
    return [as_point(nest) for nest in fitting.numpy()]
