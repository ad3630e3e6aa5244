"""Set Transformer: attention encoders, K learned questions, attention among the answers (Lee et al. 2019).

The shape that all networks on sets share: encode the elements, pool them, decode the answers.

DeepSets: every element by itself, one fixed pool, one decoder (Zaheer et al. 2017).

PICASO as a network: attention encoders, a cascade, attention among its answers (Zare and Nguyen 2021).
"""

from collections.abc import Iterable
from typing import Any, Literal, Unpack

from jaxtyping import Bool, Float
from torch import Tensor, nn

from picaset.checks import check_choice, check_divides, check_positive
from picaset.large.large_set import LargeSet
from picaset.large.rules import num_passes, read_large
from picaset.networks.pretrained import PretrainedNetwork
from picaset.operators.base import SetEncoder, SetPool, Trace, check_fits
from picaset.operators.block import BlockOptions
from picaset.operators.buckets import pool_in_buckets
from picaset.operators.encoders import Elementwise, InducedSelfAttention, SelfAttention
from picaset.operators.picaso import PicasoPool
from picaset.operators.simple_pools import MaxPool, MeanPool, SumPool
from picaset.sets import SetBatch

Encoder = Literal["induced", "self", "elementwise"]


class PooledNetwork(PretrainedNetwork):
    """Encoders, a pool, and a decoder of its answers.

    Args:
        encoders: Applied to the set, one after the other.
        pool: From the encoded set to its answers.
        decoder: From the answers, (B, K, D), to the prediction.
        config: What the network was built from; see :class:`PretrainedNetwork`.

    Shapes:
        elements  (B, N, dim_in)                or a SetBatch
        mask      (B, N)                        True where an element is present; None means all are
        returns   (B, num_outputs, dim_out)
    """

    def __init__(
        self, encoders: Iterable[SetEncoder], pool: SetPool, decoder: nn.Module, config: dict[str, Any]
    ) -> None:
        super().__init__(config)
        self.dim_in = config["dim_in"]
        self.encoders = nn.ModuleList(encoders)
        self.pool = pool
        self.decoder = decoder

    def encode(
        self,
        elements: Float[Tensor, "B N D"] | SetBatch,
        mask: Bool[Tensor, "B N"] | None = None,
    ) -> Float[Tensor, "B N E"] | SetBatch:
        """The set as the pool sees it."""
        check_fits(self, elements, mask)
        for encoder in self.encoders:
            elements = encoder(elements, mask)
        return elements

    def forward(
        self,
        elements: Float[Tensor, "B N D"] | SetBatch,
        mask: Bool[Tensor, "B N"] | None = None,
    ) -> Float[Tensor, "B K O"]:
        """Predict for every set; ``mask`` is True where an element is present, None means all are."""
        if isinstance(elements, SetBatch):
            check_fits(self, elements, mask)
            return pool_in_buckets(elements, self.forward)  # once for the whole network, not in every layer
        return self.decoder(self.pool(self.encode(elements, mask), mask))


@read_large.register
def _(network: PooledNetwork, large: LargeSet) -> Tensor:
    for encoder in network.encoders:
        large = read_large(encoder, large.keep(reads=num_passes(encoder)))
    return network.decoder(read_large(network.pool, large.keep(reads=num_passes(network.pool))))


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
    """A stack of encoders of one kind, the first of which takes the elements as they come."""
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
    """Answers that learn of each other, then one linear map to the prediction."""
    blocks = (SelfAttention(dim, dim, num_heads=num_heads, **options) for _ in range(num_blocks))
    return nn.Sequential(*blocks, nn.Linear(dim, dim_out))


POOLS = {"mean": MeanPool, "sum": SumPool, "max": MaxPool}


