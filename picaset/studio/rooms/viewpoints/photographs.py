"""Pictures of toys: rendered when they are asked for, and smallNORB's where the folder of real data has it."""

import threading
from functools import lru_cache
from pathlib import Path

import torch
from jaxtyping import UInt8
from torch import Tensor

from picaset.data.folders import data_root
from picaset.data.small_norb import has_small_norb, load_small_norb
from picaset.data.toys import GRIDS, SEED, Grid, photograph
from picaset.data.views import CATEGORIES, LABELS, Views
from picaset.studio.errors import Refused
from picaset.studio.rooms.viewpoints.schemas import Source, SourceName, View

TOLD = {
    SourceName.TOYS: ("generated toys", "Rendered now, by picaset, from any side.", 1, GRIDS["small"].training),
    SourceName.SMALL_NORB: ("smallNORB", "Photographs; the networks were trained on generated toys alone.", 2, ()),
}


class Photographs:
    """Both cameras' pictures of any view; the last thousands are remembered."""

    def __init__(self, root: Path | None) -> None:
        self.root = root if root is not None and has_small_norb(root) else None
        self.rendering = threading.Lock()  # page and networks ask for the same view at once: it is rendered once
        self.remembered = lru_cache(maxsize=4096)(self.make)
        self.real: tuple[Views, Views] | None = None

    def take(self, view: View) -> UInt8[Tensor, "2 S S"]:
        if view.source is SourceName.SMALL_NORB and self.root is None:
            raise Refused(404, "smallNORB is not there; PICASET_DATA must be the folder that holds it.")
        labels = (
            CATEGORIES.index(view.category.value),
            view.instance,
            view.elevation,
            view.azimuth,
            view.lighting,
        )
        with self.rendering:
            return self.remembered(view.source, labels)

    def make(self, source: SourceName, labels: tuple[int, int, int, int, int]) -> UInt8[Tensor, "2 S S"]:
        if source is SourceName.SMALL_NORB:
            return self.find(labels)
        category, instance, elevation, azimuth, lighting = labels
        grid = Grid(elevations=(elevation,), azimuths=(azimuth,), lightings=(lighting,))
        return photograph(category, instance, grid, seed=SEED)[0]

    def find(self, labels: tuple[int, int, int, int, int]) -> UInt8[Tensor, "2 S S"]:
        if labels[3] % 2:
            raise Refused(
                422, f"smallNORB has a picture every 20 degrees of azimuth; {10 * labels[3]} is none of them."
            )
        for views in self.halves():
            matches = [getattr(views, name) == label for name, label in zip(LABELS, labels, strict=True)]
            places = torch.stack(matches).all(dim=0).nonzero()
            if len(places):
                return views.images[places[0, 0]]
        raise Refused(422, "smallNORB has no such picture.")

    def halves(self) -> tuple[Views, Views]:
        if self.real is None:
            assert self.root is not None
            try:
                self.real = load_small_norb(self.root)
            except (ValueError, OSError) as error:
                raise Refused(422, f"smallNORB cannot be read: {error}") from None
        return self.real

    def told(self) -> list[Source]:
        there = [SourceName.TOYS, *([SourceName.SMALL_NORB] if self.root is not None else [])]
        return [
            Source(name=name, title=title, about=about, azimuth_step=step, trained_instances=list(trained))
            for name, (title, about, step, trained) in TOLD.items()
            if name in there
        ]


def photographs() -> Photographs:
    return Photographs(data_root())
