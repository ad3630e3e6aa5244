"""Propose several Gaussian mixtures for a set of points, as starts of expectation-maximization.

Expectation-maximization converges to a nearby local maximum of the likelihood. A network trained on many mixtures
proposes several good starts in one pass, for any number of components up to a maximum; the best result is taken.

Dimensions:  B sets   N points   P proposals   K components   D coordinates   E features   L steps
"""

import math
from typing import Unpack

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import softplus

from picaset.checks import check_num_heads, check_positive
from picaset.operators.base import learned_templates, read_set
from picaset.operators.block import BlockOptions, MultiheadAttentionBlock
from picaset.operators.canonicalize import standardize
from picaset.operators.encoders import SelfAttention
from picaset.operators.mixture import Mixture
from picaset.pretrained import PretrainedNetwork

SMALLEST_DEVIATION = 1e-3
"""Smallest standard deviation of a predicted component; it keeps the likelihood finite."""


class MixtureProposer(PretrainedNetwork):
    """Propose Gaussian mixtures for each set of points, equivariant to shifts and to the scale of the points.

    A PICASO cascade with one template per component. In each step the templates attend to the points, then those of one
    proposal attend to each other. A learned vector tells the templates the number of components. Points are not
    encoded, so a proposal costs about as much as a few steps of expectation-maximization.

    Args:
        dim_in: Coordinates of a point.
        max_components: Largest number of components.
        num_proposals: Mixtures per set.
        dim: Features of a template.
        num_heads: Attention heads; divides ``dim``.
        num_steps: Steps of the cascade.
        share: One pair of blocks for all steps, instead of one for each.
        num_frequencies: Number of frequencies whose sines and cosines of each coordinate are added to the features.
        options: Keywords of :class:`MultiheadAttentionBlock`, for every block.

    Shapes:
        elements  (B, N, dim_in)
        mask      (B, N)            True where a point is present; None means all are
        returns   a Mixture of B * P sets, the proposals of one set next to each other

    Example:
        >>> mixtures = MixtureProposer(num_proposals=4, dim=16)(torch.randn(8, 100, 2), num_components=3)
        >>> mixtures.means.shape, mixtures.variances.shape, mixtures.log_weights.shape
        (torch.Size([32, 3, 2]), torch.Size([32, 3, 1]), torch.Size([32, 3]))
    """

    def __init__(
        self,
        *,
        dim_in: int = 2,
        max_components: int = 8,
        num_proposals: int = 4,
        dim: int = 64,
        num_heads: int = 4,
        num_steps: int = 2,
        share: bool = False,
        num_frequencies: int = 3,
        **options: Unpack[BlockOptions],
    ) -> None:
        caller = type(self).__name__
        check_positive(
            caller=caller,
            dim_in=dim_in,
            max_components=max_components,
            num_proposals=num_proposals,
            num_steps=num_steps,
        )
        check_num_heads(num_heads, dim, caller=caller)
        super().__init__()
        self.dim_in = dim_in
        self.max_components = max_components
        self.num_proposals = num_proposals
        self.num_steps = num_steps
        self.num_frequencies = num_frequencies
        dim_points, num_blocks = dim_in * (1 + 2 * num_frequencies), 1 if share else num_steps
        self.templates = learned_templates(num_proposals * max_components, dim)
        self.numbers = learned_templates(max_components, dim)  # one vector for each number of components
        self.ask = nn.ModuleList(
            MultiheadAttentionBlock(dim, dim_points, dim, num_heads=num_heads, **options) for _ in range(num_blocks)
        )
        self.talk = nn.ModuleList(SelfAttention(dim, dim, num_heads=num_heads, **options) for _ in range(num_blocks))
        self.read = nn.Linear(dim, dim_in + 2)

    def forward(
        self,
        elements: Float[Tensor, "B N D"],
        mask: Bool[Tensor, "B N"] | None = None,
        *,
        num_components: int,
        every_step: bool = False,
    ) -> Mixture:
        """Propose mixtures of ``num_components`` components.

        With ``every_step``, return L times as many mixtures: those after each step of the cascade, in order.
        """
        if not 1 <= num_components <= self.max_components:
            raise ValueError(
                f"{type(self).__name__}: num_components must be from 1 to {self.max_components}; got {num_components}."
            )
        elements, mask = read_set(self, elements, mask)
        canonical, place = standardize(elements, mask)
        proposals = self.propose_canonical(canonical, mask, num_components, every_step=every_step)
        steps = self.num_steps if every_step else 1
        shift, scale = (part.repeat_interleave(self.num_proposals, dim=0).repeat(steps, 1, 1) for part in place)
        return Mixture(proposals.means * scale + shift, proposals.variances * scale.square(), proposals.log_weights)

    def propose_canonical(
        self,
        points: Float[Tensor, "B N D"],
        mask: Bool[Tensor, "B N"] | None,
        num_components: int,
        *,
        every_step: bool = False,
    ) -> Mixture:
        """Propose mixtures for points that are already canonical, and zero where absent."""
        steps = self.cascade(points, mask, num_components)
        estimates = components(self.read(torch.cat(steps) if every_step else steps[-1]))  # (L B P, K, D + 2)
        return Mixture(estimates[..., : self.dim_in], estimates[..., -2:-1].exp(), estimates[..., -1])

    def cascade(
        self, points: Float[Tensor, "B N D"], mask: Bool[Tensor, "B N"] | None, num_components: int
    ) -> list[Float[Tensor, "BP K E"]]:
        """Return the templates after each step."""
        features = with_frequencies(points, self.num_frequencies)
        templates = self.templates.view(self.num_proposals, self.max_components, -1)
        templates = templates[:, :num_components] + self.numbers[num_components - 1]
        queries, steps = templates.flatten(0, 1)[None], list[Tensor]()  # (1, P K, E), the same for all sets
        for step in range(self.num_steps):
            ask, talk = self.ask[min(step, len(self.ask) - 1)], self.talk[min(step, len(self.talk) - 1)]
            assert isinstance(ask, MultiheadAttentionBlock)
            assert isinstance(talk, SelfAttention)
            attended = ask.update(queries, ask.view(features, mask, num_queries=queries.shape[1]))  # (B, P K, E)
            steps.append(talk.encode(attended.reshape(-1, num_components, attended.shape[2]), None))
            queries = steps[-1].reshape(attended.shape)
        return steps


def components(outputs: Float[Tensor, "B K D_plus_2"]) -> Float[Tensor, "B K D_plus_2"]:
    """Map unbounded outputs to the mean, log variance and log weight of each component."""
    deviations = softplus(outputs[..., -2:-1]) + SMALLEST_DEVIATION
    return torch.cat([outputs[..., :-2], 2 * deviations.log(), outputs[..., -1:].log_softmax(dim=1)], dim=-1)


def with_frequencies(points: Float[Tensor, "B N D"], num_frequencies: int) -> Float[Tensor, "B N E"]:
    """Append sines and cosines of the coordinates, at octaves from a quarter of a period per unit."""
    angles = [points * (math.pi / 2 * 2**octave) for octave in range(num_frequencies)]
    return torch.cat([points, *(wave(angle) for angle in angles for wave in (torch.sin, torch.cos))], dim=-1)
