"""What a classifier of toys attends to, as heat over its crop: for figures, and for the studio.

Heat is attention times the number of places: 1 is what every place would have if all were looked at alike.

Dimensions:  V views   C cameras   S = 48 pixels of a photograph   L steps   H heads   N places
"""

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from picaset.lab.data.crops import centre_crops, normalised, patches
from picaset.lab.networks.view_classifier import ViewClassifier
from picaset.networks.picaso import Picaso


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
