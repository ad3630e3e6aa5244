r"""PICASO: attention pooling in several steps, each output being the next queries (Zare and Nguyen 2021).

    PicasoPool           templates attend to the set repeatedly                             (PB, Eq. 5)
    GeneralizedPicaso    and the set attends to the templates after every step              (GPB, Eq. 6)

All steps share one block, so the number of parameters does not depend on the number of steps, and ``PicasoPool``
computes one view of the set (its keys and values, or the set itself) for all steps.

Dimensions:  B sets   N elements (padded)   K templates   D features   H heads   L steps
"""

from typing import Unpack

from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn

from picaset.checks import check_choice, check_num_heads, check_positive
from picaset.operators.attention import Order, SetView
from picaset.operators.base import (
    Cascade,
    CascadePool,
    CascadeStep,
    check_input_set,
    learned_templates,
    read_set,
    write_set,
)
from picaset.operators.block import BlockOptions, MultiheadAttentionBlock
from picaset.operators.buckets import pool_and_encode_in_buckets
from picaset.operators.state import AttentionState, Presence
from picaset.sets import SetBatch


class PicasoPool(CascadePool):
    r"""Pool a set by repeated attention: the output of each step is the query of the next.

    The PICASO block (PB) of Zare and Nguyen 2021, Eq. 5; MAB is :class:`MultiheadAttentionBlock`.

    .. math::  T_0 = \text{learned templates}, \qquad T_{i+1} = \mathrm{MAB}(T_i, X)

    Args:
        dim: Features of an element, in and out.
        num_templates: Vectors returned per set.
        num_heads: Attention heads; divides ``dim``.
        num_steps: Number of attention steps; 1 is :class:`AttentionPool`.
        share: Whether all steps share one block, or each has its own (the paper's ablation).
        order: Order in which attention is evaluated; None selects the cheapest. The result does not depend on it.
        options: Options of :class:`MultiheadAttentionBlock`: ``form``, ``norm``, ``residual`` and others.

    Shapes:
        elements  (B, N, D)    or a SetBatch
        mask      (B, N)       True where an element is present; None if all are
        returns   (B, K, D)

    Example:
        >>> import torch
        >>> pool = PicasoPool(dim=16, num_templates=4, num_heads=2)
        >>> pool(torch.randn(8, 100, 16)).shape
        torch.Size([8, 4, 16])
        >>> trace = pool.trace(torch.randn(8, 100, 16))
        >>> trace.templates.shape, trace.attention.shape
        (torch.Size([4, 8, 4, 16]), torch.Size([3, 8, 2, 4, 100]))
    """

    takes_weights = True

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
        check_num_heads(num_heads, dim, caller=caller)
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

    def forward(
        self,
        elements: Float[Tensor, "B N D"] | SetBatch,
        mask: Bool[Tensor, "B N"] | None = None,
        weights: Shaped[Tensor, "B N"] | None = None,
    ) -> Float[Tensor, "B K D"]:
        if not isinstance(elements, SetBatch) or not self.is_fused(elements.weights):
            return super().forward(elements, mask, weights)
        check_input_set(self, elements, mask, weights)
        return self.block(0).attend_in_steps(self.templates[None], elements, None, num_steps=self.num_steps)

    def pool(self, elements: Float[Tensor, "B N D"], mask: Presence | None) -> Float[Tensor, "B K D"]:
        if not self.is_fused(mask):
            return super().pool(elements, mask)
        return self.block(0).attend_in_steps(
            self.templates[None], elements, mask, num_steps=self.num_steps, order=self.order
        )

    def is_fused(self, mask: Tensor | None) -> bool:
        """Whether all steps are one autograd node: with one block, if the absorbed order is the cheapest.

        Not in a subclass with an ``advance`` of its own, which the node would leave out.
        """
        if type(self).advance is not PicasoPool.advance:
            return False
        block = self.block(0)
        order = self.order or block.cheapest_order(num_queries=self.templates.shape[0], num_steps=self.num_steps)
        return len(self.blocks) == 1 and order == "absorb" and block.is_fused(mask)

    def begin(self, elements: Float[Tensor, "B N D"], mask: Presence | None) -> CascadeStep:
        return CascadeStep(self.templates[None], (elements, mask, self.view(elements, mask, index=0)))

    def advance(self, step: CascadeStep, index: int, *, with_attention: bool) -> CascadeStep:
        block = self.block(index)
        elements, mask, view = step.inputs
        if index > 0 and len(self.blocks) > 1:
            view = self.view(elements, mask, index=index)
        attention = block.weights(step.templates, view) if with_attention else None
        return CascadeStep(block.update(step.templates, view), (elements, mask, view), attention)

    def view(self, elements: Float[Tensor, "B N D"], mask: Presence | None, *, index: int) -> SetView:
        """Return the set as step number ``index`` attends to it; a shared block has one view for all steps."""
        return self.block(index).view(
            elements,
            mask,
            num_queries=self.templates.shape[0],
            num_steps=self.num_steps // len(self.blocks),
            order=self.order,
        )

    def summarize(
        self,
        elements: Float[Tensor, "B N D"] | SetBatch,
        templates: Float[Tensor, "B K D"],
        mask: Bool[Tensor, "B N"] | None = None,
        weights: Shaped[Tensor, "B N"] | None = None,
        *,
        step: int = 0,
    ) -> AttentionState:
        """Return the softmax statistics of a part of a set for one step; those of all parts merge.

        Example:
            >>> import torch
            >>> pool, elements = PicasoPool(8, num_templates=2, num_heads=2), torch.randn(1, 9, 8)
            >>> templates = pool.initial(1)
            >>> for _ in range(pool.num_steps):
            ...     first, second = (pool.summarize(part, templates) for part in elements.split(5, dim=1))
            ...     templates = pool.finish(first.merge(second), templates)
            >>> torch.allclose(templates, pool(elements), atol=1e-5)
            True
        """
        padded, merged = read_set(self, elements, mask, weights)
        return self.block(step).summarize(templates, padded, merged)

    def finish(
        self, state: AttentionState, templates: Float[Tensor, "B K D"], *, step: int = 0
    ) -> Float[Tensor, "B K D"]:
        """Return the templates after a step, from the merged ``state`` of the set."""
        return self.block(step).finish(templates, state)

    def extra_repr(self) -> str:
        """Return the sizes for ``repr``."""
        num_templates, dim = self.templates.shape
        return (
            f"dim={dim}, num_templates={num_templates}, num_heads={self.block(0).num_heads}, num_steps={self.num_steps}"
        )

    def initial(self, num_sets: int) -> Float[Tensor, "B K D"]:
        """Return the learned templates, repeated for each set."""
        return self.templates.expand(num_sets, -1, -1)

    def block(self, step: int) -> MultiheadAttentionBlock:
        """Return the block of a step."""
        # Indexing a list of modules is slow, which matters for small sets.
        blocks = self.blocks._modules  # pyright: ignore[reportPrivateUsage]
        block = blocks[str(min(step, len(blocks) - 1))]
        assert isinstance(block, MultiheadAttentionBlock)
        return block


