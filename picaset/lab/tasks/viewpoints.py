"""Novel viewpoints: name the category of a toy seen as training never showed one (Table 3, Figure 3).

Training sees a third of the azimuths or of the elevations of the training objects; scored is the share of test
objects that are named rightly, from novel and from familiar viewpoints, and with the crop moved. While training, the
score is that of the training objects from novel viewpoints, so that no test object chooses anything.
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from picaset.lab.data.crops import Augmentation, augmented, patches
from picaset.lab.data.folders import data_root
from picaset.lab.data.gaussian_mixtures import generator_for
from picaset.lab.data.shuffling import shuffled
from picaset.lab.data.small_norb import load_small_norb
from picaset.lab.data.toys import load_toys
from picaset.lab.data.views import CATEGORIES, Split, Views
from picaset.lab.networks.capsules import SMALL, CapsuleNetwork, spread_loss
from picaset.lab.networks.view_classifier import ViewClassifier
from picaset.lab.tasks.viewpoint_scores import Look, accuracies, examples, share_right
from picaset.networks.pretrained import PretrainedNetwork
from picaset.networks.set_networks import DeepSets, Picaso, SetTransformer

Data = Literal["small-norb", "toys", "toys-small", "toys-tiny"]
Kind = Literal["deep-sets", "set-transformer", "picaso", "capsules", "view-classifier"]

NETWORKS: dict[str, type[PretrainedNetwork]] = {
    "deep-sets": DeepSets,
    "set-transformer": SetTransformer,
    "picaso": Picaso,
    "capsules": CapsuleNetwork,
    "view-classifier": ViewClassifier,
}
IN_WORDS = {
    "small-norb": "smallNORB",
    "toys": "stand-in for smallNORB: generated toys",
    "toys-small": "stand-in for smallNORB: generated toys, part of the grid",
    "toys-tiny": "stand-in for smallNORB: generated toys, a few viewpoints",
}
MARGINS = (0.2, 0.9)
"""Of the spread loss: it rises over the first half of training."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Viewpoints:
    """Classification of toys under novel viewpoints."""

    split: Split = "azimuth"
    """Which viewpoints training does not have."""
    data: Data = "toys-small"
    """The real photographs, or generated ones."""
    network: Kind = "picaso"
    """The first three see a bag of patches, without positions; the others see the image."""
    pool: Literal["mean", "max"] = "mean"
    """Of DeepSets."""
    num_steps: int = 3
    """Steps of the cascade, or iterations of routing."""
    dim: int = 128
    """Features inside the network."""
    num_heads: int = 4
    """Attention heads; divides the width."""
    num_inducing: int = 32
    """Learned points of each induced encoder of a bag of patches."""
    num_encoder_blocks: int = 2
    """Encoders, one after the other."""
    num_templates: int = 1
    """Templates of the cascade of a view classifier."""
    num_stem_blocks: int = 1
    """Residual convolutions of a view classifier."""
    norm: bool = False
    """Layer norm after each sum of a block, in bags of patches."""
    capsule_sizes: tuple[int, int, int, int] = SMALL
    """Channels, and types of the three layers of capsules."""
    inverse_temperature: float = 0.01
    """Of routing."""
    stereo: bool = False
    """Both cameras as one example, instead of two."""
    turn: float = 0.0
    """Degrees that training images are turned, at most."""
    scale: float = 0.0
    """Share by which training images are scaled, at most."""
    stretch: float = 0.0
    """Logarithm of the ratio by which training images are made higher or wider, at most."""
    mirror: bool = False
    """Whether every second training image is mirrored; in testing, both ways are averaged."""
    contrast: float = 0.0
    """Logarithm of the power that bends grey values of training images, at most."""
    noise: float = 0.0
    """Deviation of noise added to training images."""
    erase: float = 0.0
    """Share of a training image that is erased, at most."""
    patch_dropout: float = 0.0
    """Share of places that a view classifier leaves out while training."""
    dropout: float = 0.0
    """Share of features that it leaves out before its last map while training."""
    label_smoothing: float = 0.0
    """Share of the target that is spread over all categories."""
    num_test_crops: int = 1
    """Crops that are averaged in testing: the middle, and places a few pixels around it."""
    num_scored: int = 1000
    """Examples scored while training."""
    num_tested: int = 0
    """Examples of each kind that a trained network is tested on; 0 takes all."""

    def __post_init__(self) -> None:
        self.augmentation()
        if self.num_test_crops not in (1, 5, 9):
            raise ValueError(f"num_test_crops must be 1, 5 or 9; got {self.num_test_crops}.")
        if self.num_scored < 1 or self.num_tested < 0:
            raise ValueError(
                f"num_scored must be at least 1 and num_tested not negative; got {self.num_scored}, {self.num_tested}."
            )
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"label_smoothing must be at least 0 and below 1; got {self.label_smoothing}.")

    def augmentation(self) -> Augmentation:
        return Augmentation(
            turn=self.turn,
            scale=self.scale,
            stretch=self.stretch,
            mirror=self.mirror,
            contrast=self.contrast,
            noise=self.noise,
            erase=self.erase,
        )

    def build_network(self) -> PretrainedNetwork:
        classes, cameras = len(CATEGORIES), 2 if self.stereo else 1
        if self.network == "deep-sets":
            return DeepSets(16 * cameras, classes, dim=self.dim, pool=self.pool)
        if self.network == "capsules":
            return CapsuleNetwork(
                classes,
                channels_in=cameras,
                sizes=self.capsule_sizes,
                num_iterations=self.num_steps,
                inverse_temperature=self.inverse_temperature,
            )
        if self.network == "view-classifier":
            return ViewClassifier(
                classes,
                channels_in=cameras,
                dim=self.dim,
                num_heads=self.num_heads,
                num_stem_blocks=self.num_stem_blocks,
                num_encoder_blocks=self.num_encoder_blocks,
                num_templates=self.num_templates,
                num_steps=self.num_steps,
                patch_dropout=self.patch_dropout,
                dropout=self.dropout,
            )
        bag = dict[str, Any](
            dim=self.dim,
            num_heads=self.num_heads,
            num_inducing=self.num_inducing,
            num_encoder_blocks=self.num_encoder_blocks,
            form="authors",
            norm=self.norm,
        )
        if self.network == "set-transformer":
            return SetTransformer(16 * cameras, classes, **bag)
        return Picaso(16 * cameras, classes, num_steps=self.num_steps, num_decoder_blocks=0, **bag)

    def read_network(self, directory: Path) -> PretrainedNetwork:
        return NETWORKS[self.network].from_pretrained(directory)

    def batch(self, step: int, *, seed: int, num_examples: int, progress: float) -> tuple[Tensor, ...]:
        images, labels = examples(familiar_views(self.data, self.split), stereo=self.stereo)
        chosen = shuffled(step, seed=seed, num_examples=num_examples, total=len(images))
        crops = augmented(images[chosen], self.augmentation(), generator=generator_for(seed, step))
        low, high = MARGINS
        margin = low + (high - low) * min(1.0, 2 * progress)
        return self.shown(crops), labels[chosen], torch.full((num_examples,), margin)

    def loss(self, network: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        inputs, labels, margin = batch
        outputs = network(inputs).reshape(len(inputs), len(CATEGORIES))
        if self.network == "capsules":
            return spread_loss(outputs, labels, margin)
        return cross_entropy(outputs, labels, label_smoothing=self.label_smoothing)

    def score(self, network: nn.Module) -> dict[str, float]:
        training = objects(self.data)[0]
        novel = training.where(~training.familiar(self.split))
        images, labels = some(*examples(novel, stereo=self.stereo), count=self.num_scored)
        return {"score": share_right(network, images, labels, self.look())}

    def evaluate(self, network: nn.Module) -> dict[str, Any]:
        test = objects(self.data)[1]
        return {
            "split": self.split,
            "data": self.describe_data(),
            **accuracies(network, test, self.split, self.look(), stereo=self.stereo, most=self.num_tested),
        }

    def describe_data(self) -> str:
        part = f", {self.num_tested} test images of each kind" if self.num_tested else ""
        return f"{IN_WORDS[self.data]}, novel {self.split}s{', stereo pairs' if self.stereo else ''}{part}"

    def look(self) -> Look:
        """How test images are shown to a network."""
        return Look(
            bag=self.network in ("deep-sets", "set-transformer", "picaso"),
            probabilities=self.network == "capsules",
            num_crops=self.num_test_crops,
            mirror=self.mirror,
        )

    def shown(self, crops: Float[Tensor, "B C P P"]) -> Tensor:
        """What the network is given: a bag of patches, or the image."""
        return patches(crops) if self.look().bag else crops


@lru_cache(maxsize=2)
def objects(data: Data) -> tuple[Views, Views]:
    """The training and the test objects."""
    if data != "small-norb":
        _, _, part = data.partition("-")
        return load_toys(part or "whole")
    root = data_root()
    if root is None:
        raise ValueError(
            "smallNORB is needed: set PICASET_DATA, or --data-root, to the folder that has it in smallnorb/; "
            "experiments whose name ends in -toys use generated toys instead."
        )
    return load_small_norb(root)


@lru_cache(maxsize=2)
def familiar_views(data: Data, split: Split) -> Views:
    """What training sees."""
    training = objects(data)[0]
    return training.where(training.familiar(split))


def some(images: Tensor, labels: Tensor, *, count: int) -> tuple[Tensor, Tensor]:
    """Every so many-th example, at most ``count``; 0 is all."""
    if count == 0 or count >= len(images):
        return images, labels
    chosen = torch.arange(count) * len(images) // count
    return images[chosen], labels[chosen]
