"""Scenes to look at: traced when they are asked for, and CLEVR's where the folder of real data has them.

What the page sends and gets about scenes, typed.

Who says what is in a scene: what each template stands for after every step, and what it looked at.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from picaset.lab.data.clevr import read_clevr
from picaset.lab.data.folders import cache_folder, data_root
from picaset.lab.data.ray_tracer import Cameras, project
from picaset.lab.data.scene_layouts import FEWEST_OBJECTS
from picaset.lab.data.scenes import MOST_OBJECTS, Objects, Scenes, in_words
from picaset.lab.data.traced_scenes import STRETCH, trace_scene, usual_cameras
from picaset.lab.networks.scene_network import SceneNetwork, steps_in_testing
from picaset.lab.tasks.scene_scores import mark
from picaset.studio import schemas
from picaset.studio.lane import or_error
from picaset.studio.pictures import PICTURE, png_of
from picaset.studio.read_once import ReadOnce
from picaset.studio.schemas import Gesture, Refused, Seed, Source, config_of, without_data

Place = Annotated[list[float], Field(min_length=2, max_length=2)]
"""How far right and down in the picture, from 0 to 1 inside of it."""


class SourceName(StrEnum):
    """Where scenes come from."""

    TRACED = "traced"
    CLEVR = "clevr"


class ModelName(StrEnum):
    """Who says what is in a scene."""

    OURS = "ours"
    PB3 = "pb3"
    SLOT_ATTENTION = "slot-attention"


class Model(schemas.Model):
    """A network, as it is told on its card."""

    num_steps: int


class Known(BaseModel):
    """What there is in the room."""

    sources: list[Source]
    models: list[Model]
    fewest: int
    """Objects of a scene."""
    most: int


class Scene(BaseModel):
    """One scene: the same for the same seed."""

    model_config = ConfigDict(extra="forbid")

    source: SourceName = SourceName.TRACED
    seed: Seed = 0
    objects: Annotated[int, Field(ge=FEWEST_OBJECTS, le=MOST_OBJECTS)] | None = None
    """How many; any number if it is not said."""


class SeenRequest(Gesture):
    """What does a network see in a scene?"""

    model: ModelName
    scene: Scene


class Thing(BaseModel):
    """An object that is there."""

    words: str
    place: Place


class Prediction(BaseModel):
    """An object that a template stands for."""

    template: int
    words: str
    place: Place
    presence: float
    right: bool


class Step(BaseModel):
    """What the templates stand for after so many steps."""

    predictions: list[Prediction]
    """The surest first; only those that the network is sure of."""
    missed: list[int]
    """Which of the objects that are there nobody stands for."""
    attention: list[list[int]]
    """For each template, from 0 to 255, how much this step looked at a place, row by row; empty before the first."""


class Seen(BaseModel):
    """What a network sees in a scene, step by step."""

    model: ModelName
    gesture: int
    there: list[Thing]
    steps: list[Step]
    milliseconds: float
    """Of computing, without the way there and back."""


SOURCE_DESCRIPTIONS = {
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
            for name, (title, about) in SOURCE_DESCRIPTIONS.items()
            if name is SourceName.TRACED or self.real
        ]


def reader(folder: Path, size: int) -> Callable[[], Scenes]:
    return lambda: read_clevr(folder, cache_folder(), part="val", size=size)


def pictures(sizes: Iterable[int]) -> Pictures:
    return Pictures(data_root(), sizes)


FOLDERS = {
    ModelName.OURS: "scenes_ours",
    ModelName.PB3: "scenes_pb3",
    ModelName.SLOT_ATTENTION: "scenes_slot_attention",
}
MODEL_DESCRIPTIONS = {
    ModelName.OURS: ("PICASO, ours", "As PB3, but places are told apart better, and every step was trained."),
    ModelName.PB3: ("PICASO", "Ten templates ask the picture three times; each may look at anything: PB3."),
    ModelName.SLOT_ATTENTION: ("Slot Attention", "Ten slots compete for every place of the picture."),
}


@dataclass(frozen=True)
class Answer:
    """What a network sees in a scene."""

    there: list[Thing]
    steps: list[Step]
    milliseconds: float


class Observer:
    """One network, read when it is first needed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def network(self) -> SceneNetwork:
        network = SceneNetwork.from_pretrained(self.folder).float()
        network.eval()
        return network

    @torch.no_grad()
    def see(self, scene: Scene, pictures: Pictures) -> Answer:
        network, size = self.network, self.network.config["image_size"]
        image = torch.as_tensor(pictures.picture(scene, size)).movedim(-1, 0)[None]
        shot = pictures.shot(scene, size)
        began = time.perf_counter()
        trace = network.trace(image)
        if trace is None:
            raise ValueError("This network does not work in steps that can be shown.")
        vectors = [network.head(templates) for templates in trace.templates]
        milliseconds = 1e3 * (time.perf_counter() - began)
        looks = [[], *(brightness(step[0].mean(dim=0)) for step in trace.attention)]
        there = places_of(shot.objects.coordinates, shot)
        return Answer(
            there=[
                Thing(words=in_words(shot.objects.properties[0, number].numpy()), place=place)
                for number, place in enumerate(there)
                if shot.objects.presence[0, number] > 0
            ],
            steps=[step_of(found, shot, look) for found, look in zip(vectors, looks, strict=True)],
            milliseconds=round(milliseconds, 2),
        )


