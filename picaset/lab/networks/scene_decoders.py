r"""Decoders of scenes: from the places of an image to one vector for each object (Table 5).

    CascadeDecoder      PicasoPool                                                           (PB)
    AttentionDecoder    AttentionPool, then self-attention among the templates               (Set Transformer)
    SlotDecoder         SlotAttention from sampled or from learned slots
    DescentDecoder      SetDescent, with unrolled or with implicit gradients                 (DSPN, iDSPN)

Dimensions:  B images   N places   K objects   D features   H heads   L steps   Z features of a summary
"""

from copy import copy

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import normalize

from picaset.checks import check_positive
from picaset.lab.networks.set_descent import SetDescent
from picaset.operators.attention_pools import AttentionPool
from picaset.operators.base import Trace
from picaset.operators.block import Form
from picaset.operators.encoders import SelfAttention
from picaset.operators.picaso import PicasoPool
from picaset.operators.slot_attention import Initial, SlotAttention
from picaset.pretrained import Configurable

SUMMARY_FEATURES = 16
"""Features of a place in the summary that a descent starts from."""
SUMMARY_NORM = 8.0
"""Norm of the summaries of an implicit descent: several steps away from the start, and reachable."""


class SceneDecoder(Configurable):
    """Base class: maps the places of an image to ``num_objects`` vectors.

    Shapes:
        places    (B, N, D)    features of the places of an image, row by row
        returns   (B, K, D)
    """

    num_steps: int | None = None
    """Number of steps; None if the decoder is not iterative."""

    def __init__(self, dim: int, num_objects: int, num_steps: int | None) -> None:
        super().__init__()
        check_positive(caller=type(self).__name__, dim=dim, num_objects=num_objects)
        self.dim = dim
        if num_steps is not None:
            check_positive(caller=type(self).__name__, num_steps=num_steps)
            self.num_steps = num_steps

    def forward(self, places: Float[Tensor, "B N D"], num_steps: int | None = None) -> Float[Tensor, "B K D"]:
        """Return the vectors after the last step; ``num_steps`` overrides the decoder's own number."""
        raise NotImplementedError

    def each_step(self, places: Float[Tensor, "B N D"], num_steps: int | None = None) -> Float[Tensor, "L B K D"]:
        """Return the vectors after every step."""
        raise ValueError(f"{type(self).__name__} has no intermediate steps to return; call it without every_step.")

    def trace(self, places: Float[Tensor, "B N D"]) -> Trace | None:
        """Return the templates and the attention of every step; None if the decoder has no attention."""
        return None

    def count_steps(self, num_steps: int | None) -> int:
        """Return the number of steps of a call."""
        if num_steps is None:
            assert self.num_steps is not None
            return self.num_steps
        check_positive(caller=type(self).__name__, num_steps=num_steps)
        return num_steps


class PoolDecoder(SceneDecoder):
    """Base class of decoders that apply a pool to the places."""

    pool: PicasoPool | SlotAttention

    def forward(self, places: Float[Tensor, "B N D"], num_steps: int | None = None) -> Float[Tensor, "B K D"]:
        return self.pool_with(num_steps)(places)

    def each_step(self, places: Float[Tensor, "B N D"], num_steps: int | None = None) -> Float[Tensor, "L B K D"]:
        return self.pool_with(num_steps).trace(places).templates[1:]

    def trace(self, places: Float[Tensor, "B N D"]) -> Trace:
        return self.pool.trace(places)

    def pool_with(self, num_steps: int | None) -> PicasoPool | SlotAttention:
        """Return the pool with another number of steps and the same weights."""
        # A shallow copy shares the weights and, unlike a temporary change, is safe in threads.
        pool = copy(self.pool)
        pool.num_steps = self.count_steps(num_steps)
        return pool


class CascadeDecoder(PoolDecoder):
    """PICASO: :class:`PicasoPool` with one template per object.

    Args:
        dim: Features of a place, in and out.
        num_objects: Vectors per image.
        num_heads: Attention heads; divides ``dim``.
        num_steps: Steps of the cascade.
        form: Form of the attention block, ``"authors"`` or ``"paper"``.
        norm: Layer norm after each sum of the block.

    Example:
        >>> places = torch.randn(2, 9, 8)
        >>> decoder = CascadeDecoder(8, num_objects=3, num_heads=2)
        >>> decoder(places).shape, decoder.each_step(places, num_steps=5).shape
        (torch.Size([2, 3, 8]), torch.Size([5, 2, 3, 8]))
    """

    def __init__(
        self,
        dim: int,
        *,
        num_objects: int = 10,
        num_heads: int = 4,
        num_steps: int = 3,
        form: Form = "authors",
        norm: bool = True,
    ) -> None:
        super().__init__(dim, num_objects, num_steps)
        self.pool = PicasoPool(
            dim, num_templates=num_objects, num_heads=num_heads, num_steps=num_steps, form=form, norm=norm
        )


