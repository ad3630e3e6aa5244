r"""Attention pools of one step.

    AttentionPool               K learned queries                             (PMA, Lee et al. 2019)
    GatedAttentionPool          a small gated network scores each element     (Ilse et al. 2018)
    FeaturewiseAttentionPool    separate weights for every feature            (AttSets, Yang et al. 2020)

Dimensions:  B sets   N elements (padded)   K templates   D features
"""

from typing import Unpack

import torch
from jaxtyping import Float
from torch import Tensor, nn

from picaset.checks import check_positive
from picaset.operators.attention import Order
from picaset.operators.base import SetPool
from picaset.operators.block import BlockOptions
from picaset.operators.picaso import PicasoPool
from picaset.operators.state import AttentionState, Presence, softmax_over_present, upcast_half, without_autocast


class AttentionPool(PicasoPool):
    r"""Pool a set by attention with K learned queries; a PicasoPool of one step.

    Pooling by multihead attention (PMA) of Lee et al. 2019.

    .. math::  \mathrm{MAB}(T, X), \qquad T = \text{learned templates}

    Args:
        dim: Features of an element, in and out.
        num_templates: Vectors returned per set.
        num_heads: Attention heads; divides ``dim``.
        order: Order in which attention is evaluated; None selects the cheapest. The result does not depend on it.
        options: Options of :class:`MultiheadAttentionBlock`: ``form``, ``norm``, ``residual`` and others.

    Shapes:
        elements  (B, N, D)    or a SetBatch
        mask      (B, N)       True where an element is present; None if all are
        returns   (B, K, D)

    Example:
        >>> AttentionPool(16, num_templates=4, num_heads=2)(torch.randn(8, 100, 16)).shape
        torch.Size([8, 4, 16])
    """

    def __init__(
        self,
        dim: int,
        *,
        num_templates: int,
        num_heads: int,
        order: Order | None = None,
        **options: Unpack[BlockOptions],
    ) -> None:
        super().__init__(dim, num_templates=num_templates, num_heads=num_heads, num_steps=1, order=order, **options)


class GatedAttentionPool(SetPool):
    r"""Attention pooling for multiple instances: a gated network scores each element (Ilse et al. 2018, Eq. 9).

    .. math::  z = \sum_n a_n x_n, \qquad a = \mathrm{softmax}_n\, w^\top (\tanh(V x_n) \odot \sigma(U x_n))

    All three maps have biases, which the equation omits.

    Args:
        dim: Features of an element, in and out.
        dim_hidden: Hidden features of the scoring network.
        num_templates: Vectors returned per set, each with its own ``w``; the paper has one.

    Shapes:
        elements  (B, N, D)    or a SetBatch
        mask      (B, N)       True where an element is present; None if all are
        returns   (B, K, D)

    Example:
        >>> GatedAttentionPool(16)(torch.randn(8, 100, 16)).shape
        torch.Size([8, 1, 16])
    """

    takes_weights = True

    def __init__(self, dim: int, *, dim_hidden: int = 128, num_templates: int = 1) -> None:
        super().__init__()
        check_positive(caller="GatedAttentionPool", dim=dim, dim_hidden=dim_hidden, num_templates=num_templates)
        self.dim_in = dim
        self.content = nn.Linear(dim, dim_hidden)
        self.gate = nn.Linear(dim, dim_hidden)
        self.weigh = nn.Linear(dim_hidden, num_templates)

    def pool(self, elements: Float[Tensor, "B N D"], mask: Presence | None) -> Float[Tensor, "B K D"]:
        scores = self.scores(elements)
        with without_autocast(scores):
            state = AttentionState.of(scores[:, None], upcast_half(elements)[:, None], mask)
        return state.mean().squeeze(1).to(elements.dtype)

    def weights(self, elements: Float[Tensor, "B N D"], mask: Presence | None) -> Float[Tensor, "B K N"]:
        """Return the attention weights; zero for absent elements."""
        return softmax_over_present(self.scores(elements)[:, None], mask)[:, 0]

    def scores(self, elements: Float[Tensor, "B N D"]) -> Float[Tensor, "B K N"]:
        """Return the attention logits of each element."""
        hidden = torch.tanh(self.content(elements)) * torch.sigmoid(self.gate(elements))
        return upcast_half(self.weigh(hidden)).transpose(1, 2)


class FeaturewiseAttentionPool(SetPool):
    r"""AttSets: a weighted mean with separate weights for every feature (Yang et al. 2020).

    .. math::  z = \sum_n a_n \odot x_n, \qquad a = \mathrm{softmax}_n\, (W x_n + b) \text{, feature by feature}

    Args:
        dim: Features of an element, in and out.

    Shapes:
        elements  (B, N, D)    or a SetBatch
        mask      (B, N)       True where an element is present; None if all are
        returns   (B, 1, D)

    Example:
        >>> FeaturewiseAttentionPool(16)(torch.randn(8, 100, 16)).shape
        torch.Size([8, 1, 16])
    """

    takes_weights = True

    def __init__(self, dim: int) -> None:
        super().__init__()
        check_positive(caller="FeaturewiseAttentionPool", dim=dim)
        self.dim_in = dim
        self.weigh = nn.Linear(dim, dim)

    def pool(self, elements: Float[Tensor, "B N D"], mask: Presence | None) -> Float[Tensor, "B 1 D"]:
        # Each feature is a head of width one.
        scores = upcast_half(self.weigh(elements)).transpose(1, 2)[:, :, None]  # (B, D, 1, N)
        values = upcast_half(elements).transpose(1, 2)[..., None]  # (B, D, N, 1)
        with without_autocast(scores):
            state = AttentionState.of(scores, values, mask)
        return state.mean().flatten(1)[:, None].to(elements.dtype)
