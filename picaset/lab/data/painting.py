"""Drawing of many small pictures at once by signed distance functions, with antialiased edges.

A shape is a signed distance function, negative inside; its value at a pixel gives the share of the pixel that is
covered. All pictures of a canvas have the same shapes with different parameters, evaluated at the pixels near them.

Dimensions:  F pictures   S pixels a side   f pictures of an area   h pixels of its side
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

Numbers = NDArray[np.floating] | int | float
"""One number per picture, (F,), or one for all."""
Distance = Float[np.ndarray, "f h h"]
"""Signed distance of each pixel of an area from a shape; negative inside."""
EXTENT = 2.5
"""Width of a picture in units of length; its centre is 0."""


@dataclass(frozen=True, eq=False)
class Canvas:
    """Pictures to draw on, each with its own rotation, scale and shift of the coordinates of shapes; y points down."""

    colours: Float[np.ndarray, "F S S 3"]
    degrees: Float[np.ndarray, " F"]
    scale: Float[np.ndarray, " F"]
    right: Float[np.ndarray, " F"]
    down: Float[np.ndarray, " F"]

    def area(
        self, x: Numbers = 0.0, y: Numbers = 0.0, *, reach: float = 9.0, which: NDArray[np.bool_] | None = None
    ) -> "Area":
        """Return the pixels within ``reach`` of a point, of all pictures or of those selected by the mask ``which``."""
        pictures = np.arange(len(self.colours)) if which is None else np.flatnonzero(which)
        side = self.colours.shape[1]
        angle, scale = np.radians(self.degrees[pictures]), self.scale[pictures]
        x, y = (np.broadcast_to(np.asarray(values, np.float32), len(self.colours))[pictures] for values in (x, y))
        across = scale * (np.cos(angle) * x - np.sin(angle) * y) + self.right[pictures]
        along = scale * (np.sin(angle) * x + np.cos(angle) * y) + self.down[pictures]
        half = int(np.ceil(reach * self.scale.max(initial=0.0) * side / EXTENT)) + 1
        size = min(2 * half, side)

        def start(centre: Float[np.ndarray, " f"]) -> Int[np.ndarray, " f"]:
            # A square that would cross the edge of the picture is shifted inside; extra pixels do no harm.
            return np.clip(((centre / EXTENT + 0.5) * side).astype(int) - size // 2, 0, side - size)

        offsets = np.arange(size)
        return Area(self, pictures, start(along)[:, None] + offsets, start(across)[:, None] + offsets)


@dataclass(frozen=True, eq=False)
class Area:
    """A square of pixels in several pictures of a canvas."""

    canvas: Canvas
    pictures: Int[np.ndarray, " f"]
    rows: Int[np.ndarray, "f h"]
    columns: Int[np.ndarray, "f h"]

    def per_picture(self, numbers: Numbers) -> Float[np.ndarray, "#f 1 1"]:
        """Reshape one number per picture for broadcasting over pixels."""
        values = np.asarray(numbers, dtype=np.float32)
        return (values[self.pictures] if values.ndim else values).reshape(-1, 1, 1)

    @cached_property
    def coordinates(self) -> tuple[Distance, Distance]:
        """x and y of every pixel, in the coordinates of shapes."""
        canvas = self.canvas
        side = canvas.colours.shape[1]
        across = (self.columns.astype(np.float32)[:, None, :] + 0.5) * (EXTENT / side) - EXTENT / 2
        along = (self.rows.astype(np.float32)[:, :, None] + 0.5) * (EXTENT / side) - EXTENT / 2
        across, along = across - self.per_picture(canvas.right), along - self.per_picture(canvas.down)
        angle, scale = np.radians(self.per_picture(canvas.degrees)), self.per_picture(canvas.scale)
        cosine, sine = np.cos(angle) / scale, np.sin(angle) / scale
        return cosine * across + sine * along, cosine * along - sine * across

    @cached_property
    def pixels(self) -> Int[np.ndarray, "f h h"]:
        """Index of every pixel in the flattened canvas."""
        side = self.canvas.colours.shape[1]
        return (self.pictures[:, None, None] * side + self.rows[:, :, None]) * side + self.columns[:, None, :]

    @property
    def x(self) -> Distance:
        return self.coordinates[0]

    @property
    def y(self) -> Distance:
        return self.coordinates[1]

    def paint(self, distance: Distance, colour: NDArray[np.floating], opacity: Numbers = 1.0) -> None:
        """Fill a shape with a colour, (F, 3), or (3,) for all pictures."""
        colours = self.canvas.colours
        pixel = EXTENT / colours.shape[1] / self.per_picture(self.canvas.scale)
        cover = np.clip(0.5 - distance / pixel, 0.0, 1.0) * self.per_picture(opacity)
        inside = np.flatnonzero(cover)
        where = self.pixels.reshape(-1)[inside]
        target = colour if colour.ndim == 1 else colour[where // colours.shape[1] ** 2]
        flat = colours.reshape(-1, 3)
        before = flat[where]
        flat[where] = before + cover.reshape(-1, 1)[inside] * (target - before)

    def ellipse(self, x: Numbers, y: Numbers, across: Numbers, along: Numbers) -> Distance:
        """Return the approximate distance from an ellipse with half axes ``across`` and ``along``."""
        half_x, half_y = self.per_picture(across), self.per_picture(along)
        right, down = (self.x - self.per_picture(x)) / half_x, (self.y - self.per_picture(y)) / half_y
        return (np.sqrt(right * right + down * down) - 1.0) * np.minimum(half_x, half_y)

    def box(self, x: Numbers, y: Numbers, across: Numbers, along: Numbers, corner: Numbers = 0.0) -> Distance:
        """Return the distance from a box with half sides ``across`` and ``along`` and rounded corners."""
        out_x = np.abs(self.x - self.per_picture(x)) - self.per_picture(across) + self.per_picture(corner)
        out_y = np.abs(self.y - self.per_picture(y)) - self.per_picture(along) + self.per_picture(corner)
        outside = np.hypot(np.maximum(out_x, 0.0), np.maximum(out_y, 0.0))
        return outside + np.minimum(np.maximum(out_x, out_y), 0.0) - self.per_picture(corner)

    def stroke(self, x: Numbers, y: Numbers, across: Numbers, bend: Numbers, width: Numbers) -> Distance:
        """Return the distance from a curve of half length ``across`` and half ``width``; its ends rise by ``bend``."""
        right = self.x - self.per_picture(x)
        along = np.clip(right / self.per_picture(across), -1.0, 1.0)
        height = self.per_picture(y) - self.per_picture(bend) * along * along
        beyond = np.maximum(np.abs(right) - self.per_picture(across), 0.0)
        slope = 2.0 * self.per_picture(bend) * along / self.per_picture(across)  # corrects the vertical distance
        return np.hypot(beyond, (self.y - height) / np.sqrt(1.0 + slope * slope)) - self.per_picture(width)

    def above(self, y: Numbers) -> Distance:
        """Return the distance from the half plane above a horizontal line."""
        return self.y - self.per_picture(y)
