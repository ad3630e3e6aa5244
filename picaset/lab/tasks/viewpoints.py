"""Novel viewpoints: classify toys seen from viewpoints that are not in the training data (Table 3, Figure 3).

Training uses a third of the azimuths, or of the elevations, of the training toys. Test accuracy is measured on the test
toys, from novel and from familiar viewpoints, with the crop centred and moved. The validation score is the accuracy on
the training toys from novel viewpoints, so no test toy influences the training.
"""

from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from picaset.lab.data.crops import Augmentation, Normalization, augment, centre_crops, normalize_images, patches
from picaset.lab.data.folders import data_root
from picaset.lab.data.gaussian_mixtures import seeded_generator
from picaset.lab.data.small_norb import load_small_norb
from picaset.lab.data.toys import load_toys
from picaset.lab.data.views import CATEGORIES, Split, Views
from picaset.lab.networks.capsules import SMALL_SIZES, CapsuleNetwork, spread_loss
from picaset.lab.networks.view_classifier import ViewClassifier
from picaset.lab.tasks.task import Task, batch_indices
from picaset.lab.tasks.viewpoint_scores import Look, accuracies, accuracy_on_centre_crops, examples, spaced_indices
from picaset.networks.set_networks import DeepSets, Picaso, SetTransformer
from picaset.pretrained import ModuleConfig

Data = Literal["small-norb", "toys", "toys-small", "toys-tiny"]
DATA_DESCRIPTIONS = {
    "small-norb": "smallNORB",
    "toys": "stand-in for smallNORB: generated toys",
    "toys-small": "stand-in for smallNORB: generated toys, part of the grid",
    "toys-tiny": "stand-in for smallNORB: generated toys, a few viewpoints",
}
CLASSES, PATCH_FEATURES = len(CATEGORIES), 16
BAG_NETWORKS = ("DeepSets", "SetTransformer", "Picaso", "BagClassifier")
"""Networks whose input is a set of patches without positions; the others take the image."""
MARGINS = (0.2, 0.9)
"""Margin of the spread loss at the start of training and from its middle on."""
BAG: dict[str, Any] = dict(dim_in=PATCH_FEATURES, dim_out=CLASSES)
PLAIN = Augmentation()
PB3 = ModuleConfig.of(Picaso, **BAG, num_steps=3, num_decoder_blocks=0, form="authors")


