"""``picaset.shard``: one set spread over the ranks of a process group.

Every rank reads its own part. A pass takes two small reductions, whatever the size of the set: peaks by their maximum,
then sums, rescaled to the common peak, by addition. A backward pass adds the gradients of everything that all ranks
share. No rank waits forever: if one dies or does not arrive, the others fail with an error within the timeout.
"""

import datetime
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from picaset.large.large_set import Reading, Reduction, Spill
from picaset.large.sources import open_source
from picaset.large.statistics import Statistic, Summary
from picaset.large.stream import Sink, Transform, stream_source

CALLER = "picaset.shard"
torch_distributed: Any = dist  # its collectives have no types


def shard(operator: nn.Module, group: Any = None, *, timeout: int | float = 600.0) -> "Sharded":
    """Return an operator that all ranks of a group call together, each with its part of one set.

    The result, and after a backward pass the gradient of every parameter, are the same on all ranks and equal to those
    of the whole set in one process. Parts may have any sizes and may be empty. The amount of communication does not
    depend on the number of elements. The first call checks that all ranks have the same model.

    Different groups may process different sets at the same time: with a device mesh of ("data", "set"), pass the mesh,
    and average gradients over "data", as ``DistributedDataParallel(sharded, process_group=mesh.get_group("data"))``.

    Args:
        operator: An operator that :func:`picaset.stream` supports.
        group: A group of ``torch.distributed``, or a device mesh with one dimension or with one named "set"; None means
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
    if isinstance(group, DeviceMesh):
        group = set_group(group)
    return Sharded(operator, Ranks(group, timeout=timeout))


def set_group(mesh: DeviceMesh) -> Any:
    """Return the group of a mesh over which a set is spread."""
    names = mesh.mesh_dim_names or ()
    if mesh.ndim == 1:
        return mesh.get_group()
    if "set" not in names:
        raise ValueError(
            f"{CALLER}: a device mesh must have one dimension, or one that is named 'set'; got {names or mesh.ndim}."
        )
    return mesh.get_group("set")


class Sharded(nn.Module):
    """An operator or network whose sets are spread over the ranks of a group; see :func:`shard`."""

    def __init__(self, operator: nn.Module, ranks: "Ranks") -> None:
        super().__init__()
        self.operator = operator
        self.ranks = ranks
        self.checked = False

    def forward(
        self,
        source: Any,
        mask: Tensor | None = None,
        weights: Tensor | None = None,
        *,
        chunk: int | None = None,
        transform: Transform | None = None,
        sink: Sink | None = None,
        spill: Spill = "auto",
        folder: Path | None = None,
    ) -> Any:
        """Return the result for the whole set, on every rank; encoders return the elements of this rank.

        ``source`` is the part of this rank, and the keywords are those of :func:`picaset.stream`.
        """
        opened = open_source(source, mask, weights)
        if not self.checked:
            width = opened.width if transform is None else None
            self.ranks.check_agreement(self.operator, opened.sets, width)
            self.checked = True
        reading = Reading.for_operator(
            self.operator, opened, chunk=chunk, caller=CALLER, spill=spill, folder=folder, reduction=self.ranks
        )
        return stream_source(self.operator, opened, reading, transform=transform, sink=sink)


class RankLostError(RuntimeError):
    """Another rank died, or did not arrive within the timeout."""


class RanksDisagreeError(RuntimeError):
    """The ranks of a group have different models."""


class Ranks(Reduction):
    """The reduction of a set that is spread over the ranks of a group.

    Args:
        group: A group of ``torch.distributed``; None means all ranks.
        timeout: Seconds to wait for the other ranks in each reduction.
    """

    shared = True

    def __init__(self, group: Any, *, timeout: int | float) -> None:
        self.group = group
        self.timeout = datetime.timedelta(seconds=timeout)
        self.size, self.rank = dist.get_world_size(group), dist.get_rank(group)
        self.bytes = 0
        """Number of bytes that this rank has reduced so far."""
        self.reductions = 0

    def combine(self, statistic: Statistic, summary: Summary) -> Summary:
        if summary.peak is None:
            return Summary(None, self.sum_tensors(summary.sums))
        peak = summary.peak.clone()
        self.reduce(peak, dist.ReduceOp.MAX)
        return Summary(peak, self.sum_tensors(statistic.rescale(summary, peak)))

    def sum_tensors(self, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return the tensors summed over all ranks, in one reduction per dtype."""
        sums: list[Tensor] = list(tensors)
        for dtype in sorted({tensor.dtype for tensor in tensors}, key=str):
            indices = [index for index, tensor in enumerate(tensors) if tensor.dtype == dtype]
            flat = torch.cat([tensors[index].reshape(-1) for index in indices])
            self.reduce(flat, dist.ReduceOp.SUM)
            start = 0
            for index in indices:
                stop = start + tensors[index].numel()
                sums[index], start = flat[start:stop].view(tensors[index].shape), stop
        return tuple(sums)

    def broadcast(self, tensor: Tensor) -> Tensor:
        shared = tensor.clone().contiguous()
        if self.rank != 0:
            shared.zero_()
        self.reduce(shared, dist.ReduceOp.SUM)
        return shared

    def reduce(self, tensor: Tensor, operation: Any) -> None:
        self.bytes += tensor.nbytes
        self.reductions += 1
        self.wait(lambda: torch_distributed.all_reduce(tensor, operation, group=self.group, async_op=True))

    def wait(self, begin: Callable[[], Any]) -> None:
        """Begin a collective operation and wait for it, at most until the timeout."""
        try:
            begin().wait(self.timeout)
        except RuntimeError as error:  # torch has no class for it
            raise RankLostError(
                f"rank {self.rank} of {self.size}: another rank failed or did not respond within "
                f"{self.timeout.total_seconds():.0f} s; check the output of the other ranks. "
                f"({str(error).splitlines()[0][:200]})"
            ) from None

    def check_agreement(self, module: nn.Module, num_sets: int, width: int | None) -> None:
        """Check that all ranks have the same model and kind of sets; every rank raises an error if not."""
        local_digests = model_digests(module, num_sets, width)
        gathered: list[Tensor] = [torch.empty_like(local_digests) for _ in range(self.size)]
        self.wait(lambda: torch_distributed.all_gather(gathered, local_digests, group=self.group, async_op=True))
        for index, (property_name, hint) in enumerate(AGREEMENT_HINTS.items()):
            digests = [bytes(cast(Any, rows[index].cpu().numpy())).hex()[:8] for rows in gathered]
            if len(set(digests) - {UNKNOWN}) > 1:
                values = ", ".join(f"rank {rank} {value}" for rank, value in enumerate(digests))
                raise RanksDisagreeError(f"{CALLER}: the ranks disagree about {property_name}: {values}. {hint}")


