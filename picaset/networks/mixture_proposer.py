"""Several guesses at the Gaussian mixture of a set, for any number of components up to a largest.

Expectation-maximization climbs to the nearest summit of the likelihood. A network that has seen many mixtures knows
where summits are, and several guesses from one look at the set are worth more than one: the best is kept.

Dimensions:  B sets   N points   P proposals   K components   D coordinates   E features   L steps
"""

import math
from typing import Unpack

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import softplus

from picaset.checks import check_divides, check_positive
from picaset.networks.pretrained import PretrainedNetwork
from picaset.operators.base import learned_templates, read_set
from picaset.operators.block import BlockOptions, MultiheadAttentionBlock
from picaset.operators.canonicalize import canonical_of
from picaset.operators.encoders import SelfAttention
from picaset.operators.mixture import Mixture

SMALLEST_DEVIATION = 1e-3
"""Below it no predicted component gets, so that no likelihood is infinite."""


class MixtureProposer(PretrainedNetwork):
    """Propose Gaussian mixtures for each set of points; they move and grow with the points exactly.

    A cascade as PICASO's, with templates that talk: each step they ask the points, then those of one proposal learn of
    each other. A template is a component in the making, and a learned vector tells it how many there are to be. Points
    are never encoded, only asked, so a proposal costs about as much as a few steps of expectation-maximization.

    Args:
        dim_in: Coordinates of a point.
        max_components: The most components that can be asked for.
        num_proposals: Mixtures for each set.
        dim: Features of a template.
        num_heads: Attention heads; divides ``dim``.
        num_steps: Steps of the cascade.
        share: One pair of blocks for all steps, or one for each.
        num_frequencies: Sines and cosines of each coordinate that are shown to the templates beside it.
        options: The keywords of :class:`MultiheadAttentionBlock`, for every block.

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
        check_divides(num_heads, dim, caller=caller)
        super().__init__()
        self.dim_in = dim_in
        self.max_components = max_components
        self.num_proposals = num_proposals
        self.num_steps = num_steps
        self.num_frequencies = num_frequencies
        shown, times = dim_in * (1 + 2 * num_frequencies), 1 if share else num_steps
        self.templates = learned_templates(num_proposals * max_components, dim)
        self.numbers = learned_templates(max_components, dim)  # one vector for each number of components
        self.ask = nn.ModuleList(
            MultiheadAttentionBlock(dim, shown, dim, num_heads=num_heads, **options) for _ in range(times)
        )
        self.talk = nn.ModuleList(SelfAttention(dim, dim, num_heads=num_heads, **options) for _ in range(times))
        self.read = nn.Linear(dim, dim_in + 2)

    def forward(
        self,
        elements: Float[Tensor, "B N D"],
        mask: Bool[Tensor, "B N"] | None = None,
        *,
        num_components: int,
        every_step: bool = False,
    ) -> Mixture:
        """Propose for every set; ``mask`` is True where a point is present, None means all are.

        With ``every_step``, L times as many mixtures come back: those after each step of the cascade, the last ones
        last.
        """
        if not 1 <= num_components <= self.max_components:
            raise ValueError(
                f"{type(self).__name__}: num_components must be from 1 to {self.max_components}; got {num_components}."
            )
        elements, mask = read_set(self, elements, mask)
        canonical, place = canonical_of(elements, mask)
        found = self.propose(canonical, mask, num_components, every_step=every_step)
        steps = len(found.means) // (len(elements) * self.num_proposals)
        shift, scale = (part.repeat_interleave(self.num_proposals, dim=0).repeat(steps, 1, 1) for part in place)
        return Mixture(found.means * scale + shift, found.variances * scale.square(), found.log_weights)

    def propose(
        self,
        points: Float[Tensor, "B N D"],
        mask: Bool[Tensor, "B N"] | None,
        num_components: int,
        *,
        every_step: bool = False,
    ) -> Mixture:
        """The same for points that are canonical already, and zero where absent."""
        steps = self.cascade(points, mask, num_components)
        read = components(self.read(torch.cat(steps) if every_step else steps[-1]))  # (L B P, K, D + 2)
        return Mixture(read[..., : self.dim_in], read[..., -2:-1].exp(), read[..., -1])

    def cascade(
        self, points: Float[Tensor, "B N D"], mask: Bool[Tensor, "B N"] | None, num_components: int
    ) -> list[Float[Tensor, "BP K E"]]:
        """The templates after each step."""
        shown = with_frequencies(points, self.num_frequencies)
        templates = self.templates.view(self.num_proposals, self.max_components, -1)
        templates = templates[:, :num_components] + self.numbers[num_components - 1]
        questions, steps = templates.flatten(0, 1)[None], list[Tensor]()  # (1, P K, E), the same for all sets
        for step in range(self.num_steps):
            ask, talk = self.ask[min(step, len(self.ask) - 1)], self.talk[min(step, len(self.talk) - 1)]
            assert isinstance(ask, MultiheadAttentionBlock)
            assert isinstance(talk, SelfAttention)
            answers = ask.update(questions, ask.view(shown, mask, num_queries=questions.shape[1]))  # (B, P K, E)
            steps.append(talk.encode(answers.reshape(-1, num_components, answers.shape[2]), None))
            questions = steps[-1].reshape(answers.shape)
        return steps


def components(read: Float[Tensor, "B K D_plus_2"]) -> Float[Tensor, "B K D_plus_2"]:
    """Mean, logarithm of the variance and logarithm of the weight from numbers without bounds."""
    deviations = softplus(read[..., -2:-1]) + SMALLEST_DEVIATION
    return torch.cat([read[..., :-2], 2 * deviations.log(), read[..., -1:].log_softmax(dim=1)], dim=-1)


def with_frequencies(points: Float[Tensor, "B N D"], num_frequencies: int) -> Float[Tensor, "B N E"]:
    """The points, and sines and cosines of their coordinates at octaves from half a wave per unit."""
    waves = [points * (math.pi / 2 * 2**octave) for octave in range(num_frequencies)]
    return torch.cat([points, *(wave(angle) for angle in waves for wave in (torch.sin, torch.cos))], dim=-1)
