"""``picaset.shard``: one set spread over the ranks of a group."""

from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from picaset.large.file_sources import open_source
from picaset.large.ranks import Ranks
from picaset.large.reading import Reading, Spill
from picaset.large.rules import Transform
from picaset.large.sinks import Sink
from picaset.large.stream import numbers_of, read

CALLER = "picaset.shard"


class Sharded(nn.Module):
    """An operator or network whose sets are spread over the ranks of a group; see :func:`shard`."""

    def __init__(self, operator: nn.Module, ranks: Ranks) -> None:
        super().__init__()
        self.operator = operator
        self.ranks = ranks
        self.agreed = False

    def forward(
        self,
        source: Any,
        mask: Tensor | None = None,
        *,
        chunk: int | None = None,
        transform: Transform | None = None,
        sink: Sink | None = None,
        spill: Spill = "auto",
        folder: Path | None = None,
    ) -> Any:
        """The result for the whole set, on every rank; elements that an encoder returns are those of this rank.

        ``source`` is this rank's part, and the keywords are those of :func:`picaset.stream`.
        """
        opened = open_source(source, mask)
        if not self.agreed:
            width = opened.width if transform is None else None
            self.ranks.check_agreement(self.operator, opened.sets, width)
            self.agreed = True
        reading = Reading.by(
            self.operator, **numbers_of(opened), chunk=chunk, caller=CALLER, spill=spill, folder=folder,
            reduction=self.ranks,
        )  # fmt: skip
        return read(self.operator, opened, reading, transform=transform, sink=sink)


def shard(operator: nn.Module, group: Any = None, *, timeout: int | float = 600.0) -> Sharded:
    """An operator whose every call is made by all ranks of a group together, each with its part of one set.

    The result, and after a backward pass the gradient of every parameter, are the same on all ranks and equal to those
    of the whole set on one. Parts may be of any sizes, and empty. Two small reductions are made for each pass; what is
    sent does not depend on the number of elements. On the first call, ranks with different models are told so.

    Different groups may have different sets at the same time: with a device mesh of ("data", "set"), pass the mesh, and
    average gradients over "data", as ``DistributedDataParallel(sharded, process_group=mesh.get_group("data"))`` does.

    Args:
        operator: What :func:`picaset.stream` takes.
        group: A group of ``torch.distributed``, or a device mesh with one dimension or with one named "set"; None is
            all ranks.
        timeout: Seconds to wait for the other ranks in each reduction.

    Example::

        dist.init_process_group("gloo")                                 # torchrun --nproc-per-node 4 ...
        pool = shard(PicasoPool(16, num_templates=4, num_heads=2))
        pool(my_part_of_the_set)                                        # the same on every rank
    """
    if not dist.is_available() or not dist.is_initialized():
        raise RuntimeError(
            f"{CALLER}: torch.distributed is not initialized. Start with torchrun and call "
            "torch.distributed.init_process_group('gloo') first, or 'nccl' on GPUs."
        )
    if not timeout > 0:
        raise ValueError(f"{CALLER}: timeout must be positive; got {timeout}.")
    return Sharded(operator, Ranks(group_of(group), timeout=timeout))


def group_of(group: Any) -> Any:
    """The group over which sets are spread."""
    if not isinstance(group, DeviceMesh):
        return group
    names = group.mesh_dim_names or ()
    if group.ndim == 1:
        return group.get_group()
    if "set" not in names:
        raise ValueError(
            f"{CALLER}: a device mesh must have one dimension, or one that is named 'set'; got {names or group.ndim}."
        )
    return group.get_group("set")