def step_of(vectors: Tensor, shot: Shot, look: list[list[int]]) -> Step:
    """What templates stand for, judged by what is there."""
    marks = mark(vectors, shot.objects)
    places = places_of(marks.predicted.coordinates, shot)
    made = [
        Prediction(
            template=int(marks.order[0, rank]),
            words=in_words(marks.predicted.properties[0, rank].numpy()),
            place=places[rank],
            presence=round(float(marks.predicted.presence[0, rank]), 4),
            right=bool(marks.right[0, rank]),
        )
        for rank in range(marks.num_made(0))
    ]
    return Step(predictions=made, missed=marks.missed(0), attention=look)


def places_of(coordinates: Tensor, shot: Shot) -> list[list[float]]:
    """Where in the picture."""
    pixels: Any = project(coordinates.float(), shot.cameras, stretch=shot.aspect)[0].numpy()
    return [[round(float(right), 4), round(float(down), 4)] for right, down in pixels]


def steps_of(config: Mapping[str, Any]) -> int:
    return steps_in_testing(config.get("num_steps", 0), config.get("num_test_steps", 0))


def brightness(attention: Tensor) -> list[list[int]]:
    """For each template, its most looked-at place is 255."""
    relative = attention / attention.amax(dim=1, keepdim=True).clamp(min=1e-12)
    found: Any = (255 * relative).round().int().numpy()
    return found.tolist()


class Observers:
    """Pictures, and all networks that are there, as work for a lane."""

    def __init__(self, folders: Mapping[ModelName, Path], pictures: Pictures) -> None:
        self.all = {name: Observer(folder) for name, folder in folders.items()}
        self.pictures = pictures

    def work(self, kind: str, scenes: list[Scene]) -> list[Any]:
        return [or_error(self.answer, kind, scene) for scene in scenes]

    def answer(self, kind: str, scene: Scene) -> bytes | Answer:
        if kind == PICTURE:
            return png_of(self.pictures.picture(scene, CLEAR))
        return self.all[ModelName(kind)].see(scene, self.pictures)

    def told(self) -> list[Model]:
        return [
            Model(
                name=name,
                title=MODEL_DESCRIPTIONS[name][0],
                about=MODEL_DESCRIPTIONS[name][1],
                num_steps=steps_of(config_of(observer.folder)),
            )
            for name, observer in self.all.items()
        ]
