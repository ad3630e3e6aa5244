"""From images of views to the inputs of networks: crops, per-image normalization, patches and augmentation.

    centre_crops, crops_at     32 x 32 pixels of 48 x 48
    normalize_images           zero mean and unit standard deviation for each image, or fixed constants
    patches                    an image as a set of 64 patches of 4 x 4 pixels, row by row
    Augmentation, augment      random crops with rotation, stretching, mirroring, contrast, noise and erasing

Dimensions:  B images   C cameras   S = 48 pixels of an image   P = 32 pixels of a crop
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

CROP = 32
"""Height and width of a crop in pixels."""
MARGIN = 8
"""Largest shift of a crop from the centre of an image, in pixels."""
PATCH = 4
"""Height and width of a patch in pixels."""


def crops_at(images: UInt8[Tensor, "B C S S"], shifts: Int[Tensor, "B 2"]) -> UInt8[Tensor, "B C P P"]:
    """Return crops shifted from the centre, down and to the right, by at most ``MARGIN`` pixels."""
    if len(shifts) and int(shifts.abs().max()) > MARGIN:
        raise ValueError(f"crops_at: a crop can be moved by at most {MARGIN} pixels; got {int(shifts.abs().max())}.")
    windows = images.unfold(2, CROP, 1).unfold(3, CROP, 1)  # a view, (B, C, 17, 17, P, P)
    rows, columns = (shifts + MARGIN).unbind(dim=1)
    return windows[torch.arange(len(images)), :, rows, columns]


def centre_crops(images: UInt8[Tensor, "B C S S"]) -> UInt8[Tensor, "B C P P"]:
    """Return the centre crop of every image."""
    return images[..., MARGIN : MARGIN + CROP, MARGIN : MARGIN + CROP]


def random_shifts(count: int, *, most: int, generator: torch.Generator) -> Int[Tensor, "B 2"]:
    """Draw integer shifts, uniform from -most to most in each direction."""
    return torch.randint(-most, most + 1, (count, 2), generator=generator)


Normalization = Literal["image", "fixed"]
FIXED_MEAN, FIXED_DEVIATION = 0.485, 0.229
"""Mean and standard deviation of grey values between 0 and 1 in the authors' program."""


def normalize_images(
    images: UInt8[Tensor, "B C P P"] | Float[Tensor, "B C P P"], normalization: Normalization = "image"
) -> Float[Tensor, "B C P P"]:
    """Normalize each image to zero mean and unit standard deviation, or by the constants of the authors' program.

    A constant image becomes zero if it is normalized by itself.
    """
    values = images.float()
    if normalization == "fixed":
        return (values / 255 - FIXED_MEAN) / FIXED_DEVIATION
    centred = values - values.mean(dim=(2, 3), keepdim=True)
    return centred / (centred.square().mean(dim=(2, 3), keepdim=True).sqrt() + 1e-3)


def patches(images: Float[Tensor, "B C P P"]) -> Float[Tensor, "B N D"]:
    """Split images into patches of 4 x 4 pixels, row by row; an element holds the patch of all cameras.

    Example:
        >>> patches(torch.zeros(5, 1, 32, 32)).shape
        torch.Size([5, 64, 16])
    """
    squares = images.unfold(2, PATCH, PATCH).unfold(3, PATCH, PATCH)  # (B, C, 8, 8, 4, 4)
    return squares.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)


