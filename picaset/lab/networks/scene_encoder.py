"""From a picture of a scene to a set of places: four convolutions, and where each place is.

    full       kernels of 5, strides 1, 2, 2, 1: 128 pixels become 32 places    as published (Locatello et al. 2020)
    strided    patches of 4 pixels, then three that add to what is there: 64 pixels become 16 places    for two cores

A position is embedded linearly, as published, or by waves of several lengths, which make it easy to look at one place
and not at its neighbours.

Dimensions:  B images   S pixels a side   G places a side   N = G * G places   D features   C channels
"""

import math
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from picaset.checks import check_choice, check_positive
from picaset.lab.networks.image_stems import as_numbers, normed

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
