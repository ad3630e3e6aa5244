r"""A cascade whose templates may compete, know where they look, and start where something is: PICASO for scenes.

Beyond the paper's Eq. 5, each by itself an option:

    compete     elements     every template weighs all elements by itself, as in the paper
                templates    templates share each element out among themselves, as slots do (Locatello et al. 2020)
                both         the product of the two
    located     a template is told where it looked, and elements where they are, at every step
    initial     learned      the same templates for every image
                peaks        the places that a learned score likes best, each added to a template
    mixed       templates attend to each other after every step

Dimensions:  B images   N places   K templates   D features   H heads   L steps
"""

from collections.abc import Iterator
from typing import Literal, Unpack

import torch
from jaxtyping import Float
from torch import Tensor, nn

from picaset.checks import check_choice, check_divides, check_positive
from picaset.lab.networks.image_stems import Places
from picaset.operators.attention import ProjectedSet, join_heads
from picaset.operators.base import Trace, learned_templates
from picaset.operators.block import BlockOptions, MultiheadAttentionBlock
from picaset.operators.encoders import SelfAttention

Compete = Literal["elements", "templates", "both"]
Initial = Literal["learned", "peaks"]
EPSILON = 1e-8


class CompetingCascade(nn.Module):
    """PB with competition, positions and starts of its own; without any of them, :class:`PicasoPool`.

    Args:
        dim: Features of a place, in and out.
        num_templates: Vectors returned for each image.
        num_heads: Attention heads; divides ``dim``.
        num_steps: Times the places are attended to.
        compete: Over what the softmax of attention runs.
        located: Whether templates are told where they looked.
        initial: What templates are before the first step.
        mixed: Whether templates attend to each other.
        options: The keywords of :class:`MultiheadAttentionBlock`.

    Shapes:
        places    Places
        returns   (B, K, D)

    Example:
        >>> places = Places(torch.randn(2, 9, 8), torch.randn(9, 8), torch.rand(9, 2))
        >>> CompetingCascade(8, num_templates=3, num_heads=2, compete="both")(places).shape
        torch.Size([2, 3, 8])
    """

    def __init__(
        self,
        dim: int,
        *,
        num_templates: int,
        num_heads: int,
        num_steps: int = 3,
        compete: Compete = "templates",
        located: bool = True,
        initial: Initial = "learned",
        mixed: bool = False,
        **options: Unpack[BlockOptions],
    ) -> None:
        super().__init__()
        caller = type(self).__name__
        check_positive(caller=caller, num_templates=num_templates, num_steps=num_steps)
        check_divides(num_heads, dim, caller=caller)
        check_choice(compete, ("elements", "templates", "both"), caller=caller, name="compete")
        check_choice(initial, ("learned", "peaks"), caller=caller, name="initial")
        self.num_steps = num_steps
        self.compete: Compete = compete
        self.templates = learned_templates(num_templates, dim)
        self.block = MultiheadAttentionBlock(dim, dim, dim, num_heads=num_heads, **options)
        self.location = nn.Linear(2, dim) if located else None
        self.likes = nn.Linear(dim, 1) if initial == "peaks" else None
        self.mixing = SelfAttention(dim, dim, num_heads=num_heads, **options) if mixed else None

    def forward(self, places: Places) -> Float[Tensor, "B K D"]:
        return self.each_step(places)[-1]

    def each_step(self, places: Places) -> list[Float[Tensor, "B K D"]]:
        """The templates after every step."""
        view, first = self.view(places), self.first(places.elements)
        return [templates for templates, _ in self.steps(first, view, places.grid)]

    def trace(self, places: Places) -> Trace:
        """The templates and the attention of every step."""
        view, first = self.view(places), self.first(places.elements)
        templates, attention = zip(*self.steps(first, view, places.grid), strict=True)
        return Trace(torch.stack([first, *templates]), torch.stack(attention))

    def steps(
        self, templates: Float[Tensor, "B K D"], view: ProjectedSet, grid: Float[Tensor, "N 2"]
    ) -> Iterator[tuple[Float[Tensor, "B K D"], Float[Tensor, "B H K N"]]]:
        """After each step the templates, and what they attended to in it."""
        for _ in range(self.num_steps):
            weights = self.weights(templates, view)
            templates = self.step(templates, weights, view, grid)
            yield templates, weights

    def view(self, places: Places) -> ProjectedSet:
        elements = places.elements if self.location is None else places.elements + places.positions
        view = self.block.view(elements, None, num_queries=None, order="project")
        assert isinstance(view, ProjectedSet)
        return view

    def first(self, elements: Float[Tensor, "B N D"]) -> Float[Tensor, "B K D"]:
        """The templates before the first step."""
        templates = self.templates.expand(len(elements), -1, -1)
        if self.likes is None:
            return templates
        scores = self.likes(elements)[..., 0]  # (B, N)
        places = highest_peaks(scores, len(self.templates))
        liked = elements.gather(1, places[..., None].expand(-1, -1, elements.shape[2]))
        # The score takes part in the result, so that it learns what to like.
        return templates + scores.gather(1, places).sigmoid()[..., None] * liked

    def weights(self, templates: Float[Tensor, "B K D"], view: ProjectedSet) -> Float[Tensor, "B H K N"]:
        """How much of its mean each template takes from each place; they add up to one over the places."""
        scores = view.scores(self.block.query_map(templates))
        if self.compete == "elements":
            return scores.softmax(dim=-1)
        shares = scores.softmax(dim=2)
        if self.compete == "both":
            shares = shares * scores.softmax(dim=3)
        shares = shares + EPSILON
        return shares / shares.sum(dim=3, keepdim=True)

    def step(
        self,
        templates: Float[Tensor, "B K D"],
        weights: Float[Tensor, "B H K N"],
        view: ProjectedSet,
        grid: Float[Tensor, "N 2"],
    ) -> Float[Tensor, "B K D"]:
        heads = join_heads(weights @ view.values)
        updated = self.block.combine(templates, self.block.query_map(templates), heads)
        if self.location is not None:
            updated = updated + self.location(weights.mean(dim=1) @ grid)
        return updated if self.mixing is None else self.mixing(updated)


def highest_peaks(scores: Float[Tensor, "B N"], count: int) -> Tensor:
    """The places of the highest scores of a square grid, peaks before all others: (B, count)."""
    fixed = scores.detach()
    side = round(scores.shape[1] ** 0.5)
    around: Tensor = nn.functional.max_pool2d(fixed.view(-1, 1, side, side), 3, stride=1, padding=1).flatten(1)
    below_all = fixed.amax() - fixed.amin()
    return torch.where(fixed >= around, fixed, fixed - below_all).topk(count, dim=1).indices
