"""Convolutional image encoders: to one vector per image, or to a set with one element per place of a grid.

    NineConvolutions     image -> vector    the paper's stem for sets of images
    LightStem            image -> vector    four strided convolutions, about a thirtieth of the work;
                                            the "narrow" stem has fewer channels, for networks that are shipped
    ConvolutionalStem    image -> set       for classification
    SceneEncoder         image -> set       for scenes, as in Slot Attention (Locatello et al. 2020)

Normalization is over groups of channels of one image, so that the result for an image never depends on the others in
the batch, in training either.

Dimensions:  B images   C channels   S pixels a side   G places a side   N = G * G places   D features
"""

import math
from itertools import pairwise
from typing import Literal

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from picaset.checks import check_choice, check_positive

Stem = Literal["light", "narrow", "nine"]
LIGHT_IMAGE_SIZE = 64
"""Pixels a side of the images of a light stem."""
LIGHT_CHANNELS = (24, 48, 96, 160)
"""Channels of the light stem."""
NARROW_CHANNELS = (12, 24, 48, 48)
"""Channels of the narrow stem; a quarter of the parameters, with fewer channels before the large linear map."""


class NineConvolutions(nn.Sequential):
    """Three groups of three 3 x 3 convolutions, each group followed by 2 x 2 max pooling (Zare and Nguyen 2021).

    The paper states the number of layers and the 256 output features. The widths are ours: 32, 64 and 128 channels, the
    last convolution as wide as the output, which is averaged over the remaining places.

    Args:
        dim: Features of an image's vector.

    Shapes:
        images    (B, 3, S, S)    S a multiple of 8
        returns   (B, dim)

    Example:
        >>> NineConvolutions(256)(torch.zeros(2, 3, 64, 64)).shape
        torch.Size([2, 256])
    """

    def __init__(self, dim: int = 256) -> None:
        check_positive(caller="NineConvolutions", dim=dim)
        widths = [3, 32, 32, 32, 64, 64, 64, 128, 128, dim]
        layers = list[nn.Module]()
        for index, (before, after) in enumerate(pairwise(widths), start=1):
            layers += [nn.Conv2d(before, after, 3, padding=1), group_norm(after), nn.ReLU()]
            layers += [nn.MaxPool2d(2)] if index % 3 == 0 else []
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


