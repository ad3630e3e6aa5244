"""Scenes and the networks that detect the objects in them.

Scenes are traced on request; CLEVR's validation scenes are offered where the data folder has them. A network returns
the objects that its templates predict after every step, and the attention of that step.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from picaset.lab.data.clevr import read_clevr
from picaset.lab.data.folders import cache_folder
from picaset.lab.data.ray_tracer import Cameras, project
from picaset.lab.data.scene_layouts import MIN_OBJECTS
from picaset.lab.data.scenes import MAX_OBJECTS, Objects, Scenes, describe_object
from picaset.lab.data.traced_scenes import VIEW_ASPECT, default_cameras, trace_scene
from picaset.lab.networks.scene_network import SceneNetwork
from picaset.lab.tasks.scene_scores import mark
from picaset.studio.background import LazyData, result_or_error
from picaset.studio.pictures import PICTURE, attention_brightness, encode_png
from picaset.studio.schemas import (
    DescribedName,
    Milliseconds,
    Option,
    PageRequest,
    Position,
    RequestError,
    Seed,
    missing_data,
    read_config,
)

DISPLAY_SIZE = 192
"""Pixels per side of the image on the page; networks see fewer."""
FIRST_SEED = 900_000
"""Added to the seed of a request, so that no scene is in the training data."""


class SourceName(DescribedName):
    """Sources of scenes."""

    TRACED = "traced", "rendered scenes", "Rendered by picaset from a random seed; not in the training data."
    CLEVR = (
        "clevr",
        "CLEVR",
        "Validation images of CLEVR. The networks were trained on rendered scenes only. Marks may be slightly off, "
        "because CLEVR does not record the position of its camera.",
    )


class ModelName(DescribedName):
    """Networks that detect objects."""

    OURS = (
        "ours",
        "PICASO, improved",
        "PICASO with sinusoidal position encoding; every step is trained, not only the last.",
        "scenes_ours",
    )
    PB3 = ("pb3", "PICASO", "Ten templates attend to the image in three steps (PB3 of the paper).", "scenes_pb3")
    SLOT_ATTENTION = (
        "slot-attention",
        "Slot Attention",
        "Ten slots compete for every part of the image.",
        "scenes_slot_attention",
    )


class NetworkOption(Option):
    """A network that can be chosen on the page."""

    num_steps: int


class SceneOptions(BaseModel):
    """Options of the room."""

    sources: list[Option]
    models: list[NetworkOption]
    fewest: int
    """Smallest number of objects in a scene."""
    most: int


class Scene(BaseModel):
    """A scene; equal values give the same one."""

    model_config = ConfigDict(extra="forbid")

    source: SourceName = SourceName.TRACED
    seed: Seed = 0
    objects: Annotated[int, Field(ge=MIN_OBJECTS, le=MAX_OBJECTS)] | None = None
    """Number of objects; random if it is omitted."""


class DetectionRequest(PageRequest):
    """Detect the objects of a scene with one network."""

    model: ModelName
    scene: Scene


class SceneObject(BaseModel):
    """An object of the scene."""

    description: str
    position: Position
    """Distance from the left and from the top, as a fraction of the image."""


class Prediction(SceneObject):
    """An object that a template predicts."""

    template: int
    presence: float
    """Predicted probability that the object exists."""
    correct: bool


class Step(BaseModel):
    """Predictions after a step, compared with the objects of the scene."""

    predictions: list[Prediction]
    """Predictions with a presence above one half, the most certain first."""
    missed: list[int]
    """Indices of the objects that no template predicts."""
    attention: list[list[int]]
    """Attention map of each template, from 0 to 255, row by row; empty before the first step."""


class Detection(BaseModel):
    """The objects of a scene and the predictions of a network, step by step."""

    objects: list[SceneObject]
    steps: list[Step]
    milliseconds: Milliseconds


class DetectionResponse(Detection):
    """The detection by one network."""

    model: ModelName
    gesture: int


@dataclass(frozen=True, eq=False)
class GroundTruth:
    """Objects and cameras of a scene as a batch of one, and the aspect ratio of its image."""

    objects: Objects
    cameras: Cameras
    aspect: float


class SceneImages:
    """Images and objects of scenes, with a cache; for one thread.

    Args:
        root: Data folder, if there is one.
        sizes: Sizes at which images of CLEVR are needed; traced scenes are rendered at any.
    """

    def __init__(self, root: Path | None, sizes: Iterable[int]) -> None:
        self.cached_image = lru_cache(maxsize=512)(self.load_image)
        self.clevr = dict[int, LazyData[Scenes]]()
        if root is not None and (root / "clevr").is_dir():
            self.clevr = {size: LazyData("CLEVR", clevr_loader(root / "clevr", size)) for size in sorted(set(sizes))}

    async def ready(self, source: SourceName) -> None:
        """Wait until images of a source can be returned."""
        if source is SourceName.CLEVR:
            self.check_clevr()
            for scenes in self.clevr.values():
                await scenes.ready()

    def check_clevr(self) -> None:
        if not self.clevr:
            raise missing_data("CLEVR")

    def image(self, scene: Scene, size: int) -> NDArray[np.uint8]:
        return self.cached_image(scene.source, scene.seed, scene.objects, size)

    def load_image(self, source: SourceName, seed: int, objects: int | None, size: int) -> NDArray[np.uint8]:
        if source is SourceName.TRACED:
            return trace_scene(FIRST_SEED + seed, objects).picture(size)
        scenes, index = self.find_clevr(seed, objects, size)
        return np.array(scenes.images[index])  # a copy: the file is memory-mapped

    def ground_truth(self, scene: Scene, size: int) -> GroundTruth:
        """Return the objects that :meth:`image` shows at this size."""
        if scene.source is SourceName.TRACED:
            traced = trace_scene(FIRST_SEED + scene.seed, scene.objects)
            return GroundTruth(traced.objects, traced.cameras, VIEW_ASPECT)
        scenes, index = self.find_clevr(scene.seed, scene.objects, size)
        present, coordinates, properties = (
            torch.as_tensor(part[index : index + 1]) for part in (scenes.present, scenes.coordinates, scenes.properties)
        )
        objects = Objects(present.float(), coordinates.float(), properties)
        return GroundTruth(objects, default_cameras(1), float(scenes.aspects[index]))

    def find_clevr(self, seed: int, objects: int | None, size: int) -> tuple[Scenes, int]:
        """Return CLEVR's scenes and the index of one with this number of objects."""
        self.check_clevr()
        scenes = self.clevr[size].get_if_ready()
        counts = scenes.present.sum(axis=1)
        indices = np.flatnonzero(counts == objects) if objects is not None else np.arange(len(scenes))
        if len(indices) == 0:
            raise RequestError(
                422, f"CLEVR's validation set has no scene with {objects} objects; choose another number."
            )
        return scenes, int(indices[seed % len(indices)])

    def list_sources(self) -> list[Option]:
        return [Option.of(name) for name in SourceName if name is SourceName.TRACED or self.clevr]


