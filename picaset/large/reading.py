"""How a large set is read: in chunks of which size, as which numbers, together with whom, and who watches."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from picaset.checks import check_choice, check_positive
from picaset.large.progress import Silent, Watcher
from picaset.large.reduction import Alone, Reduction
from picaset.operators.picaso import PicasoPool

Spill = Literal["auto", "always", "never"]

VALUES = 2**21
"""Numbers of a chunk, at the width of the widest layer: few chunks, each a few megabytes."""
LARGER = 4
"""How many times as many where nothing is made of the elements on the way, and chunks are only a matter of overhead."""


@dataclass(frozen=True)
class Reading:
    """How the chunks of a set come to an operator."""

    size: int
    dtype: torch.dtype
    device: torch.device
    reduction: Reduction = field(default_factory=Alone)
    spill: Spill = "auto"
    folder: Path | None = None
    watcher: Watcher = field(default_factory=Silent)
    autocast: torch.dtype | None = None

    @classmethod
    def by(
        cls,
        module: nn.Module,
        *,
        dtype: torch.dtype,
        device: torch.device,
        chunk: int | None,
        caller: str,
        spill: Spill,
        folder: Path | None = None,
        watcher: Watcher | None = None,
        reduction: Reduction | None = None,
    ) -> "Reading":
        """As a module reads: on its device, as its numbers, in chunks that its widest layer keeps in cache."""
        weight = next(module.parameters(), None)
        if chunk is not None:
            check_positive(caller=caller, chunk=chunk)
        check_choice(spill, ("auto", "always", "never"), caller=caller, name="spill")
        device = device if weight is None else weight.device
        autocast = torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else None
        return cls(
            size=chunk or max(VALUES * (LARGER if isinstance(module, PicasoPool) else 1) // widest(module), 1024),
            dtype=dtype if weight is None else weight.dtype,
            device=device,
            reduction=reduction or Alone(),
            spill=spill,
            folder=folder,
            watcher=watcher or Silent(),
            autocast=autocast,
        )

    @property
    def sums(self) -> torch.dtype:
        """The numbers that sums are given as: half precision is summed as float32."""
        return torch.float32 if self.dtype in (torch.float16, torch.bfloat16) else self.dtype

    def prepared(self, elements: Tensor) -> Tensor:
        """Elements of a source as the operator wants them."""
        return elements.to(self.device, self.dtype)

    def precision(self) -> AbstractContextManager[object]:
        """Autocast as it was when the reading began, in a backward pass too."""
        return nullcontext() if self.autocast is None else torch.autocast(self.device.type, dtype=self.autocast)


def widest(module: nn.Module) -> int:
    """The largest dimension of any of a module's parameters."""
    return max((size for parameter in module.parameters() for size in parameter.shape), default=16)