class LightStem(nn.Sequential):
    """Four strided convolutions and a linear map of the flattened result.

    The linear map depends on where in the image a feature is, which suits aligned faces.

    Args:
        dim: Features of an image's vector.
        widths: Channels of the convolutions.

    Shapes:
        images    (B, 3, 64, 64)
        returns   (B, dim)

    Example:
        >>> LightStem(256)(torch.zeros(2, 3, 64, 64)).shape
        torch.Size([2, 256])
    """

    def __init__(self, dim: int = 256, *, widths: tuple[int, ...] = LIGHT_CHANNELS) -> None:
        check_positive(caller="LightStem", dim=dim)
        layers = list[nn.Module]()
        for before, after in pairwise((3, *widths)):
            layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), group_norm(after), nn.ReLU()]
        super().__init__(*layers, nn.Flatten(), nn.Linear(widths[-1] * (LIGHT_IMAGE_SIZE // 16) ** 2, dim))


def group_norm(width: int) -> nn.Module:
    return nn.GroupNorm(4, width) if width % 4 == 0 else nn.Identity()


def image_stem(kind: Stem, dim: int, *, caller: str) -> nn.Module:
    """Build a stem by name."""
    check_choice(kind, ("light", "narrow", "nine"), caller=caller, name="stem")
    if kind == "nine":
        return NineConvolutions(dim)
    return LightStem(dim, widths=LIGHT_CHANNELS if kind == "light" else NARROW_CHANNELS)


def to_float_images(
    images: Float[Tensor, "*n 3 S S"] | UInt8[Tensor, "*n 3 S S"], like: Tensor
) -> Float[Tensor, "*n 3 S S"]:
    """Convert bytes, or numbers from 0 to 1, to numbers from -2 to 2 in the dtype of ``like``."""
    scale = 255.0 if images.dtype is torch.uint8 else 1.0
    return images.to(like.dtype) * (4.0 / scale) - 2.0


PIXELS_PER_PLACE = 4
"""Pixels between neighbouring places of an image that becomes a set."""


class ConvolutionalStem(nn.Module):
    """Convolutions that reduce an image to a grid of places, which are the elements of a set.

    Args:
        channels_in: Channels of an image.
        dim: Features of an element; a multiple of 8.
        image_size: Pixels of an image, in each direction; a multiple of 4.
        num_blocks: Residual convolutions on the grid.

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
        if dim % 8 or image_size % PIXELS_PER_PLACE:
            raise ValueError(
                f"ConvolutionalStem: dim must be a multiple of 8 and image_size of {PIXELS_PER_PLACE}; "
                f"got dim={dim} and image_size={image_size}."
            )
        quarter, half = max(dim // 4, 8), max(dim // 2, 8)
        self.reduce = nn.Sequential(
            *convolution(channels_in, quarter, 5, stride=1),
            *convolution(quarter, half, 3, stride=2),
            *convolution(half, dim, 3, stride=2),
        )
        self.blocks = nn.ModuleList(nn.Sequential(*convolution(dim, dim, 3, stride=1)) for _ in range(num_blocks))
        self.positions = nn.Parameter(0.02 * torch.randn((image_size // PIXELS_PER_PLACE) ** 2, dim))

    def forward(self, images: Float[Tensor, "B C S S"]) -> Float[Tensor, "B N D"]:
        features = self.reduce(images)
        for block in self.blocks:
            features = features + block(features)
        return features.flatten(2).transpose(1, 2) + self.positions


def convolution(channels_in: int, channels: int, kernel: int, *, stride: int) -> tuple[nn.Module, ...]:
    return (
        nn.Conv2d(channels_in, channels, kernel, stride=stride, padding=kernel // 2, bias=False),
        nn.GroupNorm(max(channels // 8, 1), channels),
        nn.GELU(),
    )


SceneStem = Literal["full", "strided"]
Positions = Literal["linear", "waves"]
WAVES = (0.25, 0.5, 1.0, 2.0)
"""Frequencies of the position embedding, in periods per image."""


class SceneEncoder(nn.Module):
    """Convolutions, a position embedding, a layer norm, and a two-layer network for each place.

    Args:
        dim: Features of a place, and channels of most convolutions; even.
        kind: ``"full"``, four 5 x 5 convolutions as published (Locatello et al. 2020), or ``"strided"``, patches of 4
            pixels and three residual convolutions, for small machines.
        image_size: Pixels of an image, in each direction; a multiple of 4.
        positions: Embedding of positions, ``"linear"`` as published, or ``"waves"``, linear in sines and cosines of
            several frequencies, so that attention can separate neighbouring places.

    Shapes:
        images    (B, 3, S, S)    bytes, or numbers from 0 to 1
        returns   (B, N, D)       features of the places, row by row

    Example:
        >>> SceneEncoder(16, image_size=32)(torch.zeros(2, 3, 32, 32)).shape
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
        if image_size % PIXELS_PER_PLACE or dim % 2:
            raise ValueError(
                f"SceneEncoder: image_size must be a multiple of {PIXELS_PER_PLACE} and dim even; "
                f"got {image_size} and {dim}."
            )
        self.image_size = image_size
        self.convolutions = full_convolutions(dim) if kind == "full" else strided_convolutions(dim)
        across = torch.linspace(-1, 1, image_size // PIXELS_PER_PLACE)
        down, right = torch.meshgrid(across, across, indexing="ij")
        self.register_buffer("grid", torch.stack([right.flatten(), down.flatten()], dim=1), persistent=False)
        self.embedding = nn.Linear(2, dim) if positions == "linear" else WaveEmbedding(dim)
        self.network = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, dim))

    def forward(self, images: Float[Tensor, "B 3 S S"] | UInt8[Tensor, "B 3 S S"]) -> Float[Tensor, "B N D"]:
        if images.dim() != 4 or images.shape[1:] != (3, self.image_size, self.image_size):
            size = self.image_size
            raise ValueError(f"SceneEncoder: images must have shape (B, 3, {size}, {size}); got {tuple(images.shape)}.")
        features = self.convolutions(to_float_images(images, like=next(self.parameters())))
        return self.network(features.flatten(2).transpose(1, 2) + self.embedding(self.grid))


def full_convolutions(dim: int) -> nn.Sequential:
    layers, before = list[nn.Module](), 3
    for stride in (1, 2, 2, 1):
        layers += [nn.Conv2d(before, dim, 5, stride=stride, padding=2), nn.ReLU()]
        before = dim
    return nn.Sequential(*layers)


def strided_convolutions(dim: int) -> nn.Sequential:
    width = math.ceil(3 * dim / 16) * 4  # three quarters of dim, which halves the cost
    patches = [nn.Conv2d(3, width, PIXELS_PER_PLACE, stride=PIXELS_PER_PLACE), group_norm(width), nn.SiLU()]
    return nn.Sequential(*patches, *(ResidualConvolution(width) for _ in range(3)), nn.Conv2d(width, dim, 1))


class ResidualConvolution(nn.Module):
    """A 3 x 3 convolution whose result is added to its input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.change = nn.Sequential(group_norm(width), nn.SiLU(), nn.Conv2d(width, width, 3, padding=1))

    def forward(self, features: Float[Tensor, "B C G G"]) -> Float[Tensor, "B C G G"]:
        return features + self.change(features)


class WaveEmbedding(nn.Module):
    """A linear map of positions and of their sines and cosines."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.map = nn.Linear(2 + 4 * len(WAVES), dim)

    def forward(self, grid: Float[Tensor, "N 2"]) -> Float[Tensor, "N D"]:
        angles = torch.cat([grid * (math.pi * frequency) for frequency in WAVES], dim=1)
        return self.map(torch.cat([grid, angles.sin(), angles.cos()], dim=1))
