"""What a pass over a large set gathers: statistics of chunks that merge into those of the whole.

A pass has a *peak*, a running maximum, and *sums* that are taken relative to it:

    Sums       no peak         sum_n f(x_n)
    Maxima     max_n x_n       how many elements reach it, among whom the gradient is shared
    Softmax    max_n s_n       sum_n exp(s_n - peak), sum_n exp(s_n - peak) v_n

Chunks merge by rescaling their sums to the larger peak, and so do ranks. Once the peak of the whole set is known, it is
a constant, and what an operator gets is a plain sum of contributions of chunks: so is its gradient, and a
backward pass needs one chunk at a time.

Dimensions:  B sets   n elements of a chunk   H heads   K queries   D features

Softmax sums relative to a known peak, with a backward pass that is all that is ever asked of them.

    total = sum_n exp(q . k_n - peak),     weighted = sum_n exp(q . k_n - peak) v_n

Their values are known by the time that their gradients are asked for: the forward pass over all chunks found them.
So the forward half here makes nothing but room, and the backward half makes the weights of its chunk and all
gradients from them:

    A = exp(Q K^T - peak),   G = A * (dW V^T + dt),   dQ = G K,   dK = G^T Q,   dV = A^T dW

Dimensions:  B sets   n elements of a chunk   H heads   M queries   d features
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from picaset.operators.kernels import blocked_attention, blocked_mean
from picaset.operators.state import AttentionState, finite_or_zero, without_autocast


def shifted_sums(
    queries: Float[Tensor, "B H M d"],
    keys: Float[Tensor, "B H n d"],
    values: Float[Tensor, "B H n d"],
    mask: Bool[Tensor, "B n"] | None,
    peak: Float[Tensor, "B H M 1"],
) -> tuple[Float[Tensor, "B H M 1"], Float[Tensor, "B H M d"]]:
    """Tensors of the shapes of the total and the weighted sum that hold nothing but their gradients."""
    return cast(Any, ShiftedSums).apply(queries, keys, values, mask, peak)


class ShiftedSums(torch.autograd.Function):
    """``shifted_sums`` for torch's autograd."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Any:
        queries, _, values, _, _ = given
        ctx.save_for_backward(*given)
        total = queries.new_zeros(*queries.shape[:3], 1)
        return total, total.expand(*queries.shape[:3], values.shape[3]).clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        queries, keys, values, mask, peak = ctx.saved_tensors
        grad_total, grad_weighted = grad_outputs
        absorbed = keys.data_ptr() == values.data_ptr() and keys.shape == values.shape
        count = queries.shape[2]
        if absorbed:  # scores, and gradients of the weights, in one product
            both = torch.cat([queries, grad_weighted], dim=2) @ keys.transpose(2, 3)
            weights, grad_scores = both[:, :, :count], both[:, :, count:]
        else:
            both = None
            weights, grad_scores = queries @ keys.transpose(2, 3), grad_weighted @ values.transpose(2, 3)
        weights.sub_(peak).exp_()
        if mask is not None:
            weights.masked_fill_(~mask[:, None, None, :], 0.0)
        grad_scores.add_(grad_total).mul_(weights)
        need_queries, need_keys, need_values = ctx.needs_input_grad[:3]
        grad_queries = grad_scores @ keys if need_queries else None
        if both is not None and need_keys and need_values:  # keys and values are one tensor: so is their gradient
            together = both.transpose(2, 3) @ torch.cat([grad_weighted, queries], dim=2)
            return grad_queries, together, None, None, None
        return (
            grad_queries,
            grad_scores.transpose(2, 3) @ queries if need_keys else None,
            weights.transpose(2, 3) @ grad_weighted if need_values else None,
            None,
            None,
        )


class Summary(NamedTuple):
    """What is known of the elements seen so far."""

    peak: Tensor | None
    sums: tuple[Tensor, ...]


@dataclass(frozen=True)
class Statistic(ABC):
    """What one pass gathers.

    Args:
        function: ``function(elements, mask, *inputs)`` of one chunk; what it returns depends on the statistic.
        modules: The modules whose parameters it uses.
    """

    function: Callable[..., tuple[Tensor, ...]]
    modules: tuple[nn.Module, ...] = ()

    repeats_exactly = False
    """Whether the backward pass has to meet the very numbers of the forward pass again."""

    @abstractmethod
    def summarize(self, elements: Tensor, mask: Tensor | None, inputs: tuple[Tensor, ...]) -> Summary:
        """The summary of one chunk."""

    @abstractmethod
    def rescale(self, summary: Summary, peak: Tensor | None) -> tuple[Tensor, ...]:
        """The sums of a summary relative to another peak, which is not smaller."""

    @abstractmethod
    def results(self, summary: Summary) -> tuple[Tensor, ...]:
        """What an operator gets of the summary of the whole set."""

    @abstractmethod
    def contribute(
        self, elements: Tensor, mask: Tensor | None, whole: Summary, inputs: tuple[Tensor, ...]
    ) -> tuple[Tensor, ...]:
        """What one chunk adds to the results, given the summary of the whole; differentiable."""

    def merge(self, one: Summary, other: Summary) -> Summary:
        """The summary of both parts together."""
        peak = None if one.peak is None or other.peak is None else torch.maximum(one.peak, other.peak)
        both = zip(self.rescale(one, peak), self.rescale(other, peak), strict=True)
        return Summary(peak, tuple(left + right for left, right in both))


