"""Generalized PICASO: the set is rewritten by the answers it gave (GPB, Eq. 6; Zare and Nguyen 2021).

Dimensions:  B sets   N elements (padded)   K templates   D features   H heads   L steps
"""

from collections.abc import Iterator
from typing import NamedTuple, Unpack

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from picaset.checks import check_divides, check_positive
from picaset.operators.block import BlockOptions, MultiheadAttentionBlock
from picaset.operators.buckets import pool_and_encode_in_buckets
from picaset.operators.inputs import check_fits, read_set, write_set
from picaset.operators.templates import learned_templates
from picaset.operators.trace import Trace, write_attention
from picaset.sets import SetBatch


class Step(NamedTuple):
    """Where a cascade stands after a step: T_i, X_i, and the weights with which T_i was read from X_{i-1}."""

    templates: Float[Tensor, "B K D"]
    elements: Float[Tensor, "B N D"]
    attention: Float[Tensor, "B H K N"] | None


class GeneralizedPicaso(nn.Module):
    r"""GPB: the templates read the set, and the set is rewritten by the templates (Eq. 6).

    .. math::  T_{i+1} = \mathrm{MAB}(T_i, X_i), \qquad X_i = \mathrm{MAB}(X_{i-1}, T_i), \qquad X_0 = X

    Returns both ends of the cascade, :math:`T_L` and :math:`X_L = \mathrm{MAB}(X_{L-1}, T_L)`.

    Args:
        dim: Features of an element, in and out.
        num_templates: Vectors the set is read into.
        num_heads: Attention heads; divides ``dim``.
        num_steps: Times the set is read and rewritten.
        tied: One block for both directions, as in the authors' program, or one for each.
        options: The keywords of :class:`MultiheadAttentionBlock`.

    Shapes:
        elements  (B, N, D)                 or a SetBatch
        mask      (B, N)                    True where an element is present; None means all are
        returns   (B, K, D) and (B, N, D)   the second a SetBatch if the elements were one

    Example:
        >>> templates, elements = GeneralizedPicaso(16, num_templates=4, num_heads=2)(torch.randn(8, 100, 16))
        >>> templates.shape, elements.shape
        (torch.Size([8, 4, 16]), torch.Size([8, 100, 16]))
    """

    def __init__(
        self,
        dim: int,
        *,
        num_templates: int,
        num_heads: int,
        num_steps: int = 3,
        tied: bool = True,
        **options: Unpack[BlockOptions],
    ) -> None:
        super().__init__()
        check_positive(caller=type(self).__name__, num_templates=num_templates, num_steps=num_steps)
        check_divides(num_heads, dim, caller=type(self).__name__)
        self.dim_in = dim
        self.num_steps = num_steps
        self.templates = learned_templates(num_templates, dim)
        self.reading = MultiheadAttentionBlock(dim, dim, dim, num_heads=num_heads, **options)
        # None means that the reading block rewrites too: a module under two names would be saved twice.
        self.rewriting = None if tied else MultiheadAttentionBlock(dim, dim, dim, num_heads=num_heads, **options)

    def forward(
        self,
        elements: Float[Tensor, "B N D"] | SetBatch,
        mask: Bool[Tensor, "B N"] | None = None,
    ) -> tuple[Float[Tensor, "B K D"], Float[Tensor, "B N D"] | SetBatch]:
        """Both ends of the cascade; ``mask`` is True where an element is present, None means all are."""
        if isinstance(elements, SetBatch):
            check_fits(self, elements, mask)
            return pool_and_encode_in_buckets(elements, self.ends)
        padded, present = read_set(self, elements, mask)
        templates, rewritten = self.ends(padded, present)
        return templates, write_set(rewritten, present, like=elements)

    def trace(
        self,
        elements: Float[Tensor, "B N D"] | SetBatch,
        mask: Bool[Tensor, "B N"] | None = None,
    ) -> Trace:
        """The templates, and the attention with which each step read the set."""
        padded, present = read_set(self, elements, mask)
        steps = list(self.steps(padded, present, with_attention=True))
        templates = torch.stack([step.templates for step in steps])
        attention = torch.stack([step.attention for step in steps if step.attention is not None])
        return Trace(templates, write_attention(attention, present, like=elements))

    def ends(
        self, elements: Float[Tensor, "B N D"], mask: Bool[Tensor, "B N"] | None
    ) -> tuple[Float[Tensor, "B K D"], Float[Tensor, "B N D"]]:
        *_, last = self.steps(elements, mask)
        return last.templates, last.elements

    def steps(
        self,
        elements: Float[Tensor, "B N D"],
        mask: Bool[Tensor, "B N"] | None,
        *,
        with_attention: bool = False,
    ) -> Iterator[Step]:
        """The start, then the cascade after each step."""
        rewriting = self.rewriting or self.reading
        templates = self.templates.expand(elements.shape[0], -1, -1)  # (B, K, D)
        yield Step(templates, elements, None)
        for _ in range(self.num_steps):
            view = self.reading.view(elements, mask, num_queries=templates.shape[1])
            attention = self.reading.weights(templates, view) if with_attention else None
            templates = self.reading.update(templates, view)
            elements = rewriting.update(elements, rewriting.view(templates, None, num_queries=None))
            yield Step(templates, elements, attention)
