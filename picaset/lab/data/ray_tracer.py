"""A small ray tracer: solids on a ground plane, lamps with shadows, matte and shiny surfaces, in grey or in colour.

    trace_rays    the first surface on each camera ray, which does not depend on the lamps
    shade         the light that these surface points reflect to the camera
    to_pixels     the image
    project       the position of points in the image

A pixel is the mean over several rays. The unit of length is arbitrary; the ground is the plane z = 0.

A solid is the image of a unit shape under an affine map. Rays are transformed to the coordinates of the unit shape,
where intersections have closed forms; distances along a ray are the same in both coordinates.

    box          |x|, |y|, |z| <= 1
    ellipsoid    x^2 + y^2 + z^2 <= 1
    cylinder     x^2 + y^2 <= 1, |z| <= 1
    cone         x^2 + y^2 <= ((1 - z) / 2)^2, |z| <= 1: its tip is at z = 1, its base at z = -1

Dimensions:  B scenes   P solids   R rays   M rays near a solid   L lamps   C colour channels   H x W pixels
"""

import math
from collections.abc import Callable, Iterator
from functools import reduce
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import normalize

KINDS = ("box", "ellipsoid", "cylinder", "cone")
ABSENT = -1
"""Kind of an empty slot."""
GROUND, SKY = -1, -2
"""Owners of rays that end on no solid."""
PARALLEL = 1e-9
"""Threshold below which a direction counts as parallel to a face."""
SHARPNESS = 5
"""Base-2 logarithm of the exponent of highlights (Blinn 1977)."""
SHADOW_OFFSET = 1e-3
"""Distance of the end of a shadow ray from its surface, so that the surface does not shadow itself."""
UP = (0.0, 0.0, 1.0)

Coordinates = tuple[Tensor, ...]
"""x, y and z of points or directions."""


class Solids(NamedTuple):
    """The solids of each scene; unused slots have the kind ``ABSENT``.

    Shapes:
        kind       (B, P)          index into ``KINDS``
        centre     (B, P, 3)
        turn       (B, P, 3, 3)    rotation matrix whose columns are the axes of the solid
        half_size  (B, P, 3)       half the length along each axis of the solid
        colour     (B, P, C)       reflectance from 0 to 1; C is 1 for grey, 3 for colour
        shine      (B, P)          strength of the highlight, 0 for a matte solid
    """

    kind: Int[Tensor, "B P"]
    centre: Float[Tensor, "B P 3"]
    turn: Float[Tensor, "B P 3 3"]
    half_size: Float[Tensor, "B P 3"]
    colour: Float[Tensor, "B P C"]
    shine: Float[Tensor, "B P"]

    def expand(self, count: int) -> "Solids":
        """Repeat a single scene ``count`` times."""
        return Solids(*(part.expand(count, *part.shape[1:]) for part in self))


class Cameras(NamedTuple):
    """Position, point in the centre of the image, and horizontal field of view in degrees, for each scene."""

    position: Float[Tensor, "B 3"]
    target: Float[Tensor, "B 3"]
    degrees: Float[Tensor, " B"]


class Lamps(NamedTuple):
    """Point lamps, and ambient light, which casts no shadow."""

    position: Float[Tensor, "B L 3"]
    strength: Float[Tensor, "B L"]
    ambient: Float[Tensor, " B"]


class Background(NamedTuple):
    """Colours of the ground and of the sky."""

    ground: Float[Tensor, "B C"]
    sky: Float[Tensor, "B C"]


class Intersections(NamedTuple):
    """Distance to the first solid on each ray, its slot (-1 for none), and the outward normal of its surface."""

    distance: Float[Tensor, "B R"]
    owner: Int[Tensor, "B R"]
    normal: Float[Tensor, "B R 3"]


class Interval(NamedTuple):
    """Distances at which a ray enters and leaves a solid; the ray misses it if ``near`` is larger than ``far``."""

    near: Tensor
    far: Tensor


