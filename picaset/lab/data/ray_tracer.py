"""A small ray tracer: solids on a ground plane, lamps with shadows, dull and shiny surfaces, in grey or in colour.

    render    images of scenes
    see       where the rays of the cameras end, which no lamp changes
    light     what is seen there under some lamps
    project   where points are in the pictures

Every pixel is the mean over a few rays. Units are free; the ground is the plane z = 0.

Dimensions:  B scenes   P solids   R rays   L lamps   C colours   H x W pixels

Solids and where rays meet them: boxes, ellipsoids, cylinders and cones, anywhere, turned and stretched.

Every solid is a unit shape under an affine map. A ray is carried into the solid's own coordinates, where the answer
is a formula, and the distance along the ray is the same in both:

    box          |x|, |y|, |z| <= 1
    ellipsoid    x^2 + y^2 + z^2 <= 1
    cylinder     x^2 + y^2 <= 1, |z| <= 1
    cone         x^2 + y^2 <= ((1 - z) / 2)^2, |z| <= 1: its tip is at z = 1, its base at z = -1

Dimensions:  B scenes   P solids of each   R rays of each   C colours
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import normalize

from picaset.checks import check_positive

KINDS = ("box", "ellipsoid", "cylinder", "cone")
ABSENT = -1
"""The kind of a slot without a solid."""
PARALLEL = 1e-9
"""Below it, a direction counts as parallel to a face."""


class Solids(NamedTuple):
    """The solids of every scene; scenes with fewer than P have ``ABSENT`` kinds.

    Shapes:
        kind       (B, P)          index into ``KINDS``
        centre     (B, P, 3)
        turn       (B, P, 3, 3)    a rotation: its columns are the solid's own axes
        half_size  (B, P, 3)       half the length along each of its axes
        colour     (B, P, C)       what it reflects, from 0 to 1; C is 1 for grey, 3 for colour
        shine      (B, P)          strength of the highlight, from 0 for a dull solid
    """

    kind: Int[Tensor, "B P"]
    centre: Float[Tensor, "B P 3"]
    turn: Float[Tensor, "B P 3 3"]
    half_size: Float[Tensor, "B P 3"]
    colour: Float[Tensor, "B P C"]
    shine: Float[Tensor, "B P"]

    def expand(self, count: int) -> "Solids":
        """One scene, as many times."""
        return Solids(*(part.expand(count, *part.shape[1:]) for part in self))


class Nearest(NamedTuple):
    """Where each ray ends: how far away, on which solid (-1 for none), and the direction that surface faces."""

    distance: Float[Tensor, "B R"]
    owner: Int[Tensor, "B R"]
    normal: Float[Tensor, "B R 3"]


class Crossing(NamedTuple):
    """Where a ray, given in a solid's own coordinates, enters it and leaves it; it misses where the first is larger."""

    near: Tensor
    far: Tensor


def nearest(solids: Solids, start: Float[Tensor, "B 3"], direction: Float[Tensor, "B R 3"]) -> Nearest:
    """The first surface that each ray meets from outside; directions have unit length."""
    distance = direction.new_full(direction.shape[:2], torch.inf)
    owner = torch.full(direction.shape[:2], -1)
    for slot, kind, scene, ray in encounters(solids, start, direction):
        near, far = CROSSINGS[kind](*into(solids, slot, scene, start, direction[scene, ray]))
        before = distance[scene, ray]
        hit = (near <= far) & (near > 0) & (near < before)
        distance[scene, ray] = torch.where(hit, near, before)
        owner[scene, ray] = torch.where(hit, slot, owner[scene, ray])
    reached = start[:, None] + torch.where(owner < 0, 0.0, distance)[..., None] * direction
    return Nearest(distance, owner, normals(solids, owner, reached))


def blocked(
    solids: Solids, start: Float[Tensor, "B 3"], direction: Float[Tensor, "B R 3"], *, limit: Float[Tensor, "B R"]
) -> Bool[Tensor, "B R"]:
    """Whether anything lies between a ray's start and its limit: between a lamp and what it might shine on."""
    found = torch.zeros(direction.shape[:2], dtype=torch.bool)
    for slot, kind, scene, ray in encounters(solids, start, direction):
        near, far = CROSSINGS[kind](*into(solids, slot, scene, start, direction[scene, ray]))
        found[scene, ray] |= (near <= far) & (far > 0) & (near < limit[scene, ray])
    return found


