"""Score each element of a set by how little it fits the others.

The set is encoded and pooled, and the pooled vector is subtracted from every element (the paper's difference layer), so
that the network is equivariant to the order of the elements and accepts any number of them.

Dimensions:  B sets   N elements (padded)   D features in   E features inside   K templates   total elements of all sets
"""

from collections.abc import Callable
from typing import Any, Literal, Unpack, cast, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from picaset.checks import check_choice, check_num_heads, check_positive
from picaset.networks.set_networks import Encoder, attention_encoders
from picaset.operators.attention_pools import AttentionPool
from picaset.operators.base import check_input_set, read_set
from picaset.operators.block import BlockOptions
from picaset.operators.buckets import encode_in_buckets
from picaset.operators.encoders import SelfAttention
from picaset.operators.picaso import GeneralizedPicaso, PicasoPool
from picaset.operators.simple_pools import MeanPool
from picaset.pretrained import PretrainedNetwork
from picaset.sets import SetBatch

ElementEncoder = Literal["elementwise", "self", "elementwise+self"]
ElementPool = Literal["attention", "picaso", "generalized", "mean", "none"]
Comparison = Literal["difference", "mapped-difference", "concatenation"]


class ElementScorer(PretrainedNetwork):
    r"""Score every element of a set by its difference from the pooled set.

    .. math::  s_n = f(x_n - \bar t), \qquad \bar t = \text{mean of the templates}, \qquad f = \text{two-layer network}

    With ``pool="generalized"``, :math:`x_n` are the elements as the cascade updates them, otherwise the encoded ones;
    with ``pool="none"``, the score is :math:`f(x_n)`.

    Args:
        dim_in: Features of an element.
        dim: Hidden features.
        num_heads: Attention heads; divides ``dim``.
        encoder: ``"elementwise"`` (rFF), ``"self"`` (SA) or both in sequence, ``"elementwise+self"``.
        num_encoder_blocks: Number of encoders; with ``"elementwise+self"``, half of them are elementwise.
        pool: ``"attention"`` (PMA), ``"picaso"`` (PB), ``"generalized"`` (GPB), ``"mean"`` or ``"none"``.
        num_templates: Number of pooled vectors.
        num_steps: Steps of the pools ``"picaso"`` and ``"generalized"``.
        num_decoder_blocks: Self-attention blocks among the templates, as in Set Transformer.
        comparison: How an element is compared with the pooled set: by the ``"difference"`` of the two, by a
            ``"mapped-difference"`` with a linear map of each, or by ``"concatenation"``.
        options: Keywords of :class:`MultiheadAttentionBlock`, for every block.

    Shapes:
        elements  (B, N, dim_in)    or a SetBatch
        mask      (B, N)            True where an element is present; None means all are
        returns   (B, N)            minus infinity where an element is absent; (total,) for a SetBatch

    Example:
        >>> scorer = ElementScorer(3, dim=16, num_heads=2)
        >>> scorer(torch.randn(4, 8, 3)).shape
        torch.Size([4, 8])
    """

    def __init__(
        self,
        dim_in: int,
        *,
        dim: int = 256,
        num_heads: int = 8,
        encoder: ElementEncoder = "self",
        num_encoder_blocks: int = 2,
        pool: ElementPool = "generalized",
        num_templates: int = 1,
        num_steps: int = 3,
        num_decoder_blocks: int = 0,
        comparison: Comparison = "difference",
        **options: Unpack[BlockOptions],
    ) -> None:
        caller = type(self).__name__
        check_positive(caller=caller, dim_in=dim_in, num_templates=num_templates)
        check_num_heads(num_heads, dim, caller=caller)
        check_choice(encoder, ("elementwise", "self", "elementwise+self"), caller=caller, name="encoder")
        check_choice(pool, get_args(ElementPool), caller=caller, name="pool")
        check_choice(comparison, get_args(Comparison), caller=caller, name="comparison")
        if encoder == "elementwise+self" and num_encoder_blocks < 2:
            raise ValueError(
                f"{caller}: encoder {encoder!r} needs at least 2 encoder blocks; got {num_encoder_blocks}."
            )
        super().__init__()
        self.dim_in = dim_in

        half = num_encoder_blocks // 2
        if encoder == "elementwise+self":
            kinds = [("elementwise", dim_in, half), ("self", dim, num_encoder_blocks - half)]
        else:
            kinds = [(encoder, dim_in, num_encoder_blocks)]
        self.encoders = nn.ModuleList()
        for kind, width, count in kinds:
            self.encoders.extend(
                attention_encoders(
                    cast(Encoder, kind), width, dim, num_blocks=count, num_heads=num_heads, num_inducing=1,
                    caller=caller, **options,
                )
            )  # fmt: skip
        cascade: Any = dict(num_templates=num_templates, num_heads=num_heads, **options)
        pools: dict[ElementPool, Callable[[], nn.Module | None]] = {
            "attention": lambda: AttentionPool(dim, **cascade),
            "picaso": lambda: PicasoPool(dim, num_steps=num_steps, **cascade),
            "generalized": lambda: GeneralizedPicaso(dim, num_steps=num_steps, **cascade),
            "mean": MeanPool,
            "none": lambda: None,
        }
        self.pool = pools[pool]()
        self.decoder = nn.Sequential(
            *(SelfAttention(dim, dim, num_heads=num_heads, **options) for _ in range(num_decoder_blocks))
        )
        self.maps = nn.ModuleList(nn.Linear(dim, dim) for _ in range(2)) if comparison == "mapped-difference" else None
        self.concatenates = comparison == "concatenation" and pool != "none"
        self.judge = nn.Sequential(nn.Linear(dim * (1 + self.concatenates), dim), nn.ReLU(), nn.Linear(dim, 1))

    def forward(
        self, elements: Float[Tensor, "B N D"] | SetBatch, mask: Bool[Tensor, "B N"] | None = None
    ) -> Float[Tensor, "B N"] | Float[Tensor, " total"]:
        """Return the score of every element; higher means that it fits the others less."""
        if isinstance(elements, SetBatch):
            check_input_set(self, elements, mask)
            return encode_in_buckets(elements, self.score_padded).elements[:, 0]
        padded, present = read_set(self, elements, mask)
        scores = self.score_padded(padded, present)[..., 0]
        if present is not None:
            scores = scores.masked_fill(~present, -torch.inf)
        return scores[:, : elements.shape[1]]

    def score_padded(
        self, elements: Float[Tensor, "B N D"], mask: Bool[Tensor, "B N"] | None
    ) -> Float[Tensor, "B N 1"]:
        for encoder in self.encoders:
            elements = encoder(elements, mask)
        if self.pool is None:
            return self.judge(elements)
        if isinstance(self.pool, GeneralizedPicaso):
            templates, updated = self.pool(elements, mask)
            elements = cast(Tensor, updated)
        else:
            templates = self.pool(elements, mask)
        pooled = self.decoder(templates).mean(dim=1, keepdim=True)  # (B, 1, E)
        if self.concatenates:
            return self.judge(torch.cat([elements, pooled.expand_as(elements)], dim=2))
        if self.maps is not None:
            elements, pooled = (layer(values) for layer, values in zip(self.maps, (elements, pooled), strict=True))
        return self.judge(elements - pooled)
