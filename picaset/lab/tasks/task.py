"""What the training loop needs of a task."""

from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn


@runtime_checkable
class Task(Protocol):
    """Data, a network, a loss and a score; a frozen dataclass whose fields are its settings."""

    def build_network(self) -> nn.Module:
        """A network with random weights."""
        ...

    def read_network(self, directory: Path) -> nn.Module:
        """A network as a run has kept it."""
        ...

    def batch(self, step: int, *, seed: int, num_examples: int, progress: float) -> tuple[Tensor, ...]:
        """The examples of a step, each along the first dimension; the same whenever it is asked for.

        ``progress`` runs from 0 to 1 over a training.
        """
        ...

    def loss(self, network: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        """What is minimised, averaged over the examples."""
        ...

    def score(self, network: nn.Module) -> dict[str, float]:
        """Measured now and then while training; ``"score"`` is higher for a better network."""
        ...

    def evaluate(self, network: nn.Module) -> dict[str, Any]:
        """Everything that the tables and figures of this task need of a trained network, as JSON values."""
        ...

    def describe_data(self) -> str:
        """What the numbers were measured on."""
        ...
