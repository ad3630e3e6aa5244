r"""Base classes of the operators: how every operator reads a set, and how to write a new one.

    SetPool        maps a set to K vectors; subclasses implement ``pool(elements, mask)``
    SetEncoder     maps a set to a set of the same size; subclasses implement ``encode(elements, mask)``
    Cascade        updates K templates in several steps; subclasses implement ``begin`` and ``advance``
    CascadePool    a Cascade that is a SetPool and returns its last templates

Every operator is called with a padded pair ``(elements, mask)`` or with a :class:`SetBatch`, and with ``weights`` if
an element of weight w counts as w copies. The base classes check the arguments, pad packed sets, replace padding by
zeros and convert the result back. ``pool`` and ``encode`` therefore always receive padded elements (B, N, D) with
N >= 1 and exact zeros where an element is absent; ``mask`` is None if every element is present. A subclass sets
``dim_in`` to the number of features it expects, and ``takes_weights`` if its ``mask`` may be weights, zero where an
element is absent (:mod:`picaset.operators.state`):

    >>> class PowerMean(SetPool):
    ...     def __init__(self, dim: int, power: int) -> None:
    ...         super().__init__()
    ...         self.dim_in, self.power = dim, power
    ...
    ...     def pool(self, elements, mask):
    ...         sizes = elements.shape[1] if mask is None else mask.sum(dim=1)[:, None, None].clamp(min=1)
    ...         return (elements**self.power).sum(dim=1, keepdim=True) / sizes
    >>> PowerMean(1, power=2)(SetBatch.from_list([torch.tensor([[1.0], [3.0]]), torch.zeros(0, 1)]))
    tensor([[[5.]],
    <BLANKLINE>
            [[0.]]])

A new operator also needs its equation in ``tests/reference.py`` and an entry in ``tests/operators.py``; all laws are
then tested for it. It must compile with ``torch.compile(fullgraph=True)``, so its control flow may not depend on N.

Dimensions:  B sets   N elements (padded)   K vectors   D features in   E features out   H heads   L steps
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn

from picaset.checks import check_floating, check_mask, check_tensor, check_weights
from picaset.operators.buckets import encode_in_buckets, pool_in_buckets
from picaset.operators.packed_attention import compiles_packed
from picaset.operators.state import Presence, presence, present
from picaset.pretrained import PretrainedNetwork
from picaset.sets import SetBatch


class SetPool(PretrainedNetwork):
    """A permutation-invariant map from a set of any size to K vectors."""

    dim_in: int | None = None
    """Number of features of an element; None accepts any."""
    takes_weights = False
    """Whether ``mask`` of ``pool`` may be weights."""

    def forward(
        self,
        elements: Float[Tensor, "B N D"] | SetBatch,
        mask: Bool[Tensor, "B N"] | None = None,
        weights: Shaped[Tensor, "B N"] | None = None,
    ) -> Float[Tensor, "B K E"]:
        """Pool every set; ``mask`` is True where an element is present, None if all are.

        An element of weight w counts as w copies of it; ``weights`` of None are ones.
        """
        if isinstance(elements, SetBatch):
            check_input_set(self, elements, mask, weights)
            return pool_in_buckets(elements, self.pool)
        return self.pool(*read_set(self, elements, mask, weights))

    def pool(self, elements: Float[Tensor, "B N D"], mask: Presence | None) -> Float[Tensor, "B K E"]:
        """Pool padded sets whose absent elements are zero."""
        raise NotImplementedError


class SetEncoder(PretrainedNetwork):
    """A permutation-equivariant map from a set to a set of the same size.

    Padded sets return padded sets, with zeros where an element is absent; a SetBatch returns a SetBatch.
    """

    dim_in: int | None = None
    """Number of features of an element; None accepts any."""
    takes_weights = False
    """Whether ``mask`` of ``encode`` may be weights."""
    encodes_packed = False
    """Whether there is ``encode_packed``, which compiled code calls for a SetBatch; otherwise it has a graph break."""

    def forward(
        self,
        elements: Float[Tensor, "B N D"] | SetBatch,
        mask: Bool[Tensor, "B N"] | None = None,
        weights: Shaped[Tensor, "B N"] | None = None,
    ) -> Float[Tensor, "B N E"] | SetBatch:
        """Encode every set; ``mask`` is True where an element is present, None if all are.

        An element of weight w counts as w copies of it; ``weights`` of None are ones. The copies have equal outputs,
        and one is returned.
        """
        if isinstance(elements, SetBatch):
            check_input_set(self, elements, mask, weights)
            if self.encodes_packed and compiles_packed(elements, self):
                return zero_absent(elements.with_elements(self.encode_packed(zero_absent(elements))))
            return encode_in_buckets(elements, self.encode)
        padded, merged = read_set(self, elements, mask, weights)
        return write_set(self.encode(padded, merged), merged, like=elements)

    def encode(self, elements: Float[Tensor, "B N D"], mask: Presence | None) -> Float[Tensor, "B N E"]:
        """Encode padded sets whose absent elements are zero."""
        raise NotImplementedError

    def encode_packed(self, batch: SetBatch) -> Float[Tensor, "total E"]:
        """Encode the elements of packed sets without planning buckets; those of weight zero are zero."""
        raise NotImplementedError


class Trace(NamedTuple):
    """Templates and attention weights of every step of a cascade.

    Shapes:
        templates  (L + 1, B, K, D)       before the first step and after each step
        attention  (L, B, H, K, N)        attention weights of each step; (L, H, K, total) for a SetBatch
    """

    templates: Float[Tensor, "L_plus_1 B K D"]
    attention: Float[Tensor, "L B H K N"] | Float[Tensor, "L H K total"]


class CascadeStep(NamedTuple):
    """State of a cascade between two steps."""

    templates: Float[Tensor, "#B K E"]
    """Current templates; before the first step, a batch of one may serve all sets."""
    inputs: Any
    """Tensors that the next step reads from the set, in a form that the operator chooses."""
    attention: Float[Tensor, "B H K N"] | None = None
    """Weights with which the templates attended to the set; None unless requested."""


class Cascade(PretrainedNetwork):
    """An operator that updates K templates by attending to the set in each of ``num_steps`` steps."""

    num_steps: int
    """Number of updates of the templates."""
    takes_weights = False
    """Whether ``mask`` of ``begin`` may be weights."""

    def begin(self, elements: Float[Tensor, "B N D"], mask: Presence | None) -> CascadeStep:
        """Return the initial templates, and the inputs of the first step."""
        raise NotImplementedError

    def advance(self, step: CascadeStep, index: int, *, with_attention: bool) -> CascadeStep:
        """Perform step number ``index``."""
        raise NotImplementedError

    def run(self, elements: Float[Tensor, "B N D"], mask: Presence | None) -> CascadeStep:
        """Perform all steps on padded sets whose absent elements are zero."""
        step = self.begin(elements, mask)
        for index in range(self.num_steps):
            step = self.advance(step, index, with_attention=False)
        return step

    def trace(
        self,
        elements: Float[Tensor, "B N D"] | SetBatch,
        mask: Bool[Tensor, "B N"] | None = None,
        weights: Shaped[Tensor, "B N"] | None = None,
    ) -> Trace:
        """Return the templates and the attention weights of every step.

        Attention weights are normalized over the elements, or over the templates if these compete for elements. That of
        an element includes all its copies, if there are ``weights``.
        """
        padded, merged = read_set(self, elements, mask, weights)
        steps = [self.begin(padded, merged)]
        for index in range(self.num_steps):
            steps.append(self.advance(steps[-1], index, with_attention=True))
        templates = torch.stack([step.templates.expand_as(steps[-1].templates) for step in steps])
        attention = torch.stack([step.attention for step in steps if step.attention is not None])
        return Trace(templates, write_attention(attention, merged, like=elements))


class CascadePool(Cascade, SetPool):
    """A cascade that returns its last templates."""

    def pool(self, elements: Float[Tensor, "B N D"], mask: Presence | None) -> Float[Tensor, "B K E"]:
        return self.run(elements, mask).templates


def learned_templates(count: int, dim: int) -> nn.Parameter:
    """Return learned vectors with Glorot initialization, as in Set Transformer."""
    return nn.Parameter(nn.init.xavier_uniform_(torch.empty(count, dim)))


def read_set(
    module: nn.Module, elements: Tensor | SetBatch, mask: Tensor | None, weights: Tensor | None = None
) -> tuple[Float[Tensor, "B N D"], Presence | None]:
    """Check the arguments of a module and pad them; absent elements become exact zeros, and weights the mask."""
    check_input_set(module, elements, mask, weights)
    return pad_set(elements, mask, weights)


def read_elements(
    elements: Tensor | SetBatch, mask: Tensor | None, weights: Tensor | None = None, *, caller: str
) -> tuple[Float[Tensor, "B N D"], Presence | None]:
    """Like ``read_set``, for a function without parameters."""
    check_elements(elements, mask, weights, caller=caller)
    return pad_set(elements, mask, weights)


def pad_set(
    elements: Tensor | SetBatch, mask: Tensor | None, weights: Tensor | None = None
) -> tuple[Float[Tensor, "B N D"], Presence | None]:
    """Return padded elements with N >= 1 and exact zeros as padding, and their mask or weights."""
    if isinstance(elements, SetBatch):
        same_size, weights = elements.same_size, elements.padded_weights()
        elements, mask = elements.to_padded()
        mask = None if same_size else mask
    if elements.shape[1] == 0:  # a maximum over no elements is undefined, so add an absent one
        elements = nn.functional.pad(elements, (0, 0, 0, 1))
        mask, weights = torch.zeros_like(elements[..., 0], dtype=torch.bool), None
    merged = presence(mask, weights, elements)
    return zero_padding(elements, merged), merged


def write_set(
    encoded: Float[Tensor, "B N E"], mask: Presence | None, *, like: Tensor | SetBatch
) -> Float[Tensor, "B M E"] | SetBatch:
    """Return encoded elements in the form of the input: padded or packed."""
    if isinstance(like, SetBatch):
        slots = packed_slots(mask, like)
        encoded = zero_padding(encoded, mask)
        return like.with_elements(encoded.flatten(0, 1) if slots is None else encoded[slots])
    size = like.shape[1]
    return zero_padding(encoded[:, :size], None if mask is None else mask[:, :size])


def packed_slots(mask: Presence | None, batch: SetBatch) -> Bool[Tensor, "B N"] | None:
    """Return which elements of the padded form of a batch are in it, also those of weight zero; None if all are."""
    return mask if mask is None or mask.dtype is torch.bool else batch.to_padded()[1]


def write_attention(
    attention: Float[Tensor, "L B H K N"], mask: Presence | None, *, like: Tensor | SetBatch
) -> Float[Tensor, "L B H K N"] | Float[Tensor, "L H K total"]:
    """Return attention weights in the form of the input: padded or packed."""
    if not isinstance(like, SetBatch):
        return attention[..., : like.shape[1]]
    by_element = attention.permute(0, 2, 3, 1, 4)  # (L, H, K, B, N)
    slots = packed_slots(mask, like)
    return by_element.flatten(-2) if slots is None else by_element[..., slots]


def zero_padding(elements: Float[Tensor, "B N D"], mask: Presence | None) -> Float[Tensor, "B N D"]:
    """Replace absent elements, even NaN and infinity, by exact zeros with zero gradient."""
    return elements if mask is None else elements.masked_fill(~present(mask)[..., None], 0.0)


def zero_absent(batch: SetBatch) -> SetBatch:
    """Replace elements of weight zero, even NaN and infinity, by exact zeros with zero gradient."""
    if batch.weights is None:
        return batch
    return batch.with_elements(batch.elements.masked_fill((batch.weights == 0)[:, None], 0.0))


def check_elements(
    elements: Tensor | SetBatch, mask: Tensor | None, weights: Tensor | None = None, *, caller: str
) -> None:
    """Raise unless the arguments are valid elements, mask and weights, or a SetBatch."""
    if isinstance(elements, SetBatch):
        if mask is not None:
            raise TypeError(
                f"{caller}: mask must be None for a SetBatch, which has no padding; pass the SetBatch alone."
            )
        if weights is not None:
            raise TypeError(f"{caller}: weights must be None for a SetBatch; pass batch.with_weights(weights).")
        return
    check_tensor(elements, caller=caller, name="elements", hint="Convert a list of sets with SetBatch.from_list(sets).")
    check_floating(elements, caller=caller)
    if elements.dim() != 3:
        hint = " Pass a single set as elements[None]." if elements.dim() == 2 else ""
        raise ValueError(f"{caller}: elements must have shape (B, N, D); got {tuple(elements.shape)}.{hint}")
    if mask is not None:
        check_mask(mask, elements, caller=caller)
    if weights is not None:
        check_weights(weights, elements, caller=caller)


def check_input_set(
    module: nn.Module, elements: Tensor | SetBatch, mask: Tensor | None, weights: Tensor | None = None
) -> None:
    """Raise unless the arguments are a set that matches the width, device and dtype of a module."""
    caller = type(module).__name__
    check_elements(elements, mask, weights, caller=caller)
    weighted = elements.weights is not None if isinstance(elements, SetBatch) else weights is not None
    if weighted and not getattr(module, "takes_weights", False):
        raise TypeError(
            f"{caller}: weights are not supported, because here a weight cannot stand for copies of an element. "
            "Pass a set without weights, and repeat its elements instead."
        )
    values = elements.elements if isinstance(elements, SetBatch) else elements
    width = getattr(module, "dim_in", None)
    if width is not None and values.shape[-1] != width:
        raise ValueError(
            f"{caller}: elements must have {width} features; got {values.shape[-1]}, in {tuple(values.shape)}."
        )
    # A walk over all modules is slow, which matters for small sets.
    weight = next(iter(module._parameters.values()), None)  # pyright: ignore[reportPrivateUsage]
    weight = next(module.parameters(), None) if weight is None else weight
    if weight is None:
        return
    if weight.device != values.device:
        raise ValueError(
            f"{caller}: elements are on {values.device} and the weights on {weight.device}; move them to one device."
        )
    if weight.dtype != values.dtype and not torch.is_autocast_enabled(values.device.type):
        raise TypeError(
            f"{caller}: elements are {values.dtype} and the weights {weight.dtype}; "
            f"pass elements.to({weight.dtype}) or convert the module."
        )
