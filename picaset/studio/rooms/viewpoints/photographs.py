"""Images of toys and the networks that classify them.

Toys are rendered on request; the photographs of smallNORB are offered where the data folder has them. Three networks
see an image as a set of patches without positions, one as a set of image features with positions.
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

from picaset.lab.data.small_norb import has_small_norb, load_small_norb
from picaset.lab.data.toys import GRIDS, SEED, Grid, render_toy
from picaset.lab.data.views import CATEGORIES, LABELS, Views
from picaset.lab.networks.view_classifier import ViewClassifier
from picaset.lab.tasks.viewpoint_scores import as_shown, attention_to_places, heat_limit, heat_of
from picaset.networks.set_networks import DeepSets, Picaso, SetTransformer
from picaset.pretrained import PretrainedNetwork
from picaset.studio.background import LazyData, result_or_error
from picaset.studio.pictures import PICTURE, encode_png
from picaset.studio.schemas import (
    DescribedName,
    Milliseconds,
    Option,
    PageRequest,
    RequestError,
    missing_data,
    read_config,
)

TRAINING_GRID = GRIDS["small"]
"""Views that the networks of the room were trained on."""
PICTURE_SIZE = 192
"""Pixels per side of a rendered toy on the page; the networks see 48."""
PATCH_DIM = 16
"""Features of a patch, per camera."""


class SourceName(DescribedName):
    """Sources of toys."""

    TOYS = "toys", "rendered toys", "Rendered by picaset from any side."
    SMALL_NORB = "small-norb", "smallNORB", "Photographs. The networks were trained on rendered toys only."


class ModelName(DescribedName):
    """Networks that classify toys."""

    OURS = (
        "ours",
        "PICASO, improved",
        "Convolutions, then PICASO pooling over positions of the image.",
        "viewpoints_ours",
    )
    PB3 = (
        "pb3",
        "PICASO",
        "Image patches without positions, pooled in three steps (PB3 of the paper).",
        "viewpoints_pb3",
    )
    SET_TRANSFORMER = (
        "set-transformer",
        "Set Transformer",
        "The same patches, pooled in one attention step.",
        "viewpoints_set_transformer",
    )
    DEEP_SETS = (
        "deep-sets",
        "DeepSets",
        "The same patches, each encoded alone, then averaged.",
        "viewpoints_deep_sets",
    )


NETWORK_CLASSES: dict[ModelName, type[PretrainedNetwork]] = {
    ModelName.OURS: ViewClassifier,
    ModelName.PB3: Picaso,
    ModelName.SET_TRANSFORMER: SetTransformer,
    ModelName.DEEP_SETS: DeepSets,
}


class Category(StrEnum):
    """Categories of toys: :data:`picaset.lab.data.views.CATEGORIES`."""

    ANIMAL = "animal"
    HUMAN = "human"
    AIRPLANE = "airplane"
    TRUCK = "truck"
    CAR = "car"


Instance = Annotated[int, Field(ge=0, le=9)]
Elevation = Annotated[int, Field(ge=0, le=8)]
"""Elevation of the camera, from 30 degrees in steps of five."""
Azimuth = Annotated[int, Field(ge=0, le=35)]
"""Azimuth of the camera in tens of degrees."""
Lighting = Annotated[int, Field(ge=0, le=5)]


class SourceOption(Option):
    """A source of toys, and which of its views are in the training data."""

    azimuth_step: int
    """Spacing of the available azimuths, in tens of degrees."""
    trained_instances: list[int]
    """Toys of each category in the training data."""
    trained_elevations: list[int]
    trained_lightings: list[int]


class NetworkOption(Option):
    """A network that can be chosen on the page."""

    num_steps: int
    """Attention steps; 0 if it has no attention."""
    num_heads: int


class ViewOptions(BaseModel):
    """Options of the room."""

    sources: list[SourceOption]
    models: list[NetworkOption]
    categories: list[str]
    """Categories in the order of the predicted probabilities."""
    instances: int
    """Number of toys per category."""
    training_azimuths: list[int]
    """Azimuths in the training data, in tens of degrees."""
    crop: Annotated[list[int], Field(min_length=2, max_length=2)]
    """Pixels per side of the central crop that the networks see, and of the whole image."""


Labels = tuple[int, int, int, int, int]
"""Category, instance, elevation, azimuth and lighting of a view."""


class View(BaseModel):
    """A toy from one viewpoint under one lighting."""

    model_config = ConfigDict(extra="forbid")

    source: SourceName = SourceName.TOYS
    category: Category
    instance: Instance
    elevation: Elevation = 0
    azimuth: Azimuth = 0
    lighting: Lighting = 0

    @property
    def labels(self) -> Labels:
        category = CATEGORIES.index(self.category.value)
        return category, self.instance, self.elevation, self.azimuth, self.lighting


class PredictionRequest(PageRequest):
    """Classify a view with one network."""

    model: ModelName
    view: View


class Prediction(BaseModel):
    """Predicted probabilities and the attention of the network."""

    probabilities: list[float]
    """Probability of each category."""
    heat: list[list[list[float]]]
    """Attention of each step and head to each place, row by row, relative to uniform attention."""
    heat_limit: float
    """Upper end of the colour scale of ``heat``."""
    milliseconds: Milliseconds


class PredictionResponse(Prediction):
    """The prediction by one network."""

    model: ModelName
    gesture: int


def render(labels: Labels, **options: int) -> UInt8[Tensor, "C S S"]:
    """Render a view; options are the size and the number of cameras."""
    category, instance, elevation, azimuth, lighting = labels
    grid = Grid(elevations=(elevation,), azimuths=(azimuth,), lightings=(lighting,))
    return render_toy(category, instance, grid, seed=SEED, **options)[0]


class ViewImages:
    """Images of views by both cameras, with a cache; for one thread.

    Args:
        root: Data folder, if there is one.
    """

    def __init__(self, root: Path | None) -> None:
        self.cached_image = lru_cache(maxsize=4096)(self.load_image)
        self.cached_picture = lru_cache(maxsize=512)(self.load_picture)
        self.small_norb: LazyData[tuple[Views, Views]] | None = None
        if root is not None and has_small_norb(root):
            self.small_norb = LazyData("smallNORB", lambda: load_small_norb(root))

    async def ready(self, source: SourceName) -> None:
        """Wait until images of a source can be returned."""
        if source is SourceName.SMALL_NORB:
            await self.photographs().ready()

    def photographs(self) -> LazyData[tuple[Views, Views]]:
        if self.small_norb is None:
            raise missing_data("smallNORB")
        return self.small_norb

    def image(self, view: View) -> UInt8[Tensor, "2 S S"]:
        """Return what the networks see."""
        return self.cached_image(view.source, view.labels)

    def picture(self, view: View) -> bytes:
        """Return what the page shows, as PNG."""
        return self.cached_picture(view.source, view.labels)

    def load_image(self, source: SourceName, labels: Labels) -> UInt8[Tensor, "2 S S"]:
        return self.find_photograph(labels) if source is SourceName.SMALL_NORB else render(labels)

    def load_picture(self, source: SourceName, labels: Labels) -> bytes:
        is_photograph = source is SourceName.SMALL_NORB
        image = self.find_photograph(labels) if is_photograph else render(labels, size=PICTURE_SIZE, cameras=1)
        return encode_png(image[0].numpy())

    def find_photograph(self, labels: Labels) -> UInt8[Tensor, "2 S S"]:
        photographs = self.photographs()
        if labels[3] % 2:
            raise RequestError(
                422,
                f"smallNORB has an image every 20 degrees of azimuth; got {10 * labels[3]}. Choose a multiple of 20.",
            )
        for views in photographs.get_if_ready():
            matches = [getattr(views, name) == label for name, label in zip(LABELS, labels, strict=True)]
            indices = torch.stack(matches).all(dim=0).nonzero()
            if len(indices):
                return views.images[indices[0, 0]]
        raise RequestError(422, "smallNORB has no image of this view; choose another toy or viewpoint.")

    def list_sources(self) -> list[SourceOption]:
        elevations = list(TRAINING_GRID.elevations)
        toys = SourceOption.of(
            SourceName.TOYS,
            azimuth_step=1,
            trained_instances=list(TRAINING_GRID.training),
            trained_elevations=elevations,
            trained_lightings=list(TRAINING_GRID.lightings),
        )
        if self.small_norb is None:
            return [toys]
        untrained = dict[str, Any](trained_instances=[], trained_elevations=elevations, trained_lightings=[])
        return [toys, SourceOption.of(SourceName.SMALL_NORB, azimuth_step=2, **untrained)]


@dataclass(frozen=True)
class Classifier:
    """One network, loaded on first use."""

    name: ModelName
    folder: Path

    @cached_property
    def network(self) -> PretrainedNetwork:
        return NETWORK_CLASSES[self.name].from_pretrained(self.folder).float().eval()

    @property
    def sees_patches(self) -> bool:
        return self.name is not ModelName.OURS

    @property
    def num_cameras(self) -> int:
        config = self.network.config
        return config["dim_in"] // PATCH_DIM if self.sees_patches else config["channels_in"]

    def describe(self) -> NetworkOption:
        config, attends = read_config(self.folder), self.name is not ModelName.DEEP_SETS
        return NetworkOption.of(
            self.name,
            num_steps=config.get("num_steps", 1) if attends and config else 0,
            num_heads=config.get("num_heads", 0) if attends else 0,
        )

    @torch.no_grad()
    def classify(self, images: Tensor) -> Prediction:
        began = time.perf_counter()
        cameras = images[None, : self.num_cameras]
        inputs = as_shown(cameras, bag=self.sees_patches, like=next(self.network.parameters()))
        probabilities = self.network(inputs).flatten().softmax(dim=0)
        milliseconds = 1e3 * (time.perf_counter() - began)
        attention = attention_to_places(self.network, inputs)
        heat: Any = [] if attention is None else heat_of(attention[:, 0]).numpy()
        return Prediction(
            probabilities=[round(value, 5) for value in probabilities.tolist()],
            heat=[[[round(float(value), 2) for value in head] for head in step] for step in heat],
            heat_limit=2.0 if attention is None else round(heat_limit(attention), 3),
            milliseconds=round(milliseconds, 2),
        )


class Classifiers:
    """Images and all available networks, for a worker."""

    def __init__(self, folders: Mapping[ModelName, Path], images: ViewImages) -> None:
        self.by_name = {name: Classifier(name, folder) for name, folder in folders.items()}
        self.images = images

    def run(self, kind: str, views: list[View]) -> list[Any]:
        return [result_or_error(self.run_job, kind, view) for view in views]

    def run_job(self, kind: str, view: View) -> bytes | Prediction:
        if kind == PICTURE:
            return self.images.picture(view)
        return self.by_name[ModelName(kind)].classify(self.images.image(view))

    def list_models(self) -> list[NetworkOption]:
        return [classifier.describe() for classifier in self.by_name.values()]