class SurfacePoints(NamedTuple):
    """The points where camera rays end.

    Shapes:
        owner      (B, R)       slot of the solid, ``GROUND`` or ``SKY``
        point      (B, R, 3)
        normal     (B, R, 3)
        towards    (B, R, 3)    direction to the camera
        colour     (B, R, C)
        shine      (B, R)
    """

    owner: Int[Tensor, "B R"]
    point: Float[Tensor, "B R 3"]
    normal: Float[Tensor, "B R 3"]
    towards: Float[Tensor, "B R 3"]
    colour: Float[Tensor, "B R C"]
    shine: Float[Tensor, "B R"]


def trace_rays(
    solids: Solids,
    cameras: Cameras,
    background: Background,
    *,
    size: tuple[int, int],
    samples: int = 2,
    stretch: float = 1.0,
) -> SurfacePoints:
    """Return the first surface point on each camera ray, which :func:`shade` can use with several sets of lamps.

    Args:
        solids: Solids of each scene.
        cameras: One camera per scene.
        background: Colours of ground and sky.
        size: Height and width of the image in pixels.
        samples: Number of rays of a pixel in each direction.
        stretch: Width divided by height of the area that a pixel shows; 1.5 shows a 3 : 2 view in a square image.
    """
    direction = rays(cameras, size=(samples * size[0], samples * size[1]), stretch=stretch)
    first = nearest(solids, cameras.position, direction)
    start = cameras.position[:, None]
    to_ground = -start[..., 2] / direction[..., 2].clamp(max=-1e-9)
    descends = (direction[..., 2] < 0) & (start[..., 2] > 0)
    on_ground = descends & (to_ground < first.distance)
    distance = torch.where(on_ground, to_ground, first.distance)
    owner = torch.where(on_ground, GROUND, torch.where(distance.isfinite(), first.owner, SKY))
    slot = owner.clamp(min=0)
    colour = solids.colour.gather(1, slot[..., None].expand(-1, -1, solids.colour.shape[-1]))
    colour = torch.where((owner == GROUND)[..., None], background.ground[:, None], colour)
    colour = torch.where((owner == SKY)[..., None], background.sky[:, None], colour)
    return SurfacePoints(
        owner=owner,
        point=start + torch.where(distance.isfinite(), distance, 0.0)[..., None] * direction,
        normal=torch.where(on_ground[..., None], torch.tensor(UP), first.normal),
        towards=-direction,
        colour=colour,
        shine=solids.shine.gather(1, slot) * (owner >= 0),
    )


def shade(points: SurfacePoints, solids: Solids, lamps: Lamps) -> Float[Tensor, "B R C"]:
    """Return the light of each ray: ambient and diffuse reflection, and highlights; the sky keeps its colour."""
    diffuse = lamps.ambient[:, None].expand(points.shine.shape)
    specular = torch.zeros_like(points.shine)
    lifted = points.point + SHADOW_OFFSET * points.normal
    camera_cosine = dot(points.normal, points.towards)
    for index in range(lamps.position.shape[1]):
        lamp = lamps.position[:, index]
        to_lamp = lamp[:, None] - lifted
        distance = dot(to_lamp, to_lamp).sqrt()
        to_lamp = to_lamp / distance[..., None]
        lamp_cosine = dot(points.normal, to_lamp).clamp(min=0)
        lit = ~blocked(solids, lamp, -to_lamp, limit=distance)
        received = lamps.strength[:, index, None] * lit * (lamp_cosine > 0)
        # Cosine between the normal and the direction half-way between lamp and camera, normalized by its length.
        highlight = (lamp_cosine + camera_cosine) / (2 + 2 * dot(to_lamp, points.towards)).clamp(min=1e-6).sqrt()
        for _ in range(SHARPNESS):
            highlight = highlight.square()
        diffuse = diffuse + received * lamp_cosine
        specular = specular + received * highlight
    reflected = points.colour * diffuse[..., None] + (points.shine * specular)[..., None]
    return torch.where((points.owner == SKY)[..., None], points.colour, reflected)