UNKNOWN = "00000000"
AGREEMENT_HINTS = {
    "the class and the shapes of the model": "Build the same model on every rank.",
    "which parameters need gradients": "Freeze the same parameters on every rank.",
    "the weights": "Load the same checkpoint on every rank, or seed torch alike before building the model.",
    "the number of sets": "Every rank has a part of each set; a rank without elements passes a tensor (B, 0, D).",
    "the number of features": "Pass elements of the same width on every rank.",
}
"""Properties that must agree on all ranks, with a hint for each; ``model_digests`` has a row for each."""


def model_digests(module: nn.Module, num_sets: int, width: int | None) -> Tensor:
    """Return one digest per property of ``AGREEMENT_HINTS``, (5, 8) bytes, equal on two ranks if the properties are."""
    tensors = [*module.named_parameters(), *module.named_buffers()]
    shapes = repr(module) + "".join(f"{name} {tuple(tensor.shape)} {tensor.dtype}" for name, tensor in tensors)
    trainable = "".join(f"{name} {parameter.requires_grad}" for name, parameter in module.named_parameters())
    weights = hashlib.blake2b(digest_size=8)
    for _, tensor in tensors:
        weights.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    rows = [digest(shapes), digest(trainable), weights.digest(), digest(str(num_sets))]
    rows.append(bytes(8) if width is None else digest(str(width)))
    device = next((tensor.device for _, tensor in tensors), torch.device("cpu"))
    return torch.tensor([list(row) for row in rows], dtype=torch.uint8, device=device)


def digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=8).digest()
