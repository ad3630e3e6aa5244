"""Scenes to look at: traced when they are asked for, and CLEVR's where the folder of real data has them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from picaset.lab.data.clevr import read_clevr
from picaset.lab.data.folders import cache_folder, data_root
from picaset.lab.data.render import Cameras
from picaset.lab.data.scene_vectors import Objects
from picaset.lab.data.scenes import Scenes
from picaset.lab.data.traced_scene import trace_scene
from picaset.lab.data.traced_scenes import STRETCH, usual_cameras
from picaset.studio.errors import Refused
from picaset.studio.read_once import ReadOnce
from picaset.studio.rooms.scenes.schemas import Scene, SourceName
from picaset.studio.told import Source, without_data

TOLD = {
    SourceName.TRACED: ("traced scenes", "Rendered now, by picaset, from a seed; training had none of them."),
    SourceName.CLEVR: (
        "CLEVR",
        "Of its validation part; the networks were trained on traced scenes alone. Marks may be a little off: CLEVR "
        "does not say where its camera stood.",
    ),
}
CLEAR = 192
"""Pixels at which traced scenes are shown; networks see fewer."""
TRACED_SEED = 900_000
"""Added to a page's seed, so that none is a seed of training."""


@dataclass(frozen=True, eq=False)
class Shot:
    """A scene as a batch of one: what is in it, where it was seen from, and its width over its height."""

    objects: Objects
    cameras: Cameras
    aspect: float


class Pictures:
    """Any scene, for one thread; the last ones are remembered.

    Args:
        root: Folder of real data, if there is one.
        sizes: At which CLEVR's scenes will be asked for; traced ones are rendered at any.
    """

    def __init__(self, root: Path | None, sizes: Iterable[int]) -> None:
        self.remembered = lru_cache(maxsize=512)(self.make)
        self.real = dict[int, ReadOnce[Scenes]]()
        if root is not None and (root / "clevr").is_dir():
            self.real = {size: ReadOnce("CLEVR", reader(root / "clevr", size)) for size in sorted(set(sizes))}

    async def ready(self, source: SourceName) -> None:
        """Wait until scenes of a source can be pictured."""
        if source is SourceName.CLEVR:
            self.check_clevr()
            for scenes in self.real.values():
                await scenes.ready()

    def check_clevr(self) -> None:
        if not self.real:
            raise without_data("CLEVR")

    def picture(self, scene: Scene, size: int) -> NDArray[np.uint8]:
        return self.remembered(scene.source, scene.seed, scene.objects, size)

    def shot(self, scene: Scene, size: int) -> Shot:
        """What :meth:`picture` shows at this size."""
        if scene.source is SourceName.TRACED:
            traced = trace_scene(TRACED_SEED + scene.seed, scene.objects)
            return Shot(traced.objects, traced.cameras, STRETCH)
        scenes, number = self.find(scene.seed, scene.objects, size)
        present, coordinates, properties = (
            torch.as_tensor(part[number : number + 1])
            for part in (scenes.present, scenes.coordinates, scenes.properties)
        )
        objects = Objects(present.float(), coordinates.float(), properties)
        return Shot(objects, usual_cameras(1), float(scenes.aspects[number]))

    def make(self, source: SourceName, seed: int, objects: int | None, size: int) -> NDArray[np.uint8]:
        if source is SourceName.TRACED:
            return trace_scene(TRACED_SEED + seed, objects).picture(size)
        scenes, number = self.find(seed, objects, size)
        return np.array(scenes.images[number])  # of its own: the file stays mapped

    def find(self, seed: int, objects: int | None, size: int) -> tuple[Scenes, int]:
        """CLEVR's scenes, and the number of one of those with so many objects."""
        self.check_clevr()
        scenes = self.real[size].now()
        counts = scenes.present.sum(axis=1)
        fitting = np.flatnonzero(counts == objects) if objects is not None else np.arange(len(scenes))
        if len(fitting) == 0:
            raise Refused(422, f"CLEVR's part has no scene with {objects} objects; choose another number.")
        return scenes, int(fitting[seed % len(fitting)])

    def told(self) -> list[Source]:
        return [
            Source(name=name, title=title, about=about)
            for name, (title, about) in TOLD.items()
            if name is SourceName.TRACED or self.real
        ]


def reader(folder: Path, size: int) -> Callable[[], Scenes]:
    return lambda: read_clevr(folder, cache_folder(), part="val", size=size)


def pictures(sizes: Iterable[int]) -> Pictures:
    return Pictures(data_root(), sizes)
