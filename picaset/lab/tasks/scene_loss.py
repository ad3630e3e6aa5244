"""What is minimised when the objects of a scene are predicted: the cost of the cheapest assignment.

    published     Huber's loss of all numbers, coordinates in [0, 1]    (Locatello et al. 2020)
    reweighted    the same, coordinates in CLEVR's own units
    likelihood    cross-entropy of presence and properties, Huber's loss of coordinates in CLEVR's own units

The first two take what an empty slot says of properties and places for something to be learned, and are slow where a
prediction is surely wrong, since a sigmoid is flat there; the third is neither.

Dimensions:  B scenes   K slots   V numbers of an object's vector   L steps
"""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import binary_cross_entropy, huber_loss

from picaset.checks import check_choice
from picaset.lab.data.scene_vectors import COORDINATES, PRESENCE, PROPERTY_VALUES, check_length
from picaset.lab.data.scenes import EXTENT
from picaset.lab.tasks.matching import assign, check_numbers

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
