"""Drawn faces: the stand-in for CelebA, generated from a seed, with sixteen visible attributes.

Faces also differ in pose, size, colours, light and background, which are not attributes. ``painting.py`` draws them.

Dimensions:  F faces   A attributes
"""

from collections.abc import Sequence
from functools import cache

import numpy as np
from jaxtyping import Bool, UInt8
from numpy.typing import NDArray

from picaset.checks import check_positive
from picaset.lab.data.face_sets import Faces
from picaset.lab.data.painting import Canvas

SIDE = 64
ATTRIBUTES = (
    "Bald", "Bangs", "Beard", "Big_Nose", "Bushy_Eyebrows", "Dark_Hair", "Eyeglasses", "Freckles", "Long_Hair",
    "Mouth_Open", "Moustache", "Rosy_Cheeks", "Smiling", "Wearing_Earrings", "Wearing_Hat", "Wearing_Scarf",
)  # fmt: skip
SHARES = {"Bald": 0.2, "Smiling": 0.5, "Dark_Hair": 0.5, "Long_Hair": 0.45}
DEFAULT_SHARE = 0.38
"""Share of faces with an attribute that is not in SHARES."""
NOT_WHEN_BALD = ("Bangs", "Dark_Hair", "Long_Hair", "Wearing_Hat")
"""Attributes that exclude baldness; a hat would hide it."""
BATCH = 64
"""Number of faces drawn together; faces of a batch share a random generator."""

Colours = NDArray[np.float32]
"""Colours of shape (F, 3), or (3,) for all faces."""
Mask = NDArray[np.bool_]


