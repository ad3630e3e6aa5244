"""Losses of predicted scenes: the cost of the cheapest assignment of predictions to objects.

    published     Huber loss of all features, coordinates in [0, 1]    (Locatello et al. 2020)
    reweighted    the same, coordinates in CLEVR's own units
    likelihood    cross-entropy of presence and properties, Huber loss of coordinates in CLEVR's own units

The first two also train the properties and coordinates of predictions that match no object, and their gradients vanish
where a sigmoid saturates; the third does neither. Assignments are by the Hungarian algorithm (Kuhn 1955).

Dimensions:  B scenes   K predictions   M objects   V features of an object's vector   L steps
"""

from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import binary_cross_entropy, huber_loss

from picaset.checks import check_choice
from picaset.extras import require
from picaset.lab.data.scenes import COORDINATES, EXTENT, PRESENCE, PROPERTY_VALUES, check_vector_length


def assign(cost: Float[Tensor, "B K M"]) -> Int[Tensor, "B K"]:
    """Return the object of each prediction in the assignment of least total cost; K must equal M.

    The assignment is found on the CPU and has no gradient.

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
    columns = [optimize.linear_sum_assignment(matrix)[1] for matrix in costs]
    return torch.as_tensor(np.array(columns, dtype=np.int64).reshape(sets, predictions), device=cost.device)


def check_numbers(values: Float[Tensor, "B K M"], *, caller: str, name: str) -> None:
    """Raise an error if predictions or costs are not finite."""
    wrong = ~values.isfinite()
    if bool(wrong.any()):
        index = int(wrong.nonzero()[0, 0])
        raise ValueError(
            f"{caller}: {name} must be finite; set {index} has {values[wrong][0].item()}. Training has "
            "diverged: lower the learning rate or clip the gradients."
        )


Objective = Literal["published", "reweighted", "likelihood"]


def scene_loss(
    predicted: Float[Tensor, "*L B K V"], targets: Float[Tensor, "B K V"], *, objective: Objective = "published"
) -> Float[Tensor, ""]:
    """Return the cost of the cheapest assignment, summed over predictions, averaged over scenes and steps.

    Example:
        >>> targets = torch.rand(2, 10, 19)
        >>> float(scene_loss(targets.flip(1), targets))
        0.0
    """
    check_choice(objective, ("published", "reweighted", "likelihood"), caller="scene_loss", name="objective")
    for vectors in (predicted, targets):
        check_vector_length(vectors, caller="scene_loss")
    predicted, targets = predicted.flatten(0, -3), targets.expand_as(predicted).flatten(0, -3)
    check_numbers(predicted, caller="scene_loss", name="predictions")
    cost = (
        likelihood_cost(predicted, targets) if objective == "likelihood" else huber_cost(predicted, targets, objective)
    )
    return cost.gather(2, assign(cost)[..., None]).sum(dim=(1, 2)).mean()


def huber_cost(
    predicted: Float[Tensor, "B K V"], targets: Float[Tensor, "B K V"], objective: Objective
) -> Float[Tensor, "B K K"]:
    """Return the Huber loss between each prediction and each object, averaged over features."""
    difference = predicted[:, :, None] - targets[:, None]  # (B, K, K, V)
    if objective == "reweighted":
        scale = torch.ones_like(difference[0, 0, 0])
        scale[COORDINATES] = 2 * EXTENT
        difference = difference * scale
    return huber_loss(difference, torch.zeros_like(difference), reduction="none").mean(dim=-1)


def likelihood_cost(predicted: Float[Tensor, "B K V"], targets: Float[Tensor, "B K V"]) -> Float[Tensor, "B K K"]:
    """Return the negative log-likelihood of each object under each prediction; without an object, of presence alone."""
    shape = (*predicted.shape[:2], *targets.shape[1:])
    predictions, objects = predicted[:, :, None].expand(shape), targets[:, None].expand(shape)
    presence, properties = (
        binary_cross_entropy(predictions[..., part], objects[..., part], reduction="none")
        for part in (PRESENCE, PROPERTY_VALUES)
    )
    difference = 2 * EXTENT * (predictions[..., COORDINATES] - objects[..., COORDINATES])
    coordinates = huber_loss(difference, torch.zeros_like(difference), reduction="none").sum(dim=-1)
    return presence + objects[..., PRESENCE] * (properties.sum(dim=-1) + coordinates)