@dataclass(frozen=True, kw_only=True, slots=True)
class Viewpoints(Task):
    """Classification of toys under novel viewpoints."""

    network: ModuleConfig = PB3
    split: Split = "azimuth"
    """Whether novel azimuths or novel elevations are tested."""
    data: Data = "toys-small"
    """Photographs of smallNORB, or generated toys."""
    stereo: bool = False
    """Whether both cameras are one example, instead of two."""
    augmentation: Augmentation = PLAIN
    """Random transformations of the training images; if they include mirroring, test predictions average both."""
    crops: Literal["random", "centre", "centre-mirrored"] = "random"
    """Where training images are cropped; centre crops are not augmented. Half of the photographs are mirrored, the same
    in every epoch, if crops are ``centre-mirrored``, as in the authors' program."""
    normalization: Normalization = "image"
    """Whether each image is normalized by itself or by fixed constants, which is for centre crops only."""
    hold_out_toy: bool = False
    """Whether one training toy of each category is left out and the validation score is measured on it, to choose
    between recipes; otherwise it is measured on the training toys from novel viewpoints."""
    label_smoothing: float = 0.0
    """Share of the target distribution that is spread over all categories."""
    num_test_crops: int = 1
    """Number of crops averaged at test time: the centre, and positions a few pixels around it."""
    num_scored: int = 1000
    """Number of validation examples."""
    num_tested: int = 0
    """Number of novel and of familiar test photographs; 0 takes all."""

    def __post_init__(self) -> None:
        self.check_network(*BAG_NETWORKS, "CapsuleNetwork", "ViewClassifier")
        self.check_at_least_one("num_scored")
        if self.crops != "random" and self.augmentation != PLAIN:
            raise ValueError(f"centre crops are not augmented: augmentation must be left out if crops={self.crops!r}.")
        if self.crops == "random" and self.normalization == "fixed":
            raise ValueError("random crops are normalized one by one: normalization='fixed' needs centre crops.")
        cameras = 2 if self.stereo else 1
        name, expected = ("dim_in", PATCH_FEATURES * cameras) if self.bag else ("channels_in", cameras)
        if self.network[name] != expected:
            raise ValueError(f"network must have {name}={expected} if stereo={self.stereo}; got {self.network[name]}.")
        if self.num_test_crops not in (1, 5, 9):
            raise ValueError(f"num_test_crops must be 1, 5 or 9; got {self.num_test_crops}.")
        if self.num_tested < 0:
            raise ValueError(f"num_tested must not be negative; got {self.num_tested}.")
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"label_smoothing must be at least 0 and below 1; got {self.label_smoothing}.")

    @classmethod
    def upgrade(cls, settings: dict[str, Any]) -> dict[str, Any]:
        own_fields = {field.name for field in fields(cls)} - {"network", "augmentation"}
        augmentation = {field.name for field in fields(Augmentation)}
        return {
            **{key: value for key, value in settings.items() if key in own_fields},
            "augmentation": {key: value for key, value in settings.items() if key in augmentation},
            "network": upgraded_network(settings).to_json(),
        }

    @property
    def bag(self) -> bool:
        """Whether the network takes a set of patches instead of the image."""
        return self.network.name in BAG_NETWORKS

    def batch(self, step: int, *, seed: int, num_examples: int, progress: float) -> tuple[Tensor, ...]:
        images, labels = examples(self.training_views(), stereo=self.stereo)
        chosen = batch_indices(step, seed=seed, num_examples=num_examples, total=len(images))
        if self.crops == "random":
            crops = augment(images[chosen], self.augmentation, generator=seeded_generator(seed, step))
        else:
            crops = normalize_images(centre_crops(images[chosen]), self.normalization)
        if self.crops == "centre-mirrored":
            mirrored = torch.rand(len(images), generator=seeded_generator(seed, 0)) < 0.5
            crops = torch.where(mirrored[chosen, None, None, None], crops.flip(3), crops)
        low, high = MARGINS
        margin = low + (high - low) * min(1.0, 2 * progress)
        return self.network_input(crops), labels[chosen], torch.full((num_examples,), margin)

    def loss(self, network: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        inputs, labels, margin = batch
        outputs = network(inputs).reshape(len(inputs), len(CATEGORIES))
        if self.network.name == "CapsuleNetwork":
            return spread_loss(outputs, labels, margin)
        return cross_entropy(outputs, labels, label_smoothing=self.label_smoothing)

    def score(self, network: nn.Module) -> dict[str, float]:
        training = objects(self.data)[0]
        chosen = ~training.familiar(self.split)
        if self.hold_out_toy:
            chosen &= is_held_out(training)
        return {"score": self.accuracy(network, training.where(chosen))}

    def accuracy(self, network: nn.Module, views: Views) -> float:
        """Return the accuracy on at most ``num_scored`` of these photographs."""
        images, labels = examples(views, stereo=self.stereo)
        scored = spaced_indices(len(images), self.num_scored)
        return accuracy_on_centre_crops(network, images[scored], labels[scored], self.look())

    def training_views(self) -> Views:
        """Return the photographs of the training viewpoints of the toys that are trained on."""
        return familiar_views(self.data, self.split, hold_out=self.hold_out_toy)

    def evaluate(self, network: nn.Module) -> dict[str, Any]:
        training, test = objects(self.data)
        return {
            "split": self.split,
            "data": self.describe_data(),
            "training_toys": {
                "familiar": self.accuracy(network, self.training_views()),
                "novel": self.accuracy(network, training.where(~training.familiar(self.split))),
            },
            **accuracies(network, test, self.split, self.look(), stereo=self.stereo, most=self.num_tested),
        }

    def describe_data(self) -> str:
        part = f", {self.num_tested} test images of each kind" if self.num_tested else ""
        return f"{DATA_DESCRIPTIONS[self.data]}, novel {self.split}s{', stereo pairs' if self.stereo else ''}{part}"

    def look(self) -> Look:
        """Return the preprocessing of test images."""
        return Look(
            bag=self.bag,
            probabilities=self.network.name == "CapsuleNetwork",
            num_crops=self.num_test_crops,
            mirror=self.augmentation.mirror,
            normalization=self.normalization,
        )

    def network_input(self, crops: Float[Tensor, "B C P P"]) -> Tensor:
        """Return crops as inputs of the network: a set of patches, or the image."""
        return patches(crops) if self.bag else crops


FLAT_NETWORKS = {
    "deep-sets": (ModuleConfig.of(DeepSets, **BAG), ("dim", "pool")),
    "set-transformer": (
        ModuleConfig.of(SetTransformer, **BAG, form="authors"),
        ("dim", "num_heads", "num_inducing", "num_encoder_blocks", "norm"),
    ),
    "picaso": (PB3, ("dim", "num_heads", "num_inducing", "num_encoder_blocks", "norm", "num_steps")),
    "capsules": (
        ModuleConfig.of(CapsuleNetwork, num_classes=CLASSES, sizes=SMALL_SIZES),
        ("capsule_sizes", "num_steps", "inverse_temperature"),
    ),
    "view-classifier": (
        ModuleConfig.of(ViewClassifier, num_classes=CLASSES, num_encoder_blocks=2, num_templates=1),
        ("dim", "num_heads", "num_stem_blocks", "num_encoder_blocks", "num_templates", "num_steps", "patch_dropout",
         "dropout"),
    ),
}  # fmt: skip
"""Networks of format version 1, with those of its flat fields that each network had."""


def upgraded_network(settings: dict[str, Any]) -> ModuleConfig:
    """Return the network of a record of format version 1, whose arguments were fields of the task."""
    network, names = FLAT_NETWORKS[settings.get("network", "picaso")]
    capsules = {"capsule_sizes": "sizes", "num_steps": "num_iterations"} if network.name == "CapsuleNetwork" else {}
    cameras = 2 if settings.get("stereo") else 1
    channels = {"dim_in": PATCH_FEATURES * cameras} if network.name in BAG_NETWORKS else {"channels_in": cameras}
    return network.replace(**channels, **{capsules.get(key, key): settings[key] for key in names if key in settings})


@lru_cache(maxsize=2)
def objects(data: Data) -> tuple[Views, Views]:
    """Return photographs of the training toys and of the test toys."""
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
def familiar_views(data: Data, split: Split, *, hold_out: bool = False) -> Views:
    """Return the training toys from the training viewpoints, without one toy of each category if ``hold_out``."""
    training = objects(data)[0]
    chosen = training.familiar(split)
    return training.where(chosen & ~is_held_out(training) if hold_out else chosen)


def is_held_out(training: Views) -> Bool[Tensor, " N"]:
    """Return which photographs are of the toy of each category that can be held out, the last one."""
    return training.instance == training.instance.max()
