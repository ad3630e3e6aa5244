"""An example of sets with misplaced elements: books on shelves, each shelf with a topic of its own.

A book is three numbers. Those of a shelf lie along one direction, which is the shelf's topic; a misplaced book lies
along that of another. Its numbers are as ordinary as any, and as far from the middle of the shelf as the others.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from picaset.tables.table import Table


def along_lines(
    num_sets: int, size: int, *, generator: np.random.Generator, dim: int = 3, noise: float = 0.05
) -> tuple[list[NDArray[np.float64]], NDArray[np.int64]]:
    """Sets of points near a line through the origin, each with a line of its own and one point of another's.

    Returns the sets, and the place of the point that does not belong.

    Example:
        >>> sets, odd = along_lines(4, 7, generator=np.random.default_rng(0))
        >>> sets[0].shape, odd.shape
        ((7, 3), (4,))
    """
    directions = generator.normal(size=(num_sets, 2, dim))
    directions /= np.sqrt(np.square(directions).sum(axis=2, keepdims=True))
    places = generator.normal(size=(num_sets, size, 1))
    places += 0.5 * np.sign(places)
    points: NDArray[np.float64] = places * directions[:, :1]
    odd, rows = generator.integers(size, size=num_sets), np.arange(num_sets)
    points[rows, odd] = places[rows, odd] * directions[:, 1]
    moved: NDArray[np.float64] = points + noise * generator.normal(size=points.shape)
    return [moved[index] for index in range(num_sets)], odd


def shelves(num_shelves: int = 120, *, seed: int = 0) -> Table:
    """A table of books: the shelf of each, and its three numbers; one book of every shelf is misplaced."""
    generator = np.random.default_rng(seed)
    sets = [along_lines(1, int(size), generator=generator)[0][0] for size in generator.integers(6, 13, num_shelves)]
    names = np.repeat([f"shelf {index + 1}" for index in range(num_shelves)], [len(one) for one in sets])
    rows = np.concatenate(sets)
    columns = {"shelf": names.astype(object)} | {name: rows[:, i] for i, name in enumerate(("age", "length", "depth"))}
    return Table(Path("the example"), columns, [f"row {index + 1}" for index in range(len(rows))])
