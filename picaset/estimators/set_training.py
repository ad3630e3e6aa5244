"""Training of several networks on the same sets at once, each with its own validation sets.

The parameters of all networks are stacked and one batched network is trained (``torch.func``), so that five networks
cost less than twice as much as one where sets are small. Every network is trained on all sets but those that are held
out for it; the loss on held-out sets decides when training stops.

Dimensions:  S networks   B sets   b sets of a step   N elements (padded)   D features   O outputs
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap  # pyright: ignore[reportUnknownVariableType]

from picaset.networks.set_predictor import SetPredictor
from picaset.operators.state import Presence, mask_and_weights, present
from picaset.sets import SetBatch
from picaset.terminal import Watcher
from picaset.threads import few_threads

MAX_ELEMENTS_PER_BATCH = 100_000
"""Maximum number of elements of a batch at inference."""
MAX_TRAINING_SIZE = 64
"""Largest number of elements of a set in a training step; more are sampled anew in every epoch."""
MIN_IMPROVEMENT = 1e-4
"""Relative decrease of the validation loss that counts as an improvement."""
WARMUP_STEPS = 10
"""Number of steps over which the learning rate rises."""

Loss = Callable[[Tensor, Tensor], Tensor]
"""Function of outputs (S, b, O) and targets (b, ...) that returns the loss of every set, (S, b)."""


class TrainedNetworks(NamedTuple):
    """Trained networks, and their outputs for the sets that were held out for them."""

    networks: list[SetPredictor]
    held_out_outputs: Float[Tensor, "B O"]
    """Mean output of the networks for which a set was held out; zero if there is none."""
    training: list[float]
    """Training loss of every epoch."""
    validation: list[float]
    """Loss on held-out sets after every epoch; empty if there are none."""
    best_epoch: int
    """Epoch whose weights the networks have."""


def train_networks(
    networks: Sequence[SetPredictor],
    sets: Sequence[Tensor],
    targets: Tensor,
    loss_function: Loss,
    *,
    held_out: Bool[Tensor, "S B"],
    set_weights: Float[Tensor, " B"] | None = None,
    element_weights: Sequence[Tensor] | None = None,
    max_epochs: int,
    patience: int,
    batch_size: int,
    learning_rate: float,
    weight_decay: float,
    generator: np.random.Generator,
    warmup_steps: int = WARMUP_STEPS,
    watcher: Watcher | None = None,
) -> TrainedNetworks:
    """Train networks with AdamW, and restore the weights of the epoch with the lowest loss on held-out sets.

    Training stops after ``patience`` epochs without an improvement of that loss. If no sets are held out, it takes all
    epochs, and the networks have the last weights.
    """
    device = targets.device
    held_out = held_out.to(device)
    weights = (~held_out).float() * (1.0 if set_weights is None else set_weights.to(device))  # (S, B)
    stacked, _ = stack_module_state(cast(Any, list(networks)))
    parameters = {name: value.detach().clone().requires_grad_() for name, value in stacked.items()}
    optimizer = torch.optim.AdamW(parameters.values(), lr=learning_rate, weight_decay=weight_decay)
    module = copy.deepcopy(networks[0])
    num_batches = max(-(-len(sets) // batch_size), 1)
    largest = min(max(len(elements) for elements in sets), MAX_TRAINING_SIZE)
    early_stopping = bool(held_out.any())
    training, validation, step = list[float](), list[float](), 0
    best_epoch, best, best_outputs = 0, parameters, targets.new_zeros(0)
    with few_threads(len(networks) * min(batch_size, len(sets)) * largest * int(networks[0].config["dim"])):
        for epoch in range(max_epochs):
            elements, mask = draw_padded(sets, element_weights, generator=generator)
            losses = list[float]()
            module.train()
            for indices in np.array_split(generator.permutation(len(sets)), num_batches):
                width = int(present(mask[indices]).sum(dim=1).max())
                outputs = apply_all(module, parameters, elements[indices, :width], mask[indices, :width])
                batch_weights = weights[:, indices]
                loss = loss_function(outputs, targets[indices]) * batch_weights
                loss = loss.sum(dim=1) / batch_weights.sum(dim=1).clamp(min=1e-12)
                rate = learning_rate * min(1.0, (step + 1) / max(warmup_steps, 1))
                update_parameters(parameters, optimizer, loss.sum(), learning_rate=rate)
                losses += [float(loss.detach().mean())] * len(indices)
                step += 1
            training.append(float(np.mean(losses)))
            if early_stopping:
                module.eval()
                outputs = held_out_outputs(module, parameters, elements, mask, held_out)
                weight = 1.0 if set_weights is None else set_weights.to(device)
                total = (loss_function(outputs, targets) * held_out * weight).sum()
                validation.append(float(total / (held_out * weight).sum().clamp(min=1e-12)))
                if epoch == 0 or validation[epoch] < validation[best_epoch] * (1 - MIN_IMPROVEMENT):
                    best = {name: value.detach().clone() for name, value in parameters.items()}
                    best_epoch, best_outputs = epoch, outputs
            if watcher is not None:
                watcher.advance(1, f"loss {training[-1]:.3f}")
            if early_stopping and epoch - best_epoch >= patience:
                break
    for index, network in enumerate(networks):
        network.load_state_dict({name: value.detach()[index] for name, value in best.items()})
        network.eval()
    if not early_stopping:
        return TrainedNetworks(list(networks), targets.new_zeros(0), training, validation, len(training) - 1)
    mean = (best_outputs * held_out[..., None]).sum(dim=0) / held_out.sum(dim=0).clamp(min=1)[:, None]
    return TrainedNetworks(list(networks), mean, training, validation, best_epoch)


def apply_all(
    module: nn.Module, parameters: dict[str, Tensor], elements: Float[Tensor, "b N D"], mask: Presence
) -> Float[Tensor, "S b O"]:
    """Return the outputs of all networks for the same sets."""

    def apply(network_parameters: dict[str, Tensor]) -> Tensor:
        return functional_call(module, network_parameters, (elements, *mask_and_weights(mask)))[:, 0]

    return vmap(apply, randomness="different")(parameters)


@torch.no_grad()
def held_out_outputs(
    module: nn.Module,
    parameters: dict[str, Tensor],
    elements: Float[Tensor, "B N D"],
    mask: Presence,
    held_out: Bool[Tensor, "S B"],
) -> Float[Tensor, "S B O"]:
    """Return the outputs of each network for the sets held out for it, and zero for the others."""

    def apply(network_parameters: dict[str, Tensor], indices: Tensor) -> Tensor:
        inputs = (elements[indices], *mask_and_weights(mask[indices]))
        return functional_call(module, network_parameters, inputs)[:, 0]

    count = int(held_out.sum(dim=1).max())
    order = held_out.int().argsort(dim=1, descending=True, stable=True)[:, :count]  # held-out sets first
    outputs = vmap(apply)(parameters, order)
    result = outputs.new_zeros(*held_out.shape, outputs.shape[-1])
    result.scatter_(1, order[..., None].expand_as(outputs), outputs)
    return result * held_out[..., None]


def update_parameters(
    parameters: dict[str, Tensor], optimizer: torch.optim.Optimizer, loss: Tensor, *, learning_rate: float
) -> None:
    """Take one step, with the gradient of each network clipped to length one."""
    optimizer.zero_grad()
    loss.backward()  # pyright: ignore[reportUnknownMemberType]
    gradients = [value.grad for value in parameters.values() if value.grad is not None]
    lengths = torch.stack([gradient.flatten(1).square().sum(dim=1) for gradient in gradients]).sum(dim=0).sqrt()  # (S,)
    factors = (1 / lengths.clamp(min=1e-6)).clamp(max=1)
    for gradient in gradients:
        gradient.mul_(factors.view(-1, *[1] * (gradient.dim() - 1)))
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
    optimizer.step()  # pyright: ignore[reportUnknownMemberType]


def draw_padded(
    sets: Sequence[Tensor], weights: Sequence[Tensor] | None, *, generator: np.random.Generator
) -> tuple[Float[Tensor, "B N D"], Presence]:
    """Pad sets, with a random sample of ``MAX_TRAINING_SIZE`` elements of those that are larger, and their weights."""
    rows = [
        slice(None)
        if len(elements) <= MAX_TRAINING_SIZE
        else torch.as_tensor(generator.choice(len(elements), MAX_TRAINING_SIZE, replace=False))
        for elements in sets
    ]
    elements, mask = SetBatch.from_list([one[chosen] for one, chosen in zip(sets, rows, strict=True)]).to_padded()
    if weights is None:
        return elements, mask
    present_weights = torch.cat([one[chosen] for one, chosen in zip(weights, rows, strict=True)])
    return elements, torch.zeros_like(elements[..., 0]).masked_scatter(mask, present_weights)


def optimizer_step(network: nn.Module, optimizer: torch.optim.Optimizer, loss: Tensor) -> float:
    """Take one step with clipped gradients, and return the loss."""
    optimizer.zero_grad()
    loss.backward()  # pyright: ignore[reportUnknownMemberType]
    torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    optimizer.step()  # pyright: ignore[reportUnknownMemberType]
    return float(loss.detach())


@torch.no_grad()
def predict_sets(network: nn.Module, sets: Sequence[Tensor], weights: Sequence[Tensor] | None = None) -> Tensor:
    """Return the outputs of a network for every set, (B, O)."""
    return torch.cat([network(batch)[:, 0] for batch in inference_batches(sets, weights)])


def inference_batches(sets: Sequence[Tensor], weights: Sequence[Tensor] | None = None) -> Iterator[SetBatch]:
    """Yield the sets in order, in batches of at most ``MAX_ELEMENTS_PER_BATCH`` elements or one set."""
    start, num_elements = 0, 0
    for stop in range(1, len(sets) + 1):
        num_elements += len(sets[stop - 1])
        if stop == len(sets) or num_elements + len(sets[stop]) > MAX_ELEMENTS_PER_BATCH:
            batch = SetBatch.from_list(sets[start:stop])
            yield batch if weights is None else batch.with_weights(torch.cat(list(weights[start:stop])))
            start, num_elements = stop, 0


def draw_validation_indices(
    groups: NDArray[np.int64], fraction: float, *, generator: np.random.Generator
) -> NDArray[np.int64]:
    """Draw a stratified validation split; at least one set of each group (class) remains for training."""
    indices = list[int]()
    for group in np.unique(groups):
        members = generator.permutation(np.flatnonzero(groups == group))
        indices += members[: min(len(members) - 1, round(fraction * len(members)))].tolist()
    return np.array(sorted(indices), dtype=np.int64)