def encounters(
    solids: Solids, start: Float[Tensor, "B 3"], direction: Float[Tensor, "B R 3"]
) -> Iterator[tuple[int, int, Int[Tensor, " M"], Int[Tensor, " M"]]]:
    """For each slot and kind, the rays that come near such a solid: those that meet a ball around it.

    Most rays meet few solids, and whether one meets a ball is found for all of them by one product.
    """
    round_one = solids.kind == KINDS.index("ellipsoid")
    radius = torch.where(round_one, solids.half_size.amax(dim=-1), solids.half_size.square().sum(dim=-1).sqrt())
    away = solids.centre - start[:, None]  # (B, P, 3)
    along = away @ direction.transpose(1, 2)  # (B, P, R): how far to the point of the ray that is closest
    # A little more than the ball, so that rounding excludes nothing; from inside it, everything is near.
    reach = away.square().sum(dim=-1) - 1.01 * radius.square() - 1e-4
    close = along.clamp(min=0).square_() >= reach[..., None]
    for slot in range(solids.kind.shape[1]):
        kinds = solids.kind[:, slot]
        for kind in range(len(KINDS)):
            scenes = kinds == kind
            if bool(scenes.any()):
                near = close[:, slot] if bool(scenes.all()) else close[:, slot] & scenes[:, None]
                scene, ray = torch.where(near)
                yield slot, kind, scene, ray