class GeneralizedPicaso(Cascade):
    r"""Update templates and elements in turns: templates attend to the set, then the set to the templates.

    The generalized PICASO block (GPB) of Zare and Nguyen 2021, Eq. 6; MAB is :class:`MultiheadAttentionBlock`.

    .. math::  T_{i+1} = \mathrm{MAB}(T_i, X_i), \qquad X_i = \mathrm{MAB}(X_{i-1}, T_i), \qquad X_0 = X

    Returns the last templates :math:`T_L` and elements :math:`X_L = \mathrm{MAB}(X_{L-1}, T_L)`.

    Args:
        dim: Features of an element, in and out.
        num_templates: Templates returned per set.
        num_heads: Attention heads; divides ``dim``.
        num_steps: Number of updates of templates and elements.
        tied: Whether one block serves both directions, as in the authors' program, or each has its own.
        options: Options of :class:`MultiheadAttentionBlock`: ``form``, ``norm``, ``residual`` and others.

    Shapes:
        elements  (B, N, D)                 or a SetBatch
        mask      (B, N)                    True where an element is present; None if all are
        returns   (B, K, D) and (B, N, D)   the second is a SetBatch if the elements are one

    Example:
        >>> import torch
        >>> templates, elements = GeneralizedPicaso(16, num_templates=4, num_heads=2)(torch.randn(8, 100, 16))
        >>> templates.shape, elements.shape
        (torch.Size([8, 4, 16]), torch.Size([8, 100, 16]))
    """

    takes_weights = True

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
        check_num_heads(num_heads, dim, caller=type(self).__name__)
        self.dim_in = dim
        self.num_steps = num_steps
        self.templates = learned_templates(num_templates, dim)
        self.reading = MultiheadAttentionBlock(dim, dim, dim, num_heads=num_heads, **options)
        # None if tied: one module under two names would be saved twice.
        self.rewriting = None if tied else MultiheadAttentionBlock(dim, dim, dim, num_heads=num_heads, **options)

    def forward(
        self,
        elements: Float[Tensor, "B N D"] | SetBatch,
        mask: Bool[Tensor, "B N"] | None = None,
        weights: Shaped[Tensor, "B N"] | None = None,
    ) -> tuple[Float[Tensor, "B K D"], Float[Tensor, "B N D"] | SetBatch]:
        """Return the last templates and elements; ``mask`` is True where an element is present, None if all are.

        An element of weight w counts as w copies of it; ``weights`` of None are ones.
        """
        if isinstance(elements, SetBatch):
            check_input_set(self, elements, mask, weights)
            return pool_and_encode_in_buckets(elements, self.pool_and_encode)
        padded, merged = read_set(self, elements, mask, weights)
        templates, encoded = self.pool_and_encode(padded, merged)
        return templates, write_set(encoded, merged, like=elements)

    def pool_and_encode(
        self, elements: Float[Tensor, "B N D"], mask: Presence | None
    ) -> tuple[Float[Tensor, "B K D"], Float[Tensor, "B N D"]]:
        """Return the last templates and elements of padded sets whose absent elements are zero."""
        templates, (encoded, _), _ = self.run(elements, mask)
        return templates, encoded

    def begin(self, elements: Float[Tensor, "B N D"], mask: Presence | None) -> CascadeStep:
        return CascadeStep(self.templates.expand(elements.shape[0], -1, -1), (elements, mask))

    def advance(self, step: CascadeStep, index: int, *, with_attention: bool) -> CascadeStep:
        elements, mask = step.inputs
        rewriting = self.rewriting or self.reading
        view = self.reading.view(elements, mask, num_queries=self.templates.shape[0])
        attention = self.reading.weights(step.templates, view) if with_attention else None
        templates = self.reading.update(step.templates, view)
        encoded = rewriting.update(elements, rewriting.view(templates, None, num_queries=None), mask)
        return CascadeStep(templates, (encoded, mask), attention)
