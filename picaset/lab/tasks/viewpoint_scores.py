"""Accuracy of classifiers of toys by viewpoint, and their attention as heat maps.

Heat is attention times the number of places: 1 is uniform attention.

Dimensions:  B examples   V views   C cameras   S = 48 pixels of a photograph   L steps   H heads   N places
"""

import time
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor, nn

from picaset.lab.data.crops import (
    MARGIN,
    Normalization,
    centre_crops,
    crops_at,
    normalize_images,
    patches,
    random_shifts,
)
from picaset.lab.data.views import CATEGORIES, Split, Views, degrees_from_training
from picaset.lab.networks.view_classifier import ViewClassifier
from picaset.networks.set_networks import Picaso


def as_shown(
    images: UInt8[Tensor, "V C S S"], *, bag: bool, like: Tensor, normalization: Normalization = "image"
) -> Tensor:
    """Return the centre crops of photographs as inputs of a network: sets of patches, or images."""
    crops = normalize_images(centre_crops(images), normalization).to(like)
    return patches(crops) if bag else crops


@torch.no_grad()
def attention_to_places(network: nn.Module, shown: Tensor) -> Float[Tensor, "L V H N"] | None:
    """Return the attention of each step, averaged over templates; None for a network without attention."""
    if not isinstance(network, Picaso | ViewClassifier):
        return None
    return network.trace(shown).attention.mean(dim=3)


def heat_of(attention: Float[Tensor, "*n N"]) -> Float[Tensor, "*n N"]:
    """Return attention as a multiple of uniform attention."""
    return attention.shape[-1] * attention.float()


def heat_limit(attention: Float[Tensor, "*n N"]) -> float:
    """Return the upper end of the colour scale: the 99th percentile of heat, at least 2."""
    return max(2.0, float(heat_of(attention).flatten().quantile(0.99)))


MAX_EXAMPLES_PER_BATCH = 32
"""Number of examples of a forward pass."""
CROP_SPACING = 2
"""Pixels between the crops that are averaged."""
MOVED_SEED = 2021
MAX_MOVED = 12_000
"""Number of examples that are also tested with a moved crop; their accuracy has a standard error of half a percent."""


@dataclass(frozen=True)
class Look:
    """Preprocessing of test images: form of the input, crops that are averaged, normalization."""

    bag: bool
    """Whether the input is a set of patches without positions."""
    probabilities: bool = False
    """Whether the network returns probabilities instead of logits."""
    num_crops: int = 1
    """Number of crops that are averaged: 1, 5 or 9."""
    mirror: bool = False
    """Whether mirrored crops are averaged too."""
    normalization: Normalization = "image"
    """Normalization of grey values."""

    def offsets(self) -> list[tuple[int, int]]:
        """Return the offsets of the averaged crops, the centre first."""
        around = [(0, CROP_SPACING), (0, -CROP_SPACING), (CROP_SPACING, 0), (-CROP_SPACING, 0)]
        corners = [(down, right) for down in (-CROP_SPACING, CROP_SPACING) for right in (-CROP_SPACING, CROP_SPACING)]
        return [(0, 0), *around, *corners][: self.num_crops]


@torch.no_grad()
def predict(
    network: nn.Module, images: UInt8[Tensor, "B C S S"], shifts: Int[Tensor, "B 2"], look: Look
) -> Float[Tensor, "B classes"]:
    """Return the probability of each category, averaged over crops; ``shifts`` moves the crop of each example."""
    like = next(network.parameters())
    probabilities = list[Tensor]()
    for start in range(0, len(images), MAX_EXAMPLES_PER_BATCH):
        batch, moved = (part[start : start + MAX_EXAMPLES_PER_BATCH] for part in (images, shifts))
        predictions = list[Tensor]()
        for offset in look.offsets():
            pixels = crops_at(batch, (moved + torch.tensor(offset)).clamp(-MARGIN, MARGIN))
            crops = normalize_images(pixels, look.normalization).to(like)
            for inputs in (crops, crops.flip(3)) if look.mirror else (crops,):
                outputs = network(patches(inputs) if look.bag else inputs).reshape(len(batch), -1)
                predictions.append(outputs if look.probabilities else outputs.softmax(dim=1))
        probabilities.append(torch.stack(predictions).mean(dim=0).cpu())
    return torch.cat(probabilities)


