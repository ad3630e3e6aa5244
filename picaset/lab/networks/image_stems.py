"""Image stems: from an image to a vector, so that a set of images becomes a set of vectors.

    NineConvolutions    the paper's: three times three convolutions and a maximum     about 30 times the work
    LightStem           four convolutions that each halve the image                   for training on two cores

Layer norms are over groups of channels of one image, so that an image's vector depends on that image alone, while
training too.

Dimensions:  P images   S pixels a side   E features

From an image to a set: what an attention network sees of a picture.

    ConvolutionalStem    a few convolutions, then one element for every place of a coarse grid, with its position

Dimensions:  B images   C channels   S pixels   G places in each direction   N = G * G elements   D features

From a picture of a scene to a set of places: four convolutions, and where each place is.

    full       kernels of 5, strides 1, 2, 2, 1: 128 pixels become 32 places    as published (Locatello et al. 2020)
    strided    patches of 4 pixels, then three that add to what is there: 64 pixels become 16 places    for two cores

A position is embedded linearly, as published, or by waves of several lengths, which make it easy to look at one place
and not at its neighbours.

Dimensions:  B images   S pixels a side   G places a side   N = G * G places   D features   C channels
"""

import math
from itertools import pairwise
from typing import Literal, NamedTuple

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


REDUCTION = 4
"""Pixels between the places of the grid."""


