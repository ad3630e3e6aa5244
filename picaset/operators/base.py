"""What an operator is given: read once, checked once, padding silenced.

Two base classes carry the calling convention of the whole library, so that an operator's own
file holds its mathematics alone:

    SetPool      set -> K vectors            subclasses write ``pool(elements, mask)``
    SetEncoder   set -> set                  subclasses write ``encode(elements, mask)``

Both are called with ``(elements, mask)`` or with a ``SetBatch``. What reaches a subclass is
padded, has at least one slot per set, and holds exact zeros where an element is absent;
``mask`` is None when every element is present.

Dimensions:  B sets   N elements (padded)   K vectors   D features in   E features out

Learned vectors to ask a set with.

What a cascade did, step by step: the record that every cascade can give of itself.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from picaset.checks import check_floating, check_mask, check_tensor
from picaset.operators.buckets import encode_in_buckets, pool_in_buckets
from picaset.sets import SetBatch


def learned_templates(count: int, dim: int) -> nn.Parameter:
    """Templates drawn as Set Transformer draws them (Glorot)."""
    return nn.Parameter(nn.init.xavier_uniform_(torch.empty(count, dim)))


class Trace(NamedTuple):
    """The templates and the attention of every step.

    Shapes:
        templates  (L + 1, B, K, D)       before the first step, and after each
        attention  (L, B, H, K, N)        weights of each step; (L, H, K, total) for a SetBatch
    """

    templates: Float[Tensor, "L_plus_1 B K D"]
    attention: Float[Tensor, "L B H K N"] | Float[Tensor, "L H K total"]


def write_attention(
    attention: Float[Tensor, "L B H K N"], mask: Bool[Tensor, "B N"] | None, *, like: Tensor | SetBatch
) -> Float[Tensor, "L B H K N"] | Float[Tensor, "L H K total"]:
    """Give attention weights the form of the set they are over, padded or packed."""
    if not isinstance(like, SetBatch):
        return attention[..., : like.shape[1]]
    by_element = attention.permute(0, 2, 3, 1, 4)  # (L, H, K, B, N)
    return by_element.flatten(-2) if mask is None else by_element[..., mask]


class SetPool(nn.Module):
    """A map from a set of any size to K vectors that ignores the order of the elements."""

    dim_in: int | None = None
    """Features expected of an element; None takes any."""

    def forward(
        self,
        elements: Float[Tensor, "B N D"] | SetBatch,
        mask: Bool[Tensor, "B N"] | None = None,
    ) -> Float[Tensor, "B K E"]:
        """Pool every set; ``mask`` is True where an element is present, None means all are."""
        if isinstance(elements, SetBatch):
            check_fits(self, elements, mask)
            return pool_in_buckets(elements, self.pool)
        return self.pool(*read_set(self, elements, mask))

    def pool(self, elements: Float[Tensor, "B N D"], mask: Bool[Tensor, "B N"] | None) -> Float[Tensor, "B K E"]:
        """The operator itself, on a padded set whose absent elements are zero."""
        raise NotImplementedError


class SetEncoder(nn.Module):
    """A map from a set to a set of the same size that follows the order of the elements.

    Padded sets come back padded, with zeros where an element is absent; a SetBatch comes back as one.
    """

    dim_in: int | None = None
    """Features expected of an element; None takes any."""

    def forward(
        self,
        elements: Float[Tensor, "B N D"] | SetBatch,
        mask: Bool[Tensor, "B N"] | None = None,
    ) -> Float[Tensor, "B N E"] | SetBatch:
        """Encode every set; ``mask`` is True where an element is present, None means all are."""
        if isinstance(elements, SetBatch):
            check_fits(self, elements, mask)
            return encode_in_buckets(elements, self.encode)
        padded, present = read_set(self, elements, mask)
        return write_set(self.encode(padded, present), present, like=elements)

    def encode(self, elements: Float[Tensor, "B N D"], mask: Bool[Tensor, "B N"] | None) -> Float[Tensor, "B N E"]:
        """The operator itself, on a padded set whose absent elements are zero."""
        raise NotImplementedError


def read_set(
    module: nn.Module, elements: Tensor | SetBatch, mask: Tensor | None
) -> tuple[Float[Tensor, "B N D"], Bool[Tensor, "B N"] | None]:
    """Check what a module was called with and pad it; absent elements become exact zeros."""
    check_fits(module, elements, mask)
    return pad_set(elements, mask)


def read_elements(
    elements: Tensor | SetBatch, mask: Tensor | None, *, caller: str
) -> tuple[Float[Tensor, "B N D"], Bool[Tensor, "B N"] | None]:
    """The same where there is no module whose weights the elements have to fit."""
    check_elements(elements, mask, caller=caller)
    return pad_set(elements, mask)


def pad_set(
    elements: Tensor | SetBatch, mask: Tensor | None
) -> tuple[Float[Tensor, "B N D"], Bool[Tensor, "B N"] | None]:
    if isinstance(elements, SetBatch):
        same_size = elements.same_size
        elements, mask = elements.to_padded()
        mask = None if same_size else mask
    if elements.shape[1] == 0:  # a maximum needs something to be taken over: one absent element
        elements = nn.functional.pad(elements, (0, 0, 0, 1))
        mask = torch.zeros_like(elements[..., 0], dtype=torch.bool)
    return (elements if mask is None else silence(elements, mask)), mask


def write_set(
    encoded: Float[Tensor, "B N E"], mask: Bool[Tensor, "B N"] | None, *, like: Tensor | SetBatch
) -> Float[Tensor, "B M E"] | SetBatch:
    """Give an encoder's result the form of what it was called with."""
    if isinstance(like, SetBatch):
        return like.with_elements(encoded.flatten(0, 1) if mask is None else encoded[mask])
    encoded = encoded[:, : like.shape[1]]
    return encoded if mask is None else silence(encoded, mask[:, : like.shape[1]])


