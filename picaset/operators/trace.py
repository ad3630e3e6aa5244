"""What a cascade did, step by step: the record that every cascade can give of itself."""

from typing import NamedTuple

from jaxtyping import Bool, Float
from torch import Tensor

from picaset.sets import SetBatch


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
