"""Who names the toy: networks that see bags of patches, and one that sees places."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from picaset.lab.networks.view_classifier import ViewClassifier
from picaset.lab.tasks.viewpoint_attention import as_shown, attention_to_places, heat_of, hottest
from picaset.networks.deep_sets import DeepSets
from picaset.networks.picaso import Picaso
from picaset.networks.pretrained import PretrainedNetwork
from picaset.networks.set_transformer import SetTransformer
from picaset.studio.lane import or_error
from picaset.studio.pictures import PICTURE, png_of
from picaset.studio.rooms.viewpoints.photographs import Photographs
from picaset.studio.rooms.viewpoints.schemas import Model, ModelName, View
from picaset.studio.told import config_of

PATCH_NUMBERS = 16
"""Of a patch, for each camera."""


@dataclass(frozen=True)
class Kind:
    """A network that the room knows."""

    folder: str
    network: type[PretrainedNetwork]
    title: str
    about: str


KINDS = {
    ModelName.OURS: Kind(
        "viewpoints_ours", ViewClassifier, "PICASO, ours", "Convolutions first; places that know where they are."
    ),
    ModelName.PB3: Kind("viewpoints_pb3", Picaso, "PICASO", "A bag of patches, asked three times: PB3."),
    ModelName.SET_TRANSFORMER: Kind(
        "viewpoints_set_transformer", SetTransformer, "Set Transformer", "A bag of patches, asked once."
    ),
    ModelName.DEEP_SETS: Kind("viewpoints_deep_sets", DeepSets, "DeepSets", "Every patch by itself, then their mean."),
}


@dataclass(frozen=True)
class Answer:
    """What a network says of a view."""

    probabilities: list[float]
    heat: list[list[list[float]]]
    hottest: float
    milliseconds: float


class Classifier:
    """One network, read when it is first needed."""

    def __init__(self, kind: Kind, folder: Path) -> None:
        self.kind = kind
        self.folder = folder

    @cached_property
    def network(self) -> PretrainedNetwork:
        return self.kind.network.from_pretrained(self.folder).float().eval()

    @property
    def bag(self) -> bool:
        return not isinstance(self.network, ViewClassifier)

    @property
    def cameras(self) -> int:
        config = self.network.config
        return config["dim_in"] // PATCH_NUMBERS if self.bag else config["channels_in"]

    def told(self, name: ModelName) -> Model:
        config, attends = config_of(self.folder), self.kind.network is not DeepSets
        return Model(
            name=name,
            title=self.kind.title,
            about=self.kind.about,
            num_steps=config.get("num_steps", 1) if attends and config else 0,
            num_heads=config.get("num_heads", 0) if attends else 0,
        )

    @torch.no_grad()
    def see(self, images: torch.Tensor) -> Answer:
        began = time.perf_counter()
        shown = as_shown(images[None, : self.cameras], bag=self.bag, like=next(self.network.parameters()))
        probabilities = self.network(shown).flatten().softmax(dim=0)
        milliseconds = 1e3 * (time.perf_counter() - began)
        attention = attention_to_places(self.network, shown)
        heat: Any = [] if attention is None else heat_of(attention[:, 0]).numpy()
        return Answer(
            probabilities=[round(value, 5) for value in probabilities.tolist()],
            heat=[[[round(float(one), 2) for one in head] for head in step] for step in heat],
            hottest=2.0 if attention is None else round(hottest(attention), 3),
            milliseconds=round(milliseconds, 2),
        )


class Classifiers:
    """Pictures, and all networks that are there, as work for a lane."""

    def __init__(self, folders: Mapping[ModelName, Path], photographs: Photographs) -> None:
        self.all = {name: Classifier(KINDS[name], folder) for name, folder in folders.items()}
        self.photographs = photographs

    def work(self, kind: str, views: list[View]) -> list[Any]:
        return [or_error(self.answer, kind, view) for view in views]

    def answer(self, kind: str, view: View) -> bytes | Answer:
        taken = self.photographs.take(view)
        return png_of(taken[0].numpy()) if kind == PICTURE else self.all[ModelName(kind)].see(taken)

    def told(self) -> list[Model]:
        return [classifier.told(name) for name, classifier in self.all.items()]
