"""Who says what is in a scene: what each template stands for after every step, and what it looked at."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from picaset.lab.data.render import project
from picaset.lab.data.scenes import in_words
from picaset.lab.networks.scene_network import SceneNetwork, steps_in_testing
from picaset.lab.tasks.scene_marks import mark
from picaset.studio.lane import or_error
from picaset.studio.pictures import PICTURE, png_of
from picaset.studio.rooms.scenes.pictures import CLEAR, Pictures, Shot
from picaset.studio.rooms.scenes.schemas import Model, ModelName, Prediction, Scene, Step, Thing
from picaset.studio.told import config_of

FOLDERS = {
    ModelName.OURS: "scenes_ours",
    ModelName.PB3: "scenes_pb3",
    ModelName.SLOT_ATTENTION: "scenes_slot_attention",
}
TOLD = {
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
            Model(name=name, title=TOLD[name][0], about=TOLD[name][1], num_steps=steps_of(config_of(observer.folder)))
            for name, observer in self.all.items()
        ]
