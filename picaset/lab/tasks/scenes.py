"""Scenes: predict the set of three to ten objects in an image, each with its place and four properties (Table 5).

Scored by average precision at five distances, over all predictions of the test set together. While training, the score
is their mean on scenes that are neither trained on nor tested on.

Dimensions:  B images   S pixels a side   K = 10 slots   V = 19 numbers of an object's vector
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor, nn

from picaset.lab.data.clevr import read_clevr
from picaset.lab.data.folders import cache_folder, data_folder
from picaset.lab.data.scenes import DIM, Scenes, to_vectors
from picaset.lab.data.shuffling import shuffled
from picaset.lab.data.traced_scenes import load_traced_scenes
from picaset.lab.networks.competing_cascade import Compete, Initial
from picaset.lab.networks.image_stems import Positions, SceneStem
from picaset.lab.networks.scene_network import SceneDecoder, SceneNetwork
from picaset.lab.tasks.scene_loss import Objective, scene_loss
from picaset.lab.tasks.scene_scores import by_steps, milliseconds_per_image, precisions, predict, shown_attention
from picaset.operators.block import Form

ScenePart = Literal["train", "validation", "test"]

SEEDS: dict[ScenePart, int] = {"train": 2021, "validation": 2022, "test": 2023}
"""Of the stand-in's parts, the same for every run."""
NUM_SHOWN = 8
"""Test scenes whose predictions are kept for the figures; of the first two, what was looked at, too."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SceneObjects:
    """State prediction: the set of objects in an image."""

    data: Literal["traced", "clevr"] = "traced"
    """The stand-in, or CLEVR below PICASET_DATA."""
    image_size: int = 64
    """Pixels of an image, in each direction."""
    num_scenes: int = 20_000
    """Training scenes of the stand-in."""
    stem: SceneStem = "strided"
    """The published four convolutions, or cheaper ones for two cores."""
    decoder: SceneDecoder = "picaso"
    """How a set is made from the places of an image."""
    dim: int = 64
    """Features inside the network."""
    num_heads: int = 4
    """Attention heads; divides the width."""
    num_steps: int = 3
    """Steps of the cascade, of the slots, or of the descent."""
    num_test_steps: int = 0
    """Steps when a trained network is used; 0 takes as many as in training."""
    form: Form = "authors"
    """The block as the published programs have it, or as the paper's equation does."""
    norm: bool = True
    """Layer norm after each sum of a block."""
    compete: Compete = "templates"
    """Of the competing cascade: over what the softmax of attention runs."""
    located: bool = True
    """Of the competing cascade: whether templates are told where they looked."""
    initial: Initial = "learned"
    """Of the competing cascade: what templates are before the first step."""
    mixed: bool = False
    """Of the competing cascade: whether templates attend to each other."""
    positions: Positions = "linear"
    """How positions are embedded: linearly as published, or by waves."""
    every_step: bool = False
    """Of the competing cascade: whether what it says after every step is trained, or only the last."""
    objective: Objective = "published"
    """What is minimised."""
    num_test_scenes: int = 1000
    """Scenes that a trained network is tested on; of CLEVR at most as many as there are."""
    num_scored_scenes: int = 300
    """Scenes that it is scored on while training; CLEVR's are held out from its training scenes."""

    def __post_init__(self) -> None:
        for name in ("image_size", "num_scenes", "num_test_scenes", "num_scored_scenes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}.")

    def build_network(self) -> SceneNetwork:
        return SceneNetwork(
            DIM,
            stem=self.stem,
            image_size=self.image_size,
            decoder=self.decoder,
            dim=self.dim,
            num_heads=self.num_heads,
            num_steps=self.num_steps,
            num_test_steps=self.num_test_steps,
            form=self.form,
            norm=self.norm,
            compete=self.compete,
            located=self.located,
            initial=self.initial,
            mixed=self.mixed,
            positions=self.positions,
            every_step=self.every_step,
        )

    def read_network(self, directory: Path) -> SceneNetwork:
        return SceneNetwork.from_pretrained(directory)

    def scenes(self, part: ScenePart) -> Scenes:
        """The scenes of a part; CLEVR's training scenes end with those that are held out."""
        if self.data == "clevr":
            kind = "val" if part == "test" else "train"
            return read_clevr(data_folder("clevr"), cache_folder(), part=kind, size=self.image_size)
        count = {"train": self.num_scenes, "validation": self.num_scored_scenes, "test": self.num_test_scenes}[part]
        return load_traced_scenes(count, seed=SEEDS[part], size=self.image_size, folder=cache_folder())

    def numbers(self, part: ScenePart) -> range:
        """Which of the scenes belong to a part."""
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
        """Images, and the vectors of their objects."""
        images, wanted = np.asarray(self.scenes(part).images[chosen]), wanted_vectors(self, part)
        return torch.as_tensor(images).movedim(-1, -3), wanted[torch.as_tensor(chosen)]

    def whole(self, part: ScenePart) -> tuple[Tensor, Tensor]:
        return self.examples(part, np.array(self.numbers(part)))

    def batch(self, step: int, *, seed: int, num_examples: int, progress: float) -> tuple[Tensor, ...]:
        chosen = shuffled(step, seed=seed, num_examples=num_examples, total=len(self.numbers("train")))
        return self.examples("train", chosen.numpy())

    def loss(self, network: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        images, wanted = batch
        return scene_loss(network(images), wanted, objective=self.objective)

    def score(self, network: nn.Module) -> dict[str, float]:
        images, wanted = self.whole("validation")
        found = precisions(predict(network, images), wanted)
        return {"score": sum(found.values()) / len(found), **{f"ap_{name}": value for name, value in found.items()}}

    def evaluate(self, network: nn.Module) -> dict[str, Any]:
        assert isinstance(network, SceneNetwork)
        images, wanted = self.whole("test")
        few = self.num_scored_scenes
        return {
            "data": self.describe_data(),
            "average_precision": precisions(predict(network, images), wanted),
            "by_steps": by_steps(network, images[:few], wanted[:few]),
            "milliseconds_per_image": milliseconds_per_image(network, images),
            "shown": self.shown(network),
        }

    def shown(self, network: SceneNetwork) -> dict[str, Any]:
        """What the figures need: predictions for the first test scenes, and what was looked at in two of them."""
        images, _ = self.examples("test", np.arange(min(NUM_SHOWN, len(self.numbers("test")))))
        return {
            "predicted": predict(network, images).double().numpy().round(4).tolist(),
            "attention": shown_attention(network, images[:2]),
        }

    def describe_data(self) -> str:
        training, test = len(self.numbers("train")), len(self.numbers("test"))
        size = f"{self.image_size} x {self.image_size} pixels"
        kind = self.scenes("test").description if self.data == "clevr" else "stand-in for CLEVR: traced scenes"
        return f"{kind}, {size}; {training} for training, {test} for test"


@lru_cache(maxsize=4)
def wanted_vectors(task: SceneObjects, part: ScenePart) -> Tensor:
    """The vectors of all scenes of a file."""
    scenes = task.scenes(part)
    present, coordinates, properties = map(torch.as_tensor, (scenes.present, scenes.coordinates, scenes.properties))
    return to_vectors(present, coordinates, properties)