def to_pixels(values: Float[Tensor, "B R C"], size: tuple[int, int], samples: int) -> Float[Tensor, "B C H W"]:
    """Clamp the light of each ray to [0, 1] and average over the rays of each pixel."""
    height, width = size
    blocks = values.reshape(len(values), height, samples, width, samples, -1)
    return blocks.clamp(0, 1).mean(dim=(2, 4)).permute(0, 3, 1, 2)


def rays(cameras: Cameras, *, size: tuple[int, int], stretch: float = 1.0) -> Float[Tensor, "B R 3"]:
    """Return unit directions through the centre of every pixel, row by row from the top left."""
    height, width = size
    forward, right, up = camera_axes(cameras)
    reach = torch.tan(cameras.degrees * (math.pi / 360))[:, None, None]
    across = (2 * torch.arange(width) + 1) / width - 1
    down = (2 * torch.arange(height) + 1 - height) / (stretch * width)
    rows, columns = torch.meshgrid(down, across, indexing="ij")
    sideways = columns.flatten()[None, :, None] * reach * right[:, None]
    return normalize(forward[:, None] + sideways - rows.flatten()[None, :, None] * reach * up[:, None], dim=-1)


def project(
    points: Float[Tensor, "B P 3"],
    cameras: Cameras,
    *,
    aspect: float = 1.0,
    stretch: float | Float[Tensor, "B 1"] = 1.0,
) -> Float[Tensor, "B P 2"]:
    """Return the position of points in the image, to the right and down, from 0 to 1 inside the image.

    Args:
        points: Points of each scene.
        cameras: One camera per scene.
        aspect: Width divided by height of the image in pixels.
        stretch: As in :func:`trace_rays`, for all images or one per image.

    Example:
        >>> cameras = Cameras(torch.tensor([[0, -6.0, 3]]), torch.tensor([[0, 0, 1.0]]), torch.tensor([40.0]))
        >>> project(torch.tensor([[[0, 0, 1.0]]]), cameras)
        tensor([[[0.5000, 0.5000]]])
    """
    offset = points - cameras.position[:, None]
    depth, across, above = (dot(offset, axis[:, None].expand_as(offset)) for axis in camera_axes(cameras))
    reach = depth * torch.tan(cameras.degrees * (math.pi / 360))[:, None]
    return torch.stack([across / reach, -above / reach * (stretch * aspect)], dim=-1) / 2 + 0.5


def camera_axes(cameras: Cameras) -> tuple[Float[Tensor, "B 3"], Float[Tensor, "B 3"], Float[Tensor, "B 3"]]:
    """Return the forward, right and up direction of each camera."""
    forward = normalize(cameras.target - cameras.position, dim=-1)
    right = torch.cross(forward, torch.tensor(UP).expand_as(forward), dim=-1)
    # The right direction of a camera that looks straight down is undefined; any horizontal one will do.
    defined = dot(right, right)[..., None] > 1e-12
    right = normalize(torch.where(defined, right, torch.tensor([1.0, 0.0, 0.0])), dim=-1)
    return forward, right, torch.cross(right, forward, dim=-1)


def nearest(solids: Solids, start: Float[Tensor, "B 3"], direction: Float[Tensor, "B R 3"]) -> Intersections:
    """Return the first surface that each ray enters; directions have unit length."""
    distance = direction.new_full(direction.shape[:2], torch.inf)
    owner = torch.full(direction.shape[:2], -1)
    for slot, scene, ray, (near, far) in intersections(solids, start, direction):
        previous = distance[scene, ray]
        closer = (near <= far) & (near > 0) & (near < previous)
        distance[scene, ray] = torch.where(closer, near, previous)
        owner[scene, ray] = torch.where(closer, slot, owner[scene, ray])
    point = start[:, None] + torch.where(owner < 0, 0.0, distance)[..., None] * direction
    return Intersections(distance, owner, normals(solids, owner, point))


def blocked(
    solids: Solids, start: Float[Tensor, "B 3"], direction: Float[Tensor, "B R 3"], *, limit: Float[Tensor, "B R"]
) -> Bool[Tensor, "B R"]:
    """Return whether a solid lies on each ray between its start, a lamp, and the distance ``limit``."""
    hit = torch.zeros(direction.shape[:2], dtype=torch.bool)
    for _, scene, ray, (near, far) in intersections(solids, start, direction):
        hit[scene, ray] |= (near <= far) & (far > 0) & (near < limit[scene, ray])
    return hit


