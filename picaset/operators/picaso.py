"""PICASO: each answer of the set becomes the next question (PB, Eq. 5; Zare and Nguyen 2021).

All steps share one block, so the number of parameters does not depend on how often the set is
asked, and one view of the set (its keys and values, or its elements as they are) serves all steps.

Dimensions:  B sets   N elements (padded)   K templates   D features   H heads   L steps
"""

from collections.abc import Iterator
from typing import Unpack

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from picaset.checks import check_choice, check_divides, check_positive
from picaset.operators.attention import Order, SetView
from picaset.operators.block import BlockOptions, MultiheadAttentionBlock
from picaset.operators.inputs import SetPool, read_set
from picaset.operators.state import AttentionState
from picaset.operators.templates import learned_templates
from picaset.operators.trace import Trace, write_attention
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
