"""Networks on sets: encode the elements, pool them, decode the pooled vectors.

    DeepSets          elementwise encoder, fixed pool, one decoder                      (Zaheer et al. 2017)
    SetTransformer    attention encoders, AttentionPool, attention among the outputs    (Lee et al. 2019)
    Picaso            attention encoders, PicasoPool, attention among the outputs       (Zare and Nguyen 2021)

Dimensions:  B sets   N elements (padded)   K outputs   D features in   E features inside   O features out
"""

from collections.abc import Iterable
from typing import Literal, Unpack

from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn

from picaset.checks import check_choice, check_num_heads, check_positive
from picaset.large.large_set import LargeSet
from picaset.large.rules import apply_streamed, num_passes
from picaset.operators.base import SetEncoder, SetPool, Trace, check_input_set
from picaset.operators.block import BlockOptions
from picaset.operators.buckets import pool_in_buckets
from picaset.operators.encoders import Elementwise, InducedSelfAttention, SelfAttention
from picaset.operators.packed_attention import compiles_packed
from picaset.operators.picaso import PicasoPool
from picaset.operators.simple_pools import MaxPool, MeanPool, SumPool
from picaset.operators.state import mask_and_weights
from picaset.pretrained import PretrainedNetwork
from picaset.sets import SetBatch

Encoder = Literal["induced", "self", "elementwise"]


class PooledNetwork(PretrainedNetwork):
    """Base class: encoders, a pool, and a decoder.

    Args:
        encoders: Applied to the set in sequence.
        pool: Maps the encoded set to K vectors.
        decoder: Maps the pooled vectors, (B, K, E), to the prediction.
        dim_in: Features of an element.

    Shapes:
        elements  (B, N, dim_in)                or a SetBatch
        mask      (B, N)                        True where an element is present; None means all are
        weights   (B, N)                        an element of weight w counts as w copies of it; None for ones
        returns   (B, num_outputs, dim_out)
    """

    takes_weights = True

    def __init__(self, encoders: Iterable[SetEncoder], pool: SetPool, decoder: nn.Module, *, dim_in: int) -> None:
        super().__init__()
        self.dim_in = dim_in
        self.encoders = nn.ModuleList(encoders)
        self.pool = pool
        self.decoder = decoder

    def encode(
        self,
        elements: Float[Tensor, "B N D"] | SetBatch,
        mask: Bool[Tensor, "B N"] | None = None,
        weights: Shaped[Tensor, "B N"] | None = None,
    ) -> Float[Tensor, "B N E"] | SetBatch:
        """Return the encoded set, the input of the pool."""
        check_input_set(self, elements, mask, weights)
        for encoder in self.encoders:
            elements = encoder(elements, mask, weights)
        return elements

    def forward(
        self,
        elements: Float[Tensor, "B N D"] | SetBatch,
        mask: Bool[Tensor, "B N"] | None = None,
        weights: Shaped[Tensor, "B N"] | None = None,
    ) -> Float[Tensor, "B K O"]:
        """Return the prediction for every set."""
        if isinstance(elements, SetBatch):
            check_input_set(self, elements, mask, weights)
            if compiles_packed(elements, self):
                return self.decoder(self.pool(self.encode(elements)))
            # Once for the whole network, not in every layer.
            return pool_in_buckets(elements, lambda padded, merged: self.forward(padded, *mask_and_weights(merged)))
        return self.decoder(self.pool(self.encode(elements, mask, weights), mask, weights))


@apply_streamed.register
def _(network: PooledNetwork, large: LargeSet) -> Tensor:
    for encoder in network.encoders:
        large = apply_streamed(encoder, large.cache(reads=num_passes(encoder)))
    return network.decoder(apply_streamed(network.pool, large.cache(reads=num_passes(network.pool))))


def attention_encoders(
    kind: Encoder,
    dim_in: int,
    dim: int,
    *,
    num_blocks: int,
    num_heads: int,
    num_inducing: int,
    caller: str,
    **options: Unpack[BlockOptions],
) -> Iterable[SetEncoder]:
    """Yield encoders of one kind; the first maps ``dim_in`` features to ``dim``."""
    check_choice(kind, ("induced", "self", "elementwise"), caller=caller, name="encoder")
    check_positive(caller=caller, num_encoder_blocks=num_blocks)
    for index in range(num_blocks):
        width = dim if index else dim_in
        if kind == "induced":
            yield InducedSelfAttention(width, dim, num_heads=num_heads, num_inducing=num_inducing, **options)
        elif kind == "self":
            yield SelfAttention(width, dim, num_heads=num_heads, **options)
        else:
            yield Elementwise(nn.Sequential(nn.Linear(width, dim), nn.ReLU()), width)


def attention_decoder(
    dim: int, dim_out: int, *, num_blocks: int, num_heads: int, **options: Unpack[BlockOptions]
) -> nn.Sequential:
    """Return self-attention blocks among the pooled vectors and a linear map to the prediction."""
    blocks = (SelfAttention(dim, dim, num_heads=num_heads, **options) for _ in range(num_blocks))
    return nn.Sequential(*blocks, nn.Linear(dim, dim_out))


POOLS = {"mean": MeanPool, "sum": SumPool, "max": MaxPool}


