"""A mixture after every step of a cascade: what its templates would say if they were asked then.

Dimensions:  B sets   N elements (padded)   K components   H heads   L steps
"""

from typing import NamedTuple

from jaxtyping import Bool, Float
from torch import Tensor, nn

from picaset.lab.networks.mixture_network import Estimator, MixtureNetwork, restore
from picaset.operators.canonicalize import Canonicalize
from picaset.operators.inputs import read_set
from picaset.operators.mixture import Mixture
from picaset.operators.picaso import PicasoPool


class MixtureSteps(NamedTuple):
    """What a cascade found, step by step.

    Shapes:
        mixtures   L + 1 of them, read from the templates before the first step and after each
        attention  (L, B, H, K, N)    what each step looked at
    """

    mixtures: list[Mixture]
    attention: Float[Tensor, "L B H K N"]


def mixture_steps(
    network: MixtureNetwork,
    elements: Float[Tensor, "B N D"],
    mask: Bool[Tensor, "B N"] | None = None,
) -> MixtureSteps:
    """Ask the templates of a network after every step; the last mixture is the network's own.

    Example:
        >>> import torch
        >>> network, points = MixtureNetwork(num_components=3, dim=16, num_steps=2), torch.randn(1, 50, 2)
        >>> steps = mixture_steps(network, points)
        >>> len(steps.mixtures), steps.attention.shape
        (3, torch.Size([2, 1, 4, 3, 50]))
        >>> torch.allclose(steps.mixtures[-1].means, network(points).means, atol=1e-5)
        True
    """
    if network.config["pool"] != "picaso":
        raise ValueError(f"mixture_steps: only a cascade has steps; pool is {network.config['pool']!r}.")
    if isinstance(network.network, Canonicalize):
        found: Said = Canonicalize(AskedEveryStep(network.network.network), restore_all)(elements, mask)
    else:
        found = AskedEveryStep(network.network)(elements, mask)
    return MixtureSteps([network.mixture(estimates[:, :, 0]) for estimates in found.estimates], found.attention)


class Said(NamedTuple):
    """Estimates of every step, each (B, K, S, D + 2), and the attention."""

    estimates: list[Tensor]
    attention: Tensor


class AskedEveryStep(nn.Module):
    """An estimator whose templates are read after every step."""

    def __init__(self, estimator: nn.Module) -> None:
        super().__init__()
        self.estimator = estimator

    def forward(self, elements: Float[Tensor, "B N D"], mask: Bool[Tensor, "B N"] | None = None) -> Said:
        estimator = self.estimator
        assert isinstance(estimator, Estimator)
        assert isinstance(estimator.pool, PicasoPool)
        padded, present = read_set(self, elements, mask)
        encoded = estimator.encode(padded, present)
        trace = estimator.pool.trace(encoded, present)
        return Said(
            [estimator.read(templates, encoded, padded, present) for templates in trace.templates], trace.attention
        )


def restore_all(said: Said, shift: Float[Tensor, "B 1 D"], scale: Float[Tensor, "B 1 1"]) -> Said:
    return Said([restore(estimates, shift, scale) for estimates in said.estimates], said.attention)
