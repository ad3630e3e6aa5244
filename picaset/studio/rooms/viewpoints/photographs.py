"""Pictures of toys: rendered when they are asked for, and smallNORB's where the folder of real data has it."""

from functools import lru_cache
from pathlib import Path

import torch
from jaxtyping import UInt8
from torch import Tensor

from picaset.lab.data.folders import data_root
from picaset.lab.data.small_norb import has_small_norb, load_small_norb
from picaset.lab.data.toys import GRIDS, SEED, Grid, photograph
from picaset.lab.data.views import CATEGORIES, LABELS, Views
from picaset.studio.errors import Refused
from picaset.studio.read_once import ReadOnce
from picaset.studio.rooms.viewpoints.schemas import Source, SourceName, View
from picaset.studio.told import without_data

TRAINED = GRIDS["small"]
"""What the networks of the room were trained on."""
TOLD = {
    SourceName.TOYS: Source(
        name=SourceName.TOYS,
        title="generated toys",
        about="Rendered now, by picaset, from any side.",
        azimuth_step=1,
        trained_instances=list(TRAINED.training),
        trained_elevations=list(TRAINED.elevations),
        trained_lightings=list(TRAINED.lightings),
    ),
    SourceName.SMALL_NORB: Source(
        name=SourceName.SMALL_NORB,
        title="smallNORB",
        about="Photographs; the networks were trained on generated toys alone.",
        azimuth_step=2,
        trained_instances=[],
        trained_elevations=list(TRAINED.elevations),
        trained_lightings=[],
    ),
}


class Photographs:
    """Both cameras' pictures of any view, for one thread; the last thousands are remembered."""

    def __init__(self, root: Path | None) -> None:
        self.remembered = lru_cache(maxsize=4096)(self.make)
        self.real: ReadOnce[tuple[Views, Views]] | None = None
        if root is not None and has_small_norb(root):
            self.real = ReadOnce("smallNORB", lambda: load_small_norb(root))

    async def ready(self, source: SourceName) -> None:
        """Wait until pictures of a source can be taken."""
        if source is SourceName.SMALL_NORB:
            await self.photographed().ready()

    def photographed(self) -> ReadOnce[tuple[Views, Views]]:
        if self.real is None:
            raise without_data("smallNORB")
        return self.real

    def take(self, view: View) -> UInt8[Tensor, "2 S S"]:
        labels = (
            CATEGORIES.index(view.category.value),
            view.instance,
            view.elevation,
            view.azimuth,
            view.lighting,
        )
        return self.remembered(view.source, labels)

    def make(self, source: SourceName, labels: tuple[int, int, int, int, int]) -> UInt8[Tensor, "2 S S"]:
        if source is SourceName.SMALL_NORB:
            return self.find(labels)
        category, instance, elevation, azimuth, lighting = labels
        grid = Grid(elevations=(elevation,), azimuths=(azimuth,), lightings=(lighting,))
        return photograph(category, instance, grid, seed=SEED)[0]

    def find(self, labels: tuple[int, int, int, int, int]) -> UInt8[Tensor, "2 S S"]:
        photographed = self.photographed()
        if labels[3] % 2:
            raise Refused(
                422, f"smallNORB has a picture every 20 degrees of azimuth; {10 * labels[3]} is none of them."
            )
        for views in photographed.now():
            matches = [getattr(views, name) == label for name, label in zip(LABELS, labels, strict=True)]
            places = torch.stack(matches).all(dim=0).nonzero()
            if len(places):
                return views.images[places[0, 0]]
        raise Refused(422, "smallNORB has no such picture.")

    def told(self) -> list[Source]:
        return [one for name, one in TOLD.items() if name is SourceName.TOYS or self.real is not None]


def photographs() -> Photographs:
    return Photographs(data_root())
