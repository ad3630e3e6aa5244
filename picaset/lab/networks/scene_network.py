"""The set of objects in a picture: an encoder, a decoder of sets, and one head for all (Table 5).

    picaso             PicasoPool with ten templates                                    (PB)
    attention          AttentionPool with ten templates, then attention among them      (Set Transformer)
    slots              SlotAttention with ten sampled slots
    learned-slots      the same from ten learned slots, as templates are learned
    descent            SetDescent, gradients through its steps                          (DSPN)
    implicit-descent   SetDescent with momentum, gradients by implicit differentiation  (iDSPN)
    competing          CompetingCascade, ours

Dimensions:  B images   S pixels a side   K slots   N places   D features   L steps   H heads
"""

import inspect
from typing import Any, Literal, cast, get_args

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.nn.functional import normalize

from picaset.checks import check_choice, check_positive
from picaset.lab.networks.competing_cascade import Compete, CompetingCascade, Initial
from picaset.lab.networks.image_stems import Places, Positions, SceneEncoder, SceneStem
from picaset.lab.networks.set_descent import SetDescent
from picaset.networks.pretrained import PretrainedNetwork
from picaset.operators.attention_pools import AttentionPool
from picaset.operators.base import Trace
from picaset.operators.block import BlockOptions, Form
from picaset.operators.encoders import SelfAttention
from picaset.operators.picaso import PicasoPool
from picaset.operators.slot_attention import SlotAttention

SceneDecoder = Literal["picaso", "attention", "slots", "learned-slots", "descent", "implicit-descent", "competing"]
DECODERS: tuple[SceneDecoder, ...] = get_args(SceneDecoder)
STEPPING = tuple(decoder for decoder in DECODERS if decoder != "attention")
USED_BY: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("num_steps", "num_test_steps"), STEPPING),
    **dict.fromkeys(("form", "norm"), ("picaso", "attention", "competing")),
    **dict.fromkeys(("compete", "located", "initial", "mixed", "every_step"), ("competing",)),
}
"""Options that do nothing for other decoders, which refuse them; not ``num_heads``, which profiles set for all."""
NARROW = 16
"""Features of a place in the vector that a descent starts from."""
LENGTH = 8.0
"""Of the vectors that an implicit descent goes to: some steps away, and within reach."""


def steps_in_testing(num_steps: int, num_test_steps: int) -> int:
    """Steps of the decoder in ``eval``: as many as in training, unless it is said otherwise."""
    return num_test_steps or num_steps


