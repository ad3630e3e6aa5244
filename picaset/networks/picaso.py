"""PICASO as a network: attention encoders, a cascade, attention among its answers (Zare and Nguyen 2021)."""

from typing import Unpack

from jaxtyping import Bool, Float
from torch import Tensor

from picaset.checks import check_divides, check_positive
from picaset.networks.pooled import Encoder, PooledNetwork, attention_decoder, attention_encoders
from picaset.operators.block import BlockOptions
from picaset.operators.picaso import PicasoPool
from picaset.operators.trace import Trace
from picaset.sets import SetBatch


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
