"""Sets of points drawn from Gaussian mixtures, as in the clustering experiment of the paper.

    draw_mixtures    sets of one size, in any number of dimensions
    training_batch    the batch of a training step, a function of seed and step
    benchmark_sets   the fixed sets on which all methods are compared
    Move             shift, scaling and rotation of points and of mixtures

Dimensions:  B sets   N points   K components
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from picaset.operators.mixture import Mixture

EXTENT = 4.0
"""Largest coordinate of a mean."""


def draw_mixtures(
    num_sets: int,
    num_points: int,
    *,
    generator: torch.Generator,
    num_components: int = 4,
    dim: int = 2,
    deviation: float | Float[Tensor, "B K V"] = 0.3,
) -> tuple[Float[Tensor, "B N D"], Mixture]:
    """Draw a mixture for each set, and the points of the set from it.

    Means are uniform in a cube from -4 to 4, mixing weights Dirichlet(1).

    Args:
        num_sets: Number of sets.
        num_points: Number of points in each set.
        generator: Random number generator.
        num_components: Number of Gaussians in each mixture.
        dim: Number of coordinates of a point.
        deviation: Standard deviation: one for all components, per component (V = 1), or also per coordinate (V = D).

    Example:
        >>> points, mixture = draw_mixtures(8, 300, generator=torch.Generator().manual_seed(0))
        >>> points.shape, mixture.means.shape
        (torch.Size([8, 300, 2]), torch.Size([8, 4, 2]))
    """
    means = EXTENT * (2 * torch.rand(num_sets, num_components, dim, generator=generator) - 1)
    # Exponential variables divided by their sum are Dirichlet(1).
    weights = torch.empty(num_sets, num_components).exponential_(generator=generator)
    weights = weights / weights.sum(dim=1, keepdim=True)
    component = torch.multinomial(weights, num_points, replacement=True, generator=generator)  # (B, N)
    deviations = torch.as_tensor(deviation).expand(num_sets, num_components, -1 if torch.is_tensor(deviation) else 1)
    rows = torch.arange(num_sets)[:, None]
    noise = deviations[rows, component] * torch.randn(num_sets, num_points, dim, generator=generator)
    points = means[rows, component] + noise
    return points, Mixture(means, deviations**2, weights.log())


def draw_indexed(
    index: int, *, seed: int, num_sets: int, sizes: tuple[int, int], num_components: int
) -> tuple[Float[Tensor, "B N 2"], Mixture]:
    """Draw sets of one size, uniform in ``sizes``; the result depends on seed and index alone."""
    generator = seeded_generator(seed, index)
    num_points = int(torch.randint(sizes[0], sizes[1] + 1, (), generator=generator))
    return draw_mixtures(num_sets, num_points, generator=generator, num_components=num_components)


def training_batch(
    step: int, *, seed: int, num_sets: int, sizes: tuple[int, int], num_components: int = 4
) -> Float[Tensor, "B N 2"]:
    """Return the sets of a training step, all of one size; they depend on seed and step alone.

    Example:
        >>> first, again = (training_batch(7, seed=0, num_sets=3, sizes=(300, 600)) for _ in range(2))
        >>> torch.equal(first, again)
        True
    """
    return draw_indexed(step, seed=seed, num_sets=num_sets, sizes=sizes, num_components=num_components)[0]


def benchmark_sets(
    num_sets: int = 1000, *, sizes: tuple[int, int] = (300, 600), seed: int = 2021, num_components: int = 4
) -> Iterator[tuple[Float[Tensor, "10 N 2"], Mixture]]:
    """Yield the sets on which all methods are compared, ten of one size at a time, with their true mixtures."""
    for index in range(math.ceil(num_sets / 10)):
        count = min(10, num_sets - 10 * index)
        yield draw_indexed(index, seed=seed, num_sets=count, sizes=sizes, num_components=num_components)


def seeded_generator(*numbers: int) -> torch.Generator:
    """Create a random number generator seeded by several integers."""
    return torch.Generator().manual_seed(int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0]) >> 1)


@dataclass(frozen=True)
class Move:
    """A similarity transform: scaling and rotation about the origin, then the same shift along both axes."""

    shift: int | float = 0
    scale: int | float = 1
    degrees: int | float = 0

    def points(self, points: Float[Tensor, "B N 2"]) -> Float[Tensor, "B N 2"]:
        """Transform points."""
        angle = math.radians(self.degrees)
        rotation = points.new_tensor([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
        return (self.scale * points) @ rotation + self.shift

    def mixture(self, mixture: Mixture) -> Mixture:
        """Transform a mixture of spherical components."""
        return Mixture(self.points(mixture.means), self.scale**2 * mixture.variances, mixture.log_weights)

    def __str__(self) -> str:
        parts = [f"{self.shift:+g}"] if self.shift or (self.scale == 1 and not self.degrees) else []
        parts += [f"x{self.scale:g}"] if self.scale != 1 else []
        parts += [f"{self.degrees:g} degrees"] if self.degrees else []
        return ", ".join(parts).replace("+0", "0")
