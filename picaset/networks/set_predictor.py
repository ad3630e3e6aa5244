"""From a set to one prediction, by any of the pools, and what each element counts for in it.

Dimensions:  B sets   N elements (padded)   D, E, O features in, inside, out   total elements of all sets
"""

from typing import Any, Literal, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from picaset.checks import check_choice, check_divides, check_positive
from picaset.networks.set_networks import Encoder, PooledNetwork, attention_encoders
from picaset.operators.attention_pools import AttentionPool, GatedAttentionPool
from picaset.operators.base import SetPool, check_fits, read_set
from picaset.operators.buckets import encode_in_buckets
from picaset.operators.encoders import Elementwise
from picaset.operators.picaso import PicasoPool
from picaset.operators.simple_pools import MaxPool, MeanPool, SumPool
from picaset.sets import SetBatch

PredictorPool = Literal["picaso", "attention", "gated", "mean", "sum", "max"]
ENCODERS: tuple[Encoder, ...] = get_args(Encoder)
POOLS: tuple[PredictorPool, ...] = get_args(PredictorPool)
SHARP = 4.0
"""How much larger than usual templates begin: attention that tells elements apart at once learns from few sets."""


class SetPredictor(PooledNetwork):
    """One prediction for each set: an encoder, one of the pools, a linear map; small enough for a hundred sets.

    Args:
        dim_in: Features of an element.
        dim_out: Features of the prediction.
        dim: Features inside.
        pool: ``"picaso"`` (PB), ``"attention"`` (PMA), ``"gated"`` (Ilse 2018), ``"mean"``, ``"sum"`` or ``"max"``.
        encoder: ``"elementwise"``: every element by itself, one linear map with ReLU. ``"induced"`` (AE) and ``"self"``
            (SA) let elements attend to each other after that, through a few learned points or directly.
        num_heads: Attention heads; divides ``dim``.
        num_steps: Steps of a PICASO cascade.
        num_inducing: Learned points of an induced encoder.
        typical_size: Elements of a usual set; a sum is taken in units of it, since large numbers are learned slowly.
        dropout: Share of the features left out before the pool and before the last map, while training.

    Shapes:
        elements  (B, N, dim_in)       or a SetBatch
        mask      (B, N)               True where an element is present; None means all are
        returns   (B, 1, dim_out)

    Example:
        >>> predictor, sets = SetPredictor(3, 2, dim=16), torch.randn(4, 7, 3)
        >>> predictor(sets).shape, predictor.importance(sets).shape
        (torch.Size([4, 1, 2]), torch.Size([4, 7]))
    """

    def __init__(
        self,
        dim_in: int,
        dim_out: int,
        *,
        dim: int = 64,
        pool: PredictorPool = "picaso",
        encoder: Encoder = "elementwise",
        num_heads: int = 4,
        num_steps: int = 3,
        num_inducing: int = 16,
        typical_size: float = 1.0,
        dropout: float = 0.0,
    ) -> None:
        caller = type(self).__name__
        check_positive(caller=caller, dim_in=dim_in, dim_out=dim_out)
        check_divides(num_heads, dim, caller=caller)
        check_choice(pool, POOLS, caller=caller, name="pool")
        check_choice(encoder, ENCODERS, caller=caller, name="encoder")
        if not 0 <= dropout < 1:
            raise ValueError(f"{caller}: dropout must be at least 0 and below 1; got {dropout}.")
        if not typical_size > 0:
            raise ValueError(f"{caller}: typical_size must be above 0; got {typical_size}.")
        options: Any = dict(num_heads=num_heads, num_inducing=num_inducing, num_blocks=1, caller=caller)
        mixing = () if encoder == "elementwise" else attention_encoders(encoder, dim, dim, norm=True, **options)
        first = nn.Sequential(nn.Linear(dim_in, dim), nn.ReLU(), nn.Dropout(dropout))
        units = [Elementwise(Divided(typical_size), dim)] if pool == "sum" else []
        super().__init__(
            encoders=[Elementwise(first, dim_in), *mixing, *units],
            pool=pool_named(pool, dim, num_heads=num_heads, num_steps=num_steps),
            decoder=nn.Sequential(nn.Dropout(dropout), nn.Linear(dim, dim_out)),
            dim_in=dim_in,
        )

    def importance(
        self,
        elements: Float[Tensor, "B N D"] | SetBatch,
        mask: Bool[Tensor, "B N"] | None = None,
    ) -> Float[Tensor, "B N"] | Float[Tensor, " total"]:
        """What share of a prediction each element has; the shares of a set sum to one, absent elements have none.

        For an attention pool, the attention of its last step, averaged over heads. The mean, the sum and the maximum
        weigh nothing, so there it is how much the prediction changes when the element is left out.
        """
        if isinstance(elements, SetBatch):
            check_fits(self, elements, mask)
            shares = encode_in_buckets(elements, lambda padded, present: self.shares(padded, present)[..., None])
            return shares.elements[:, 0]
        padded, present = read_set(self, elements, mask)
        return self.shares(padded, present)[:, : elements.shape[1]]

    def shares(self, elements: Float[Tensor, "B N D"], mask: Bool[Tensor, "B N"] | None) -> Float[Tensor, "B N"]:
        encoded = self.encode(elements, mask)
        assert isinstance(encoded, Tensor)
        if isinstance(self.pool, PicasoPool):
            return self.pool.trace(encoded, mask).attention[-1].mean(dim=(1, 2))
        if isinstance(self.pool, GatedAttentionPool):
            return self.pool.weights(encoded, mask)[:, 0]
        present = torch.ones_like(encoded[..., 0], dtype=torch.bool) if mask is None else mask
        without = self.decoder(pooled_without_each(self.pool, encoded, present))  # (B, N, O)
        changes = (without - self.decoder(self.pool(encoded, present))).abs().sum(dim=-1) * present
        total = changes.sum(dim=1, keepdim=True)
        alike = present / present.sum(dim=1, keepdim=True).clamp(min=1)  # where no element changes anything
        return torch.where(total > 0, changes / torch.where(total > 0, total, 1.0), alike)


