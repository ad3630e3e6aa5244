"""The ranks of a group as owners of parts of one set: two small reductions for each pass, whatever the size of the set.

Peaks are reduced by their maximum, then sums, rescaled to the common peak, by addition; a backward pass adds up the
gradients of everything that all ranks share. Nobody waits for ever: a rank that died, or never came, ends the others
with a message.

Who shares a set: one process alone, or the ranks of a group (see shard.py).
"""

import datetime
import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast, runtime_checkable

import torch
import torch.distributed as dist
from torch import Tensor, nn

from picaset.large.statistics import Statistic, Summary


@runtime_checkable
class Reduction(Protocol):
    """What is done with the results of a pass before anyone uses them."""

    shared: bool
    """Whether others have a part of the set."""

    def combine(self, statistic: Statistic, summary: Summary) -> Summary:
        """The summary of the whole set from those of its parts."""
        ...

    def add(self, gradients: Sequence[Tensor]) -> Sequence[Tensor]:
        """The sums of everyone's gradients."""
        ...

    def same(self, tensor: Tensor) -> Tensor:
        """A tensor as the first has it."""
        ...


class Alone:
    """The whole set is here."""

    shared = False

    def combine(self, statistic: Statistic, summary: Summary) -> Summary:
        return summary

    def add(self, gradients: Sequence[Tensor]) -> Sequence[Tensor]:
        return gradients

    def same(self, tensor: Tensor) -> Tensor:
        return tensor


torch_distributed: Any = dist  # its collectives have no types


class RankLostError(RuntimeError):
    """Another rank died, or did not come in time."""


class RanksDisagreeError(RuntimeError):
    """The ranks of a group have different models."""


class Ranks:
    """A reduction over the ranks of a group.

    Args:
        group: A group of ``torch.distributed``; None is all ranks.
        timeout: Seconds to wait for the others in each reduction.
    """

    shared = True

    def __init__(self, group: Any, *, timeout: int | float) -> None:
        self.group = group
        self.timeout = datetime.timedelta(seconds=timeout)
        self.size, self.rank = dist.get_world_size(group), dist.get_rank(group)
        self.bytes = 0
        """What this rank has put into reductions so far."""
        self.reductions = 0

    def combine(self, statistic: Statistic, summary: Summary) -> Summary:
        if summary.peak is None:
            return Summary(None, self.added(summary.sums))
        peak = summary.peak.clone()
        self.reduce(peak, dist.ReduceOp.MAX)
        return Summary(peak, self.added(statistic.rescale(summary, peak)))

    def add(self, gradients: Sequence[Tensor]) -> Sequence[Tensor]:
        return self.added(gradients)

    def same(self, tensor: Tensor) -> Tensor:
        shared = tensor.clone().contiguous()
        if self.rank != 0:
            shared.zero_()
        self.reduce(shared, dist.ReduceOp.SUM)
        return shared

    def added(self, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The sums of everyone's tensors, in one reduction for each kind of numbers."""
        sums: list[Tensor] = list(tensors)
        for dtype in sorted({one.dtype for one in tensors}, key=str):
            places = [index for index, one in enumerate(tensors) if one.dtype == dtype]
            flat = torch.cat([tensors[index].reshape(-1) for index in places])
            self.reduce(flat, dist.ReduceOp.SUM)
            start = 0
            for index in places:
                stop = start + tensors[index].numel()
                sums[index], start = flat[start:stop].view(tensors[index].shape), stop
        return tuple(sums)

    def reduce(self, tensor: Tensor, operation: Any) -> None:
        self.bytes += tensor.nbytes
        self.reductions += 1
        self.patiently(lambda: torch_distributed.all_reduce(tensor, operation, group=self.group, async_op=True))

    def patiently(self, begin: Callable[[], Any]) -> None:
        """Begin something that all ranks do together, and wait for it, but not for ever."""
        try:
            begin().wait(self.timeout)
        except RuntimeError as error:  # torch has no class for it
            raise RankLostError(
                f"rank {self.rank} of {self.size} waited for the others, at most {self.timeout.total_seconds():.0f} s, "
                f"and one of them died or did not come; see what it printed last. ({str(error).splitlines()[0][:200]})"
            ) from None

    def check_agreement(self, module: nn.Module, sets: int, width: int | None) -> None:
        """Whether all ranks have the same model and the same number of sets; every rank says what it has if not."""
        mine = described(module, sets, width)
        everyone: list[Tensor] = [torch.empty_like(mine) for _ in range(self.size)]
        self.patiently(lambda: torch_distributed.all_gather(everyone, mine, group=self.group, async_op=True))
        for index, what in enumerate(QUESTIONS):
            answers = [bytes(cast(Any, one[index].cpu().numpy())).hex()[:8] for one in everyone]
            known = [answer for answer in answers if answer != UNKNOWN]
            if len(set(known)) > 1:
                listed = ", ".join(f"rank {rank} {answer}" for rank, answer in enumerate(answers))
                raise RanksDisagreeError(f"picaset.shard: the ranks disagree about {what}: {listed}. {QUESTIONS[what]}")


UNKNOWN = "00000000"
QUESTIONS = {
    "the class and the shapes of the model": "Build the same model on every rank.",
    "which parameters need gradients": "Freeze the same parameters on every rank.",
    "the weights": "Load the same checkpoint on every rank, or seed torch alike before the model is built.",
    "the number of sets": "Every rank has a part of each set; one without elements passes a tensor (B, 0, D).",
    "the number of features": "Every rank reads elements of the same width.",
}


def described(module: nn.Module, sets: int, width: int | None) -> Tensor:
    """One row of bytes for each question, equal on two ranks exactly if their answers are."""
    parameters = [*module.named_parameters(), *module.named_buffers()]
    shapes = repr(module) + "".join(f"{name} {tuple(one.shape)} {one.dtype}" for name, one in parameters)
    needs = "".join(f"{name} {one.requires_grad}" for name, one in module.named_parameters())
    weights = hashlib.blake2b(digest_size=8)
    for _, one in parameters:
        weights.update(one.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    rows = [digest(shapes), digest(needs), weights.digest(), digest(str(sets))]
    rows.append(bytes(8) if width is None else digest(str(width)))
    device = next((one.device for _, one in parameters), torch.device("cpu"))
    return torch.tensor([list(row) for row in rows], dtype=torch.uint8, device=device)


def digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=8).digest()
