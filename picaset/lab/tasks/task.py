"""The interface between a task and the training loop."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import torch
from jaxtyping import Int
from torch import Tensor, nn

from picaset.lab.data.gaussian_mixtures import seeded_generator
from picaset.pretrained import CLASSES, ModuleConfig, PretrainedNetwork

PLUGIN_TASKS: dict[str, type["Task"]] = {}
"""Tasks that are defined outside the package, as ``module:class``, once their module is imported."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Task(ABC):
    """Data, a network, a loss and a score; a frozen dataclass whose fields are its settings."""

    network: ModuleConfig
    """Class and constructor arguments of the network."""

    def __init_subclass__(cls) -> None:
        if not cls.__module__.startswith("picaset."):
            PLUGIN_TASKS[f"{cls.__module__}:{cls.__qualname__}"] = cls

    def build_network(self) -> nn.Module:
        """Build the network with random weights."""
        return self.network.build()

    def read_network(self, directory: Path) -> nn.Module:
        """Read a network that a run saved."""
        network = cast(type[PretrainedNetwork], CLASSES[self.network.name]).from_pretrained(directory)
        if ModuleConfig.checked(self.network.name, network.config, where=str(directory)) != self.network:
            raise ValueError(f"{directory} holds another network than the config.json of its run describes.")
        return network

    @classmethod
    def upgrade(cls, settings: dict[str, Any]) -> dict[str, Any]:
        """Convert the settings of a record of format version 1, whose fields were flat, to those of today."""
        return settings

    @abstractmethod
    def batch(self, step: int, *, seed: int, num_examples: int, progress: float) -> tuple[Any, ...]:
        """Return the examples of a step, in tensors along the first dimension or in a SetBatch.

        They depend on the arguments alone.
        ``progress`` runs from 0 to 1 over a training.
        """

    @abstractmethod
    def loss(self, network: nn.Module, batch: tuple[Any, ...]) -> Tensor:
        """Return the training loss, averaged over the examples."""

    @abstractmethod
    def score(self, network: nn.Module) -> dict[str, float]:
        """Return validation metrics, measured during training; a higher ``"score"`` is better."""

    @abstractmethod
    def evaluate(self, network: nn.Module) -> dict[str, Any]:
        """Return all test results of a trained network that tables and figures need, as JSON values."""

    @abstractmethod
    def describe_data(self) -> str:
        """Describe the data that results were measured on."""

    def check_network(self, *names: str) -> None:
        """Raise an error if the network is of a class that the task cannot train."""
        if self.network.name not in names:
            raise ValueError(f"network must be a {' or '.join(names)}; got {self.network.name}.")

    def check_at_least_one(self, *fields: str) -> None:
        """Raise an error if one of these fields is below 1."""
        for field in fields:
            if getattr(self, field) < 1:
                raise ValueError(f"{field} must be at least 1; got {getattr(self, field)}.")


def network_settings(task: type[Task], settings: dict[str, Any], network: ModuleConfig) -> dict[str, Any]:
    """Move the flat fields of a network into ``settings["network"]``, for records of format version 1.

    ``network`` is that of a record that has none of the fields.
    """
    names = {field.name for field in fields(task)}
    arguments = {key: value for key, value in settings.items() if key not in names}
    task_settings = {key: value for key, value in settings.items() if key in names}
    return task_settings | {"network": network.replace(**arguments).to_json()}


def batch_indices(step: int, *, seed: int, num_examples: int, total: int) -> Int[Tensor, " B"]:
    """Return the indices of the examples of a step; every epoch visits all examples in a new random order.

    A function of the step, so that a resumed run sees the same batches.
    """
    positions = torch.arange(step * num_examples, (step + 1) * num_examples)
    epochs = range(int(positions[0]) // total, int(positions[-1]) // total + 1)
    order = torch.cat([epoch_order(seed, epoch, total) for epoch in epochs])
    return order[positions - epochs[0] * total]


@lru_cache(maxsize=4)
def epoch_order(seed: int, epoch: int, total: int) -> Int[Tensor, " N"]:
    return torch.randperm(total, generator=seeded_generator(seed, epoch, total))