def into(
    solids: Solids, slot: int, scene: Int[Tensor, " M"], start: Float[Tensor, "B 3"], direction: Float[Tensor, "M 3"]
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Rays in a solid's own coordinates, as x, y and z of their starts and of their directions."""
    shrink = solids.turn[:, slot] / solids.half_size[:, slot][:, None]  # (B, 3, 3): world to unit shape
    origin = carried(start - solids.centre[:, slot], shrink)
    return tuple(part[scene] for part in origin), carried(direction, shrink[scene])


def carried(vectors: Float[Tensor, "M 3"], maps: Float[Tensor, "M 3 3"]) -> tuple[Tensor, ...]:
    return tuple(dot(vectors, maps[..., axis]) for axis in range(3))


def dot(one: Float[Tensor, "*S 3"], other: Float[Tensor, "*S 3"]) -> Float[Tensor, "*S"]:
    """The inner product; spelled out, because a sum over three numbers is slow."""
    return one[..., 0] * other[..., 0] + one[..., 1] * other[..., 1] + one[..., 2] * other[..., 2]


def box_crossing(origin: tuple[Tensor, ...], towards: tuple[Tensor, ...]) -> Crossing:
    near = far = None
    for place, way in zip(origin, towards, strict=True):
        entering, leaving = slab(place, way)
        near = entering if near is None else torch.maximum(near, entering)
        far = leaving if far is None else torch.minimum(far, leaving)
    assert near is not None
    assert far is not None
    return Crossing(near, far)


def ellipsoid_crossing(origin: tuple[Tensor, ...], towards: tuple[Tensor, ...]) -> Crossing:
    (x, y, z), (a, b, c) = origin, towards
    return roots(a * a + b * b + c * c, x * a + y * b + z * c, x * x + y * y + z * z - 1)


def cylinder_crossing(origin: tuple[Tensor, ...], towards: tuple[Tensor, ...]) -> Crossing:
    (x, y, z), (a, b, c) = origin, towards
    side = roots(a * a + b * b, x * a + y * b, x * x + y * y - 1)
    ends = slab(z, c)
    return Crossing(torch.maximum(side.near, ends.near), torch.minimum(side.far, ends.far))


def cone_crossing(origin: tuple[Tensor, ...], towards: tuple[Tensor, ...]) -> Crossing:
    """The quadric is a double cone; a root counts where it is on the half below the tip."""
    (x, y, z), (a, b, c) = origin, towards
    height, fall = (1 - z) / 2, -c / 2
    square, half, rest = a * a + b * b - fall * fall, x * a + y * b - height * fall, x * x + y * y - height * height
    square = torch.where(square.abs() < PARALLEL, PARALLEL, square)
    inside = half * half - square * rest
    root = inside.clamp(min=0).sqrt()
    base = (-1 - z) / torch.where(c.abs() < PARALLEL, PARALLEL, c)
    candidates = list[tuple[Tensor, Tensor]]()
    for at in ((-half - root) / square, (-half + root) / square):
        along = z + at * c
        candidates.append((at, (inside >= 0) & (along >= -1) & (along <= 1)))
    radius = (x + base * a).square() + (y + base * b).square()
    candidates.append((base, (radius <= 1) & (c.abs() > PARALLEL)))
    near = torch.stack([torch.where(counts, at, torch.inf) for at, counts in candidates]).amin(dim=0)
    far = torch.stack([torch.where(counts, at, -torch.inf) for at, counts in candidates]).amax(dim=0)
    return Crossing(near, far)


def slab(place: Tensor, way: Tensor) -> Crossing:
    """Between two parallel planes at -1 and 1."""
    pace = 1 / torch.where(way.abs() < PARALLEL, PARALLEL, way)
    one, other = (-1 - place) * pace, (1 - place) * pace
    return Crossing(torch.minimum(one, other), torch.maximum(one, other))


def roots(square: Tensor, half: Tensor, rest: Tensor) -> Crossing:
    """Of square t^2 + 2 half t + rest = 0; without any, what a miss looks like."""
    square = square.clamp(min=PARALLEL)  # along a cylinder, the ends decide
    inside = half * half - square * rest
    root = inside.clamp(min=0).sqrt()
    pace = 1 / square
    misses = inside < 0
    return Crossing(((-half - root) * pace).masked_fill(misses, torch.inf), (-half + root) * pace)


CROSSINGS: tuple[Callable[[tuple[Tensor, ...], tuple[Tensor, ...]], Crossing], ...] = (
    box_crossing,
    ellipsoid_crossing,
    cylinder_crossing,
    cone_crossing,
)
"""By kind."""


def normals(solids: Solids, owner: Int[Tensor, "B R"], point: Float[Tensor, "B R 3"]) -> Float[Tensor, "B R 3"]:
    """The outward direction of the surface at a point of it; zero where there is no surface."""
    facing = torch.zeros_like(point)
    slots = owner.clamp(min=0)
    kinds = torch.where(owner >= 0, solids.kind.gather(1, slots), ABSENT)
    for kind, name in enumerate(KINDS):
        scene, ray = torch.where(kinds == kind)
        slot = slots[scene, ray]
        turn, half_size = solids.turn[scene, slot], solids.half_size[scene, slot]
        own = torch.stack(carried(point[scene, ray] - solids.centre[scene, slot], turn), dim=1) / half_size
        # Normals are carried by the transposed inverse of the map of the points.
        outward = torch.stack(carried(own_normals(name, own) / half_size, turn.transpose(1, 2)), dim=1)
        facing[scene, ray] = normalize(outward, dim=-1)
    return facing


def own_normals(kind: str, own: Float[Tensor, "M 3"]) -> Float[Tensor, "M 3"]:
    """Of the unit shape, at a point of its surface, of any length."""
    if kind == "ellipsoid":
        return own
    if kind == "box":
        return own.sign() * (own.abs() == own.abs().amax(dim=-1, keepdim=True))
    x, y, z = own.unbind(dim=-1)
    radius = (x * x + y * y).sqrt()
    if kind == "cylinder":
        on_end = z.abs() > radius
        side = torch.stack([x, y, torch.zeros_like(z)], dim=-1)
    else:
        on_end = z + 1 < (1 - z) / 2 - radius
        side = torch.stack([x, y, radius / 2], dim=-1)
    end = torch.stack([torch.zeros_like(x), torch.zeros_like(y), z.sign()], dim=-1)
    return torch.where(on_end[:, None], end, side)


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
