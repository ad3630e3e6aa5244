"""A network from a set to one prediction, with a choice of pools, and the importance of each element.

Dimensions:  B sets   N elements (padded)   D, E, O features in, inside, out   total elements of all sets
"""

from typing import Any, Literal, get_args

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn

from picaset.checks import check_choice, check_num_heads, check_positive
from picaset.networks.set_networks import Encoder, PooledNetwork, attention_encoders
from picaset.operators.attention_pools import AttentionPool, GatedAttentionPool
from picaset.operators.base import SetPool, check_input_set, read_set
from picaset.operators.buckets import encode_in_buckets
from picaset.operators.encoders import Elementwise
from picaset.operators.picaso import PicasoPool
from picaset.operators.simple_pools import MaxPool, MeanPool, SumPool
from picaset.operators.state import Presence, mask_and_weights
from picaset.sets import SetBatch

PredictorPool = Literal["picaso", "attention", "gated", "mean", "sum", "max", "witness"]
ENCODERS: tuple[Encoder, ...] = get_args(Encoder)
POOLS: tuple[PredictorPool, ...] = get_args(PredictorPool)
TEMPLATE_SCALE = 4.0
"""Factor of the initial templates: attention that is not uniform from the start learns from fewer sets."""


class SetPredictor(PooledNetwork):
    """One prediction per set: an encoder, a pool and a linear map; small enough for a hundred training sets.

    Args:
        dim_in: Features of an element.
        dim_out: Features of the prediction.
        dim: Hidden features.
        pool: ``"picaso"`` (PB), ``"attention"`` (PMA), ``"gated"`` (Ilse 2018), ``"mean"``, ``"sum"``, ``"max"``, or
            ``"witness"``, the largest of one score per element: adding elements to a set can only raise it. This is
            the standard assumption of multiple-instance learning, by construction; ``dim_out`` is 1 or 2 (the logits of
            two classes) and the encoder ``"elementwise"``.
        encoder: ``"elementwise"``, a linear map with ReLU of each element; ``"induced"`` (AE) or ``"self"`` (SA), the
            same followed by attention among the elements, through inducing points or directly.
        num_heads: Attention heads; divides ``dim``.
        num_steps: Steps of the pool ``"picaso"``.
        num_inducing: Inducing points of the encoder ``"induced"``.
        typical_size: Typical number of elements of a set; the pool ``"sum"`` is divided by it, because large inputs
            train slowly.
        dropout: Dropout rate before the pool and before the last map.

    Shapes:
        elements  (B, N, dim_in)       or a SetBatch
        mask      (B, N)               True where an element is present; None means all are
        weights   (B, N)               an element of weight w counts as w copies of it; None for ones
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
        check_num_heads(num_heads, dim, caller=caller)
        check_choice(pool, POOLS, caller=caller, name="pool")
        check_choice(encoder, ENCODERS, caller=caller, name="encoder")
        if not 0 <= dropout < 1:
            raise ValueError(f"{caller}: dropout must be at least 0 and below 1; got {dropout}.")
        if not typical_size > 0:
            raise ValueError(f"{caller}: typical_size must be above 0; got {typical_size}.")
        if pool == "witness" and (dim_out > 2 or encoder != "elementwise"):
            raise ValueError(
                f"{caller}: pool='witness' needs at most 2 outputs and encoder='elementwise'; got {dim_out} and "
                f"{encoder!r}."
            )
        options: Any = dict(num_heads=num_heads, num_inducing=num_inducing, num_blocks=1, caller=caller)
        attention = () if encoder == "elementwise" else attention_encoders(encoder, dim, dim, norm=True, **options)
        first = nn.Sequential(nn.Linear(dim_in, dim), nn.ReLU(), nn.Dropout(dropout))
        scaling = [Elementwise(Divide(typical_size), dim)] if pool == "sum" else []
        decoder: nn.Module = nn.Sequential(nn.Dropout(dropout), nn.Linear(dim, dim_out))
        if pool == "witness":
            scaling, decoder = [Elementwise(nn.Linear(dim, 1), dim)], OppositeLogits(dim_out)
        super().__init__(
            encoders=[Elementwise(first, dim_in), *attention, *scaling],
            pool=build_pool(pool, dim, num_heads=num_heads, num_steps=num_steps),
            decoder=decoder,
            dim_in=dim_in,
        )

    def importance(
        self,
        elements: Float[Tensor, "B N D"] | SetBatch,
        mask: Bool[Tensor, "B N"] | None = None,
        weights: Shaped[Tensor, "B N"] | None = None,
    ) -> Float[Tensor, "B N"] | Float[Tensor, " total"]:
        """Return the importance of each element; it sums to one over a set and is zero for absent elements.

        For an attention pool it is the attention of the last step, averaged over heads. For the mean, the sum and the
        maximum it is proportional to the change of the prediction when the element is left out, with all its copies.
        """
        if isinstance(elements, SetBatch):
            check_input_set(self, elements, mask, weights)
            shares = encode_in_buckets(
                elements, lambda padded, present: self.importance_of_padded(padded, present)[..., None]
            )
            return shares.elements[:, 0]
        padded, merged = read_set(self, elements, mask, weights)
        return self.importance_of_padded(padded, merged)[:, : elements.shape[1]]

    def importance_of_padded(self, elements: Float[Tensor, "B N D"], mask: Presence | None) -> Float[Tensor, "B N"]:
        encoded = self.encode(elements, *mask_and_weights(mask))
        assert isinstance(encoded, Tensor)
        if isinstance(self.pool, PicasoPool):
            return self.pool.trace(encoded, *mask_and_weights(mask)).attention[-1].mean(dim=(1, 2))
        if isinstance(self.pool, GatedAttentionPool):
            return self.pool.weights(encoded, mask)[:, 0]
        counts = torch.ones_like(encoded[..., 0]) if mask is None else mask.to(encoded.dtype)
        without = self.decoder(leave_one_out(self.pool, encoded, counts))  # (B, N, O)
        changes = (without - self.decoder(self.pool(encoded, None, counts))).abs().sum(dim=-1) * (counts > 0)
        total = changes.sum(dim=1, keepdim=True)
        if_equal = counts / counts.sum(dim=1, keepdim=True).clamp(min=torch.finfo(counts.dtype).tiny)
        return torch.where(total > 0, changes / torch.where(total > 0, total, 1.0), if_equal)


class OppositeLogits(nn.Module):
    """Map a score s to the logits -s / 2 and s / 2 of two classes; with one output, return the score."""

    def __init__(self, num_outputs: int) -> None:
        super().__init__()
        self.num_outputs = num_outputs

    def forward(self, score: Float[Tensor, "*B 1"]) -> Float[Tensor, "*B O"]:
        return score if self.num_outputs == 1 else torch.cat([-score / 2, score / 2], dim=-1)


class Divide(nn.Module):
    """Divide by a constant."""

    def __init__(self, divisor: float) -> None:
        super().__init__()
        self.divisor = divisor

    def forward(self, elements: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        return elements / self.divisor


def build_pool(name: PredictorPool, dim: int, *, num_heads: int, num_steps: int) -> SetPool:
    """Build a pool by name; attention in the paper's form, with layer norm."""
    if name == "gated":
        return GatedAttentionPool(dim, dim_hidden=dim)
    if name in ("picaso", "attention"):
        options: Any = dict(num_templates=1, num_heads=num_heads, norm=True)
        cascade = (
            AttentionPool(dim, **options) if name == "attention" else PicasoPool(dim, num_steps=num_steps, **options)
        )
        with torch.no_grad():
            cascade.templates.mul_(TEMPLATE_SCALE)
        return cascade
    return {"mean": MeanPool, "sum": SumPool, "max": MaxPool, "witness": MaxPool}[name]()


def leave_one_out(
    pool: nn.Module, elements: Float[Tensor, "B N E"], weights: Float[Tensor, "B N"]
) -> Float[Tensor, "B N E"]:
    """Return the mean, sum or maximum of a set without each of its elements in turn; zero if none is left."""
    present, weighted = weights[..., None] > 0, weights[..., None] * elements
    if isinstance(pool, MaxPool):
        masked = elements.masked_fill(~present, -torch.inf)
        largest, index = masked.max(dim=1, keepdim=True)
        second = masked.scatter(1, index, -torch.inf).amax(dim=1, keepdim=True)
        rows = torch.arange(elements.shape[1], device=elements.device)[None, :, None]
        return torch.where(rows == index, second, largest).masked_fill(present.sum(dim=1, keepdim=True) < 2, 0.0)
    rest = weighted.sum(dim=1, keepdim=True) - weighted
    if isinstance(pool, SumPool):
        return rest
    others = weights.sum(dim=1)[:, None, None] - weights[..., None]
    alone = present.sum(dim=1, keepdim=True) < 2
    return torch.where(alone, 0.0, rest / torch.where(alone | (others <= 0), 1.0, others))
