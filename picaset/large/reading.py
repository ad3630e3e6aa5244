"""Settings of the passes over a large set: chunk size, precision, spilling, progress, and processes that share it."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from picaset.checks import check_choice, check_positive
from picaset.large.sources import InMemory, Source
from picaset.large.statistics import Statistic, Summary
from picaset.operators.picaso import PicasoPool
from picaset.progress import Silent, Watcher

Spill = Literal["auto", "always", "never"]

VALUES_PER_CHUNK = 2**21
"""Elements of a chunk times the width of the widest layer: a few megabytes, so that there are few chunks."""
POOL_CHUNK_FACTOR = 4
"""Factor by which chunks are larger for a pool alone, which makes no layers of the elements."""


@runtime_checkable
class Reduction(Protocol):
    """How the processes that share a set combine what each computes of its part."""

    shared: bool
    """Whether other processes hold parts of the set."""

    def combine(self, statistic: Statistic, summary: Summary) -> Summary:
        """Return the summary of the whole set from those of its parts."""
        ...

    def sum_tensors(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return the tensors summed over all processes."""
        ...

    def broadcast(self, tensor: Tensor) -> Tensor:
        """Return the tensor of the first process."""
        ...


class SingleProcess:
    """The reduction of a set that one process holds as a whole."""

    shared = False

    def combine(self, statistic: Statistic, summary: Summary) -> Summary:
        return summary

    def sum_tensors(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        return tensors

    def broadcast(self, tensor: Tensor) -> Tensor:
        return tensor


@dataclass(frozen=True)
class Reading:
    """Settings of the passes over a large set."""

    size: int
    """Elements of a chunk."""
    dtype: torch.dtype
    device: torch.device
    reduction: Reduction = field(default_factory=SingleProcess)
    spill: Spill = "auto"
    folder: Path | None = None
    """Folder of temporary files; None is the system's."""
    watcher: Watcher = field(default_factory=Silent)
    autocast: torch.dtype | None = None
    """The dtype of autocast where it was enabled when the reading began; backward passes use it too."""

    @classmethod
    def for_operator(
        cls,
        operator: nn.Module,
        source: Source,
        *,
        chunk: int | None,
        caller: str,
        spill: Spill,
        folder: Path | None = None,
        watcher: Watcher | None = None,
        reduction: Reduction | None = None,
    ) -> "Reading":
        """Return the settings for an operator: its device and dtype, and chunks whose widest layer fits into cache.

        Without parameters, device and dtype are those of a source in memory, or float32 on the CPU.
        """
        if chunk is not None:
            check_positive(caller=caller, chunk=chunk)
        check_choice(spill, ("auto", "always", "never"), caller=caller, name="spill")
        default = source.elements if isinstance(source, InMemory) else torch.empty(0, dtype=torch.float32, device="cpu")
        weight = next(operator.parameters(), default)
        kind = weight.device.type
        widest = max((size for parameter in operator.parameters() for size in parameter.shape), default=16)
        values = VALUES_PER_CHUNK * (POOL_CHUNK_FACTOR if isinstance(operator, PicasoPool) else 1)
        return cls(
            size=chunk or max(values // widest, 1024),
            dtype=weight.dtype,
            device=weight.device,
            reduction=reduction or SingleProcess(),
            spill=spill,
            folder=folder,
            watcher=watcher or Silent(),
            autocast=torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None,
        )

    @property
    def sum_dtype(self) -> torch.dtype:
        """The dtype of sums: float32 for half precision."""
        return torch.float32 if self.dtype in (torch.float16, torch.bfloat16) else self.dtype

    def autocast_context(self) -> AbstractContextManager[object]:
        return nullcontext() if self.autocast is None else torch.autocast(self.device.type, dtype=self.autocast)
