"""Set Transformer: attention encoders, K learned questions, attention among the answers (Lee et al. 2019)."""

from typing import Unpack

from picaset.networks.picaso import Picaso
from picaset.networks.pooled import Encoder
from picaset.operators.block import BlockOptions


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