class Sums(Statistic):
    """Sums over the elements; ``function`` returns those of a chunk."""

    def summarize(self, elements: Tensor, mask: Tensor | None, inputs: tuple[Tensor, ...]) -> Summary:
        return Summary(None, tuple(map(exact, self.function(elements, mask, *inputs))))

    def rescale(self, summary: Summary, peak: Tensor | None) -> tuple[Tensor, ...]:
        return summary.sums

    def results(self, summary: Summary) -> tuple[Tensor, ...]:
        return summary.sums

    def contribute(
        self, elements: Tensor, mask: Tensor | None, whole: Summary, inputs: tuple[Tensor, ...]
    ) -> tuple[Tensor, ...]:
        return self.function(elements, mask, *inputs)


class Maxima(Statistic):
    """The largest value of each feature, -inf without elements; ``function`` returns the values, (B, n, D), of a chunk.

    Elements that share a maximum share its gradient, as in ``torch.amax``.
    """

    repeats_exactly = True

    def summarize(self, elements: Tensor, mask: Tensor | None, inputs: tuple[Tensor, ...]) -> Summary:
        (values,) = self.function(elements, mask, *inputs)
        values = values if mask is None else values.masked_fill(~mask[..., None], -torch.inf)
        peak = values.amax(dim=1, keepdim=True)
        return Summary(peak, (exact((values == peak).sum(dim=1, keepdim=True).float()),))

    def rescale(self, summary: Summary, peak: Tensor | None) -> tuple[Tensor, ...]:
        return (summary.sums[0] * (summary.peak == peak),)

    def results(self, summary: Summary) -> tuple[Tensor, ...]:
        assert summary.peak is not None
        return (summary.peak,)

    def contribute(
        self, elements: Tensor, mask: Tensor | None, whole: Summary, inputs: tuple[Tensor, ...]
    ) -> tuple[Tensor, ...]:
        (values,) = self.function(elements, mask, *inputs)
        values = values if mask is None else values.masked_fill(~mask[..., None], -torch.inf)
        share = torch.where(values.detach() == whole.peak, values, 0.0) / whole.sums[0].to(values.dtype)
        return (share.sum(dim=1, keepdim=True),)


class Softmax(Statistic):
    """Softmax statistics; ``function`` returns scores (B, H, K, n) and values (#B, #H, n, D) of a chunk."""

    def summarize(self, elements: Tensor, mask: Tensor | None, inputs: tuple[Tensor, ...]) -> Summary:
        scores, values = self.function(elements, mask, *inputs)
        state = AttentionState.of(scores, values, mask)
        return Summary(exact(state.largest), (exact(state.total), exact(state.weighted)))

    def rescale(self, summary: Summary, peak: Tensor | None) -> tuple[Tensor, ...]:
        assert summary.peak is not None
        assert peak is not None
        factor = (summary.peak - finite_or_zero(peak)).exp()
        return tuple(factor * one for one in summary.sums)

    def results(self, summary: Summary) -> tuple[Tensor, ...]:
        return summary.sums

    def contribute(
        self, elements: Tensor, mask: Tensor | None, whole: Summary, inputs: tuple[Tensor, ...]
    ) -> tuple[Tensor, ...]:
        assert whole.peak is not None
        scores, values = self.function(elements, mask, *inputs)
        if mask is not None:  # before the exponential, which may overflow for an absent element
            scores = scores.masked_fill(~mask[:, None, None, :], -torch.inf)
        weights = (scores - finite_or_zero(whole.peak).to(scores.dtype)).exp()
        return weights.sum(dim=-1, keepdim=True), weights @ values


class Attention(Softmax):
    """Softmax statistics of products; ``function`` returns queries (B, H, K, d), keys and values (B, H, n, d)."""

    def summarize(self, elements: Tensor, mask: Tensor | None, inputs: tuple[Tensor, ...]) -> Summary:
        queries, keys, values = self.function(elements, mask, *inputs)
        with without_autocast(queries):
            if keys is values and keys.shape[1] == 1:  # elements as they are, cut into a part for each thread
                mean, log = (one[:, None] for one in blocked_mean(queries[:, 0], keys[:, 0], mask))
            else:
                mean, log = blocked_attention(queries, keys, values, mask)
        # A state whose scores are all one: the logarithm of their denominator, where the mean is what was weighted.
        log, mean = exact(log)[..., None], exact(mean)
        if mask is None:
            return Summary(log, (torch.ones_like(log), mean))
        seen = log != torch.inf
        return Summary(torch.where(seen, log, -torch.inf), (seen.to(log.dtype), mean))

    def contribute(
        self, elements: Tensor, mask: Tensor | None, whole: Summary, inputs: tuple[Tensor, ...]
    ) -> tuple[Tensor, ...]:
        assert whole.peak is not None
        queries, keys, values = self.function(elements, mask, *inputs)
        with without_autocast(queries):
            peak = finite_or_zero(whole.peak).to(queries.dtype)
            return shifted_sums(queries, keys, values, mask, peak)


def exact(tensor: Tensor) -> Tensor:
    """In float64, where there is any: sums of a hundred million elements lose no digits."""
    return tensor if tensor.device.type == "mps" else tensor.double()
