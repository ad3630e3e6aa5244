"""Find the image of a set that differs from the others: an image stem and an element scorer (Table 4).

The network that is shipped with picaset, :func:`odd_faces_network`, is trained on generated faces.

Dimensions:  B sets   N images (padded)   S pixels a side   M sets per album   n images per set   E features
"""

from importlib import resources
from pathlib import Path
from typing import Unpack

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from picaset.checks import check_mask
from picaset.lab.networks.image_stems import Stem, image_stem, to_float_images
from picaset.networks.element_scorer import Comparison, ElementEncoder, ElementPool, ElementScorer
from picaset.operators.block import BlockOptions
from picaset.pretrained import PretrainedNetwork


class OddOneOutNetwork(PretrainedNetwork):
    """Score every image of a set by how little it fits the others.

    An image stem, then an :class:`ElementScorer`, whose arguments are the same here. The rows of the paper's table
    differ in ``encoder``, ``pool`` and ``num_decoder_blocks``.

    Args:
        stem: ``"nine"``, the paper's nine convolutions; ``"light"`` or ``"narrow"``, for 64 x 64 pixels.
        dim: Features of an image's vector, and hidden features.
        num_heads: Attention heads; divides ``dim``.
        encoder: Encoder of the set of vectors.
        num_encoder_blocks: Number of encoders.
        pool: Pool of the set.
        num_templates: Number of pooled vectors.
        num_steps: Steps of a cascade.
        num_decoder_blocks: Self-attention blocks among the templates.
        comparison: How an image is compared with the pooled set.
        options: Keywords of :class:`MultiheadAttentionBlock`, for every block.

    Shapes:
        images    (B, N, 3, S, S)    bytes, or numbers from 0 to 1
        mask      (B, N)             True where an image is present; None means all are
        returns   (B, N)             minus infinity where an image is absent; (B, M, n) with ``members``

    Example:
        >>> network = OddOneOutNetwork(dim=16, num_heads=2)
        >>> network(torch.zeros(2, 5, 3, 64, 64)).shape
        torch.Size([2, 5])
    """

    def __init__(
        self,
        *,
        stem: Stem = "light",
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
        super().__init__()
        self.stem = image_stem(stem, dim, caller=type(self).__name__)
        self.scorer = ElementScorer(
            dim, dim=dim, num_heads=num_heads, encoder=encoder, num_encoder_blocks=num_encoder_blocks, pool=pool,
            num_templates=num_templates, num_steps=num_steps, num_decoder_blocks=num_decoder_blocks,
            comparison=comparison, **options,
        )  # fmt: skip

    def forward(
        self,
        images: Float[Tensor, "B N 3 S S"] | UInt8[Tensor, "B N 3 S S"],
        mask: Bool[Tensor, "B N"] | None = None,
        *,
        members: Int[Tensor, "B M n"] | None = None,
    ) -> Float[Tensor, "B N"] | Float[Tensor, "B M n"]:
        """Return the score of every image; higher means that it fits the others less.

        With ``members``, ``images`` are B albums from which M sets each are drawn, and ``members`` holds the indices of
        the images of each set in its album. Each image is encoded once; the scores are those of the sets.
        """
        check_images(images, mask)
        if mask is not None:  # before the stem, so that NaN in absent images does not reach the gradients
            images = images.masked_fill(~mask[..., None, None, None], 0)
        vectors: Tensor = self.encode_images(images.flatten(0, 1)).view(*images.shape[:2], -1)  # (B, N, E)
        if members is None:
            return self.scorer(vectors, mask)
        sets = vectors[torch.arange(len(members), device=members.device)[:, None, None], members]
        return self.scorer(sets.flatten(0, 1)).unflatten(0, members.shape[:2])

    def encode_images(self, images: Float[Tensor, "P 3 S S"] | UInt8[Tensor, "P 3 S S"]) -> Float[Tensor, "P E"]:
        """Return the vector of each image, which does not depend on the other images."""
        return self.stem(to_float_images(images, like=next(self.stem.parameters())))


def check_images(images: Tensor, mask: Tensor | None) -> None:
    if images.dim() != 5 or images.shape[2] != 3:
        hint = " One set is a batch of one: pass images[None]." if images.dim() == 4 else ""
        raise ValueError(f"OddOneOutNetwork: images must have shape (B, N, 3, S, S); got {tuple(images.shape)}.{hint}")
    if images.dtype is not torch.uint8 and not images.is_floating_point():
        raise TypeError(f"OddOneOutNetwork: images must be bytes, or numbers from 0 to 1; got {images.dtype}.")
    if mask is not None:
        check_mask(mask, images, caller="OddOneOutNetwork")


WEIGHTS = Path(str(resources.files("picaset"))) / "studio" / "weights"
"""Folder of the shipped networks of the studio, each with a model card; all are trained on generated data."""
ODD_FACES = WEIGHTS / "odd_one_out_faces"
"""Folder of the network that :func:`odd_faces_network` loads."""


def odd_faces_network() -> OddOneOutNetwork:
    """Load the network that finds the odd one in a set of drawn faces.

    Its weights are stored in half precision and used in single precision.

    Example:
        >>> network = odd_faces_network()
        >>> network.config["pool"]
        'generalized'
    """
    return OddOneOutNetwork.from_pretrained(ODD_FACES).float()