def accuracy_on_centre_crops(
    network: nn.Module, images: UInt8[Tensor, "B C S S"], labels: Int[Tensor, " B"], look: Look
) -> float:
    """Return the accuracy on centre crops."""
    chosen = predict(network, images, torch.zeros(len(images), 2, dtype=torch.long), look).argmax(dim=1)
    return float((chosen == labels).double().mean())


def accuracies(network: nn.Module, test: Views, split: Split, look: Look, *, stereo: bool, most: int) -> dict[str, Any]:
    """Return all results that the table and the figures need, as JSON values.

    ``novel`` and ``familiar`` are accuracies by viewpoint; ``moved`` are those with the crop moved at random by up to
    eight pixels; ``by_viewpoint`` has one for every azimuth or elevation, with its distance from those of training.
    """
    views = evenly_spaced(test, test.familiar(split), most)
    images, labels = examples(views, stereo=stereo)
    familiar, viewpoint = (
        values if stereo else values.repeat_interleave(2) for values in (views.familiar(split), getattr(views, split))
    )
    start = time.perf_counter()
    middle = predict(network, images, torch.zeros(len(images), 2, dtype=torch.long), look)
    seconds = time.perf_counter() - start
    generator = torch.Generator().manual_seed(MOVED_SEED)
    also_moved = torch.arange(len(images))
    if len(images) > MAX_MOVED:
        also_moved = torch.randperm(len(images), generator=generator)[:MAX_MOVED]
    shifts = random_shifts(len(also_moved), most=MARGIN, generator=generator)
    chosen, moved = middle.argmax(dim=1), predict(network, images[also_moved], shifts, look).argmax(dim=1)
    right, right_moved = chosen == labels, moved == labels[also_moved]
    return {
        "accuracy": {
            "novel": share(right, ~familiar),
            "familiar": share(right, familiar),
            "novel_moved": share(right_moved, ~familiar[also_moved]),
            "familiar_moved": share(right_moved, familiar[also_moved]),
        },
        "examples": {"novel": int((~familiar).sum()), "familiar": int(familiar.sum()), "moved": len(also_moved)},
        "by_viewpoint": [
            {
                split: value,
                "degrees": degrees_from_training(split, value),
                "accuracy": share(right, viewpoint == value),
                "examples": int((viewpoint == value).sum()),
            }
            for value in sorted({int(value) for value in viewpoint})
        ],
        "confusion": confusion(labels[~familiar], chosen[~familiar]),
        "milliseconds_per_image": round(1e3 * seconds / len(images), 4),
    }


def examples(views: Views, *, stereo: bool) -> tuple[UInt8[Tensor, "B C S S"], Int[Tensor, " B"]]:
    """Return images and labels: both cameras as one example, or each as its own."""
    if stereo:
        return views.images, views.category
    return views.images.flatten(0, 1)[:, None], views.category.repeat_interleave(2)


def evenly_spaced(test: Views, familiar: Bool[Tensor, " N"], most: int) -> Views:
    """Return at most ``most`` novel and ``most`` familiar photographs, evenly spaced; 0 returns all."""
    if most == 0:
        return test
    selected = torch.zeros(len(test), dtype=torch.bool)
    for kind in (familiar, ~familiar):
        (indices,) = torch.where(kind)
        selected[indices[spaced_indices(len(indices), most)]] = True
    return test.where(selected)


def spaced_indices(total: int, most: int) -> Int[Tensor, " n"]:
    """Return at most ``most`` evenly spaced indices from 0 on; 0 returns all.

    Example:
        >>> spaced_indices(10, 4).tolist(), spaced_indices(3, 0).tolist()
        ([0, 2, 5, 7], [0, 1, 2])
    """
    count = min(most or total, total)
    return torch.arange(count) * total // max(count, 1)


def share(right: Bool[Tensor, " B"], among: Bool[Tensor, " B"]) -> float:
    return float(right[among].double().mean())


def confusion(labels: Int[Tensor, " B"], chosen: Int[Tensor, " B"]) -> list[list[int]]:
    """Return the confusion matrix: rows are true categories, columns predicted ones."""
    kinds = len(CATEGORIES)
    counts = torch.bincount(kinds * labels + chosen, minlength=kinds * kinds).reshape(kinds, kinds)
    return [[int(count) for count in row] for row in counts]
