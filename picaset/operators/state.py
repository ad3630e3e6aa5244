"""What is known of a set after some of its elements were seen.

Softmax attention needs three statistics of the elements, and two parts of a set can be joined
from theirs alone:

    largest    max_n s_n                              the largest score
    total      sum_n exp(s_n - largest)               the softmax denominator
    weighted   sum_n exp(s_n - largest) v_n           its numerator

``merge`` is associative and commutative and the empty state is neutral, so the chunks of a
stream and the ranks of a cluster are the same thing. Online softmax: Milakov and Gimelshein 2018.

Dimensions:  B sets   H heads   K queries   N elements   D width of a value

Precision: half-precision numbers are multiplied and summed as float32, with or without autocast.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import pad


def wide(tensor: Tensor) -> Tensor:
    """Half precision as float32; anything else as it is."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def without_autocast(tensor: Tensor) -> AbstractContextManager[object]:
    """Keep products of wide tensors wide: autocast would narrow them again."""
    kind = tensor.device.type
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()


class AttentionState(NamedTuple):
    """Softmax statistics of a set, or of a part of it, for each (set, head, query).

    One state serves one step: a cascade of L steps reads the set L times. Averaging the results
    of chunks is wrong; merging their states is exact.

    Shapes:
        largest   (B, H, K, 1)     -inf while nothing was seen
        total     (B, H, K, 1)
        weighted  (B, H, K, D)

    Example:
        >>> scores, values = torch.randn(1, 1, 2, 5), torch.randn(1, 1, 5, 3)
        >>> parts = [AttentionState.of(scores[..., :2], values[..., :2, :]),
        ...          AttentionState.of(scores[..., 2:], values[..., 2:, :])]
        >>> whole = AttentionState.of(scores, values)
        >>> torch.allclose(parts[0].merge(parts[1]).mean(), whole.mean(), atol=1e-6)
        True
    """

    largest: Float[Tensor, "B H K 1"]
    total: Float[Tensor, "B H K 1"]
    weighted: Float[Tensor, "B H K D"]

    @classmethod
    def of(
        cls,
        scores: Float[Tensor, "B H K N"],
        values: Float[Tensor, "#B #H N D"],
        mask: Bool[Tensor, "B N"] | None = None,
    ) -> "AttentionState":
        """The state after seeing the present elements with these scores and values."""
        if scores.shape[-1] == 0:  # a maximum needs something to be taken over: one absent element
            scores, values = pad(scores, (0, 1), value=-torch.inf), pad(values, (0, 0, 0, 1))
        elif mask is not None:
            scores = scores.masked_fill(~mask[:, None, None, :], -torch.inf)
        # A shift that cancels in the result, so it carries no gradient.
        largest = scores.detach().amax(dim=-1, keepdim=True)  # (B, H, K, 1)
        weights = (scores - finite_or_zero(largest)).exp()  # (B, H, K, N)
        return cls(largest, weights.sum(dim=-1, keepdim=True), weights @ values)

    @classmethod
    def empty_like(cls, other: "AttentionState") -> "AttentionState":
        """The neutral element: nothing was seen."""
        return cls(
            torch.full_like(other.largest, -torch.inf),
            torch.zeros_like(other.total),
            torch.zeros_like(other.weighted),
        )

    def merge(self, other: "AttentionState") -> "AttentionState":
        """The state of both parts together."""
        largest = torch.maximum(self.largest, other.largest)
        shift = finite_or_zero(largest)
        mine, theirs = (self.largest - shift).exp(), (other.largest - shift).exp()
        return AttentionState(
            largest=largest,
            total=mine * self.total + theirs * other.total,
            weighted=mine * self.weighted + theirs * other.weighted,
        )

    def mean(self) -> Float[Tensor, "B H K D"]:
        """The attention-weighted mean of the values; zero where nothing was seen."""
        return self.weighted / torch.where(self.total == 0, 1.0, self.total)

    def seen(self) -> Bool[Tensor, "B H K 1"]:
        """Whether any element was seen."""
        return self.largest != -torch.inf


def finite_or_zero(largest: Tensor) -> Tensor:
    """Shifting by zero where nothing was seen keeps exp() at exactly 0, in the gradient too."""
    return torch.where(largest == -torch.inf, 0.0, largest)


def softmax_over_present(
    scores: Float[Tensor, "B H K N"], mask: Bool[Tensor, "B N"] | None
) -> Float[Tensor, "B H K N"]:
    """Softmax over the present elements; zero everywhere for an empty set."""
    if mask is None:
        return scores.softmax(dim=-1)
    absent = ~mask[:, None, None, :]
    # Where all are absent, the softmax of -inf would be NaN; any finite score serves, since it is silenced after.
    nothing = absent.all(dim=-1, keepdim=True)
    return scores.masked_fill(absent & ~nothing, -torch.inf).softmax(dim=-1).masked_fill(absent, 0.0)
