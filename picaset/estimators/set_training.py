"""Training a small network on a list of sets, until it gets no better on sets that were kept from it.

Dimensions:  B sets   O features of a prediction
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from picaset.sets import SetBatch

AT_ONCE = 100_000
"""Elements that a network is shown together after training."""
MIN_GAIN = 1e-4
"""Of the loss on the sets that were kept, as a share of the best so far, to count as better."""

Loss = Callable[[Tensor, Tensor], Tensor]
"""From predictions and targets of some sets to a number."""


@dataclass(frozen=True)
class Schedule:
    """How long and how fast."""

    max_iter: int
    """Epochs, at most."""
    patience: int
    """Epochs without a better loss on the sets that were kept, after which training ends."""
    batch_size: int
    learning_rate: float
    weight_decay: float


@dataclass(frozen=True)
class Curves:
    """The loss of every epoch, on the sets trained on and on those kept, and which epoch's network it is."""

    training: list[float]
    validation: list[float]
    best: int


def train_network(
    network: nn.Module,
    sets: Sequence[Tensor],
    targets: Tensor,
    loss_of: Loss,
    schedule: Schedule,
    *,
    kept: NDArray[np.int64],
    generator: np.random.Generator,
) -> Curves:
    """Train on all sets but those ``kept``, and leave the network as it was best on these; all of it, without any."""
    used = np.setdiff1d(np.arange(len(sets)), kept)
    optimizer = torch.optim.AdamW(network.parameters(), lr=schedule.learning_rate, weight_decay=schedule.weight_decay)
    training, validation = list[float](), list[float]()
    best, weights = 0, copy.deepcopy(network.state_dict())
    for epoch in range(schedule.max_iter):
        network.train()
        losses = list[float]()
        for chosen in np.array_split(generator.permutation(used), -(-len(used) // schedule.batch_size)):
            batch = SetBatch.from_list([sets[int(index)] for index in chosen])
            loss = loss_of(network(batch)[:, 0], targets[chosen])
            optimizer.zero_grad()
            loss.backward()  # pyright: ignore[reportUnknownMemberType]
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()  # pyright: ignore[reportUnknownMemberType]
            losses += [float(loss.detach())] * len(chosen)
        training.append(float(np.mean(losses)))
        network.eval()
        if not len(kept):
            continue
        validation.append(float(loss_of(outputs_of(network, [sets[int(index)] for index in kept]), targets[kept])))
        if epoch == 0 or validation[epoch] < validation[best] * (1 - MIN_GAIN):
            best, weights = epoch, copy.deepcopy(network.state_dict())
        elif epoch - best >= schedule.patience:
            break
    if len(kept):
        network.load_state_dict(weights)
    return Curves(training, validation, best if len(kept) else len(training) - 1)


@torch.no_grad()
def outputs_of(network: nn.Module, sets: Sequence[Tensor]) -> Tensor:
    """What a network says of every set, (B, O)."""
    return torch.cat([network(batch)[:, 0] for batch in in_batches(sets)])


def in_batches(sets: Sequence[Tensor]) -> Iterator[SetBatch]:
    """The sets in their order, as many at once as there is room for."""
    waiting, total = list[Tensor](), 0
    for one in sets:
        if waiting and total + len(one) > AT_ONCE:
            yield SetBatch.from_list(waiting)
            waiting, total = [], 0
        waiting.append(one)
        total += len(one)
    yield SetBatch.from_list(waiting)


def kept_for_validation(
    groups: NDArray[np.int64], share: float, *, generator: np.random.Generator
) -> NDArray[np.int64]:
    """This share of the sets, of every group (class) alike; each group keeps at least one set for training."""
    kept = list[int]()
    for group in np.unique(groups):
        members = generator.permutation(np.flatnonzero(groups == group))
        kept += members[: min(len(members) - 1, round(share * len(members)))].tolist()
    return np.array(sorted(kept), dtype=np.int64)
