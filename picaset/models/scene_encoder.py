"""From a picture of a scene to a set of places: four convolutions, and where each place is.

    full       kernels of 5, strides 1, 2, 2, 1: 128 pixels become 32 places    as published (Locatello et al. 2020)
    strided    smaller kernels, strides 2, 2, 2, 1: 64 pixels become 8 places    for two cores, with group norms

Dimensions:  B images   S pixels a side   G places a side   N = G * G places   D features
"""

import math
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from picaset.checks import check_choice, check_positive
from picaset.models.image_stems import as_numbers, normed

SceneStem = Literal["full", "strided"]
LAYERS: dict[str, tuple[tuple[int, int, float], ...]] = {
    "full": ((5, 1, 1.0), (5, 2, 1.0), (5, 2, 1.0), (5, 1, 1.0)),
    "strided": ((5, 2, 0.5), (3, 2, 1.0), (3, 2, 1.0), (3, 1, 1.0)),
}
"""Kernel and stride of each convolution, and its channels as a share of the width."""


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
    """Four convolutions with ReLU, a linear embedding of positions, a layer norm, and a network for each place.

    Args:
        dim: Features of a place, and channels of most convolutions; even.
        kind: ``"full"`` or ``"strided"``.
        image_size: Pixels of an image, in each direction; a multiple of the strides' product, 4 or 8.

    Shapes:
        images    (B, 3, S, S)    bytes, or numbers from 0 to 1
        returns   Places

    Example:
        >>> SceneEncoder(16, image_size=32)(torch.zeros(2, 3, 32, 32)).elements.shape
        torch.Size([2, 16, 16])
    """

    grid: Tensor

    def __init__(self, dim: int = 64, *, kind: SceneStem = "strided", image_size: int = 64) -> None:
        super().__init__()
        check_positive(caller="SceneEncoder", dim=dim, image_size=image_size)
        check_choice(kind, tuple(LAYERS), caller="SceneEncoder", name="kind")
        apart = math.prod(stride for _, stride, _ in LAYERS[kind])  # pixels between neighbouring places
        if image_size % apart or dim % 2:
            raise ValueError(
                f"SceneEncoder: image_size must be a multiple of {apart} and dim even; got {image_size} and {dim}."
            )
        self.image_size = image_size
        self.side = image_size // apart
        layers, before = list[nn.Module](), 3
        for kernel, stride, share in LAYERS[kind]:
            width = round(share * dim)
            layers += [nn.Conv2d(before, width, kernel, stride=stride, padding=kernel // 2)]
            layers += [normed(width), nn.ReLU()] if kind == "strided" else [nn.ReLU()]
            before = width
        self.convolutions = nn.Sequential(*layers)
        across = torch.linspace(-1, 1, self.side)
        down, right = torch.meshgrid(across, across, indexing="ij")
        self.register_buffer("grid", torch.stack([right.flatten(), down.flatten()], dim=1), persistent=False)
        self.embedding = nn.Linear(2, dim)
        self.network = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, dim))

    def forward(self, images: Float[Tensor, "B 3 S S"] | UInt8[Tensor, "B 3 S S"]) -> Places:
        if images.dim() != 4 or images.shape[1:] != (3, self.image_size, self.image_size):
            size = self.image_size
            raise ValueError(f"SceneEncoder: images must have shape (B, 3, {size}, {size}); got {tuple(images.shape)}.")
        found = self.convolutions(as_numbers(images, like=self.embedding.weight))
        positions = self.embedding(self.grid)
        elements = found.flatten(2).transpose(1, 2) + positions
        return Places(self.network(elements), positions, self.grid)