class DeepSets(PooledNetwork):
    r"""DeepSets: a sum decomposition, :math:`\rho(\operatorname{pool}_n \phi(x_n))` (Zaheer et al. 2017).

    Both networks have four layers, as in the comparison of Lee et al. (2019). Inputs and outputs are those of
    :class:`Picaso`.

    Args:
        dim_in: Features of an element.
        dim_out: Features of an output vector.
        dim: Hidden features.
        pool: ``"mean"``, ``"sum"`` or ``"max"``.
        num_outputs: Output vectors per set.

    Example:
        >>> import torch
        >>> DeepSets(2, 5, num_outputs=4)(torch.randn(8, 100, 2)).shape
        torch.Size([8, 4, 5])
    """

    def __init__(
        self,
        dim_in: int,
        dim_out: int,
        *,
        dim: int = 128,
        pool: Literal["mean", "sum", "max"] = "mean",
        num_outputs: int = 1,
    ) -> None:
        check_positive(caller="DeepSets", dim_in=dim_in, dim_out=dim_out, dim=dim, num_outputs=num_outputs)
        check_choice(pool, tuple(POOLS), caller="DeepSets", name="pool")
        super().__init__(
            encoders=[Elementwise(four_layers(dim_in, dim, dim), dim_in)],
            pool=POOLS[pool](),
            decoder=nn.Sequential(
                nn.Flatten(), four_layers(dim, dim, num_outputs * dim_out), nn.Unflatten(1, (num_outputs, dim_out))
            ),
            dim_in=dim_in,
        )


def four_layers(dim_in: int, dim: int, dim_out: int) -> nn.Sequential:
    hidden = [layer for width in (dim_in, dim, dim) for layer in (nn.Linear(width, dim), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(dim, dim_out))


class Picaso(PooledNetwork):
    """PICASO: AE, AE, PB, SA and a linear map, in the paper's notation (Zare and Nguyen 2021).

    Args:
        dim_in: Features of an element.
        dim_out: Features of an output vector.
        dim: Hidden features.
        num_heads: Attention heads; divides ``dim``.
        encoder: ``"induced"`` (AE), ``"self"`` (SA) or ``"elementwise"`` (rFF).
        num_inducing: Inducing points of each induced encoder.
        num_encoder_blocks: Number of encoders.
        num_outputs: Output vectors per set, one per template of the cascade.
        num_steps: Steps of the cascade.
        num_decoder_blocks: Self-attention blocks among the outputs.
        options: Keywords of :class:`MultiheadAttentionBlock`, for every block.

    Shapes:
        elements  (B, N, dim_in)                or a SetBatch
        mask      (B, N)                        True where an element is present; None means all are
        returns   (B, num_outputs, dim_out)

    Example:
        >>> import torch
        >>> Picaso(2, 5, num_outputs=4, num_steps=2)(torch.randn(8, 100, 2)).shape
        torch.Size([8, 4, 5])
    """

    def __init__(
        self,
        dim_in: int,
        dim_out: int,
        *,
        dim: int = 128,
        num_heads: int = 4,
        encoder: Encoder = "induced",
        num_inducing: int = 32,
        num_encoder_blocks: int = 2,
        num_outputs: int = 1,
        num_steps: int = 3,
        num_decoder_blocks: int = 1,
        **options: Unpack[BlockOptions],
    ) -> None:
        caller = type(self).__name__
        check_positive(caller=caller, dim_in=dim_in, dim_out=dim_out, num_outputs=num_outputs)
        check_num_heads(num_heads, dim, caller=caller)
        encoders = attention_encoders(
            encoder, dim_in, dim, num_blocks=num_encoder_blocks, num_heads=num_heads, num_inducing=num_inducing,
            caller=caller, **options,
        )  # fmt: skip
        super().__init__(
            encoders,
            pool=PicasoPool(dim, num_templates=num_outputs, num_heads=num_heads, num_steps=num_steps, **options),
            decoder=attention_decoder(dim, dim_out, num_blocks=num_decoder_blocks, num_heads=num_heads, **options),
            dim_in=dim_in,
        )

    def trace(
        self,
        elements: Float[Tensor, "B N D"] | SetBatch,
        mask: Bool[Tensor, "B N"] | None = None,
        weights: Shaped[Tensor, "B N"] | None = None,
    ) -> Trace:
        """Return the templates and the attention of every step of the cascade."""
        assert isinstance(self.pool, PicasoPool)
        return self.pool.trace(self.encode(elements, mask, weights), mask, weights)


class SetTransformer(Picaso):
    """Set Transformer: ISAB, ISAB, PMA, SAB and a linear map (Lee et al. 2019).

    It is :class:`Picaso` with one step, and has its inputs and outputs.

    Args:
        dim_in: Features of an element.
        dim_out: Features of an output vector.
        dim: Hidden features.
        num_heads: Attention heads; divides ``dim``.
        encoder: ``"induced"`` (ISAB), ``"self"`` (SAB) or ``"elementwise"`` (rFF).
        num_inducing: Inducing points of each induced encoder.
        num_encoder_blocks: Number of encoders.
        num_outputs: Output vectors per set, one per learned query.
        num_decoder_blocks: Self-attention blocks among the outputs.
        options: Keywords of :class:`MultiheadAttentionBlock`, for every block.

    Example:
        >>> import torch
        >>> SetTransformer(2, 5, num_outputs=4)(torch.randn(8, 100, 2)).shape
        torch.Size([8, 4, 5])
    """

    def __init__(
        self,
        dim_in: int,
        dim_out: int,
        *,
        dim: int = 128,
        num_heads: int = 4,
        encoder: Encoder = "induced",
        num_inducing: int = 32,
        num_encoder_blocks: int = 2,
        num_outputs: int = 1,
        num_decoder_blocks: int = 1,
        **options: Unpack[BlockOptions],
    ) -> None:
        super().__init__(
            dim_in, dim_out, dim=dim, num_heads=num_heads, encoder=encoder, num_inducing=num_inducing,
            num_encoder_blocks=num_encoder_blocks, num_outputs=num_outputs, num_steps=1,
            num_decoder_blocks=num_decoder_blocks, **options,
        )  # fmt: skip
