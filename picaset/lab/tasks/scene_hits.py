"""Which predicted objects are right, as on CLEVR (Zhang et al. 2019; Locatello et al. 2020).

All predictions of the whole test set are ranked by presence. One is right if an object of its image has the same four
properties, and the nearest of these objects is closer than a threshold and not taken by a prediction that is ranked
higher. Average precision is the area under the curve of precision, made to fall, against recall.

Dimensions:  B images   K predictions   M objects   T thresholds   P predictions of all images
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from picaset.lab.data.scene_vectors import PRESENCE, Objects, from_vectors

THRESHOLDS = (float("inf"), 1.0, 0.5, 0.25, 0.125)
"""In CLEVR's units; at infinity only the properties count."""


def ranked(vectors: Float[Tensor, "B K V"]) -> tuple[Objects, Int[Tensor, "B K"]]:
    """What is predicted, the surest of each image first, and which prediction comes where; equals stay in order."""
    order = vectors[..., PRESENCE].argsort(dim=1, descending=True, stable=True)
    return from_vectors(vectors.gather(1, order[..., None].expand_as(vectors))), order


def right_ones(
    predicted: Objects, there: Objects, limits: Float[Tensor, " T"]
) -> tuple[Bool[Tensor, "B K T"], Int[Tensor, "B K"]]:
    """Which predictions, ranked within their image, are right at each threshold, and the object each of these takes."""
    same = (predicted.properties[:, :, None] == there.properties[:, None]).all(dim=-1) & (there.presence > 0)[:, None]
    away = (predicted.coordinates[:, :, None] - there.coordinates[:, None]).double().square().sum(dim=-1).sqrt()
    away = torch.where(same & away.isfinite(), away, torch.inf)
    distance, nearest = away.min(dim=2)  # (B, K): the object that each may take, even if another is free further away
    near = (distance.isfinite()[..., None]) & (distance[..., None] < limits)
    takes_the_same = nearest[:, :, None] == nearest[:, None]  # (B, K, K)
    earlier = torch.ones_like(takes_the_same[0]).tril(diagonal=-1)
    taken = ((takes_the_same & earlier)[..., None] & near[:, None]).any(dim=2)
    return near & ~taken, nearest


def area(right: Float[Tensor, "P T"], num_objects: Tensor) -> Float[Tensor, " T"]:
    """Under precision against recall, where precision at a recall is the best at that recall or a higher one."""
    hits = right.cumsum(dim=0)
    precision = hits / torch.arange(1, len(right) + 1, device=right.device)[:, None]
    best_from_here = precision.flip(0).cummax(dim=0).values.flip(0)
    return (best_from_here * right).sum(dim=0) / num_objects
