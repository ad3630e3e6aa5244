"""Example tables: books on shelves, of which one is misplaced, and water samples, of which some are polluted.

A book is a point with three features. The books of a shelf lie close to one line through the origin, the topic of the
shelf; a misplaced book lies close to the line of another topic. Its features have the same distribution as those of
the other books, and so has its distance from the centre: only the rest of the shelf reveals it.

A water sample is a set of particles with a label; one particle of a kind makes a sample polluted.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from picaset.tables.table import Table, row_locations


def draw_sets_along_lines(
    num_sets: int, size: int, *, generator: np.random.Generator
) -> tuple[list[NDArray[np.float64]], NDArray[np.int64]]:
    """Draw sets of points close to a random line through the origin, with one point of each close to another line.

    Returns the sets, and the index of the anomalous point of each.

    Example:
        >>> sets, anomalies = draw_sets_along_lines(4, 7, generator=np.random.default_rng(0))
        >>> sets[0].shape, anomalies.shape
        ((7, 3), (4,))
    """
    directions = generator.normal(size=(num_sets, 2, 3))
    directions /= np.sqrt(np.square(directions).sum(axis=2, keepdims=True))
    positions = generator.normal(size=(num_sets, size, 1))
    positions += 0.5 * np.sign(positions)
    points: NDArray[np.float64] = positions * directions[:, :1]
    anomalies, rows = generator.integers(size, size=num_sets), np.arange(num_sets)
    points[rows, anomalies] = positions[rows, anomalies] * directions[:, 1]
    return list(points + 0.05 * generator.normal(size=points.shape)), anomalies


def example_shelves(num_shelves: int = 120) -> Table:
    """Return a table of books with the shelf and the features of each; one book of every shelf is misplaced.

    The text column ``belongs`` says which book it is; a detector does not read it.
    """
    generator = np.random.default_rng(0)
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


def example_samples(num_samples: int = 60) -> Table:
    """Return a table of particles with their sample and the state of the sample, clean or polluted."""
    generator = np.random.default_rng(0)
    sizes = generator.integers(6, 16, size=num_samples)
    particles = [generator.normal(size=(size, 3)) for size in sizes]
    for sample in particles[1::2]:
        sample[generator.integers(len(sample))] += [4.0, -4.0, 0.0]
    features = np.round(np.concatenate(particles), 3)
    names = np.repeat([f"sample {index + 1}" for index in range(num_samples)], sizes).astype(object)
    states = np.repeat(["polluted" if index % 2 else "clean" for index in range(num_samples)], sizes).astype(object)
    columns = {name: features[:, index] for index, name in enumerate(("size", "density", "colour"))}
    path = Path("the example")
    return Table(path, {"sample": names, "state": states, **columns}, row_locations(0, len(features)))