class AttentionDecoder(SceneDecoder):
    """Set Transformer: attention pooling once, then self-attention among the templates.

    Args:
        dim: Features of a place, in and out.
        num_objects: Vectors per image.
        num_heads: Attention heads; divides ``dim``.
        form: Form of the attention blocks, ``"authors"`` or ``"paper"``.
        norm: Layer norm after each sum of a block.
    """

    def __init__(
        self, dim: int, *, num_objects: int = 10, num_heads: int = 4, form: Form = "authors", norm: bool = True
    ) -> None:
        super().__init__(dim, num_objects, None)
        self.pool = AttentionPool(dim, num_templates=num_objects, num_heads=num_heads, form=form, norm=norm)
        self.mixing = SelfAttention(dim, dim, num_heads=num_heads, form=form, norm=norm)

    def forward(self, places: Float[Tensor, "B N D"], num_steps: int | None = None) -> Float[Tensor, "B K D"]:
        if num_steps is not None:
            raise ValueError(f"AttentionDecoder attends once: num_steps must be None; got {num_steps}.")
        return self.mixing(self.pool(places))

    def trace(self, places: Float[Tensor, "B N D"]) -> Trace:
        return self.pool.trace(places)


class SlotDecoder(PoolDecoder):
    """Slot Attention: one slot per object.

    Args:
        dim: Features of a place, in and out.
        num_objects: Vectors per image.
        num_steps: Times the slots compete for the places.
        initial: Slots ``"sampled"`` from a learned Gaussian, as published, or ``"learned"`` slots.
    """

    def __init__(self, dim: int, *, num_objects: int = 10, num_steps: int = 3, initial: Initial = "sampled") -> None:
        super().__init__(dim, num_objects, num_steps)
        self.pool = SlotAttention(dim, num_slots=num_objects, num_steps=num_steps, initial=initial)


class DescentDecoder(SceneDecoder):
    """DSPN or iDSPN: summarize the image in one vector, then find by descent the set whose encoding is near to it.

    Args:
        dim: Features of a place, in and out.
        num_places: Number of places of an image, N.
        num_objects: Vectors per image.
        num_steps: Steps of gradient descent.
        implicit: iDSPN: implicit gradients, momentum, clipping and a bounded encoder; False is DSPN.
    """

    def __init__(
        self, dim: int, *, num_places: int, num_objects: int = 10, num_steps: int = 10, implicit: bool = False
    ) -> None:
        super().__init__(dim, num_objects, num_steps)
        check_positive(caller="DescentDecoder", num_places=num_places)
        self.num_places = num_places
        self.summary = Summary(dim, num_places, 4 * dim, normed=implicit)
        self.descent = SetDescent(
            4 * dim, dim, num_elements=num_objects, num_steps=num_steps, implicit=implicit, bounded=implicit,
            momentum=0.8 if implicit else 0.0, step_size=0.2 if implicit else 1.0, clip=10.0 if implicit else 0.0,
        )  # fmt: skip

    def forward(self, places: Float[Tensor, "B N D"], num_steps: int | None = None) -> Float[Tensor, "B K D"]:
        if (count := places.shape[1]) != self.num_places:
            raise ValueError(f"DescentDecoder: images must have num_places={self.num_places} places; got {count}.")
        return self.descent(self.summary(places), num_steps=self.count_steps(num_steps))


class Summary(nn.Module):
    """Map all places of an image to one vector by a linear map of their concatenation.

    ``normed`` scales every vector to the same norm, which the encoding of a bounded :class:`SetDescent` can reach.
    """

    def __init__(self, dim: int, num_places: int, dim_out: int, *, normed: bool) -> None:
        super().__init__()
        self.narrow = nn.Linear(dim, SUMMARY_FEATURES)
        self.joined = nn.Linear(SUMMARY_FEATURES * num_places, dim_out)
        self.normed = normed

    def forward(self, elements: Float[Tensor, "B N D"]) -> Float[Tensor, "B Z"]:
        summary = self.joined(torch.relu(self.narrow(elements)).flatten(1))
        return SUMMARY_NORM * normalize(summary - summary.mean(dim=1, keepdim=True)) if self.normed else summary