class ConvolutionalStem(nn.Module):
    """Convolutions that reduce an image to a grid a quarter as fine, whose places are the elements of a set.

    Args:
        channels_in: Channels of an image.
        dim: Features of an element; a multiple of 8.
        image_size: Pixels of an image, in each direction; a multiple of 4.
        num_blocks: Residual convolutions on the coarse grid.

    Shapes:
        images    (B, C, S, S)
        returns   (B, N, D)     row by row

    Example:
        >>> ConvolutionalStem(1, 16, image_size=32)(torch.randn(2, 1, 32, 32)).shape
        torch.Size([2, 64, 16])
    """

    def __init__(self, channels_in: int, dim: int, *, image_size: int = 32, num_blocks: int = 1) -> None:
        super().__init__()
        check_positive(caller="ConvolutionalStem", channels_in=channels_in, dim=dim, image_size=image_size)
        if dim % 8 or image_size % REDUCTION:
            raise ValueError(
                "ConvolutionalStem: dim must be a multiple of 8 and image_size of 4; "
                f"got dim={dim} and image_size={image_size}."
            )
        narrow, half = max(dim // 4, 8), max(dim // 2, 8)
        self.reduce = nn.Sequential(
            *convolution(channels_in, narrow, 5, stride=1),
            *convolution(narrow, half, 3, stride=2),
            *convolution(half, dim, 3, stride=2),
        )
        self.blocks = nn.ModuleList(nn.Sequential(*convolution(dim, dim, 3, stride=1)) for _ in range(num_blocks))
        self.positions = nn.Parameter(0.02 * torch.randn((image_size // REDUCTION) ** 2, dim))

    def forward(self, images: Float[Tensor, "B C S S"]) -> Float[Tensor, "B N D"]:
        found = self.reduce(images)
        for block in self.blocks:
            found = found + block(found)
        return found.flatten(2).transpose(1, 2) + self.positions


def convolution(channels_in: int, channels: int, kernel: int, *, stride: int) -> tuple[nn.Module, ...]:
    """Groups are normalised in every image by itself, so that no image depends on the others of its batch."""
    return (
        nn.Conv2d(channels_in, channels, kernel, stride=stride, padding=kernel // 2, bias=False),
        nn.GroupNorm(max(channels // 8, 1), channels),
        nn.GELU(),
    )


SceneStem = Literal["full", "strided"]
Positions = Literal["linear", "waves"]
APART = 4
"""Pixels between neighbouring places."""
WAVES = (0.25, 0.5, 1.0, 2.0)
"""Periods over the picture, in each direction."""


class Places(NamedTuple):
    """What a decoder is given of a picture.

    Shapes:
        elements    (B, N, D)    row by row, positions mixed in
        positions   (N, D)       the embedding of each place's position alone
        grid        (N, 2)       right and down, from -1 to 1
    """

    elements: Float[Tensor, "B N D"]
    positions: Float[Tensor, "N D"]
    grid: Float[Tensor, "N 2"]


class SceneEncoder(nn.Module):
    """Four convolutions, an embedding of positions, a layer norm, and a network for each place.

    Args:
        dim: Features of a place, and channels of most convolutions; even.
        kind: ``"full"`` or ``"strided"``.
        image_size: Pixels of an image, in each direction; a multiple of 4.
        positions: ``"linear"`` or ``"waves"``.

    Shapes:
        images    (B, 3, S, S)    bytes, or numbers from 0 to 1
        returns   Places

    Example:
        >>> SceneEncoder(16, image_size=32)(torch.zeros(2, 3, 32, 32)).elements.shape
        torch.Size([2, 64, 16])
    """

    grid: Tensor

    def __init__(
        self, dim: int = 64, *, kind: SceneStem = "strided", image_size: int = 64, positions: Positions = "linear"
    ) -> None:
        super().__init__()
        check_positive(caller="SceneEncoder", dim=dim, image_size=image_size)
        check_choice(kind, ("full", "strided"), caller="SceneEncoder", name="kind")
        check_choice(positions, ("linear", "waves"), caller="SceneEncoder", name="positions")
        if image_size % APART or dim % 2:
            raise ValueError(
                f"SceneEncoder: image_size must be a multiple of {APART} and dim even; got {image_size} and {dim}."
            )
        self.image_size = image_size
        self.side = image_size // APART
        self.convolutions = full_convolutions(dim) if kind == "full" else strided_convolutions(dim)
        across = torch.linspace(-1, 1, self.side)
        down, right = torch.meshgrid(across, across, indexing="ij")
        self.register_buffer("grid", torch.stack([right.flatten(), down.flatten()], dim=1), persistent=False)
        self.embedding = nn.Linear(2, dim) if positions == "linear" else WaveEmbedding(dim)
        self.network = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, dim))

    def forward(self, images: Float[Tensor, "B 3 S S"] | UInt8[Tensor, "B 3 S S"]) -> Places:
        if images.dim() != 4 or images.shape[1:] != (3, self.image_size, self.image_size):
            size = self.image_size
            raise ValueError(f"SceneEncoder: images must have shape (B, 3, {size}, {size}); got {tuple(images.shape)}.")
        found = self.convolutions(as_numbers(images, like=next(self.parameters())))
        positions = self.embedding(self.grid)
        elements = found.flatten(2).transpose(1, 2) + positions
        return Places(self.network(elements), positions, self.grid)


def full_convolutions(dim: int) -> nn.Sequential:
    layers, before = list[nn.Module](), 3
    for stride in (1, 2, 2, 1):
        layers += [nn.Conv2d(before, dim, 5, stride=stride, padding=2), nn.ReLU()]
        before = dim
    return nn.Sequential(*layers)


def strided_convolutions(dim: int) -> nn.Sequential:
    """Three quarters as wide inside, which costs half as much."""
    width = math.ceil(3 * dim / 16) * 4
    patches = [nn.Conv2d(3, width, APART, stride=APART), normed(width), nn.SiLU()]
    return nn.Sequential(*patches, *(AddedConvolution(width) for _ in range(3)), nn.Conv2d(width, dim, 1))


class AddedConvolution(nn.Module):
    """A convolution of 3 x 3 whose result is added to what it is given."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.change = nn.Sequential(normed(width), nn.SiLU(), nn.Conv2d(width, width, 3, padding=1))

    def forward(self, found: Float[Tensor, "B C G G"]) -> Float[Tensor, "B C G G"]:
        return found + self.change(found)


class WaveEmbedding(nn.Module):
    """A linear map of positions and of their sines and cosines."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.map = nn.Linear(2 + 4 * len(WAVES), dim)

    def forward(self, grid: Float[Tensor, "N 2"]) -> Float[Tensor, "N D"]:
        angles = torch.cat([grid * (math.pi * periods) for periods in WAVES], dim=1)
        return self.map(torch.cat([grid, angles.sin(), angles.cos()], dim=1))