def intersections(
    solids: Solids, start: Float[Tensor, "B 3"], direction: Float[Tensor, "B R 3"]
) -> Iterator[tuple[int, Int[Tensor, " M"], Int[Tensor, " M"], Interval]]:
    """Yield, for each slot and kind, the rays that may meet such a solid and the interval in which they are inside it.

    Only rays that meet a ball around the solid are considered, which one matrix product decides for all rays.
    """
    is_ellipsoid = solids.kind == KINDS.index("ellipsoid")
    radius = torch.where(is_ellipsoid, solids.half_size.amax(dim=-1), solids.half_size.square().sum(dim=-1).sqrt())
    offset = solids.centre - start[:, None]  # (B, P, 3)
    along = offset @ direction.transpose(1, 2)  # (B, P, R): distance to the point of the ray nearest to the centre
    # The ball is enlarged a little against rounding; a start inside the ball makes the bound negative.
    bound = offset.square().sum(dim=-1) - 1.01 * radius.square() - 1e-4
    close = along.clamp(min=0).square_() >= bound[..., None]
    for slot in range(solids.kind.shape[1]):
        kinds = solids.kind[:, slot]
        for kind, interval in enumerate(INTERVALS):
            of_kind = kinds == kind
            if bool(of_kind.any()):
                near = close[:, slot] if bool(of_kind.all()) else close[:, slot] & of_kind[:, None]
                scene, ray = torch.where(near)
                yield slot, scene, ray, interval(*to_unit_shape(solids, slot, scene, start, direction[scene, ray]))


def to_unit_shape(
    solids: Solids, slot: int, scene: Int[Tensor, " M"], start: Float[Tensor, "B 3"], direction: Float[Tensor, "M 3"]
) -> tuple[Coordinates, Coordinates]:
    """Transform starts and directions of rays to the coordinates of the unit shape of a solid."""
    matrix = solids.turn[:, slot] / solids.half_size[:, slot][:, None]  # (B, 3, 3)
    origin = transformed(start - solids.centre[:, slot], matrix)
    return tuple(part[scene] for part in origin), transformed(direction, matrix[scene])


def transformed(vectors: Float[Tensor, "M 3"], matrices: Float[Tensor, "M 3 3"]) -> Coordinates:
    return tuple(dot(vectors, matrices[..., axis]) for axis in range(3))


def dot(first: Float[Tensor, "*S 3"], second: Float[Tensor, "*S 3"]) -> Float[Tensor, "*S"]:
    """Return the inner product; written out because a sum over a dimension of three is slow."""
    return first[..., 0] * second[..., 0] + first[..., 1] * second[..., 1] + first[..., 2] * second[..., 2]


def box_interval(origin: Coordinates, direction: Coordinates) -> Interval:
    slabs = [slab_interval(position, component) for position, component in zip(origin, direction, strict=True)]
    near, far = zip(*slabs, strict=True)
    return Interval(reduce(torch.maximum, near), reduce(torch.minimum, far))


def ellipsoid_interval(origin: Coordinates, direction: Coordinates) -> Interval:
    (x, y, z), (a, b, c) = origin, direction
    return quadratic_interval(a * a + b * b + c * c, x * a + y * b + z * c, x * x + y * y + z * z - 1)


def cylinder_interval(origin: Coordinates, direction: Coordinates) -> Interval:
    (x, y, z), (a, b, c) = origin, direction
    side = quadratic_interval(a * a + b * b, x * a + y * b, x * x + y * y - 1)
    ends = slab_interval(z, c)
    return Interval(torch.maximum(side.near, ends.near), torch.minimum(side.far, ends.far))


