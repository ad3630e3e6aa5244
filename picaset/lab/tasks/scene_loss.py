"""What is minimised when the objects of a scene are predicted: the cost of the cheapest assignment.

    published     Huber's loss of all numbers, coordinates in [0, 1]    (Locatello et al. 2020)
    reweighted    the same, coordinates in CLEVR's own units
    likelihood    cross-entropy of presence and properties, Huber's loss of coordinates in CLEVR's own units

The first two take what an empty slot says of properties and places for something to be learned, and are slow where a
prediction is surely wrong, since a sigmoid is flat there; the third is neither.

Dimensions:  B scenes   K slots   V numbers of an object's vector   L steps

Which prediction is meant for which object: the cheapest assignment of each set (Kuhn 1955).

Dimensions:  B sets   K predictions   M objects
"""

from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import binary_cross_entropy, huber_loss

from picaset.checks import check_choice
from picaset.extras import require
from picaset.lab.data.scenes import COORDINATES, EXTENT, PRESENCE, PROPERTY_VALUES, check_length


def assign(cost: Float[Tensor, "B K M"]) -> Int[Tensor, "B K"]:
    """The object of each prediction, so that every set's total cost is least; there must be as many of each.

    Costs leave the device together, and no gradient comes back: which assignment is cheapest does not change with a
    small change of the predictions.

    Example:
        >>> assign(torch.tensor([[[3.0, 1.0], [1.0, 0.5]]]))
        tensor([[1, 0]])
    """
    optimize: Any = require("scipy.optimize", extra="experiments", purpose="matching predictions with objects")
    sets, predictions, objects = cost.shape
    if predictions != objects:
        raise ValueError(f"assign: there must be as many predictions as objects; got {predictions} and {objects}.")
    check_numbers(cost, caller="assign", name="costs")
    costs = cost.detach().cpu().double().numpy()
    columns = [optimize.linear_sum_assignment(one)[1] for one in costs]
    chosen = np.array(columns, dtype=np.int64).reshape(sets, predictions)
    return torch.as_tensor(chosen, device=cost.device)


def check_numbers(values: Float[Tensor, "B K M"], *, caller: str, name: str) -> None:
    """That what a network predicts, or what it costs, can be compared."""
    wrong = ~values.isfinite()
    if bool(wrong.any()):
        index = int(wrong.nonzero()[0, 0])
        raise ValueError(
            f"{caller}: {name} must be finite; set {index} has {values[wrong][0].item()}. The network predicts numbers "
            "that are none: lower the learning rate, or cut gradients back."
        )


Objective = Literal["published", "reweighted", "likelihood"]


def scene_loss(
    predicted: Float[Tensor, "*L B K V"], wanted: Float[Tensor, "B K V"], *, objective: Objective = "published"
) -> Float[Tensor, ""]:
    """The cost of the cheapest assignment, summed over slots, averaged over scenes, and over steps if there are any.

    Example:
        >>> wanted = torch.rand(2, 10, 19)
        >>> float(scene_loss(wanted.flip(1), wanted))
        0.0
    """
    check_choice(objective, ("published", "reweighted", "likelihood"), caller="scene_loss", name="objective")
    for vectors in (predicted, wanted):
        check_length(vectors, caller="scene_loss")
    predicted, wanted = predicted.flatten(0, -3), wanted.expand_as(predicted).flatten(0, -3)
    check_numbers(predicted, caller="scene_loss", name="predictions")
    cost = likelihood_cost(predicted, wanted) if objective == "likelihood" else huber_cost(predicted, wanted, objective)
    return cost.gather(2, assign(cost)[..., None]).sum(dim=(1, 2)).mean()


def huber_cost(
    predicted: Float[Tensor, "B K V"], wanted: Float[Tensor, "B K V"], objective: Objective
) -> Float[Tensor, "B K K"]:
    """Of taking each prediction for each object: the mean over the numbers of their vectors."""
    apart = predicted[:, :, None] - wanted[:, None]  # (B, K, K, V)
    if objective == "reweighted":
        scale = torch.ones_like(apart[0, 0, 0])
        scale[COORDINATES] = 2 * EXTENT
        apart = apart * scale
    return huber_loss(apart, torch.zeros_like(apart), reduction="none").mean(dim=-1)


def likelihood_cost(predicted: Float[Tensor, "B K V"], wanted: Float[Tensor, "B K V"]) -> Float[Tensor, "B K K"]:
    """The same by likelihood: where there is no object, only presence counts."""
    shape = (*predicted.shape[:2], *wanted.shape[1:])
    ours, theirs = predicted[:, :, None].expand(shape), wanted[:, None].expand(shape)
    presence, properties = (
        binary_cross_entropy(ours[..., part], theirs[..., part], reduction="none")
        for part in (PRESENCE, PROPERTY_VALUES)
    )
    apart = 2 * EXTENT * (ours[..., COORDINATES] - theirs[..., COORDINATES])
    places = huber_loss(apart, torch.zeros_like(apart), reduction="none").sum(dim=-1)
    return presence + theirs[..., PRESENCE] * (properties.sum(dim=-1) + places)
