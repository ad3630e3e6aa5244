"""Painting many small pictures at once: shapes by their distance, edges softened over one pixel.

A shape is a function that is negative inside and grows by one for each unit of length; what it covers of a pixel
follows from its value there. All pictures of a canvas have the same shapes, each with numbers of its own, and only the
pixels around a shape are looked at.

Dimensions:  F pictures   S pixels a side   f pictures of an area   h pixels of its side
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

Numbers = NDArray[np.floating] | int | float
"""One for each picture, (F,), or one for all."""
Distance = Float[np.ndarray, "f h h"]
"""Of each pixel of an area from the edge of a shape; negative inside."""
EXTENT = 2.5
"""Units across a picture; the middle is 0."""


@dataclass(frozen=True, eq=False)
class Canvas:
    """Pictures in the making. Shapes are given in coordinates that each picture turns, scales and moves; y is down."""

    colours: Float[np.ndarray, "F S S 3"]
    degrees: Float[np.ndarray, " F"]
    scale: Float[np.ndarray, " F"]
    right: Float[np.ndarray, " F"]
    down: Float[np.ndarray, " F"]

    def area(
        self, x: Numbers = 0.0, y: Numbers = 0.0, *, reach: float = 9.0, which: NDArray[np.bool_] | None = None
    ) -> "Area":
        """The pixels less than ``reach`` from a point, or all, of all pictures or of those where ``which`` holds."""
        pictures = np.arange(len(self.colours)) if which is None else np.flatnonzero(which)
        side = self.colours.shape[1]
        turn, scale = np.radians(self.degrees[pictures]), self.scale[pictures]
        at_x, at_y = (np.broadcast_to(np.asarray(one, np.float32), len(self.colours))[pictures] for one in (x, y))
        across = scale * (np.cos(turn) * at_x - np.sin(turn) * at_y) + self.right[pictures]
        along = scale * (np.sin(turn) * at_x + np.cos(turn) * at_y) + self.down[pictures]
        half = int(np.ceil(reach * self.scale.max(initial=0.0) * side / EXTENT)) + 1
        size = min(2 * half, side)

        def first(centre: Float[np.ndarray, " f"]) -> Int[np.ndarray, " f"]:
            # Kept inside the picture: what is cut off at one edge is added at the other, and does no harm there.
            return np.clip(((centre / EXTENT + 0.5) * side).astype(int) - size // 2, 0, side - size)

        steps = np.arange(size)
        return Area(self, pictures, first(along)[:, None] + steps, first(across)[:, None] + steps)


@dataclass(frozen=True, eq=False)
class Area:
    """A square of pixels in some of the pictures."""

    canvas: Canvas
    pictures: Int[np.ndarray, " f"]
    rows: Int[np.ndarray, "f h"]
    columns: Int[np.ndarray, "f h"]

    def each(self, numbers: Numbers) -> Float[np.ndarray, "#f 1 1"]:
        """In a shape that meets the pixels."""
        values = np.asarray(numbers, dtype=np.float32)
        return (values[self.pictures] if values.ndim else values).reshape(-1, 1, 1)

    @cached_property
    def place(self) -> tuple[Distance, Distance]:
        """x and y of every pixel."""
        canvas = self.canvas
        side = canvas.colours.shape[1]
        across = (self.columns.astype(np.float32)[:, None, :] + 0.5) * (EXTENT / side) - EXTENT / 2
        along = (self.rows.astype(np.float32)[:, :, None] + 0.5) * (EXTENT / side) - EXTENT / 2
        across, along = across - self.each(canvas.right), along - self.each(canvas.down)
        turn = np.radians(self.each(canvas.degrees))
        cosine, sine = np.cos(turn) / self.each(canvas.scale), np.sin(turn) / self.each(canvas.scale)
        return cosine * across + sine * along, cosine * along - sine * across

    @cached_property
    def pixels(self) -> Int[np.ndarray, "f h h"]:
        """Where every pixel is, all pictures in one row."""
        side = self.canvas.colours.shape[1]
        return (self.pictures[:, None, None] * side + self.rows[:, :, None]) * side + self.columns[:, None, :]

    @property
    def x(self) -> Distance:
        return self.place[0]

    @property
    def y(self) -> Distance:
        return self.place[1]

    def paint(self, distance: Distance, colour: NDArray[np.floating], opacity: Numbers = 1.0) -> None:
        """Cover what is inside a shape; ``colour`` is (3,) for all pictures or (F, 3)."""
        colours = self.canvas.colours
        pixel = EXTENT / colours.shape[1] / self.each(self.canvas.scale)
        cover = np.clip(0.5 - distance / pixel, 0.0, 1.0) * self.each(opacity)
        inside = np.flatnonzero(cover)
        where = self.pixels.reshape(-1)[inside]
        wanted = colour if colour.ndim == 1 else colour[where // colours.shape[1] ** 2]
        flat = colours.reshape(-1, 3)
        before = flat[where]
        flat[where] = before + cover.reshape(-1, 1)[inside] * (wanted - before)

    def ellipse(self, x: Numbers, y: Numbers, across: Numbers, along: Numbers) -> Distance:
        """Half axes ``across`` and ``along``; the distance is that of a circle once the longer is shortened."""
        half_x, half_y = self.each(across), self.each(along)
        right, down = (self.x - self.each(x)) / half_x, (self.y - self.each(y)) / half_y
        return (np.sqrt(right * right + down * down) - 1.0) * np.minimum(half_x, half_y)

    def box(self, x: Numbers, y: Numbers, across: Numbers, along: Numbers, corner: Numbers = 0.0) -> Distance:
        """Half sides ``across`` and ``along``, with round corners."""
        out_x = np.abs(self.x - self.each(x)) - self.each(across) + self.each(corner)
        out_y = np.abs(self.y - self.each(y)) - self.each(along) + self.each(corner)
        outside = np.hypot(np.maximum(out_x, 0.0), np.maximum(out_y, 0.0))
        return outside + np.minimum(np.maximum(out_x, out_y), 0.0) - self.each(corner)

    def stroke(self, x: Numbers, y: Numbers, across: Numbers, bend: Numbers, width: Numbers) -> Distance:
        """A line of half length ``across`` whose ends rise by ``bend`` above its middle, and of half ``width``."""
        right = self.x - self.each(x)
        along = np.clip(right / self.each(across), -1.0, 1.0)
        height = self.each(y) - self.each(bend) * along * along
        beyond = np.maximum(np.abs(right) - self.each(across), 0.0)
        slope = 2.0 * self.each(bend) * along / self.each(across)  # it makes the vertical distance too long
        return np.hypot(beyond, (self.y - height) / np.sqrt(1.0 + slope * slope)) - self.each(width)

    def above(self, y: Numbers) -> Distance:
        """Everything over a line."""
        return self.y - self.each(y)