class Divided(nn.Module):
    """Elements in other units."""

    def __init__(self, unit: float) -> None:
        super().__init__()
        self.unit = unit

    def forward(self, elements: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        return elements / self.unit


def pool_named(name: PredictorPool, dim: int, *, num_heads: int, num_steps: int) -> SetPool:
    """One of the pools; attention in the paper's form, with layer norm."""
    if name == "gated":
        return GatedAttentionPool(dim, dim_hidden=dim)
    if name in ("picaso", "attention"):
        options: Any = dict(num_templates=1, num_heads=num_heads, norm=True)
        cascade = (
            AttentionPool(dim, **options) if name == "attention" else PicasoPool(dim, num_steps=num_steps, **options)
        )
        with torch.no_grad():
            cascade.templates.mul_(SHARP)
        return cascade
    return {"mean": MeanPool, "sum": SumPool, "max": MaxPool}[name]()


def pooled_without_each(
    pool: nn.Module, elements: Float[Tensor, "B N E"], mask: Bool[Tensor, "B N"]
) -> Float[Tensor, "B N E"]:
    """What a mean, a sum or a maximum is of a set without each of its elements; zero of nothing."""
    others = mask.sum(dim=1)[:, None, None] - 1
    if isinstance(pool, MaxPool):
        absent = ~mask[..., None]
        silent = elements.masked_fill(absent, -torch.inf)
        largest, holder = silent.max(dim=1, keepdim=True)
        second = silent.scatter(1, holder, -torch.inf).amax(dim=1, keepdim=True)
        rows = torch.arange(elements.shape[1], device=elements.device)[None, :, None]
        return torch.where(rows == holder, second, largest).masked_fill(others < 1, 0.0)
    rest = elements.sum(dim=1, keepdim=True) - elements
    return rest if isinstance(pool, SumPool) else rest / others.clamp(min=1)
