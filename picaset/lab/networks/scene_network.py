"""Predict the set of objects in an image: an image encoder, a decoder of sets, and one head for all vectors (Table 5).

The decoders are in :mod:`picaset.lab.networks.scene_decoders`.

Dimensions:  B images   S pixels a side   K objects   V numbers of an object   L steps
"""

import inspect
import re
from typing import Any

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from picaset.checks import check_positive
from picaset.files import check_known
from picaset.lab.networks.image_stems import PIXELS_PER_PLACE, Positions, SceneEncoder, SceneStem
from picaset.lab.networks.scene_decoders import (
    AttentionDecoder,
    CascadeDecoder,
    DescentDecoder,
    SceneDecoder,
    SlotDecoder,
)
from picaset.operators.base import Trace
from picaset.pretrained import PretrainedNetwork

VERSION_1_DECODERS: dict[str, tuple[type[SceneDecoder], dict[str, Any]]] = {
    "picaso": (CascadeDecoder, {}),
    "attention": (AttentionDecoder, {}),
    "slots": (SlotDecoder, {"initial": "sampled"}),
    "learned-slots": (SlotDecoder, {"initial": "learned"}),
    "descent": (DescentDecoder, {"implicit": False}),
    "implicit-descent": (DescentDecoder, {"implicit": True}),
    "competing": (CascadeDecoder, {}),
}
"""Decoders by their name in format version 1, with the arguments that the name implied."""
REMOVED_OPTIONS = {"compete": "elements", "located": False, "initial": "learned", "mixed": False}
"""Options of the decoder ``"competing"`` of format version 1, with the values that make it a plain cascade."""


class SceneNetwork(PretrainedNetwork):
    """Predict a vector for each object in an image.

    Args:
        dim_out: Numbers of an object's vector.
        decoder: Maps the places of an image to the vectors of objects; a :class:`SceneDecoder`.
        dim: Features of a place; the decoder has as many.
        stem: Convolutions, ``"full"`` as published, or ``"strided"``.
        image_size: Pixels of an image, in each direction.
        positions: Embedding of positions, ``"linear"`` as published, or ``"waves"``.

    Shapes:
        images    (B, 3, S, S)        bytes, or numbers from 0 to 1
        returns   (B, K, dim_out)     between 0 and 1; (L, B, K, dim_out) with ``every_step``

    Example:
        >>> network = SceneNetwork(19, CascadeDecoder(16), dim=16, image_size=32)
        >>> network(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10, 19])
    """

    def __init__(
        self,
        dim_out: int,
        decoder: SceneDecoder,
        *,
        dim: int = 64,
        stem: SceneStem = "strided",
        image_size: int = 64,
        positions: Positions = "linear",
    ) -> None:
        check_positive(caller="SceneNetwork", dim_out=dim_out)
        if not isinstance(decoder, SceneDecoder):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                f"SceneNetwork: decoder must be a SceneDecoder; got {type(decoder).__name__}. "
                f"Pass CascadeDecoder({dim}), for example."
            )
        if decoder.dim != dim:
            raise ValueError(f"SceneNetwork: the decoder must have dim={dim}, as the network; got dim={decoder.dim}.")
        super().__init__()
        self.encoder = SceneEncoder(dim, kind=stem, image_size=image_size, positions=positions)
        self.decoder = decoder
        self.head = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, dim_out), nn.Sigmoid())

    def forward(
        self,
        images: Float[Tensor, "B 3 S S"] | UInt8[Tensor, "B 3 S S"],
        *,
        num_steps: int | None = None,
        every_step: bool = False,
    ) -> Float[Tensor, "*L B K V"]:
        """Predict the objects.

        Args:
            images: Bytes, or numbers from 0 to 1.
            num_steps: Steps of the decoder in this call; None takes its own number.
            every_step: Return the predictions after every step, not the last alone.
        """
        decode = self.decoder.each_step if every_step else self.decoder
        return self.head(decode(self.encoder(images), num_steps))

    @torch.no_grad()
    def trace(self, images: Float[Tensor, "B 3 S S"] | UInt8[Tensor, "B 3 S S"]) -> Trace | None:
        """Return the templates and their attention to the places, row by row, at every step.

        None for a decoder without attention.
        """
        return self.decoder.trace(self.encoder(images))

    @classmethod
    def upgrade(cls, config: dict[str, Any], weights: dict[str, Tensor]) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Convert format version 1, where the arguments of all decoders were arguments of the network."""
        check_known(config["decoder"], VERSION_1_DECODERS, where=cls.__name__, label="decoder")
        decoder, implied = VERSION_1_DECODERS[config["decoder"]]
        if config["decoder"] == "competing":
            for name, value in REMOVED_OPTIONS.items():
                if config[name] != value:
                    raise ValueError(f"the decoder option {name}={config[name]!r} was removed; only {value!r} is left.")
        values = config | implied | {"num_places": (config["image_size"] // PIXELS_PER_PLACE) ** 2}
        values["num_steps"] = config["num_test_steps"] or config["num_steps"]  # the number in eval mode
        arguments = {name: values[name] for name in inspect.signature(decoder).parameters}
        names = ("dim_out", "dim", "stem", "image_size", "positions")
        upgraded = {name: config[name] for name in names}
        upgraded["decoder"] = {"class": decoder.__name__, "arguments": arguments}
        return upgraded, {version_1_name(name, decoder): tensor for name, tensor in weights.items()}


def version_1_name(name: str, decoder: type[SceneDecoder]) -> str:
    """Return the current name of a weight of format version 1."""
    part, _, rest = name.partition(".")
    if part in ("mixing", "summary"):
        return f"decoder.{name}"
    if part != "decoder":
        return name
    rest = re.sub("^block[.]", "blocks.0.", rest)  # the name in the decoder "competing"
    return f"decoder.{'descent' if decoder is DescentDecoder else 'pool'}.{rest}"