def clevr_loader(folder: Path, size: int) -> Callable[[], Scenes]:
    return lambda: read_clevr(folder, cache_folder(), part="val", size=size)


class Detector:
    """One network, loaded on first use."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def network(self) -> SceneNetwork:
        network = SceneNetwork.from_pretrained(self.folder).float()
        network.eval()
        return network

    @torch.no_grad()
    def detect(self, scene: Scene, images: SceneImages) -> Detection:
        network, size = self.network, self.network.config["image_size"]
        image = torch.as_tensor(images.image(scene, size)).movedim(-1, 0)[None]
        truth = images.ground_truth(scene, size)
        began = time.perf_counter()
        trace = network.trace(image)
        if trace is None:
            raise ValueError("This network has no intermediate steps to show.")
        vectors = [network.head(templates) for templates in trace.templates]
        milliseconds = 1e3 * (time.perf_counter() - began)
        maps = [[], *(attention_brightness(step[0].mean(dim=0)) for step in trace.attention)]
        return Detection(
            objects=[
                SceneObject(description=describe_object(truth.objects.properties[0, index].numpy()), position=position)
                for index, position in enumerate(image_positions(truth.objects.coordinates, truth))
                if truth.objects.presence[0, index] > 0
            ],
            steps=[evaluate_step(step, truth, attention) for step, attention in zip(vectors, maps, strict=True)],
            milliseconds=round(milliseconds, 2),
        )


def evaluate_step(vectors: Tensor, truth: GroundTruth, attention: list[list[int]]) -> Step:
    """Decode the predictions of a step and compare them with the objects of the scene."""
    marks = mark(vectors, truth.objects)
    positions = image_positions(marks.predicted.coordinates, truth)
    predictions = [
        Prediction(
            template=int(marks.order[0, rank]),
            description=describe_object(marks.predicted.properties[0, rank].numpy()),
            position=positions[rank],
            presence=round(float(marks.predicted.presence[0, rank]), 4),
            correct=bool(marks.correct[0, rank]),
        )
        for rank in range(marks.num_predicted(0))
    ]
    return Step(predictions=predictions, missed=marks.missed(0), attention=attention)


def image_positions(coordinates: Tensor, truth: GroundTruth) -> list[list[float]]:
    """Project coordinates of objects into the image."""
    pixels: Any = project(coordinates.float(), truth.cameras, stretch=truth.aspect)[0].numpy()
    return [[round(float(left), 4), round(float(top), 4)] for left, top in pixels]


class Detectors:
    """Images and all available networks, for a worker."""

    def __init__(self, folders: Mapping[ModelName, Path], images: SceneImages) -> None:
        self.by_name = {name: Detector(folder) for name, folder in folders.items()}
        self.images = images

    def run(self, kind: str, scenes: list[Scene]) -> list[Any]:
        return [result_or_error(self.run_job, kind, scene) for scene in scenes]

    def run_job(self, kind: str, scene: Scene) -> bytes | Detection:
        if kind == PICTURE:
            return encode_png(self.images.image(scene, DISPLAY_SIZE))
        return self.by_name[ModelName(kind)].detect(scene, self.images)

    def list_models(self) -> list[NetworkOption]:
        configs = {name: read_config(detector.folder) for name, detector in self.by_name.items()}
        return [NetworkOption.of(name, num_steps=decoder_steps(config)) for name, config in configs.items()]


def decoder_steps(config: dict[str, Any]) -> int:
    """Return the number of steps of a saved network's decoder; 0 if it has no steps."""
    if not config:
        return 0
    if isinstance(config["decoder"], str):  # saved by version 0.1
        config, _ = SceneNetwork.upgrade(config, {})
    return config["decoder"]["arguments"].get("num_steps", 0)
