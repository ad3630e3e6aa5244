"""The classifier of bags of patches in the authors' program: PICASO with dropout before the pool and the last map."""

from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn

from picaset.networks.set_networks import Picaso
from picaset.sets import SetBatch


class BagClassifier(Picaso):
    """PICASO with two induced encoders and dropout, as the authors train it on smallNORB.

    Args:
        dim_in: Features of an element.
        dim_out: Number of classes.
        dim: Hidden features.
        num_heads: Attention heads; divides ``dim``.
        num_inducing: Inducing points of each encoder.
        num_steps: Steps of the cascade.
        num_decoder_blocks: Self-attention blocks among the outputs; 1 and one step are Set Transformer.
        dropout: Dropout rate before the pool and before the last map.

    Shapes:
        elements  (B, N, dim_in)
        mask      (B, N)             True where an element is present; None means all are
        returns   (B, 1, dim_out)    logits

    Example:
        >>> import torch
        >>> BagClassifier(16, 5, dim=8, num_heads=2)(torch.randn(3, 64, 16)).shape
        torch.Size([3, 1, 5])
    """

    def __init__(
        self,
        dim_in: int,
        dim_out: int,
        *,
        dim: int = 256,
        num_heads: int = 8,
        num_inducing: int = 1,
        num_steps: int = 3,
        num_decoder_blocks: int = 0,
        dropout: float = 0.5,
    ) -> None:
        super().__init__(
            dim_in, dim_out, dim=dim, num_heads=num_heads, num_inducing=num_inducing, num_steps=num_steps,
            num_decoder_blocks=num_decoder_blocks, form="authors",
        )  # fmt: skip
        assert isinstance(self.decoder, nn.Sequential)
        self.decoder.insert(len(self.decoder) - 1, nn.Dropout(dropout))
        self.dropout = nn.Dropout(dropout)

    def encode(
        self,
        elements: Float[Tensor, "B N D"] | SetBatch,
        mask: Bool[Tensor, "B N"] | None = None,
        weights: Shaped[Tensor, "B N"] | None = None,
    ) -> Float[Tensor, "B N E"] | SetBatch:
        """Return the encoded set, the input of the pool."""
        encoded = super().encode(elements, mask, weights)
        if isinstance(encoded, SetBatch):
            return encoded.with_elements(self.dropout(encoded.elements))
        return self.dropout(encoded)