class DeepSets(PooledNetwork):
    r"""DeepSets: a sum decomposition, :math:`\rho(\operatorname{pool}_n \phi(x_n))` (Zaheer et al. 2017).

    Both networks have four layers, as in Set Transformer's comparison.

    Args:
        dim_in: Features of an element.
        dim_out: Features of an output vector.
        dim: Features inside.
        pool: ``"mean"``, ``"sum"`` or ``"max"``.
        num_outputs: Vectors predicted per set.

    Shapes:
        elements  (B, N, dim_in)                or a SetBatch
        mask      (B, N)                        True where an element is present; None means all are
        returns   (B, num_outputs, dim_out)

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
            config=dict(dim_in=dim_in, dim_out=dim_out, dim=dim, pool=pool, num_outputs=num_outputs),
        )


def four_layers(dim_in: int, dim: int, dim_out: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(dim_in, dim),
        nn.ReLU(),
        nn.Linear(dim, dim),
        nn.ReLU(),
        nn.Linear(dim, dim),
        nn.ReLU(),
        nn.Linear(dim, dim_out),
    )


class Picaso(PooledNetwork):
    """PICASO: AE, AE, PB, SA and a linear map, in the paper's letters (Zare and Nguyen 2021).

    Args:
        dim_in: Features of an element.
        dim_out: Features of an output vector.
        dim: Features inside.
        num_heads: Attention heads; divides ``dim``.
        encoder: ``"induced"`` (AE), ``"self"`` (SA) or ``"elementwise"`` (rFF).
        num_inducing: Learned points of each induced encoder.
        num_encoder_blocks: Encoders, one after the other.
        num_outputs: Templates of the cascade, and vectors predicted per set.
        num_steps: Steps of the cascade.
        num_decoder_blocks: Self-attention blocks among the answers.
        options: The keywords of :class:`MultiheadAttentionBlock`, for every block.

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
        check_divides(num_heads, dim, caller=caller)
        super().__init__(
            encoders=attention_encoders(
                encoder,
                dim_in,
                dim,
                num_blocks=num_encoder_blocks,
                num_heads=num_heads,
                num_inducing=num_inducing,
                caller=caller,
                **options,
            ),
            pool=PicasoPool(dim, num_templates=num_outputs, num_heads=num_heads, num_steps=num_steps, **options),
            decoder=attention_decoder(dim, dim_out, num_blocks=num_decoder_blocks, num_heads=num_heads, **options),
            config=dict(
                dim_in=dim_in,
                dim_out=dim_out,
                dim=dim,
                num_heads=num_heads,
                encoder=encoder,
                num_inducing=num_inducing,
                num_encoder_blocks=num_encoder_blocks,
                num_outputs=num_outputs,
                num_steps=num_steps,
                num_decoder_blocks=num_decoder_blocks,
                **options,
            ),
        )

    def trace(
        self,
        elements: Float[Tensor, "B N D"] | SetBatch,
        mask: Bool[Tensor, "B N"] | None = None,
    ) -> Trace:
        """The templates and the attention of every step of the cascade."""
        assert isinstance(self.pool, PicasoPool)
        return self.pool.trace(self.encode(elements, mask), mask)


class SetTransformer(Picaso):
    """Set Transformer: ISAB, ISAB, PMA, SAB and a linear map; a cascade of one step (Lee et al. 2019).

    Args:
        dim_in: Features of an element.
        dim_out: Features of an output vector.
        dim: Features inside.
        num_heads: Attention heads; divides ``dim``.
        encoder: ``"induced"`` (ISAB), ``"self"`` (SAB) or ``"elementwise"`` (rFF).
        num_inducing: Learned points of each induced encoder.
        num_encoder_blocks: Encoders, one after the other.
        num_outputs: Learned questions, and vectors predicted per set.
        num_decoder_blocks: Self-attention blocks among the answers.
        options: The keywords of :class:`MultiheadAttentionBlock`, for every block.

    Shapes:
        elements  (B, N, dim_in)                or a SetBatch
        mask      (B, N)                        True where an element is present; None means all are
        returns   (B, num_outputs, dim_out)

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
            dim_in,
            dim_out,
            dim=dim,
            num_heads=num_heads,
            encoder=encoder,
            num_inducing=num_inducing,
            num_encoder_blocks=num_encoder_blocks,
            num_outputs=num_outputs,
            num_steps=1,
            num_decoder_blocks=num_decoder_blocks,
            **options,
        )
        del self.config["num_steps"]
