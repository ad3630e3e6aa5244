"""Everything that changes while training, and how it goes into a checkpoint and back."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from picaset.lab.training.run_directory import Checkpoint


@dataclass
class State:
    """Everything that changes while training."""

    network: nn.Module
    wrapped: Any
    """The network as Fabric runs it, on its device and over its processes."""
    optimizer: Any
    average: AveragedModel | None
    step: int = 0
    best: float | None = None
    seconds: float = 0.0
    problems: tuple[str, ...] = ()
    curves: Any = None
    """Where TensorBoard reads them, if it shall."""

    @property
    def trained(self) -> nn.Module:
        """The network that counts: the running average, where there is one."""
        return self.network if self.average is None else self.average.module


def checkpoint_of(state: State) -> Checkpoint:
    """Everything that the next step depends on."""
    tensors = {f"network.{name}": tensor for name, tensor in state.network.state_dict().items()}
    if state.average is not None:
        tensors |= {f"average.{name}": tensor for name, tensor in state.average.state_dict().items()}
    for index, values in state.optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{index}.{name}": value for name, value in values.items()}
    tensors["random"] = torch.get_rng_state()
    return Checkpoint(state.step, tensors, {"step": state.step, "best": state.best, "seconds": state.seconds})


def restore_from(checkpoint: Checkpoint, state: State, optimizer: torch.optim.Optimizer) -> None:
    def part(prefix: str) -> dict[str, Tensor]:
        return {
            name.removeprefix(prefix): tensor for name, tensor in checkpoint.tensors.items() if name.startswith(prefix)
        }

    state.network.load_state_dict(part("network."))
    if state.average is not None:
        state.average.load_state_dict(part("average."))
    described = optimizer.state_dict()
    moments: dict[int, dict[str, Tensor]] = {}
    for name, tensor in part("optimizer.").items():
        index, _, kind = name.partition(".")
        moments.setdefault(int(index), {})[kind] = tensor
    optimizer.load_state_dict({"state": moments, "param_groups": described["param_groups"]})
    torch.set_rng_state(checkpoint.tensors["random"])
    state.step = checkpoint.step
    state.best = checkpoint.state["best"]
    state.seconds = checkpoint.state["seconds"]
