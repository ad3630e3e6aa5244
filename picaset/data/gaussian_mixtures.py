"""Sets of points drawn from two-dimensional Gaussian mixtures, as in the paper's clustering experiment.

Dimensions:  B sets   N points   K components
"""

import torch
from jaxtyping import Float
from torch import Tensor

from picaset.operators.mixture import Mixture


def draw_mixtures(
    num_sets: int,
    num_points: int,
    *,
    generator: torch.Generator,
    num_components: int = 4,
    extent: float = 4.0,
    deviation: float = 0.3,
) -> tuple[Float[Tensor, "B N 2"], Mixture]:
    """Draw a mixture for each set, and the set's points from it.

    Means are uniform in a square, components equally round, mixing weights Dirichlet(1).

    Args:
        num_sets: Sets to draw.
        num_points: Points of each set.
        generator: Where the randomness comes from; the same seed gives the same sets.
        num_components: Gaussians in each mixture.
        extent: Means lie in [-extent, extent] in each coordinate.
        deviation: Standard deviation of every component.

    Example:
        >>> points, truth = draw_mixtures(8, 300, generator=torch.Generator().manual_seed(0))
        >>> points.shape, truth.means.shape
        (torch.Size([8, 300, 2]), torch.Size([8, 4, 2]))
    """
    means = extent * (2 * torch.rand(num_sets, num_components, 2, generator=generator) - 1)
    # Exponential variables, divided by their sum, are Dirichlet(1).
    weights = torch.empty(num_sets, num_components).exponential_(generator=generator)
    weights = weights / weights.sum(dim=1, keepdim=True)
    component = torch.multinomial(weights, num_points, replacement=True, generator=generator)  # (B, N)
    centres = means.gather(1, component[..., None].expand(-1, -1, 2))
    points = centres + deviation * torch.randn(num_sets, num_points, 2, generator=generator)
    variances = torch.full((num_sets, num_components, 1), deviation**2)
    return points, Mixture(means, variances, weights.log())