@dataclass(frozen=True, kw_only=True, slots=True)
class Augmentation:
    """Random variation of training images, in addition to random crops."""

    turn: float = 0.0
    """Largest rotation in the image plane, in degrees, in either direction."""
    scale: float = 0.0
    """Largest relative change of size."""
    stretch: float = 0.0
    """Largest logarithm of the aspect ratio, at constant area."""
    mirror: bool = False
    """Whether half of the images, at random, are mirrored left to right."""
    contrast: float = 0.0
    """Largest logarithm of the exponent of a power law (gamma) applied to the grey values."""
    noise: float = 0.0
    """Standard deviation of pixel noise, relative to that of the image."""
    erase: float = 0.0
    """Largest share of an image that is replaced by its mean, as one rectangle."""

    def __post_init__(self) -> None:
        for name in ("turn", "scale", "stretch", "contrast", "noise", "erase"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative; got {getattr(self, name)}.")
        for name in ("scale", "erase"):
            if getattr(self, name) >= 1:
                raise ValueError(f"{name} must be below 1; got {getattr(self, name)}.")


def augment(
    images: UInt8[Tensor, "B C S S"], augmentation: Augmentation, *, generator: torch.Generator
) -> Float[Tensor, "B C P P"]:
    """Return random crops, augmented and normalized; all cameras of an example are varied alike.

    Without any variation, crops are shifted by whole pixels and not interpolated.
    """
    shifts = random_shifts(len(images), most=MARGIN, generator=generator)
    if augmentation == Augmentation():
        return normalize_images(crops_at(images, shifts))
    crops = warp(images.float(), shifts, augmentation, generator)
    if augmentation.contrast:
        powers = symmetric_uniform(len(images), augmentation.contrast, generator).exp()[:, None, None, None]
        crops = (crops.clamp(min=0) / 255).pow(powers)
    crops = normalize_images(crops)
    if augmentation.noise:
        crops = crops + augmentation.noise * torch.randn(crops.shape, generator=generator)
    return erase(crops, augmentation.erase, generator) if augmentation.erase else crops


def symmetric_uniform(count: int, most: float, generator: torch.Generator) -> Float[Tensor, " B"]:
    """Draw numbers uniform from -most to most."""
    return most * (2 * torch.rand(count, generator=generator) - 1)


def warp(
    images: Float[Tensor, "B C S S"], shifts: Int[Tensor, "B 2"], augmentation: Augmentation, generator: torch.Generator
) -> Float[Tensor, "B C P P"]:
    """Return crops that are shifted, stretched, rotated, scaled and mirrored in one interpolation.

    Pixels outside the image repeat its border.
    """
    count, size = len(images), images.shape[-1]
    angle = symmetric_uniform(count, math.radians(augmentation.turn), generator)
    zoom = (CROP / size) * (1 + symmetric_uniform(count, augmentation.scale, generator))
    sign = 1 - 2 * torch.randint(0, 2, (count,), generator=generator) if augmentation.mirror else torch.ones(count)
    stretch = torch.ones(count)
    if augmentation.stretch:
        stretch = symmetric_uniform(count, augmentation.stretch / 2, generator).exp()
    across, down = zoom * stretch, zoom / stretch
    offsets = 2 * shifts / size  # from pixels to the units of affine_grid
    rows = [
        torch.stack([sign * across * angle.cos(), -across * angle.sin(), offsets[:, 1]], dim=1),
        torch.stack([sign * down * angle.sin(), down * angle.cos(), offsets[:, 0]], dim=1),
    ]
    grid = affine_grid(torch.stack(rows, dim=1), [count, images.shape[1], CROP, CROP], align_corners=False)
    return grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)


def erase(images: Float[Tensor, "B C P P"], share: float, generator: torch.Generator) -> Float[Tensor, "B C P P"]:
    """Set a random rectangle of each image to zero, its mean; the share of its area is uniform from 0 to ``share``."""
    count = len(images)
    area = share * CROP**2 * torch.rand(count, generator=generator)
    ratio = symmetric_uniform(count, math.log(2), generator).exp()
    inside = torch.ones(count, 1, 1, 1, dtype=torch.bool)
    for axis, length in ((2, (area * ratio).sqrt()), (3, (area / ratio).sqrt())):
        start = (CROP + length) * torch.rand(count, generator=generator) - length
        position = torch.arange(CROP) + 0.5
        within = (position > start[:, None]) & (position < (start + length)[:, None])  # (B, P)
        inside = inside & within.reshape(count, 1, *((CROP, 1) if axis == 2 else (1, CROP)))
    return images.masked_fill(inside, 0.0)