def cone_interval(origin: Coordinates, direction: Coordinates) -> Interval:
    """Intersect a ray with a cone; of the roots, which belong to a double cone, those below the tip count."""
    (x, y, z), (a, b, c) = origin, direction
    radius, slope = (1 - z) / 2, -c / 2
    square, half, rest = a * a + b * b - slope * slope, x * a + y * b - radius * slope, x * x + y * y - radius * radius
    square = torch.where(square.abs() < PARALLEL, PARALLEL, square)
    discriminant = half * half - square * rest
    root = discriminant.clamp(min=0).sqrt()
    base = (-1 - z) / torch.where(c.abs() < PARALLEL, PARALLEL, c)
    candidates = list[tuple[Tensor, Tensor]]()
    for distance in ((-half - root) / square, (-half + root) / square):
        height = z + distance * c
        candidates.append((distance, (discriminant >= 0) & (height >= -1) & (height <= 1)))
    base_radius = (x + base * a).square() + (y + base * b).square()
    candidates.append((base, (base_radius <= 1) & (c.abs() > PARALLEL)))
    near = torch.stack([torch.where(valid, distance, torch.inf) for distance, valid in candidates]).amin(dim=0)
    far = torch.stack([torch.where(valid, distance, -torch.inf) for distance, valid in candidates]).amax(dim=0)
    return Interval(near, far)


def slab_interval(position: Tensor, component: Tensor) -> Interval:
    """Return where a ray is between two parallel planes at -1 and 1."""
    inverse = 1 / torch.where(component.abs() < PARALLEL, PARALLEL, component)
    first, second = (-1 - position) * inverse, (1 - position) * inverse
    return Interval(torch.minimum(first, second), torch.maximum(first, second))


def quadratic_interval(square: Tensor, half: Tensor, rest: Tensor) -> Interval:
    """Return where square t^2 + 2 half t + rest <= 0; without real roots, ``near`` is infinite."""
    square = square.clamp(min=PARALLEL)  # along a cylinder, its ends decide
    discriminant = half * half - square * rest
    root = discriminant.clamp(min=0).sqrt()
    inverse = 1 / square
    return Interval(((-half - root) * inverse).masked_fill(discriminant < 0, torch.inf), (-half + root) * inverse)


INTERVALS: tuple[Callable[[Coordinates, Coordinates], Interval], ...] = (
    box_interval,
    ellipsoid_interval,
    cylinder_interval,
    cone_interval,
)
"""Intersection function of each kind, in the order of ``KINDS``."""


def normals(solids: Solids, owner: Int[Tensor, "B R"], point: Float[Tensor, "B R 3"]) -> Float[Tensor, "B R 3"]:
    """Return the outward normal at points on the surface of their owner; zero for rays without an owner."""
    result = torch.zeros_like(point)
    slots = owner.clamp(min=0)
    kinds = torch.where(owner >= 0, solids.kind.gather(1, slots), ABSENT)
    for kind, name in enumerate(KINDS):
        scene, ray = torch.where(kinds == kind)
        slot = slots[scene, ray]
        turn, half_size = solids.turn[scene, slot], solids.half_size[scene, slot]
        local = torch.stack(transformed(point[scene, ray] - solids.centre[scene, slot], turn), dim=1) / half_size
        # Normals transform by the inverse transpose of the map of points.
        outward = torch.stack(transformed(local_normals(name, local) / half_size, turn.transpose(1, 2)), dim=1)
        result[scene, ray] = normalize(outward, dim=-1)
    return result


def local_normals(kind: str, point: Float[Tensor, "M 3"]) -> Float[Tensor, "M 3"]:
    """Return normals of the unit shape at points on its surface; their length is arbitrary."""
    if kind == "ellipsoid":
        return point
    if kind == "box":
        return point.sign() * (point.abs() == point.abs().amax(dim=-1, keepdim=True))
    x, y, z = point.unbind(dim=-1)
    radius = (x * x + y * y).sqrt()
    if kind == "cylinder":
        on_end = z.abs() > radius
        side = torch.stack([x, y, torch.zeros_like(z)], dim=-1)
    else:
        on_end = z + 1 < (1 - z) / 2 - radius
        side = torch.stack([x, y, radius / 2], dim=-1)
    end = torch.stack([torch.zeros_like(x), torch.zeros_like(y), z.sign()], dim=-1)
    return torch.where(on_end[:, None], end, side)
