"""A small ray tracer: solids on a ground plane, lamps with shadows, dull and shiny surfaces, in grey or in colour.

    render    images of scenes
    see       where the rays of the cameras end, which no lamp changes
    light     what is seen there under some lamps
    project   where points are in the pictures

Every pixel is the mean over a few rays. Units are free; the ground is the plane z = 0.

Dimensions:  B scenes   P solids   R rays   L lamps   C colours   H x W pixels
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import normalize

from picaset.checks import check_positive
from picaset.lab.data.solids import Solids, blocked, dot, nearest

SHARPNESS = 5
"""The exponent of highlights, as a power of two (Blinn 1977)."""
ABOVE = 1e-3
"""How far above a surface a shadow ray starts, so that it does not meet that surface again."""
UPWARDS = (0.0, 0.0, 1.0)
GROUND, SKY = -1, -2
"""Owners of rays that end on no solid."""


class Cameras(NamedTuple):
    """Where each scene is seen from, what is in the middle of the picture, and how wide the picture is, in degrees."""

    position: Float[Tensor, "B 3"]
    target: Float[Tensor, "B 3"]
    degrees: Float[Tensor, " B"]


class Lamps(NamedTuple):
    """Where light comes from: lamps at places, and a share that comes from everywhere and casts no shadow."""

    position: Float[Tensor, "B L 3"]
    strength: Float[Tensor, "B L"]
    ambient: Float[Tensor, " B"]


class Background(NamedTuple):
    """The colours of the ground and of the sky."""

    ground: Float[Tensor, "B C"]
    sky: Float[Tensor, "B C"]


class Seen(NamedTuple):
    """Where rays end.

    Shapes:
        owner      (B, R)       which solid, ``GROUND`` or ``SKY``
        point      (B, R, 3)
        normal     (B, R, 3)
        towards    (B, R, 3)    the direction back to the camera
        colour     (B, R, C)
        shine      (B, R)
    """

    owner: Int[Tensor, "B R"]
    point: Float[Tensor, "B R 3"]
    normal: Float[Tensor, "B R 3"]
    towards: Float[Tensor, "B R 3"]
    colour: Float[Tensor, "B R C"]
    shine: Float[Tensor, "B R"]


def render(
    solids: Solids,
    cameras: Cameras,
    lamps: Lamps,
    background: Background,
    *,
    size: tuple[int, int],
    samples: int = 2,
    stretch: float = 1.0,
) -> Float[Tensor, "B C H W"]:
    """Images with values from 0 to 1.

    Args:
        solids: What stands there.
        cameras: One for each scene.
        lamps: As many for each scene.
        background: Ground and sky.
        size: Height and width in pixels.
        samples: Rays of a pixel, in each direction.
        stretch: How much wider than high a pixel is: 1.5 shows a picture of 3 : 2 in a square.

    Example:
        >>> one = torch.ones(1, 1)
        >>> ball = Solids(one.long(), torch.tensor([[[0, 0, 1.0]]]), torch.eye(3)[None, None], torch.ones(1, 1, 3),
        ...               torch.full((1, 1, 3), 0.5), one)
        >>> cameras = Cameras(torch.tensor([[0, -6.0, 3]]), torch.tensor([[0, 0, 1.0]]), torch.tensor([40.0]))
        >>> lamps = Lamps(torch.tensor([[[3.0, -5, 8]]]), 0.7 * one, torch.tensor([0.3]))
        >>> render(ball, cameras, lamps, Background(0.8 * torch.ones(1, 3), torch.ones(1, 3)), size=(48, 64)).shape
        torch.Size([1, 3, 48, 64])
    """
    check_positive(caller="render", height=size[0], width=size[1], samples=samples)
    seen = see(solids, cameras, background, size=size, samples=samples, stretch=stretch)
    return to_pixels(light(seen, solids, lamps), size, samples)


def see(
    solids: Solids,
    cameras: Cameras,
    background: Background,
    *,
    size: tuple[int, int],
    samples: int = 2,
    stretch: float = 1.0,
) -> Seen:
    """Where the rays of the cameras end; lamps come later, so that several lightings cost one search."""
    direction = rays(cameras, size=(samples * size[0], samples * size[1]), stretch=stretch)
    found = nearest(solids, cameras.position, direction)
    start = cameras.position[:, None]
    down = -start[..., 2] / direction[..., 2].clamp(max=-1e-9)  # where a falling ray meets the ground
    falls = (direction[..., 2] < 0) & (start[..., 2] > 0)
    on_ground = falls & (down < found.distance)
    distance = torch.where(on_ground, down, found.distance)
    owner = torch.where(on_ground, GROUND, torch.where(distance.isfinite(), found.owner, SKY))
    slot = owner.clamp(min=0)
    colour = solids.colour.gather(1, slot[..., None].expand(-1, -1, solids.colour.shape[-1]))
    colour = torch.where((owner == GROUND)[..., None], background.ground[:, None], colour)
    colour = torch.where((owner == SKY)[..., None], background.sky[:, None], colour)
    return Seen(
        owner=owner,
        point=start + torch.where(distance.isfinite(), distance, 0.0)[..., None] * direction,
        normal=torch.where(on_ground[..., None], torch.tensor(UPWARDS), found.normal),
        towards=-direction,
        colour=colour,
        shine=solids.shine.gather(1, slot) * (owner >= 0),
    )


def light(seen: Seen, solids: Solids, lamps: Lamps) -> Float[Tensor, "B R C"]:
    """What each ray brings back: ambient and diffuse light times the colour, highlights on top; sky as it is."""
    bright = lamps.ambient[:, None].expand(seen.shine.shape)
    glare = torch.zeros_like(seen.shine)
    point = seen.point + ABOVE * seen.normal
    looks = dot(seen.normal, seen.towards)
    for index in range(lamps.position.shape[1]):
        lamp = lamps.position[:, index]
        way = lamp[:, None] - point
        far = dot(way, way).sqrt()
        way = way / far[..., None]
        faces = dot(seen.normal, way).clamp(min=0)
        reaches = lamps.strength[:, index, None] * ~blocked(solids, lamp, -way, limit=far) * (faces > 0)
        # The normal against the direction half-way between lamp and camera, whose length is a matter of their angle.
        sharp = (faces + looks) / (2 + 2 * dot(way, seen.towards)).clamp(min=1e-6).sqrt()
        for _ in range(SHARPNESS):
            sharp = sharp.square()
        bright = bright + reaches * faces
        glare = glare + reaches * sharp
    lit = seen.colour * bright[..., None] + (seen.shine * glare)[..., None]
    return torch.where((seen.owner == SKY)[..., None], seen.colour, lit)


def rays(cameras: Cameras, *, size: tuple[int, int], stretch: float = 1.0) -> Float[Tensor, "B R 3"]:
    """Unit directions through the middle of every pixel, row by row from the top left; the width has the angle."""
    height, width = size
    ahead, right, upwards = axes(cameras)
    reach = torch.tan(cameras.degrees * (math.pi / 360))[:, None, None]
    across = (2 * torch.arange(width) + 1) / width - 1
    down = (2 * torch.arange(height) + 1 - height) / (stretch * width)
    rows, columns = torch.meshgrid(down, across, indexing="ij")
    sideways = columns.flatten()[None, :, None] * reach * right[:, None]
    return normalize(ahead[:, None] + sideways - rows.flatten()[None, :, None] * reach * upwards[:, None], dim=-1)


def project(
    points: Float[Tensor, "B P 3"],
    cameras: Cameras,
    *,
    aspect: float = 1.0,
    stretch: float | Float[Tensor, "B 1"] = 1.0,
) -> Float[Tensor, "B P 2"]:
    """How far right and down points are in the picture, from 0 to 1 where they are inside of it.

    ``aspect`` is the number of pixels of a row divided by that of a column; ``stretch`` is that of :func:`render`, or
    that of each picture.

    Example:
        >>> cameras = Cameras(torch.tensor([[0, -6.0, 3]]), torch.tensor([[0, 0, 1.0]]), torch.tensor([40.0]))
        >>> project(torch.tensor([[[0, 0, 1.0]]]), cameras)
        tensor([[[0.5000, 0.5000]]])
    """
    ahead, right, upwards = axes(cameras)
    way = points - cameras.position[:, None]
    depth, across, above = (dot(way, axis[:, None].expand_as(way)) for axis in (ahead, right, upwards))
    reach = depth * torch.tan(cameras.degrees * (math.pi / 360))[:, None]
    return torch.stack([across / reach, -above / reach * (stretch * aspect)], dim=-1) / 2 + 0.5


def axes(cameras: Cameras) -> tuple[Float[Tensor, "B 3"], Float[Tensor, "B 3"], Float[Tensor, "B 3"]]:
    """Ahead, to the right and upwards, as each camera sees it."""
    ahead = normalize(cameras.target - cameras.position, dim=-1)
    right = torch.cross(ahead, torch.tensor(UPWARDS).expand_as(ahead), dim=-1)
    # A camera that looks straight down has no horizon; any right will do.
    level = dot(right, right)[..., None] > 1e-12
    right = normalize(torch.where(level, right, torch.tensor([1.0, 0.0, 0.0])), dim=-1)
    return ahead, right, torch.cross(right, ahead, dim=-1)


def to_pixels(brought: Float[Tensor, "B R C"], size: tuple[int, int], samples: int) -> Float[Tensor, "B C H W"]:
    """The mean over the rays of each pixel, kept from 0 to 1."""
    height, width = size
    blocks = brought.reshape(len(brought), height, samples, width, samples, -1)
    return blocks.clamp(0, 1).mean(dim=(2, 4)).permute(0, 3, 1, 2)
