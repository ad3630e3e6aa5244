"""An image classifier: convolutions, self-attention among the places of the image, and a PICASO cascade.

Dimensions:  B images   C channels   S pixels a side   N places   D features
"""

from collections.abc import Callable
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from picaset.checks import check_choice, check_num_heads, check_positive
from picaset.lab.networks.image_stems import ConvolutionalStem
from picaset.operators.attention_pools import AttentionPool
from picaset.operators.base import SetPool, Trace
from picaset.operators.encoders import SelfAttention
from picaset.operators.picaso import PicasoPool
from picaset.operators.simple_pools import MeanPool
from picaset.pretrained import PretrainedNetwork

ViewPool = Literal["picaso", "attention", "mean"]


class ViewClassifier(PretrainedNetwork):
    """Classify images by PICASO on convolutional features with positions, instead of the paper's raw patches.

    The logits of all templates are averaged. In training, whole places are dropped at random.

    Args:
        num_classes: Number of classes.
        channels_in: Channels of an image: 1 for one camera, 2 for a stereo pair.
        image_size: Pixels of an image, in each direction.
        dim: Hidden features; a multiple of 8.
        num_heads: Attention heads; divides ``dim``.
        num_stem_blocks: Residual convolutions of the stem.
        num_encoder_blocks: Self-attention blocks among the places.
        pool: ``"picaso"`` (PB), ``"attention"`` (PMA), or ``"mean"``, which has one vector and no attention.
        num_templates: Templates of an attention pool.
        num_steps: Steps of the cascade.
        patch_dropout: Dropout rate of whole places.
        dropout: Dropout rate before the last map.

    Shapes:
        images    (B, C, S, S)
        returns   (B, num_classes)     logits

    Example:
        >>> ViewClassifier(5, dim=16, num_heads=2)(torch.randn(3, 1, 32, 32)).shape
        torch.Size([3, 5])
    """

    def __init__(
        self,
        num_classes: int,
        *,
        channels_in: int = 1,
        image_size: int = 32,
        dim: int = 128,
        num_heads: int = 4,
        num_stem_blocks: int = 1,
        num_encoder_blocks: int = 1,
        pool: ViewPool = "picaso",
        num_templates: int = 4,
        num_steps: int = 3,
        patch_dropout: float = 0.0,
        dropout: float = 0.0,
    ) -> None:
        check_positive(caller="ViewClassifier", num_classes=num_classes)
        check_num_heads(num_heads, dim, caller="ViewClassifier")
        for name, rate in (("patch_dropout", patch_dropout), ("dropout", dropout)):
            if not 0 <= rate < 1:
                raise ValueError(f"ViewClassifier: {name} must be at least 0 and below 1; got {rate}.")
        super().__init__()
        self.patch_dropout = patch_dropout
        self.stem = ConvolutionalStem(channels_in, dim, image_size=image_size, num_blocks=num_stem_blocks)
        self.encoders = nn.ModuleList(
            SelfAttention(dim, dim, num_heads=num_heads, norm=True) for _ in range(num_encoder_blocks)
        )
        cascade: Any = dict(num_templates=num_templates, num_heads=num_heads, norm=True)
        pools: dict[ViewPool, Callable[[], SetPool]] = {
            "picaso": lambda: PicasoPool(dim, num_steps=num_steps, **cascade),
            "attention": lambda: AttentionPool(dim, **cascade),
            "mean": MeanPool,
        }
        check_choice(pool, tuple(pools), caller="ViewClassifier", name="pool")
        self.pool = pools[pool]()
        self.decoder = nn.Sequential(nn.Dropout(dropout), nn.Linear(dim, num_classes))

    def forward(self, images: Float[Tensor, "B C S S"]) -> Float[Tensor, "B classes"]:
        elements, mask = self.encode(images)
        return self.decoder(self.pool(elements, mask)).mean(dim=1)

    def encode(self, images: Float[Tensor, "B C S S"]) -> tuple[Float[Tensor, "B N D"], Bool[Tensor, "B N"] | None]:
        """Return the encoded places, and the mask of those that are not dropped."""
        elements, mask = self.stem(images), None
        if self.training and self.patch_dropout:
            mask = torch.rand(elements.shape[:2], device=elements.device) >= self.patch_dropout
        for encoder in self.encoders:
            elements = encoder(elements, mask)
        return elements, mask

    def trace(self, images: Float[Tensor, "B C S S"]) -> Trace:
        """Return the templates and their attention to the places, row by row, at every step of the cascade."""
        if not isinstance(self.pool, PicasoPool):
            raise ValueError(f"ViewClassifier.trace: pool {self.config['pool']!r} has no attention.")
        elements, mask = self.encode(images)
        return self.pool.trace(elements, mask)
