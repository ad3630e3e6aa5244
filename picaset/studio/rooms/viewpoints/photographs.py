"""Pictures of toys: rendered when they are asked for, and smallNORB's where the folder of real data has it.

What the page sends and gets about toys and viewpoints, typed.

Who names the toy: networks that see bags of patches, and one that sees places.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any

import torch
from jaxtyping import UInt8
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from picaset.lab.data.folders import data_root
from picaset.lab.data.small_norb import has_small_norb, load_small_norb
from picaset.lab.data.toys import GRIDS, SEED, Grid, photograph
from picaset.lab.data.views import CATEGORIES, LABELS, Views
from picaset.lab.networks.view_classifier import ViewClassifier
from picaset.lab.tasks.viewpoint_scores import as_shown, attention_to_places, heat_of, hottest
from picaset.networks.pretrained import PretrainedNetwork
from picaset.networks.set_networks import DeepSets, Picaso, SetTransformer
from picaset.studio import schemas
from picaset.studio.lane import or_error
from picaset.studio.pictures import PICTURE, png_of
from picaset.studio.read_once import ReadOnce
from picaset.studio.schemas import Gesture, Refused, config_of, without_data


class SourceName(StrEnum):
    """Where toys come from."""

    TOYS = "toys"
    SMALL_NORB = "small-norb"


class Category(StrEnum):
    """What a toy is: :data:`picaset.lab.data.views.CATEGORIES`."""

    ANIMAL = "animal"
    HUMAN = "human"
    AIRPLANE = "airplane"
    TRUCK = "truck"
    CAR = "car"


class ModelName(StrEnum):
    """Who names the toy."""

    OURS = "ours"
    PB3 = "pb3"
    SET_TRANSFORMER = "set-transformer"
    DEEP_SETS = "deep-sets"


Instance = Annotated[int, Field(ge=0, le=9)]
Elevation = Annotated[int, Field(ge=0, le=8)]
"""Steps of five degrees, from 30."""
Azimuth = Annotated[int, Field(ge=0, le=35)]
"""Tens of degrees."""
Lighting = Annotated[int, Field(ge=0, le=5)]


class Source(schemas.Source):
    """Toys."""

    azimuth_step: int
    """Between two azimuths that there are, in tens of degrees."""
    trained_instances: list[int]
    """Toys of each category that training had, from some azimuths."""
    trained_elevations: list[int]
    trained_lightings: list[int]


class Model(schemas.Model):
    """A network, as it is told on its card."""

    num_steps: int
    """Of its attention to the picture; 0 if it has none."""
    num_heads: int


class Known(BaseModel):
    """What there is in the room."""

    sources: list[Source]
    models: list[Model]
    categories: list[str]
    """In the order of the networks' answers."""
    instances: int
    """Toys of a category."""
    training_azimuths: list[int]
    """Tens of degrees."""
    crop: Annotated[list[int], Field(min_length=2, max_length=2)]
    """Pixels of the middle that networks are shown, and of the whole picture."""


class View(BaseModel):
    """One toy from one viewpoint in one light."""

    model_config = ConfigDict(extra="forbid")

    source: SourceName = SourceName.TOYS
    category: Category
    instance: Instance
    elevation: Elevation = 0
    azimuth: Azimuth = 0
    lighting: Lighting = 0


class SeenRequest(Gesture):
    """What does a network take this for?"""

    model: ModelName
    view: View


class Seen(BaseModel):
    """What a network says of a view, and where it looked."""

    model: ModelName
    gesture: int
    probabilities: list[float]
    """Of each category."""
    heat: list[list[list[float]]]
    """Of each step and head, place by place, row by row: how many times its even share a place gets."""
    hottest: float
    """Where the scale of heat ends."""
    milliseconds: float
    """Of computing, without the way there and back."""


TRAINED = GRIDS["small"]
"""What the networks of the room were trained on."""
SOURCE_DESCRIPTIONS = {
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
        return [one for name, one in SOURCE_DESCRIPTIONS.items() if name is SourceName.TOYS or self.real is not None]


def photographs() -> Photographs:
    return Photographs(data_root())


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
