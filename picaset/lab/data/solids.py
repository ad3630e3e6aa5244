"""Solids and where rays meet them: boxes, ellipsoids, cylinders and cones, anywhere, turned and stretched.

Every solid is a unit shape under an affine map. A ray is carried into the solid's own coordinates, where the answer
is a formula, and the distance along the ray is the same in both:

    box          |x|, |y|, |z| <= 1
    ellipsoid    x^2 + y^2 + z^2 <= 1
    cylinder     x^2 + y^2 <= 1, |z| <= 1
    cone         x^2 + y^2 <= ((1 - z) / 2)^2, |z| <= 1: its tip is at z = 1, its base at z = -1

Dimensions:  B scenes   P solids of each   R rays of each   C colours
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import normalize

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
