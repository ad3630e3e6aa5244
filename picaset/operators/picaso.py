"""PICASO: each answer of the set becomes the next question (PB, Eq. 5; Zare and Nguyen 2021).

All steps share one block, so the number of parameters does not depend on how often the set is
asked, and one view of the set (its keys and values, or its elements as they are) serves all steps.

Dimensions:  B sets   N elements (padded)   K templates   D features   H heads   L steps

Generalized PICASO: the set is rewritten by the answers it gave (GPB, Eq. 6; Zare and Nguyen 2021).

Dimensions:  B sets   N elements (padded)   K templates   D features   H heads   L steps
"""

from collections.abc import Iterator
from typing import NamedTuple, Unpack

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from picaset.checks import check_choice, check_divides, check_positive
from picaset.operators.attention import Order, SetView
from picaset.operators.base import SetPool, Trace, check_fits, learned_templates, read_set, write_attention, write_set
from picaset.operators.block import BlockOptions, MultiheadAttentionBlock
from picaset.operators.buckets import pool_and_encode_in_buckets
from picaset.operators.state import AttentionState
from picaset.sets import SetBatch


class PicasoPool(SetPool):
    r"""PB: pool a set by attending to it again with the last answer as the question (Eq. 5).

    .. math::  T_0 = \text{learned templates}, \qquad T_{i+1} = \mathrm{MAB}(T_i, X)

    Args:
        dim: Features of an element, in and out.
        num_templates: Vectors returned per set.
        num_heads: Attention heads; divides ``dim``.
        num_steps: Times the set is attended to; 1 is :class:`AttentionPool`.
        share: One block for all steps, or one for each (the paper's ablation).
        order: How attention is evaluated; None takes the cheapest. The result does not depend on it.
        options: The keywords of :class:`MultiheadAttentionBlock`.

    Shapes:
        elements  (B, N, D)    or a SetBatch
        mask      (B, N)       True where an element is present; None means all are
        returns   (B, K, D)

    Example:
        >>> pool = PicasoPool(dim=16, num_templates=4, num_heads=2)
        >>> pool(torch.randn(8, 100, 16)).shape
        torch.Size([8, 4, 16])
        >>> trace = pool.trace(torch.randn(8, 100, 16))
        >>> trace.templates.shape, trace.attention.shape
        (torch.Size([4, 8, 4, 16]), torch.Size([3, 8, 2, 4, 100]))
    """

    def __init__(
        self,
        dim: int,
        *,
        num_templates: int,
        num_heads: int,
        num_steps: int = 3,
        share: bool = True,
        order: Order | None = None,
        **options: Unpack[BlockOptions],
    ) -> None:
        super().__init__()
        caller = type(self).__name__
        check_positive(caller=caller, num_templates=num_templates, num_steps=num_steps)
        check_divides(num_heads, dim, caller=caller)
        if order is not None:
            check_choice(order, ("project", "absorb"), caller=caller, name="order")
        self.dim_in = dim
        self.num_steps = num_steps
        self.order: Order | None = order
        self.templates = learned_templates(num_templates, dim)
        self.blocks = nn.ModuleList(
            MultiheadAttentionBlock(dim, dim, dim, num_heads=num_heads, **options)
            for _ in range(1 if share else num_steps)
        )

    def pool(self, elements: Float[Tensor, "B N D"], mask: Bool[Tensor, "B N"] | None) -> Float[Tensor, "B K D"]:
        templates = self.templates[None]  # the first question is the same for all sets
        for block, view in self.steps(elements, mask):
            templates = block.update(templates, view)
        return templates

    def trace(
        self,
        elements: Float[Tensor, "B N D"] | SetBatch,
        mask: Bool[Tensor, "B N"] | None = None,
    ) -> Trace:
        """The templates and the attention of every step."""
        padded, present = read_set(self, elements, mask)
        templates, attention = [self.initial(padded.shape[0])], list[Tensor]()
        for block, view in self.steps(padded, present):
            attention.append(block.weights(templates[-1], view))
            templates.append(block.update(templates[-1], view))
        return Trace(torch.stack(templates), write_attention(torch.stack(attention), present, like=elements))

    def summarize(
        self,
        elements: Float[Tensor, "B N D"] | SetBatch,
        templates: Float[Tensor, "B K D"],
        mask: Bool[Tensor, "B N"] | None = None,
        *,
        step: int = 0,
    ) -> AttentionState:
        """What the templates need to know of a part of a set; the states of its parts merge.

        Example:
            >>> pool, elements = PicasoPool(8, num_templates=2, num_heads=2), torch.randn(1, 9, 8)
            >>> templates = pool.initial(1)
            >>> for _ in range(pool.num_steps):
            ...     first, second = (pool.summarize(part, templates) for part in elements.split(5, dim=1))
            ...     templates = pool.finish(first.merge(second), templates)
            >>> torch.allclose(templates, pool(elements), atol=1e-5)
            True
        """
        padded, present = read_set(self, elements, mask)
        return self.block(step).summarize(templates, padded, present)

    def finish(
        self, state: AttentionState, templates: Float[Tensor, "B K D"], *, step: int = 0
    ) -> Float[Tensor, "B K D"]:
        """The templates after a step over the set that ``state`` summarizes."""
        return self.block(step).finish(templates, state)

    def extra_repr(self) -> str:
        num_templates, dim = self.templates.shape
        return (
            f"dim={dim}, num_templates={num_templates}, num_heads={self.block(0).num_heads}, num_steps={self.num_steps}"
        )

    def initial(self, num_sets: int) -> Float[Tensor, "B K D"]:
        """The learned templates, once for each set."""
        return self.templates.expand(num_sets, -1, -1)

    def block(self, step: int) -> MultiheadAttentionBlock:
        """The block of a step: one for all, unless each has its own."""
        block = self.blocks[min(step, len(self.blocks) - 1)]
        assert isinstance(block, MultiheadAttentionBlock)
        return block

    def steps(
        self, elements: Float[Tensor, "B N D"], mask: Bool[Tensor, "B N"] | None
    ) -> Iterator[tuple[MultiheadAttentionBlock, SetView]]:
        """Each step's block and its view of the set; a shared block needs one view only."""
        num_templates = self.templates.shape[0]
        uses = self.num_steps // len(self.blocks)
        view = None
        for step in range(self.num_steps):
            block = self.block(step)
            if view is None or len(self.blocks) > 1:
                view = block.view(elements, mask, num_queries=num_templates, num_steps=uses, order=self.order)
            yield block, view


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
