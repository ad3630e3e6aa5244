"""From an image to a set: what an attention network sees of a picture.

    ConvolutionalStem    a few convolutions, then one element for every place of a coarse grid, with its position

Dimensions:  B images   C channels   S pixels   G places in each direction   N = G * G elements   D features
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from picaset.checks import check_positive

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
