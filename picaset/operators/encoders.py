"""Set encoders: permutation-equivariant maps from a set to a set of the same size.

    Elementwise             one network, applied to every element            O(N)
    SelfAttention           every element attends to every other             O(N^2)
    InducedSelfAttention    attention through M learned inducing points      O(N M)

Dimensions:  B sets   N elements (padded)   M inducing points   D features   H heads
"""

from typing import Unpack

from jaxtyping import Float
from torch import Tensor, nn

from picaset.checks import check_num_heads, check_positive
from picaset.operators.base import SetEncoder, learned_templates
from picaset.operators.block import BlockOptions, MultiheadAttentionBlock
from picaset.operators.state import Presence
from picaset.sets import SetBatch


class Elementwise(SetEncoder):
    r"""rFF: apply one network to every element independently (Zaheer et al. 2017).

    .. math::  x_n' = f(x_n)

    Args:
        network: Maps (..., dim_in) to (..., dim).
        dim_in: Features of an element, for checking the input; None accepts any.

    Example:
        >>> import torch
        >>> Elementwise(nn.Linear(3, 8))(torch.randn(4, 100, 3)).shape
        torch.Size([4, 100, 8])
    """

    takes_weights = True
    encodes_packed = True

    def __init__(self, network: nn.Module, dim_in: int | None = None) -> None:
        super().__init__()
        self.network = network
        self.dim_in = dim_in

    def encode(self, elements: Float[Tensor, "B N D"], mask: Presence | None) -> Float[Tensor, "B N E"]:
        return self.network(elements)

    def encode_packed(self, batch: SetBatch) -> Float[Tensor, "total E"]:
        return self.network(batch.elements)


class SelfAttention(SetEncoder):
    r"""Self-attention: every element attends to every other.

    The set attention block (SAB) of Lee et al. 2019, which the paper calls SA.

    .. math::  X' = \mathrm{MAB}(X, X)

    Args:
        dim_in: Features of an input element.
        dim: Features of an output element.
        num_heads: Attention heads; divides ``dim``.
        options: Options of :class:`MultiheadAttentionBlock`: ``form``, ``norm``, ``residual`` and others.

    Shapes:
        elements  (B, N, dim_in)    or a SetBatch
        mask      (B, N)            True where an element is present; None if all are
        returns   (B, N, dim)       or a SetBatch; zeros where an element is absent

    Example:
        >>> import torch
        >>> SelfAttention(3, 8, num_heads=2)(torch.randn(4, 100, 3)).shape
        torch.Size([4, 100, 8])
    """

    takes_weights = True
    encodes_packed = True

    def __init__(self, dim_in: int, dim: int, *, num_heads: int, **options: Unpack[BlockOptions]) -> None:
        super().__init__()
        check_num_heads(num_heads, dim, caller=type(self).__name__)
        self.dim_in = dim_in
        self.block = MultiheadAttentionBlock(dim_in, dim_in, dim, num_heads=num_heads, **options)

    def encode(self, elements: Float[Tensor, "B N D"], mask: Presence | None) -> Float[Tensor, "B N E"]:
        return self.block.update(elements, self.block.view(elements, mask, num_queries=None), mask)

    def encode_packed(self, batch: SetBatch) -> Float[Tensor, "total E"]:
        return self.block.update_packed(batch.elements, batch.elements, batch)


class InducedSelfAttention(SetEncoder):
    r"""Self-attention through M learned inducing points, at a cost that grows linearly with the set.

    The induced set attention block (ISAB) of Lee et al. 2019, which the paper calls AE (Eq. 4).

    .. math::  Z = \mathrm{MAB}(T, X), \qquad X' = \mathrm{MAB}(X, Z)

    Args:
        dim_in: Features of an input element.
        dim: Features of an output element.
        num_heads: Attention heads; divides ``dim``.
        num_inducing: Number of inducing points, M.
        options: Options of both :class:`MultiheadAttentionBlock`: ``form``, ``norm``, ``residual`` and others.

    Shapes:
        elements  (B, N, dim_in)    or a SetBatch
        mask      (B, N)            True where an element is present; None if all are
        returns   (B, N, dim)       or a SetBatch; zeros where an element is absent

    Example:
        >>> import torch
        >>> InducedSelfAttention(3, 8, num_heads=2, num_inducing=5)(torch.randn(4, 100, 3)).shape
        torch.Size([4, 100, 8])
    """

    takes_weights = True
    encodes_packed = True

    def __init__(
        self, dim_in: int, dim: int, *, num_heads: int, num_inducing: int, **options: Unpack[BlockOptions]
    ) -> None:
        super().__init__()
        check_positive(caller=type(self).__name__, num_inducing=num_inducing)
        check_num_heads(num_heads, dim, caller=type(self).__name__)
        self.dim_in = dim_in
        self.inducing = learned_templates(num_inducing, dim)
        self.gather = MultiheadAttentionBlock(dim, dim_in, dim, num_heads=num_heads, **options)
        self.spread = MultiheadAttentionBlock(dim_in, dim, dim, num_heads=num_heads, **options)

    def encode(self, elements: Float[Tensor, "B N D"], mask: Presence | None) -> Float[Tensor, "B N E"]:
        view = self.gather.view(elements, mask, num_queries=self.inducing.shape[0])
        gathered = self.gather.update(self.inducing[None], view)  # (B, M, D)
        return self.spread.update(elements, self.spread.view(gathered, None, num_queries=None), mask)

    def encode_packed(self, batch: SetBatch) -> Float[Tensor, "total E"]:
        gathered = self.gather.update_packed(self.inducing[None], batch.elements, batch)  # (B, M, D)
        return self.spread.update_packed(batch.elements, gathered, batch)
