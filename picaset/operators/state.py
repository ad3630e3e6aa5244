"""Softmax statistics that merge exactly, softmax over the present elements of padded sets, and weighted elements.

Softmax attention over a set needs three statistics of its elements, and those of two parts of a set determine those of
their union (online softmax, Milakov and Gimelshein 2018):

    largest    max_n s_n                              the largest score
    total      sum_n exp(s_n - largest)               the softmax denominator
    weighted   sum_n exp(s_n - largest) v_n           its numerator

``merge`` is associative and commutative and the empty state is its neutral element, so chunks of a stream and ranks of
a cluster merge in the same way. Half-precision numbers are multiplied and summed in float32, with or without autocast.

**Presence.** Inside an operator, ``mask`` says how often each element of a padded set occurs: a boolean mask, or
non-negative weights, of which w counts as w copies and 0 as absent. The log of a weight is added to the scores.

Dimensions:  B sets   H heads   K queries   N elements   D features of a value
"""

from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import pad

Presence = Bool[Tensor, "B N"] | Float[Tensor, "B N"]
"""A mask, True where an element is present, or weights, zero where it is absent."""


def present(mask: Presence) -> Bool[Tensor, "B N"]:
    """Return a boolean mask: True where an element is present."""
    return mask if mask.dtype is torch.bool else mask != 0


def log_weights(mask: Presence) -> Float[Tensor, "B N"] | None:
    """Return the logs of the weights, zero where an element is absent; None for a mask."""
    return None if mask.dtype is torch.bool else torch.where(mask == 0, 1.0, mask).log()


def presence(mask: Bool[Tensor, "B N"] | None, weights: Tensor | None, like: Tensor) -> Presence | None:
    """Merge a mask and weights into weights of the dtype of the sums of ``like``; None if both are None."""
    if weights is None:
        return mask
    weights = weights.to(upcast_half(like[:0]).dtype)
    return weights if mask is None else weights.masked_fill(~mask, 0.0)


def mask_and_weights(mask: Presence | None) -> tuple[Bool[Tensor, "B N"] | None, Float[Tensor, "B N"] | None]:
    """Return the pair of arguments of an operator from which ``presence`` makes ``mask``."""
    return (mask, None) if mask is None or mask.dtype is torch.bool else (mask != 0, mask)


def upcast_half(tensor: Tensor) -> Tensor:
    """Convert half precision to float32, and leave other dtypes unchanged."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def without_autocast(tensor: Tensor) -> AbstractContextManager[object]:
    """Return a context in which autocast does not convert products of ``tensor`` to half precision."""
    kind = tensor.device.type
    if kind == "meta":  # has no autocast
        return nullcontext()
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()


def backward_without_autocast(tensor: Tensor) -> AbstractContextManager[object]:
    """Like ``without_autocast``, for a backward pass.

    A trace reads the state of autocast where the forward pass was, which had disabled it, so there it is not asked.
    """
    if torch.compiler.is_compiling() and tensor.device.type != "meta":
        return torch.autocast(tensor.device.type, enabled=False)
    return without_autocast(tensor)


class AttentionState(NamedTuple):
    """Softmax statistics of a set, or of a part of it, for each set, head and query.

    The state of a set is the merged state of its chunks, exactly. (The mean of the results of the chunks is not the
    result of the set.) One state serves one step, so a cascade of L steps reads the set L times.

    Shapes:
        largest   (B, H, K, 1)     -inf if there are no elements
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
        cls, scores: Float[Tensor, "B H K N"], values: Float[Tensor, "#B #H N D"], mask: Presence | None = None
    ) -> "AttentionState":
        """Return the state of the present elements with the given scores and values."""
        if scores.shape[-1] == 0:  # a maximum over no elements is undefined, so add an absent one
            scores, values = pad(scores, (0, 1), value=-torch.inf), pad(values, (0, 0, 0, 1))
        else:
            scores = scores_of_present(scores, mask)
        # The shift cancels in the result, so it needs no gradient.
        largest = scores.detach().amax(dim=-1, keepdim=True)  # (B, H, K, 1)
        weights = (scores - finite_or_zero(largest)).exp()  # (B, H, K, N)
        return cls(largest, weights.sum(dim=-1, keepdim=True), weights @ values)

    @classmethod
    def empty_like(cls, other: "AttentionState") -> "AttentionState":
        """Return the state of no elements, which is neutral in ``merge``."""
        return cls(
            torch.full_like(other.largest, -torch.inf), torch.zeros_like(other.total), torch.zeros_like(other.weighted)
        )

    def merge(self, other: "AttentionState") -> "AttentionState":
        """Return the state of the union of two parts of a set."""
        largest = torch.maximum(self.largest, other.largest)
        shift = finite_or_zero(largest)
        factor, other_factor = (self.largest - shift).exp(), (other.largest - shift).exp()
        return AttentionState(
            largest=largest,
            total=factor * self.total + other_factor * other.total,
            weighted=factor * self.weighted + other_factor * other.weighted,
        )

    def mean(self) -> Float[Tensor, "B H K D"]:
        """Return the attention-weighted mean of the values; zero for no elements."""
        return self.weighted / torch.where(self.total == 0, 1.0, self.total)

    def is_nonempty(self) -> Bool[Tensor, "B H K 1"]:
        """Return whether the state contains any element."""
        return self.largest != -torch.inf


def finite_or_zero(largest: Tensor) -> Tensor:
    """Replace -inf by zero, so that ``exp(score - largest)`` of an empty set is exactly 0, and its gradient too."""
    return torch.where(largest == -torch.inf, 0.0, largest)


def scores_of_present(scores: Float[Tensor, "B H K N"], mask: Presence | None) -> Float[Tensor, "B H K N"]:
    """Return scores with the logs of the weights added, and -inf where an element is absent."""
    if mask is None:
        return scores
    logs = log_weights(mask)
    scores = scores if logs is None else scores + logs[:, None, None, :]
    return scores.masked_fill(~present(mask)[:, None, None, :], -torch.inf)


def softmax_over_present(scores: Float[Tensor, "B H K N"], mask: Presence | None) -> Float[Tensor, "B H K N"]:
    """Return the softmax over the present elements; all weights of an empty set are zero."""
    if mask is None:
        return scores.softmax(dim=-1)
    absent, logs = ~present(mask)[:, None, None, :], log_weights(mask)
    scores = scores if logs is None else scores + logs[:, None, None, :]
    # The softmax of an empty set would be NaN if all its scores were -inf; its weights are set to zero afterwards.
    empty = absent.all(dim=-1, keepdim=True)
    return scores.masked_fill(absent & ~empty, -torch.inf).softmax(dim=-1).masked_fill(absent, 0.0)