def silence(elements: Float[Tensor, "B N D"], mask: Bool[Tensor, "B N"]) -> Float[Tensor, "B N D"]:
    """Exact zeros, and zero gradient, where an element is absent, whatever it held."""
    return elements.masked_fill(~mask[..., None], 0.0)


def check_elements(elements: Tensor | SetBatch, mask: Tensor | None, *, caller: str) -> None:
    """Whether this is a set at all: ``(elements, mask)`` or a SetBatch."""
    if isinstance(elements, SetBatch):
        if mask is not None:
            raise TypeError(f"{caller}: a SetBatch knows which elements are present; call without a mask.")
        return
    check_tensor(
        elements, caller=caller, name="elements", hint="A list of sets becomes a batch by SetBatch.from_list(sets)."
    )
    check_floating(elements, caller=caller)
    if elements.dim() != 3:
        hint = " One set is a batch of one: pass elements[None]." if elements.dim() == 2 else ""
        raise ValueError(f"{caller}: elements must have shape (B, N, D); got {tuple(elements.shape)}.{hint}")
    if mask is not None:
        check_mask(mask, elements, caller=caller)


def check_fits(module: nn.Module, elements: Tensor | SetBatch, mask: Tensor | None) -> None:
    """Whether this is a set that a module's weights can be applied to."""
    caller = type(module).__name__
    check_elements(elements, mask, caller=caller)
    values = elements.elements if isinstance(elements, SetBatch) else elements
    width = getattr(module, "dim_in", None)
    if width is not None and values.shape[-1] != width:
        raise ValueError(
            f"{caller}: elements must have {width} features; got {values.shape[-1]}, in {tuple(values.shape)}."
        )
    weight = next(module.parameters(), None)
    if weight is None:
        return
    if weight.device != values.device:
        raise ValueError(
            f"{caller}: elements are on {values.device} and the weights on {weight.device}; move one to the other."
        )
    if weight.dtype != values.dtype and not torch.is_autocast_enabled(values.device.type):
        raise TypeError(
            f"{caller}: elements are {values.dtype} and the weights {weight.dtype}; "
            f"pass elements.to({weight.dtype}) or convert the module."
        )
