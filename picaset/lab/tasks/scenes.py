"""Scenes: predict the set of three to ten objects in an image, each with its position and four properties (Table 5).

The metric is average precision at five distances, over all predictions of the test set together. The validation score
is their mean on scenes that are in neither the training nor the test part.

Dimensions:  B images   S pixels a side   K = 10 predictions   V = 19 features of an object's vector
"""

from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor, nn

from picaset.lab.data.clevr import read_clevr
from picaset.lab.data.folders import cache_folder, data_folder
from picaset.lab.data.scenes import VECTOR_DIM, Scenes, to_vectors
from picaset.lab.data.traced_scenes import load_traced_scenes
from picaset.lab.networks.scene_decoders import CascadeDecoder
from picaset.lab.networks.scene_network import SceneNetwork
from picaset.lab.tasks.scene_loss import Objective, scene_loss
from picaset.lab.tasks.scene_scores import by_steps, milliseconds_per_image, precisions, predict, shown_attention
from picaset.lab.tasks.task import Task, batch_indices
from picaset.pretrained import ModuleConfig

ScenePart = Literal["train", "validation", "test"]

SEEDS: dict[ScenePart, int] = {"train": 2021, "validation": 2022, "test": 2023}
"""Seeds of the generated scenes of each part, the same for every run."""
NUM_SHOWN = 8
"""Number of test scenes whose predictions are recorded for the figures; attention is recorded for the first two."""
NETWORK = ModuleConfig.of(SceneNetwork, dim_out=VECTOR_DIM, decoder=ModuleConfig.of(CascadeDecoder, dim=64))
"""PB3 of Table 5."""
FLAT_NETWORK = dict(
    dim_out=VECTOR_DIM, num_objects=10, stem="strided", image_size=64, decoder="picaso", dim=64, num_heads=4,
    num_steps=3, num_test_steps=0, form="authors", norm=True, compete="templates", located=True, initial="learned",
    mixed=False, positions="linear", every_step=False,
)  # fmt: skip
"""Arguments of the network in a record of format version 1, by default."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SceneObjects(Task):
    """State prediction: the set of objects in an image."""

    network: ModuleConfig = NETWORK
    data: Literal["traced", "clevr"] = "traced"
    """Generated scenes, the stand-in, or CLEVR below PICASET_DATA."""
    num_scenes: int = 20_000
    """Number of generated training scenes."""
    num_test_steps: int = 0
    """Steps of the decoder at test time; 0 takes as many as in training."""
    every_step: bool = False
    """Whether the predictions after every step of the decoder are trained, or only the last."""
    objective: Objective = "published"
    """The training loss."""
    num_test_scenes: int = 1000
    """Number of test scenes; of CLEVR at most as many as there are."""
    num_scored_scenes: int = 300
    """Number of validation scenes; those of CLEVR are held out from its training part."""

    def __post_init__(self) -> None:
        self.check_network("SceneNetwork")
        self.check_at_least_one("num_scenes", "num_test_scenes", "num_scored_scenes")
        if self.num_test_steps < 0:
            raise ValueError(f"num_test_steps must not be negative; got {self.num_test_steps}.")

    @classmethod
    def upgrade(cls, settings: dict[str, Any]) -> dict[str, Any]:
        own_fields = {field.name for field in fields(cls)}
        flat = FLAT_NETWORK | {
            key: value for key, value in settings.items() if key in FLAT_NETWORK and key not in own_fields
        }
        arguments, _ = SceneNetwork.upgrade(flat, {})
        task_settings = {key: value for key, value in settings.items() if key in own_fields}
        return task_settings | {"network": {"class": "SceneNetwork", "arguments": arguments}}

    @property
    def image_size(self) -> int:
        return self.network["image_size"]

    def scenes(self, part: ScenePart) -> Scenes:
        """Return the scenes of a part; the last training scenes of CLEVR are its validation part."""
        if self.data == "clevr":
            kind = "val" if part == "test" else "train"
            return read_clevr(data_folder("clevr"), cache_folder(), part=kind, size=self.image_size)
        count = {"train": self.num_scenes, "validation": self.num_scored_scenes, "test": self.num_test_scenes}[part]
        return load_traced_scenes(count, seed=SEEDS[part], size=self.image_size, folder=cache_folder())

    def numbers(self, part: ScenePart) -> range:
        """Return the indices of the scenes that belong to a part."""
        total = len(self.scenes(part))
        if self.data == "traced":
            return range(total)
        if part == "test":
            return range(min(total, self.num_test_scenes))
        if total <= self.num_scored_scenes:
            raise ValueError(f"CLEVR must have more than {self.num_scored_scenes} training scenes; got {total}.")
        held_out = total - self.num_scored_scenes
        return range(held_out) if part == "train" else range(held_out, total)

    def examples(self, part: ScenePart, chosen: Int[np.ndarray, " B"]) -> tuple[Tensor, Tensor]:
        """Return images and the vectors of their objects."""
        images, targets = np.asarray(self.scenes(part).images[chosen]), target_vectors(self, part)
        return torch.as_tensor(images).movedim(-1, -3), targets[torch.as_tensor(chosen)]

    def whole(self, part: ScenePart) -> tuple[Tensor, Tensor]:
        return self.examples(part, np.array(self.numbers(part)))

    def batch(self, step: int, *, seed: int, num_examples: int, progress: float) -> tuple[Tensor, ...]:
        chosen = batch_indices(step, seed=seed, num_examples=num_examples, total=len(self.numbers("train")))
        return self.examples("train", chosen.numpy())

    def loss(self, network: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        images, targets = batch
        return scene_loss(network(images, every_step=self.every_step), targets, objective=self.objective)

    def score(self, network: nn.Module) -> dict[str, float]:
        images, targets = self.whole("validation")
        values = precisions(predict(network, images, num_steps=self.test_steps), targets)
        return {"score": sum(values.values()) / len(values), **{f"ap_{name}": value for name, value in values.items()}}

    def evaluate(self, network: nn.Module) -> dict[str, Any]:
        assert isinstance(network, SceneNetwork)
        images, targets = self.whole("test")
        few = self.num_scored_scenes
        return {
            "data": self.describe_data(),
            "average_precision": precisions(predict(network, images, num_steps=self.test_steps), targets),
            "by_steps": by_steps(network, images[:few], targets[:few]),
            "milliseconds_per_image": milliseconds_per_image(network, images, num_steps=self.test_steps),
            "shown": self.figure_data(network),
        }

    def figure_data(self, network: SceneNetwork) -> dict[str, Any]:
        """Return predictions for the first test scenes and the attention in two of them, for the figures."""
        images, _ = self.examples("test", np.arange(min(NUM_SHOWN, len(self.numbers("test")))))
        return {
            "predicted": predict(network, images, num_steps=self.test_steps).double().numpy().round(4).tolist(),
            "attention": shown_attention(network, images[:2]),
        }

    @property
    def test_steps(self) -> int | None:
        """Steps of the decoder at test time; None takes its own number."""
        return self.num_test_steps or None

    def describe_data(self) -> str:
        training, test = len(self.numbers("train")), len(self.numbers("test"))
        size = f"{self.image_size} x {self.image_size} pixels"
        kind = self.scenes("test").description if self.data == "clevr" else "stand-in for CLEVR: traced scenes"
        return f"{kind}, {size}; {training} for training, {test} for test"


@lru_cache(maxsize=4)
def target_vectors(task: SceneObjects, part: ScenePart) -> Tensor:
    """Return the vectors of the objects of all scenes of a part."""
    scenes = task.scenes(part)
    present, coordinates, properties = map(torch.as_tensor, (scenes.present, scenes.coordinates, scenes.properties))
    return to_vectors(present, coordinates, properties)