class SceneNetwork(PretrainedNetwork):
    """From an image to the vectors of the objects in it.

    Args:
        dim_out: Numbers of an object's vector.
        num_objects: Vectors that are predicted, as many as a scene can have objects.
        stem: ``"full"`` as published, or ``"strided"``.
        image_size: Pixels of an image, in each direction.
        decoder: How a set of vectors is made from the places of an image.
        dim: Features inside.
        num_heads: Attention heads; divides ``dim``.
        num_steps: Steps of the decoder.
        num_test_steps: Steps of it in ``eval``; 0 takes as many as in training.
        form: Of attention blocks, the published programs' or the paper's equation.
        norm: Layer norm after each sum of an attention block.
        compete: See :class:`CompetingCascade`, and so for the next three.
        located: Whether templates are told where they looked.
        initial: What templates are before the first step.
        mixed: Whether templates attend to each other.
        positions: How the encoder embeds them, ``"linear"`` as published or ``"waves"``.
        every_step: Whether the competing cascade says after every step what it sees, while training.

    Shapes:
        images    (B, 3, S, S)        bytes, or numbers from 0 to 1
        returns   (B, K, dim_out)     between 0 and 1; (L, B, K, dim_out) for every step

    Example:
        >>> SceneNetwork(19, dim=16, image_size=32)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10, 19])
    """

    def __init__(
        self,
        dim_out: int,
        *,
        num_objects: int = 10,
        stem: SceneStem = "strided",
        image_size: int = 64,
        decoder: SceneDecoder = "picaso",
        dim: int = 64,
        num_heads: int = 4,
        num_steps: int = 3,
        num_test_steps: int = 0,
        form: Form = "authors",
        norm: bool = True,
        compete: Compete = "templates",
        located: bool = True,
        initial: Initial = "learned",
        mixed: bool = False,
        positions: Positions = "linear",
        every_step: bool = False,
    ) -> None:
        check_positive(caller="SceneNetwork", dim_out=dim_out, num_objects=num_objects)
        check_choice(decoder, DECODERS, caller="SceneNetwork", name="decoder")
        if num_test_steps < 0:
            raise ValueError(f"SceneNetwork: num_test_steps must not be negative; got {num_test_steps}.")
        config = dict(
            dim_out=dim_out, num_objects=num_objects, stem=stem, image_size=image_size, decoder=decoder, dim=dim,
            num_heads=num_heads, num_steps=num_steps, num_test_steps=num_test_steps, form=form, norm=norm,
            compete=compete, located=located, initial=initial, mixed=mixed, positions=positions, every_step=every_step,
        )  # fmt: skip
        check_used(config, decoder)
        super().__init__(config)
        self.num_steps, self.num_test_steps = num_steps, steps_in_testing(num_steps, num_test_steps)
        self.every_step = every_step
        self.encoder = SceneEncoder(dim, kind=stem, image_size=image_size, positions=positions)
        options = BlockOptions(form=form, norm=norm)
        counts: dict[str, Any] = dict(num_templates=num_objects, num_heads=num_heads)
        self.summary: nn.Module | None = None
        self.mixing: nn.Module | None = None
        if decoder == "picaso":
            self.decoder = PicasoPool(dim, **counts, num_steps=num_steps, **options)
        elif decoder == "attention":
            self.decoder = AttentionPool(dim, **counts, **options)
            self.mixing = SelfAttention(dim, dim, num_heads=num_heads, **options)
        elif decoder in ("slots", "learned-slots"):
            start = "sampled" if decoder == "slots" else "learned"
            self.decoder = SlotAttention(dim, num_slots=num_objects, num_steps=num_steps, initial=start)
        elif decoder == "competing":
            self.decoder = CompetingCascade(
                dim, **counts, num_steps=num_steps, compete=compete, located=located, initial=initial, mixed=mixed,
                **options,
            )  # fmt: skip
        else:
            implicit = decoder == "implicit-descent"
            self.summary = Summary(dim, self.encoder.side**2, 4 * dim, normed=implicit)
            self.decoder = SetDescent(
                4 * dim, dim, num_elements=num_objects, num_steps=num_steps, implicit=implicit, bounded=implicit,
                momentum=0.8 if implicit else 0.0, step_size=0.2 if implicit else 1.0, clip=10.0 if implicit else 0.0,
            )  # fmt: skip
        self.head = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, dim_out), nn.Sigmoid())

    def forward(self, images: Float[Tensor, "B 3 S S"] | UInt8[Tensor, "B 3 S S"]) -> Float[Tensor, "*L B K V"]:
        places = self.encoder(images)
        if self.every_step and self.training:
            return self.head(torch.stack(cast(CompetingCascade, self.decoder).each_step(places)))
        decoded = self.decode(places)
        return self.head(decoded if self.mixing is None else self.mixing(decoded))

    def decode(self, places: Places) -> Float[Tensor, "B K D"]:
        if self.summary is not None:
            return self.decoder(self.summary(places.elements))
        return self.decoder(places if isinstance(self.decoder, CompetingCascade) else places.elements)

    @torch.no_grad()
    def trace(self, images: Float[Tensor, "B 3 S S"] | UInt8[Tensor, "B 3 S S"]) -> Trace | None:
        """The templates, and their attention to the places row by row, at every step; None for a descent."""
        places = self.encoder(images)
        if isinstance(self.decoder, CompetingCascade):
            return self.decoder.trace(places)
        if isinstance(self.decoder, PicasoPool | SlotAttention):
            return self.decoder.trace(places.elements)
        return None

    def train(self, mode: bool = True) -> "SceneNetwork":
        super().train(mode)
        if not isinstance(self.decoder, AttentionPool):
            cast(Any, self.decoder).num_steps = self.num_steps if mode else self.num_test_steps
        return self


def check_used(config: dict[str, Any], decoder: SceneDecoder) -> None:
    """That what was asked for has an effect."""
    usual = inspect.signature(SceneNetwork).parameters
    for name, decoders in USED_BY.items():
        if decoder not in decoders and config[name] != usual[name].default:
            raise ValueError(
                f"SceneNetwork: {name} needs decoder={' or '.join(map(repr, decoders))}; got {decoder!r}, where "
                f"{name}={config[name]!r} would change nothing. Leave it out."
            )


class Summary(nn.Module):
    """One vector of all places, which knows where each was.

    ``normed`` gives all vectors one length, which a set whose encoding is bounded can come near to.
    """

    def __init__(self, dim: int, num_places: int, dim_out: int, *, normed: bool) -> None:
        super().__init__()
        self.narrow = nn.Linear(dim, NARROW)
        self.joined = nn.Linear(NARROW * num_places, dim_out)
        self.normed = normed

    def forward(self, elements: Float[Tensor, "B N D"]) -> Float[Tensor, "B Z"]:
        found = self.joined(torch.relu(self.narrow(elements)).flatten(1))
        return LENGTH * normalize(found - found.mean(dim=1, keepdim=True)) if self.normed else found
