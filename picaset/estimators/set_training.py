"""Training of a network on a list of sets, with early stopping on a validation split.

Dimensions:  B sets   O outputs
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from picaset.sets import SetBatch

MAX_ELEMENTS_PER_BATCH = 100_000
"""Maximum number of elements of a batch at inference."""
MIN_IMPROVEMENT = 1e-4
"""Relative decrease of the validation loss that counts as an improvement."""

Loss = Callable[[Tensor, Tensor], Tensor]
"""Function of the outputs and targets of a batch that returns a scalar."""


class TrainingCurves(NamedTuple):
    """Training and validation loss of every epoch, and the epoch whose weights the network has."""

    training: list[float]
    validation: list[float]
    best_epoch: int


def train_network(
    network: nn.Module,
    sets: Sequence[Tensor],
    targets: Tensor,
    loss_function: Loss,
    *,
    validation_indices: NDArray[np.int64],
    max_epochs: int,
    patience: int,
    batch_size: int,
    learning_rate: float,
    weight_decay: float,
    generator: np.random.Generator,
) -> TrainingCurves:
    """Train a network with AdamW, and restore the weights with the lowest validation loss.

    Training stops after ``patience`` epochs without an improvement of the validation loss. With no
    ``validation_indices``, it takes all epochs, and the network has the last weights.
    """
    training_indices = np.setdiff1d(np.arange(len(sets)), validation_indices)
    optimizer = torch.optim.AdamW(network.parameters(), lr=learning_rate, weight_decay=weight_decay)
    training, validation = list[float](), list[float]()
    best_epoch, best_weights = 0, copy.deepcopy(network.state_dict())
    num_batches = -(-len(training_indices) // batch_size)
    for epoch in range(max_epochs):
        network.train()
        losses = list[float]()
        for indices in np.array_split(generator.permutation(training_indices), num_batches):
            batch = SetBatch.from_list([sets[int(index)] for index in indices])
            loss = loss_function(network(batch)[:, 0], targets[indices])
            losses += [optimizer_step(network, optimizer, loss)] * len(indices)
        training.append(float(np.mean(losses)))
        network.eval()
        if not len(validation_indices):
            continue
        outputs = predict_sets(network, [sets[int(index)] for index in validation_indices])
        validation.append(float(loss_function(outputs, targets[validation_indices])))
        if epoch == 0 or validation[epoch] < validation[best_epoch] * (1 - MIN_IMPROVEMENT):
            best_epoch, best_weights = epoch, copy.deepcopy(network.state_dict())
        elif epoch - best_epoch >= patience:
            break
    if not len(validation_indices):
        return TrainingCurves(training, validation, len(training) - 1)
    network.load_state_dict(best_weights)
    return TrainingCurves(training, validation, best_epoch)


def optimizer_step(network: nn.Module, optimizer: torch.optim.Optimizer, loss: Tensor) -> float:
    """Take one step with clipped gradients, and return the loss."""
    optimizer.zero_grad()
    loss.backward()  # pyright: ignore[reportUnknownMemberType]
    torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    optimizer.step()  # pyright: ignore[reportUnknownMemberType]
    return float(loss.detach())


@torch.no_grad()
def predict_sets(network: nn.Module, sets: Sequence[Tensor]) -> Tensor:
    """Return the outputs of a network for every set, (B, O)."""
    return torch.cat([network(batch)[:, 0] for batch in inference_batches(sets)])


def inference_batches(sets: Sequence[Tensor]) -> Iterator[SetBatch]:
    """Yield the sets in order, in batches of at most ``MAX_ELEMENTS_PER_BATCH`` elements or one set."""
    batch, num_elements = list[Tensor](), 0
    for elements in sets:
        if batch and num_elements + len(elements) > MAX_ELEMENTS_PER_BATCH:
            yield SetBatch.from_list(batch)
            batch, num_elements = [], 0
        batch.append(elements)
        num_elements += len(elements)
    yield SetBatch.from_list(batch)


def draw_validation_indices(
    groups: NDArray[np.int64], fraction: float, *, generator: np.random.Generator
) -> NDArray[np.int64]:
    """Draw a stratified validation split; at least one set of each group (class) remains for training."""
    indices = list[int]()
    for group in np.unique(groups):
        members = generator.permutation(np.flatnonzero(groups == group))
        indices += members[: min(len(members) - 1, round(fraction * len(members)))].tolist()
    return np.array(sorted(indices), dtype=np.int64)
