"""Image stems: from an image to a vector, so that a set of images becomes a set of vectors.

    NineConvolutions    the paper's: three times three convolutions and a maximum     about 30 times the work
    LightStem           four convolutions that each halve the image                   for training on two cores

Layer norms are over groups of channels of one image, so that an image's vector depends on that image alone, while
training too.

Dimensions:  P images   S pixels a side   E features
"""

from itertools import pairwise
from typing import Literal

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from picaset.checks import check_choice, check_positive

Stem = Literal["light", "nine"]
SIDE = 64
"""Pixels that the light stem's images have a side."""


class NineConvolutions(nn.Sequential):
    """Three times three convolutions of 3 x 3, each three followed by a maximum over 2 x 2 (Zare and Nguyen 2021).

    The paper gives the number of layers and the 256 features that come out. Ours are 32, 64 and 128 channels wide, the
    last convolution as wide as the features, which are averaged over what is left of the image.

    Args:
        dim: Features of an image's vector.

    Shapes:
        images    (P, 3, S, S)    S a multiple of 8
        returns   (P, dim)

    Example:
        >>> NineConvolutions(256)(torch.zeros(2, 3, 64, 64)).shape
        torch.Size([2, 256])
    """

    def __init__(self, dim: int = 256) -> None:
        check_positive(caller="NineConvolutions", dim=dim)
        widths = [3, 32, 32, 32, 64, 64, 64, 128, 128, dim]
        layers = list[nn.Module]()
        for index, (before, after) in enumerate(pairwise(widths), start=1):
            layers += [nn.Conv2d(before, after, 3, padding=1), normed(after), nn.ReLU()]
            layers += [nn.MaxPool2d(2)] if index % 3 == 0 else []
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


class LightStem(nn.Sequential):
    """Four convolutions that each halve the image, and a linear map of what is left.

    The map knows where in the image a feature was found, as suits faces that are all in one place.

    Args:
        dim: Features of an image's vector.

    Shapes:
        images    (P, 3, 64, 64)
        returns   (P, dim)

    Example:
        >>> LightStem(256)(torch.zeros(2, 3, 64, 64)).shape
        torch.Size([2, 256])
    """

    def __init__(self, dim: int = 256) -> None:
        check_positive(caller="LightStem", dim=dim)
        widths = [3, 24, 48, 96, 160]
        layers = list[nn.Module]()
        for before, after in pairwise(widths):
            layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), normed(after), nn.ReLU()]
        super().__init__(*layers, nn.Flatten(), nn.Linear(widths[-1] * (SIDE // 16) ** 2, dim))


def normed(width: int) -> nn.Module:
    return nn.GroupNorm(4, width) if width % 4 == 0 else nn.Identity()


def image_stem(kind: Stem, dim: int, *, caller: str) -> nn.Module:
    """A stem by its name."""
    check_choice(kind, ("light", "nine"), caller=caller, name="stem")
    return LightStem(dim) if kind == "light" else NineConvolutions(dim)


def as_numbers(
    images: Float[Tensor, "*n 3 S S"] | UInt8[Tensor, "*n 3 S S"], like: Tensor
) -> Float[Tensor, "*n 3 S S"]:
    """Images around zero, from bytes or from numbers between 0 and 1."""
    scale = 255.0 if images.dtype is torch.uint8 else 1.0
    return images.to(like.dtype) * (4.0 / scale) - 2.0
