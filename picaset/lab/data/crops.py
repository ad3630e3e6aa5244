"""From photographs to what a network sees: crops, per-image normalisation, patches, and augmentation.

    centre_crops, crops_at     32x32 pixels of 48x48
    normalised                 zero mean and unit deviation, each image by itself
    patches                    an image as a set of 64 squares of 4x4 pixels, row by row
    Augmentation, augmented    random crops that are also turned, stretched, mirrored, brightened, partly erased

Dimensions:  B images   C cameras   S = 48 pixels of a photograph   P = 32 pixels of a crop
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

CROP = 32
"""Pixels of a crop, in each direction."""
MARGIN = 8
"""Pixels that a crop of 32 in 48 can be moved, in each direction."""
PATCH = 4
"""Pixels of a patch, in each direction."""


def crops_at(images: UInt8[Tensor, "B C S S"], shifts: Int[Tensor, "B 2"]) -> UInt8[Tensor, "B C P P"]:
    """Crops moved from the centre by whole pixels, down and to the right; at most ``MARGIN`` of them."""
    if len(shifts) and int(shifts.abs().max()) > MARGIN:
        raise ValueError(f"crops_at: a crop can be moved by at most {MARGIN} pixels; got {int(shifts.abs().max())}.")
    # Strided windows are views: (B, C, 17, 17, P, P), of which one is taken for each image.
    windows = images.unfold(2, CROP, 1).unfold(3, CROP, 1)
    rows, columns = (shifts + MARGIN).unbind(dim=1)
    return windows[torch.arange(len(images)), :, rows, columns]


def centre_crops(images: UInt8[Tensor, "B C S S"]) -> UInt8[Tensor, "B C P P"]:
    """The middle of every image."""
    return images[..., MARGIN : MARGIN + CROP, MARGIN : MARGIN + CROP]


def random_shifts(count: int, *, most: int, generator: torch.Generator) -> Int[Tensor, "B 2"]:
    """Whole pixels, uniform from -most to most in each direction."""
    return torch.randint(-most, most + 1, (count, 2), generator=generator)


def normalised(images: UInt8[Tensor, "B C P P"] | Float[Tensor, "B C P P"]) -> Float[Tensor, "B C P P"]:
    """Zero mean and unit deviation, each image of each camera by itself; an image of one grey becomes zero."""
    values = images.float()
    centred = values - values.mean(dim=(2, 3), keepdim=True)
    return centred / (centred.square().mean(dim=(2, 3), keepdim=True).sqrt() + 1e-3)


def patches(images: Float[Tensor, "B C P P"]) -> Float[Tensor, "B N D"]:
    """Squares of 4x4 pixels as the elements of a set, row by row; cameras are side by side in an element.

    Example:
        >>> patches(torch.zeros(5, 1, 32, 32)).shape
        torch.Size([5, 64, 16])
    """
    squares = images.unfold(2, PATCH, PATCH).unfold(3, PATCH, PATCH)  # (B, C, 8, 8, 4, 4)
    return squares.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)


@dataclass(frozen=True, kw_only=True, slots=True)
class Augmentation:
    """How training images are varied, beside the place of the crop."""

    turn: float = 0.0
    """Degrees that an image is turned in its plane, at most, either way."""
    scale: float = 0.0
    """How much larger or smaller it is made, at most, as a share."""
    stretch: float = 0.0
    """How much higher or wider it is made, of the same area: the largest logarithm of the ratio of the two."""
    mirror: bool = False
    """Whether every second image is mirrored left to right."""
    contrast: float = 0.0
    """How much the grey values are bent by a power, as the largest logarithm of its exponent."""
    noise: float = 0.0
    """Deviation of noise added to every pixel, in units of the image's own deviation."""
    erase: float = 0.0
    """The largest share of an image that is replaced by its mean, as one rectangle."""

    def __post_init__(self) -> None:
        for name in ("turn", "scale", "stretch", "contrast", "noise", "erase"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative; got {getattr(self, name)}.")
        for name in ("scale", "erase"):
            if getattr(self, name) >= 1:
                raise ValueError(f"{name} must be below 1; got {getattr(self, name)}.")


def augmented(
    images: UInt8[Tensor, "B C S S"], augmentation: Augmentation, *, generator: torch.Generator
) -> Float[Tensor, "B C P P"]:
    """Random crops of the images, varied, and normalised; both cameras of an example are varied alike.

    Without any variation this is a random crop by whole pixels.
    """
    shifts = random_shifts(len(images), most=MARGIN, generator=generator)
    if augmentation == Augmentation():
        return normalised(crops_at(images, shifts))
    crops = warped(images.float(), shifts, augmentation, generator)
    if augmentation.contrast:
        powers = uniform(len(images), augmentation.contrast, generator).exp()[:, None, None, None]
        crops = (crops.clamp(min=0) / 255).pow(powers)
    crops = normalised(crops)
    if augmentation.noise:
        crops = crops + augmentation.noise * torch.randn(crops.shape, generator=generator)
    return erased(crops, augmentation.erase, generator) if augmentation.erase else crops


def uniform(count: int, most: float, generator: torch.Generator) -> Float[Tensor, " B"]:
    return most * (2 * torch.rand(count, generator=generator) - 1)


def warped(
    images: Float[Tensor, "B C S S"],
    shifts: Int[Tensor, "B 2"],
    augmentation: Augmentation,
    generator: torch.Generator,
) -> Float[Tensor, "B C P P"]:
    """Crops that are moved, stretched, then turned, scaled and mirrored, by one interpolation; the border goes on."""
    count, size = len(images), images.shape[-1]
    angle = uniform(count, math.radians(augmentation.turn), generator)
    zoom = (CROP / size) * (1 + uniform(count, augmentation.scale, generator))
    sign = 1 - 2 * torch.randint(0, 2, (count,), generator=generator) if augmentation.mirror else torch.ones(count)
    wide = uniform(count, augmentation.stretch / 2, generator).exp() if augmentation.stretch else torch.ones(count)
    across, down = zoom * wide, zoom / wide
    moved = 2 * shifts / size  # from pixels to the units of affine_grid
    rows = [
        torch.stack([sign * across * angle.cos(), -across * angle.sin(), moved[:, 1]], dim=1),
        torch.stack([sign * down * angle.sin(), down * angle.cos(), moved[:, 0]], dim=1),
    ]
    grid = affine_grid(torch.stack(rows, dim=1), [count, images.shape[1], CROP, CROP], align_corners=False)
    return grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)


def erased(images: Float[Tensor, "B C P P"], share: float, generator: torch.Generator) -> Float[Tensor, "B C P P"]:
    """A rectangle of each image set to zero, its mean; the share of the image is uniform from none to ``share``."""
    count = len(images)
    area = share * CROP**2 * torch.rand(count, generator=generator)
    ratio = uniform(count, math.log(2), generator).exp()
    inside = torch.ones(count, 1, 1, 1, dtype=torch.bool)
    for axis, length in ((2, (area * ratio).sqrt()), (3, (area / ratio).sqrt())):
        start = (CROP + length) * torch.rand(count, generator=generator) - length
        place = torch.arange(CROP) + 0.5
        within = (place > start[:, None]) & (place < (start + length)[:, None])  # (B, P)
        inside = inside & within.reshape(count, 1, *((CROP, 1) if axis == 2 else (1, CROP)))
    return images.masked_fill(inside, 0.0)
