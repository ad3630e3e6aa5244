"""How well a classifier names toys from viewpoints that it never saw, and from those that it did.

Dimensions:  B examples   C cameras   S pixels

What a classifier of toys attends to, as heat over its crop: for figures, and for the studio.

Heat is attention times the number of places: 1 is what every place would have if all were looked at alike.

Dimensions:  V views   C cameras   S = 48 pixels of a photograph   L steps   H heads   N places
"""

import time
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor, nn

from picaset.lab.data.crops import MARGIN, centre_crops, crops_at, normalised, patches, random_shifts
from picaset.lab.data.views import CATEGORIES, Split, Views, degrees_from_training
from picaset.lab.networks.view_classifier import ViewClassifier
from picaset.networks.set_networks import Picaso


def as_shown(images: UInt8[Tensor, "V C S S"], *, bag: bool, like: Tensor) -> Tensor:
    """The middle of each photograph as a network is given it: a bag of patches, or the image."""
    crops = normalised(centre_crops(images)).to(like)
    return patches(crops) if bag else crops


@torch.no_grad()
def attention_to_places(network: nn.Module, shown: Tensor) -> Float[Tensor, "L V H N"] | None:
    """Of each step, averaged over templates; None for a network that has none."""
    if not isinstance(network, Picaso | ViewClassifier):
        return None
    return network.trace(shown).attention.mean(dim=3)


def heat_of(attention: Float[Tensor, "*n N"]) -> Float[Tensor, "*n N"]:
    """How many times its even share a place gets."""
    return attention.shape[-1] * attention.float()


def hottest(attention: Float[Tensor, "*n N"]) -> float:
    """Where the scale of a picture ends: all but the hottest hundredth is below, and never less than 2."""
    return max(2.0, float(heat_of(attention).flatten().quantile(0.99)))


AT_ONCE = 32
"""Examples that a network is shown together."""
APART = 2
"""Pixels between the crops that are averaged."""
MOVED_SEED = 2021
MOST_MOVED = 12_000
"""Examples that are seen with a moved crop too: enough to know a share to a percent or so."""


@dataclass(frozen=True)
class Look:
    """How test images are shown to a network."""

    bag: bool
    """As patches without positions."""
    probabilities: bool = False
    """Whether the network gives probabilities, and not what goes into a softmax."""
    num_crops: int = 1
    """Crops that are averaged: 1, 5 or 9."""
    mirror: bool = False
    """Whether mirrored crops are averaged too."""

    def offsets(self) -> list[tuple[int, int]]:
        """Where the averaged crops are, the middle first."""
        around = [(0, APART), (0, -APART), (APART, 0), (-APART, 0)]
        corners = [(down, right) for down in (-APART, APART) for right in (-APART, APART)]
        return [(0, 0), *around, *corners][: self.num_crops]


@torch.no_grad()
def predict(
    network: nn.Module, images: UInt8[Tensor, "B C S S"], shifts: Int[Tensor, "B 2"], look: Look
) -> Float[Tensor, "B classes"]:
    """The probability of each category, averaged over crops; ``shifts`` move the crop of each example."""
    like = next(network.parameters())
    found = list[Tensor]()
    for first in range(0, len(images), AT_ONCE):
        some, moved = images[first : first + AT_ONCE], shifts[first : first + AT_ONCE]
        opinions = list[Tensor]()
        for offset in look.offsets():
            place = (moved + torch.tensor(offset)).clamp(-MARGIN, MARGIN)
            crops = normalised(crops_at(some, place)).to(like)
            for seen in (crops, crops.flip(3)) if look.mirror else (crops,):
                outputs = network(patches(seen) if look.bag else seen).reshape(len(some), -1)
                opinions.append(outputs if look.probabilities else outputs.softmax(dim=1))
        found.append(torch.stack(opinions).mean(dim=0).cpu())
    return torch.cat(found)


def share_right(network: nn.Module, images: UInt8[Tensor, "B C S S"], labels: Int[Tensor, " B"], look: Look) -> float:
    """The share of examples that are named rightly, crops in the middle."""
    chosen = predict(network, images, torch.zeros(len(images), 2, dtype=torch.long), look).argmax(dim=1)
    return float((chosen == labels).double().mean())


def accuracies(network: nn.Module, test: Views, split: Split, look: Look, *, stereo: bool, most: int) -> dict[str, Any]:
    """Everything that the table and the figures need, as JSON values.

    ``novel`` and ``familiar`` are shares of right answers; ``moved`` are those with the crop moved at random by up to
    eight pixels; ``by_viewpoint`` has one for every azimuth or elevation, with its distance from those of training.
    """
    views = thinned(test, test.familiar(split), most)
    images, labels = examples(views, stereo=stereo)
    familiar, viewpoint = (
        values if stereo else values.repeat_interleave(2) for values in (views.familiar(split), getattr(views, split))
    )
    began = time.perf_counter()
    middle = predict(network, images, torch.zeros(len(images), 2, dtype=torch.long), look)
    seconds = time.perf_counter() - began
    generator = torch.Generator().manual_seed(MOVED_SEED)
    also_moved = torch.arange(len(images))
    if len(images) > MOST_MOVED:
        also_moved = torch.randperm(len(images), generator=generator)[:MOST_MOVED]
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
    """Images and labels: both cameras as one example, or each as its own."""
    if stereo:
        return views.images, views.category
    return views.images.flatten(0, 1)[:, None], views.category.repeat_interleave(2)


def thinned(test: Views, familiar: Bool[Tensor, " N"], most: int) -> Views:
    """At most so many novel and so many familiar photographs, every so many-th; 0 is all."""
    if most == 0:
        return test
    kept = torch.zeros(len(test), dtype=torch.bool)
    for kind in (familiar, ~familiar):
        (places,) = torch.where(kind)
        count = min(most, len(places))
        kept[places[torch.arange(count) * len(places) // count]] = True
    return test.where(kept)


def share(right: Bool[Tensor, " B"], among: Bool[Tensor, " B"]) -> float:
    return float(right[among].double().mean())


def confusion(labels: Int[Tensor, " B"], chosen: Int[Tensor, " B"]) -> list[list[int]]:
    """How often each category was taken for each: rows are what it was, columns what it was called."""
    kinds = len(CATEGORIES)
    counts = torch.bincount(kinds * labels + chosen, minlength=kinds * kinds).reshape(kinds, kinds)
    return [[int(count) for count in row] for row in counts]