@cache
def draw_faces(num_faces: int, *, seed: int) -> Faces:
    """Draw faces: three quarters for training, an eighth each for validation and test.

    Example:
        >>> faces = draw_faces(80, seed=0)
        >>> faces.images.shape, len(faces.names), len(faces.of_part("test"))
        ((80, 64, 64, 3), 16, 10)
    """
    check_positive(caller="draw_faces", num_faces=num_faces)
    has = draw_attributes(num_faces, np.random.default_rng(seed))
    images = np.concatenate([draw_batch(start, has, seed) for start in range(0, num_faces, BATCH)])
    parts = np.repeat([0, 1, 2], [num_faces - 2 * (num_faces // 8), num_faces // 8, num_faces // 8])
    return Faces(images, has, ATTRIBUTES, parts, f"{num_faces} drawn faces")


def draw_images(numbers: Sequence[int], num_faces: int, *, seed: int) -> UInt8[np.ndarray, "F 64 64 3"]:
    """Draw some of the images of :func:`draw_faces`, without drawing all of them.

    Example:
        >>> images = draw_images([70, 3], 80, seed=0)
        >>> bool((images == draw_faces(80, seed=0).images[[70, 3]]).all())
        True
    """
    has = draw_attributes(num_faces, np.random.default_rng(seed))
    batches = {batch: draw_batch(batch * BATCH, has, seed) for batch in {number // BATCH for number in numbers}}
    return np.stack([batches[number // BATCH][number % BATCH] for number in numbers])


def draw_batch(start: int, has: Bool[np.ndarray, "F A"], seed: int) -> NDArray[np.uint8]:
    """Draw the images of the batch that starts at an index."""
    return Portraits(has[start : start + BATCH], seed, start).draw()


def draw_attributes(num_faces: int, generator: np.random.Generator) -> Bool[np.ndarray, "F A"]:
    shares = np.array([SHARES.get(name, DEFAULT_SHARE) for name in ATTRIBUTES])
    has = generator.random((num_faces, len(ATTRIBUTES))) < shares
    bald = has[:, ATTRIBUTES.index("Bald")]
    for name in NOT_WHEN_BALD:
        has[:, ATTRIBUTES.index(name)] &= ~bald
    return has


class Portraits:
    """A batch of faces on one canvas, drawn from back to front.

    The order of the random draws is part of the definition of the images.
    """

    def __init__(self, has: Bool[np.ndarray, "F A"], seed: int, first: int) -> None:
        self.has: dict[str, Mask] = {name: has[:, index] for index, name in enumerate(ATTRIBUTES)}
        self.count = len(has)
        self.generator = np.random.default_rng([seed, first])
        self.canvas = Canvas(
            np.zeros((self.count, SIDE, SIDE, 3), dtype=np.float32),
            degrees=self.between(-16, 16),
            scale=self.between(0.88, 1.12),
            right=self.between(-0.14, 0.14),
            down=self.between(-0.04, 0.1),
        )
        self.wide, self.tall = self.between(0.5, 0.62), self.between(0.66, 0.76)
        self.turn = self.between(-0.09, 0.09)  # of the head: shifts eyes, nose and mouth
        self.skin = self.mixed(SKINS)
        hair = np.where(self.has["Dark_Hair"][:, None], self.mixed(DARK_HAIR), self.mixed(LIGHT_HAIR))
        # Light hair similar to the skin is replaced by ginger: darkening it would make it dark hair.
        self.hair = np.where(is_near(hair, self.skin, 0.22), GINGER, hair)
        whiskers = np.where(self.has["Bald"][:, None], self.mixed(DARK_HAIR), self.hair * 0.9)
        self.whiskers = distinct_from_skin(whiskers, self.skin, 0.35)
        self.lips = distinct_from_skin(self.mixed(LIPS), self.skin, 0.4)

    def between(self, low: int | float, high: int | float) -> NDArray[np.float32]:
        """Draw a uniform number for each face."""
        return self.generator.uniform(low, high, self.count).astype(np.float32)

    def either(self, name: str, low: float, high: float) -> NDArray[np.float32]:
        """Return ``high`` for faces with an attribute and ``low`` for others, with some random variation."""
        return np.where(self.has[name], np.float32(high), np.float32(low)) * self.between(0.93, 1.07)

    def mixed(self, palette: Colours) -> Colours:
        """Draw a colour for each face by interpolation in a palette."""
        position = self.between(0, len(palette) - 1.001)
        lower = position.astype(int)
        share = (position - np.floor(position))[:, None]
        return (palette[lower] * (1 - share) + palette[lower + 1] * share).astype(np.float32)

    def random_colour(self) -> Colours:
        return self.generator.uniform(0.08, 0.95, (self.count, 3)).astype(np.float32)

    def draw(self) -> NDArray[np.uint8]:
        self.background()
        self.shoulders()
        self.head()
        self.cheeks()
        self.eyes()
        self.beard()
        self.nose_and_mouth()
        self.hair_in_front()
        self.glasses_and_earrings()
        self.scarf()
        self.hat()
        return self.to_bytes()

    def background(self) -> None:
        area, angle = self.canvas.area(), self.between(0, 2 * np.pi)
        blend = 0.5 + 0.4 * (np.cos(area.per_picture(angle)) * area.x + np.sin(area.per_picture(angle)) * area.y)
        first, second = (self.random_colour()[:, None, None] for _ in range(2))
        self.canvas.colours[:] = first + np.clip(blend, 0, 1)[..., None] * (second - first)
        for _ in range(3):
            x, y, size = self.between(-1.2, 1.2), self.between(-1.2, 1.2), self.between(0.1, 0.5)
            area = self.canvas.area(x, y, reach=0.5)
            area.paint(area.ellipse(x, y, size, size), self.random_colour(), self.between(0.1, 0.6))

    def shoulders(self) -> None:
        area = self.canvas.area(which=self.has["Long_Hair"])
        area.paint(area.box(0.0, 0.12, self.wide + 0.17, 0.85, 0.4), self.hair * 0.82)
        area = self.canvas.area(0.0, 0.85, reach=0.5)
        area.paint(area.box(0.0, 0.85, 0.22, 0.4, 0.1), self.skin * 0.86)
        area = self.canvas.area()
        area.paint(area.ellipse(0.0, 1.45, self.between(0.85, 1.05), 0.55), self.random_colour())

    def head(self) -> None:
        hairy, rise = ~self.has["Bald"], self.between(0.05, 0.12)
        area = self.canvas.area(0.0, -0.2, reach=1.0, which=hairy & ~self.has["Wearing_Hat"])
        crown = area.ellipse(0.0, -0.12 - rise, self.wide + 0.09, self.tall + rise - 0.03)
        area.paint(np.maximum(crown, area.above(0.05)), self.hair)
        for side in (-1, 1):
            area = self.canvas.area(side * self.wide, 0.04, reach=0.2)
            area.paint(area.ellipse(side * self.wide, 0.04, 0.1, 0.15), self.skin * 0.92)
        area = self.canvas.area(0.0, 0.0, reach=0.8)
        area.paint(area.ellipse(0.0, 0.0, self.wide, self.tall), self.skin)
        for side in (-1, 1):  # hair at the temples shows its colour under a hat too
            area = self.canvas.area(side * self.wide, -0.26, reach=0.4, which=hairy)
            temple = area.box(side * (self.wide - 0.01), -0.28, 0.1, 0.28, 0.07)
            area.paint(np.maximum(temple, area.ellipse(0.0, 0.0, self.wide + 0.09, self.tall)), self.hair)
        area = self.canvas.area(-0.16, -0.47, reach=0.2, which=self.has["Bald"])
        area.paint(area.ellipse(-0.16, -0.47, 0.14, 0.07), self.skin * 0.4 + 0.6)

    def cheeks(self) -> None:
        rosy = np.clip(self.skin * 0.4 + ROSE, 0, 1)
        for side in (-1, 1):
            x = side * 0.31 + self.turn
            area = self.canvas.area(x, 0.17, reach=0.15, which=self.has["Rosy_Cheeks"])
            area.paint(area.ellipse(x, 0.17, 0.13, 0.1), rosy)
            area = self.canvas.area(x, 0.15, reach=0.2, which=self.has["Freckles"])
            for right, down in ((-0.11, 0.11), (-0.02, 0.14), (0.07, 0.09), (-0.06, 0.22), (0.04, 0.22), (0.11, 0.17)):
                area.paint(area.ellipse(x + right, down, 0.03, 0.03), self.skin * 0.35)

    def eyes(self) -> None:
        apart, look, iris = self.between(0.2, 0.25), self.between(-0.025, 0.025), self.mixed(IRISES)
        thickness, height = self.either("Bushy_Eyebrows", 0.018, 0.06), self.between(-0.3, -0.27)
        for side in (-1, 1):
            x = side * apart + self.turn
            area = self.canvas.area(x, -0.18, reach=0.28)
            area.paint(area.ellipse(x, -0.1, 0.115, 0.085), WHITE)
            area.paint(area.ellipse(x + look, -0.1, 0.066, 0.074), iris)
            area.paint(area.ellipse(x + look, -0.1, 0.036, 0.04), BLACK)
            area.paint(area.ellipse(x + look - 0.02, -0.125, 0.018, 0.018), WHITE)
            area.paint(
                area.stroke(x, height, 0.13, -0.035, thickness),
                distinct_from_skin(self.whiskers * 0.6, self.skin, 0.35),
            )

    def beard(self) -> None:
        area = self.canvas.area(0.0, 0.4, reach=0.9, which=self.has["Beard"])
        face = area.ellipse(0.0, 0.03, self.wide + 0.02, self.tall + 0.07)
        free = area.ellipse(self.turn, -0.04, self.wide * 0.78, self.between(0.33, 0.38))
        area.paint(np.maximum(np.maximum(face, -free), -area.above(0.05)), self.whiskers)

    def nose_and_mouth(self) -> None:
        middle, has = self.turn * 1.15, self.has
        wide, tall = self.either("Big_Nose", 0.05, 0.16), self.either("Big_Nose", 0.1, 0.18)
        area = self.canvas.area(middle, 0.09, reach=0.3)
        area.paint(area.ellipse(middle, 0.09, wide, tall), self.skin * 0.5)
        area.paint(area.ellipse(middle - 0.01, 0.07, wide * 0.8, tall * 0.84), self.skin * RUDDY)

        bend = np.where(has["Smiling"], self.between(0.13, 0.16), self.between(-0.02, 0.015))
        across = np.where(has["Smiling"], self.between(0.22, 0.26), self.between(0.13, 0.17))
        centre = self.between(0.37, 0.41) + 0.45 * bend
        thickness = self.either("Mouth_Open", 0.036, 0.1)
        area = self.canvas.area(middle, centre, reach=0.4)
        area.paint(area.stroke(middle, centre, across, bend, thickness), self.lips)
        area = self.canvas.area(middle, centre, reach=0.4, which=has["Mouth_Open"])
        inside = area.stroke(middle, centre, across, bend, thickness - 0.032)
        area.paint(inside, MOUTH)
        area.paint(np.maximum(inside, area.stroke(middle, centre - 0.055, across, bend, 0.03)), WHITE)
        area = self.canvas.area(middle, 0.26, reach=0.4, which=has["Moustache"])
        area.paint(area.stroke(middle, 0.235, self.between(0.2, 0.25), -0.08, 0.055), self.whiskers)

    def hair_in_front(self) -> None:
        hairy = ~self.has["Bald"] & ~self.has["Wearing_Hat"]
        area, line = self.canvas.area(0.0, -0.3, reach=0.75, which=hairy), self.between(-0.54, -0.46)
        front = area.ellipse(0.0, 0.0, self.wide + 0.02, self.tall + 0.01)
        area.paint(np.maximum(front, area.above(line)), self.hair)
        area = self.canvas.area(0.0, -0.3, reach=0.75, which=self.has["Bangs"])
        front = area.ellipse(0.0, 0.0, self.wide + 0.02, self.tall + 0.01)
        strands = 0.03 * np.cos(area.x * area.per_picture(self.between(16, 26)))
        area.paint(np.maximum(front, area.above(-0.29) + strands), self.hair * 0.9)
        for side in (-1, 1):
            x = side * (self.wide + 0.05)
            area = self.canvas.area(x, 0.3, reach=0.65, which=self.has["Long_Hair"])
            area.paint(area.box(x, 0.28, 0.11, 0.6, 0.1), self.hair)

    def glasses_and_earrings(self) -> None:
        frame, tint, size = self.mixed(FRAMES), self.between(0.0, 0.5), self.between(0.155, 0.18)
        corner = self.between(0.05, 0.13)
        area = self.canvas.area(self.turn, -0.1, reach=0.65, which=self.has["Eyeglasses"])
        area.paint(area.box(self.turn, -0.12, self.wide - 0.04, 0.018), frame)
        for side in (-1, 1):
            glass = area.box(side * 0.23 + self.turn, -0.09, size, size * 0.86, corner)
            area.paint(glass, frame * 0.5, tint)
            area.paint(np.abs(glass) - 0.024, frame)
        metal, large = self.mixed(METALS), self.between(0.09, 0.11)
        for side in (-1, 1):
            x = side * (self.wide + 0.06)
            area = self.canvas.area(x, 0.3, reach=0.15, which=self.has["Wearing_Earrings"])
            ring = area.ellipse(x, 0.3, large, large)
            area.paint(ring, metal * 0.45)
            area.paint(ring + 0.025, metal)

    def scarf(self) -> None:
        cloth, stripe = self.random_colour(), self.random_colour()
        area = self.canvas.area(0.0, 0.95, reach=0.75, which=self.has["Wearing_Scarf"])
        around = area.box(0.0, 0.84, self.between(0.5, 0.6), 0.18, 0.16)
        area.paint(area.box(self.between(-0.3, 0.3), 1.2, 0.13, 0.35, 0.04), cloth * 0.75)
        area.paint(around, cloth)
        area.paint(np.maximum(around, np.abs(area.y - 0.84) - 0.05), stripe)

    def hat(self) -> None:
        cloth, band = self.random_colour(), self.random_colour()
        area = self.canvas.area(0.0, -0.6, reach=1.0, which=self.has["Wearing_Hat"])
        dome = area.ellipse(0.0, -0.42, self.wide + 0.07, self.between(0.45, 0.65))
        crown = np.maximum(dome, area.above(-0.42))
        area.paint(crown, cloth)
        area.paint(np.maximum(crown, -area.above(-0.58)), band)
        area.paint(area.box(0.0, -0.42, self.wide + self.between(0.08, 0.34), 0.06, 0.05), cloth * 0.75)

    def to_bytes(self) -> NDArray[np.uint8]:
        """Apply light from one side, brightness and grain, and convert the pictures to bytes."""
        area, colours = self.canvas.area(), self.canvas.colours
        light = 1 + area.per_picture(self.between(-0.16, 0.16)) * area.x + area.per_picture(self.between(-0.1, 0.1))
        grain = self.generator.standard_normal(colours.shape, dtype=np.float32) * 0.015
        return (255 * np.clip(colours * light[..., None] + grain, 0, 1)).round().astype(np.uint8)


def is_near(colours: Colours, others: Colours, threshold: float) -> Mask:
    return np.abs(colours - others).max(axis=1, keepdims=True) < threshold


def distinct_from_skin(colours: Colours, skin: Colours, threshold: float) -> Colours:
    """Darken colours on light skin, or lighten them on dark skin, where they are too similar to the skin."""
    changed = np.where(skin[:, :1] > 0.7, colours * 0.45, 0.4 + 0.6 * colours)
    return np.where(is_near(colours, skin, threshold), changed, colours).astype(np.float32)


def palette(*colours: str) -> Colours:
    """Parse hexadecimal colours."""
    return np.array([[int(colour[i : i + 2], 16) / 255 for i in (0, 2, 4)] for colour in colours], dtype=np.float32)


WHITE, BLACK, ROSE, RUDDY, MOUTH, GINGER = palette("fafafa", "101014", "940f24", "ffc8b8", "38080d", "e8601c")
SKINS = palette("f6d7c3", "eab98f", "c98d62", "a66a45", "7d4e30")
LIGHT_HAIR = palette("f2dc8c", "e0b04c", "d8772e", "c9502c", "c8c8cc", "efece4")
DARK_HAIR = palette("3a2416", "20140e", "0c0b10", "1d1a2b")
IRISES = palette("4a7fb5", "5a8f4e", "7a5230", "3b2616")
LIPS = palette("c4566a", "a83a4b", "d0736f", "8c3a3a")
FRAMES = palette("16161a", "5b1e1e", "1f3a6b", "7a5a1e")
METALS = palette("ffd54a", "f4f4ff", "ffb13b", "5be0d6")
