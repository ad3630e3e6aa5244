"""From set to set.

    Elementwise             every element by itself, through one network     O(N)
    SelfAttention           every element attends to every other             O(N^2)
    InducedSelfAttention    every element, through a few learned points      O(N M)

All follow the order of their input and keep the number of elements.

Dimensions:  B sets   N elements (padded)   M inducing points   D features   H heads
"""

from typing import Unpack

from jaxtyping import Bool, Float
from torch import Tensor, nn

from picaset.checks import check_divides, check_positive
from picaset.operators.base import SetEncoder, learned_templates
from picaset.operators.block import BlockOptions, MultiheadAttentionBlock


class Elementwise(SetEncoder):
    r"""rFF: one network applied to every element by itself (Zaheer et al. 2017).

    .. math::  x_n' = f(x_n)

    Args:
        network: Maps (..., dim_in) to (..., dim).
        dim_in: Features of an element, to be checked; None takes any.

    Example:
        >>> import torch
        >>> Elementwise(nn.Linear(3, 8))(torch.randn(4, 100, 3)).shape
        torch.Size([4, 100, 8])
    """

    def __init__(self, network: nn.Module, dim_in: int | None = None) -> None:
        super().__init__()
        self.network = network
        self.dim_in = dim_in

    def encode(self, elements: Float[Tensor, "B N D"], mask: Bool[Tensor, "B N"] | None) -> Float[Tensor, "B N E"]:
        return self.network(elements)


class SelfAttention(SetEncoder):
    r"""SA, SAB: every element attends to every other (Lee et al. 2019).

    .. math::  X' = \mathrm{MAB}(X, X)

    Args:
        dim_in: Features of an element coming in.
        dim: Features of an element going out.
        num_heads: Attention heads; divides ``dim``.
        options: The keywords of :class:`MultiheadAttentionBlock`.

    Shapes:
        elements  (B, N, dim_in)    or a SetBatch
        mask      (B, N)            True where an element is present; None means all are
        returns   (B, N, dim)       or a SetBatch; zeros where an element is absent

    Example:
        >>> import torch
        >>> SelfAttention(3, 8, num_heads=2)(torch.randn(4, 100, 3)).shape
        torch.Size([4, 100, 8])
    """

    def __init__(self, dim_in: int, dim: int, *, num_heads: int, **options: Unpack[BlockOptions]) -> None:
        super().__init__()
        check_divides(num_heads, dim, caller=type(self).__name__)
        self.dim_in = dim_in
        self.block = MultiheadAttentionBlock(dim_in, dim_in, dim, num_heads=num_heads, **options)

    def encode(self, elements: Float[Tensor, "B N D"], mask: Bool[Tensor, "B N"] | None) -> Float[Tensor, "B N E"]:
        return self.block.update(elements, self.block.view(elements, mask, num_queries=None))


class InducedSelfAttention(SetEncoder):
    r"""AE, ISAB: elements learn of each other through M learned points (Eq. 4; Lee et al. 2019).

    .. math::  Z = \mathrm{MAB}(T, X), \qquad X' = \mathrm{MAB}(X, Z)

    Args:
        dim_in: Features of an element coming in.
        dim: Features of an element going out.
        num_heads: Attention heads; divides ``dim``.
        num_inducing: Learned points; what is passed between elements fits into them.
        options: The keywords of :class:`MultiheadAttentionBlock`, for both blocks.

    Shapes:
        elements  (B, N, dim_in)    or a SetBatch
        mask      (B, N)            True where an element is present; None means all are
        returns   (B, N, dim)       or a SetBatch; zeros where an element is absent

    Example:
        >>> import torch
        >>> InducedSelfAttention(3, 8, num_heads=2, num_inducing=5)(torch.randn(4, 100, 3)).shape
        torch.Size([4, 100, 8])
    """

    def __init__(
        self, dim_in: int, dim: int, *, num_heads: int, num_inducing: int, **options: Unpack[BlockOptions]
    ) -> None:
        super().__init__()
        check_positive(caller=type(self).__name__, num_inducing=num_inducing)
        check_divides(num_heads, dim, caller=type(self).__name__)
        self.dim_in = dim_in
        self.inducing = learned_templates(num_inducing, dim)
        self.gather = MultiheadAttentionBlock(dim, dim_in, dim, num_heads=num_heads, **options)
        self.spread = MultiheadAttentionBlock(dim_in, dim, dim, num_heads=num_heads, **options)

    def encode(self, elements: Float[Tensor, "B N D"], mask: Bool[Tensor, "B N"] | None) -> Float[Tensor, "B N E"]:
        view = self.gather.view(elements, mask, num_queries=self.inducing.shape[0])
        gathered = self.gather.update(self.inducing[None], view)  # (B, M, D)
        return self.spread.update(elements, self.spread.view(gathered, None, num_queries=None))
