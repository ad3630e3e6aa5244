"""An example of sets with anomalous elements: books on shelves, where each shelf has its own topic.

A book is a point with three features. The books of a shelf lie close to one line through the origin, the topic of the
shelf; a misplaced book lies close to the line of another topic. Its features have the same distribution as those of
the other books, and so has its distance from the centre: only the rest of the shelf reveals it.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from picaset.tables.table import Table, row_locations


def draw_sets_along_lines(
    num_sets: int, size: int, *, generator: np.random.Generator, dim: int = 3, noise: float = 0.05
) -> tuple[list[NDArray[np.float64]], NDArray[np.int64]]:
    """Draw sets of points close to a random line through the origin, with one point of each close to another line.

    Returns the sets, and the index of the anomalous point of each.

    Example:
        >>> sets, anomalies = draw_sets_along_lines(4, 7, generator=np.random.default_rng(0))
        >>> sets[0].shape, anomalies.shape
        ((7, 3), (4,))
    """
    directions = generator.normal(size=(num_sets, 2, dim))
    directions /= np.sqrt(np.square(directions).sum(axis=2, keepdims=True))
    positions = generator.normal(size=(num_sets, size, 1))
    positions += 0.5 * np.sign(positions)
    points: NDArray[np.float64] = positions * directions[:, :1]
    anomalies, rows = generator.integers(size, size=num_sets), np.arange(num_sets)
    points[rows, anomalies] = positions[rows, anomalies] * directions[:, 1]
    return list(points + noise * generator.normal(size=points.shape)), anomalies


def example_shelves(num_shelves: int = 120, *, seed: int = 0) -> Table:
    """Return a table of books with the shelf and the features of each; one book of every shelf is misplaced.

    The text column ``belongs`` says which book it is; a detector does not read it.
    """
    generator = np.random.default_rng(seed)
    sizes = generator.integers(6, 13, num_shelves)
    shelves = [draw_sets_along_lines(1, int(size), generator=generator) for size in sizes]
    features = np.concatenate([books for (books,), _ in shelves])
    belongs = np.concatenate([np.where(np.arange(len(books)) == odd, "elsewhere", "here") for (books,), odd in shelves])
    names = np.repeat([f"shelf {index + 1}" for index in range(num_shelves)], sizes)
    columns = {name: features[:, index] for index, name in enumerate(("age", "length", "depth"))}
    return Table(
        Path("the example"),
        {"shelf": names.astype(object), **columns, "belongs": belongs.astype(object)},
        row_locations(0, len(features)),
    )
