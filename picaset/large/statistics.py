"""Statistics that one pass over a large set computes, and how those of its chunks merge.

A statistic has a *peak*, a running maximum, and *sums* relative to the peak:

    Sums         no peak         sum_n f(x_n)
    Maxima       max_n x_n       number of elements equal to the maximum, which share its gradient
    Softmax      max_n s_n       sum_n exp(s_n - peak), sum_n exp(s_n - peak) v_n
    Attention    max_n q.k_n     the same of scores that are products; its result is the weighted mean of the values

Chunks merge by rescaling their sums to the larger peak, and so do the parts of a set on several ranks. Once the summary
of the whole set is known, its peak is a constant and the gradient of the result is a sum over chunks, so the backward
pass needs one chunk in memory at a time.

Dimensions:  B sets   n elements of a chunk   H heads   M queries   D, d features
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from picaset.operators.attention import additive_mask, backward_in_chunks, blocked_attention, blocked_mean
from picaset.operators.state import AttentionState, finite_or_zero, present, scores_of_present, without_autocast


class Summary(NamedTuple):
    """Peak and sums of a part of a set."""

    peak: Tensor | None
    sums: tuple[Tensor, ...]


@dataclass(frozen=True)
class Statistic(ABC):
    """A statistic of a set, computed in one pass.

    Args:
        function: ``function(elements, mask, *inputs)`` of one chunk; each subclass says what it returns.
        modules: The modules whose parameters ``function`` uses.
    """

    function: Callable[..., tuple[Tensor, ...]]
    modules: tuple[nn.Module, ...] = ()

    compares_values = False
    """Whether the backward pass compares values with those of the forward pass, which must then round alike."""

    @abstractmethod
    def summarize(self, elements: Tensor, mask: Tensor | None, inputs: tuple[Tensor, ...]) -> Summary:
        """Return the summary of one chunk."""

    @abstractmethod
    def contribute(
        self, elements: Tensor, mask: Tensor | None, whole: Summary, inputs: tuple[Tensor, ...]
    ) -> tuple[Tensor, ...]:
        """Return the contribution of one chunk to the results, given the summary of the whole set.

        The backward pass differentiates it; its values are not used.
        """

    def results(self, summary: Summary) -> tuple[Tensor, ...]:
        """Return the results from the summary of the whole set."""
        return summary.sums

    def rescale(self, summary: Summary, peak: Tensor | None) -> tuple[Tensor, ...]:
        """Return the sums of a summary relative to a peak that is at least as large as its own."""
        return summary.sums

    def merge(self, left: Summary, right: Summary) -> Summary:
        """Return the summary of two parts together."""
        peak = None if left.peak is None or right.peak is None else torch.maximum(left.peak, right.peak)
        pairs = zip(self.rescale(left, peak), self.rescale(right, peak), strict=True)
        return Summary(peak, tuple(a + b for a, b in pairs))


class Sums(Statistic):
    """Sums over the elements; ``function`` returns those of a chunk."""

    def summarize(self, elements: Tensor, mask: Tensor | None, inputs: tuple[Tensor, ...]) -> Summary:
        return Summary(None, tuple(map(double, self.function(elements, mask, *inputs))))

    def contribute(
        self, elements: Tensor, mask: Tensor | None, whole: Summary, inputs: tuple[Tensor, ...]
    ) -> tuple[Tensor, ...]:
        return self.function(elements, mask, *inputs)


class Maxima(Statistic):
    """Maximum of each feature, -inf for an empty set; ``function`` returns the values, (B, n, D), of a chunk.

    Elements with the same maximum share its gradient, as in ``torch.amax``.
    """

    compares_values = True

    def summarize(self, elements: Tensor, mask: Tensor | None, inputs: tuple[Tensor, ...]) -> Summary:
        values = self.values(elements, mask, inputs)
        peak = values.amax(dim=1, keepdim=True)
        return Summary(peak, (double((values == peak).sum(dim=1, keepdim=True).float()),))

    def contribute(
        self, elements: Tensor, mask: Tensor | None, whole: Summary, inputs: tuple[Tensor, ...]
    ) -> tuple[Tensor, ...]:
        values = self.values(elements, mask, inputs)
        shares = torch.where(values.detach() == whole.peak, values, 0.0) / whole.sums[0].to(values.dtype)
        return (shares.sum(dim=1, keepdim=True),)

    def results(self, summary: Summary) -> tuple[Tensor, ...]:
        assert summary.peak is not None
        return (summary.peak,)

    def rescale(self, summary: Summary, peak: Tensor | None) -> tuple[Tensor, ...]:
        return (summary.sums[0] * (summary.peak == peak),)

    def values(self, elements: Tensor, mask: Tensor | None, inputs: tuple[Tensor, ...]) -> Tensor:
        (values,) = self.function(elements, mask, *inputs)
        return values if mask is None else values.masked_fill(~present(mask)[..., None], -torch.inf)


class Softmax(Statistic):
    """Softmax sums; ``function`` returns scores (B, H, M, n) and values (#B, #H, n, D) of a chunk."""

    def summarize(self, elements: Tensor, mask: Tensor | None, inputs: tuple[Tensor, ...]) -> Summary:
        scores, values = self.function(elements, mask, *inputs)
        state = AttentionState.of(scores, values, mask)
        return Summary(double(state.largest), (double(state.total), double(state.weighted)))

    def contribute(
        self, elements: Tensor, mask: Tensor | None, whole: Summary, inputs: tuple[Tensor, ...]
    ) -> tuple[Tensor, ...]:
        assert whole.peak is not None
        scores, values = self.function(elements, mask, *inputs)
        scores = scores_of_present(scores, mask)  # before the exponential, which may overflow for an absent element
        weights = (scores - finite_or_zero(whole.peak).to(scores.dtype)).exp()
        return weights.sum(dim=-1, keepdim=True), weights @ values

    def rescale(self, summary: Summary, peak: Tensor | None) -> tuple[Tensor, ...]:
        assert summary.peak is not None
        assert peak is not None
        factor = (summary.peak - finite_or_zero(peak)).exp()
        return tuple(factor * total for total in summary.sums)


class Attention(Softmax):
    """Softmax mean of the values; ``function`` returns queries (B, H, M, d), keys and values (B, H, n, d) of a chunk.

    Keys that are the same object as the values are the elements themselves, with one head: absorbed attention.
    """

    def summarize(self, elements: Tensor, mask: Tensor | None, inputs: tuple[Tensor, ...]) -> Summary:
        queries, keys, values = self.function(elements, mask, *inputs)
        with without_autocast(queries):
            if keys is values:
                mean, log = (part[:, None] for part in blocked_mean(queries[:, 0], keys[:, 0], mask))
            else:
                mean, log = blocked_attention(queries, keys, values, mask)
        # A chunk enters as one element whose score is its log-denominator and whose value is its mean.
        log, mean = double(log)[..., None], double(mean)
        if mask is None:
            return Summary(log, (torch.ones_like(log), mean))
        nonempty = log != torch.inf
        return Summary(torch.where(nonempty, log, -torch.inf), (nonempty.to(log.dtype), mean))

    def contribute(
        self, elements: Tensor, mask: Tensor | None, whole: Summary, inputs: tuple[Tensor, ...]
    ) -> tuple[Tensor, ...]:
        assert whole.peak is not None
        queries, keys, values = self.function(elements, mask, *inputs)
        (mean,) = self.results(whole)
        log = torch.where(whole.sums[0] == 0, torch.inf, whole.peak + whole.sums[0].log())
        with without_autocast(queries):
            mean, log = mean.to(queries.dtype), log[..., 0].to(queries.dtype)
            values = None if keys is values else values
            return (cast(Any, ChunkOfAttention).apply(queries, keys, values, mask, mean, log),)

    def results(self, summary: Summary) -> tuple[Tensor, ...]:
        total, weighted = summary.sums
        return (weighted / torch.where(total == 0, 1.0, total),)


class ChunkOfAttention(torch.autograd.Function):
    """The contribution of one chunk to the gradient of attention over a whole set.

    The mean O and the log-denominator of the whole set are known from the forward pass, so only the backward pass
    computes anything: with A = exp(Q K^T - log) and G = A * (dO V^T - rowsum(dO * O)),

        dQ = G K,   dK = G^T Q,   dV = A^T dO
    """

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Any:
        ctx.save_for_backward(*inputs)
        return inputs[4].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        queries, keys, values, mask, mean, log = ctx.saved_tensors
        with without_autocast(queries):
            grad_mean = grad_outputs[0].contiguous()
            if values is None:
                grad_keys = torch.empty_like(keys) if ctx.needs_input_grad[1] else None
                part = None if grad_keys is None else grad_keys[:, 0]
                grad_queries = backward_in_chunks(
                    queries[:, 0], keys[:, 0], mask, mean[:, 0], log[:, 0], grad_mean[:, 0], part, accumulate=False
                )
                return grad_queries[:, None], grad_keys, None, None, None, None
            # Not the backward pass of the blocked kernel, which exists on the CPU alone.
            weights = (queries @ keys.transpose(2, 3)).sub_(log[..., None])
            if mask is not None:
                weights += cast(Tensor, additive_mask(mask[:, None, None, :], weights))
            weights.exp_()
            grad_scores = grad_mean @ values.transpose(2, 3)
            grad_scores.sub_((grad_mean * mean).sum(dim=-1, keepdim=True)).mul_(weights)
            grad_keys = grad_scores.transpose(2, 3) @ queries if ctx.needs_input_grad[1] else None
            grad_values = weights.transpose(2, 3) @ grad_mean if ctx.needs_input_grad[2] else None
            return grad_scores @ keys, grad_keys, grad_values, None, None, None


def double(tensor: Tensor) -> Tensor:
    """Return the tensor in float64, so that sums of 1e8 elements lose no digits; MPS has no float64."""
    return tensor if tensor.device.type == "mps" else tensor.double()
