"""Metrics of predicted scenes: which objects are found, average precision, time and attention (Table 5).

All predictions of the test set are ranked by presence, as on CLEVR (Zhang et al. 2019; Locatello et al. 2020). A
prediction is correct if an object of its image has the same four properties, and the nearest of these objects is closer
than a threshold and not matched by a prediction ranked higher. Average precision is the area under the curve of
interpolated precision against recall.

Dimensions:  B images   S pixels a side   K predictions   M objects   V features of a vector   T thresholds
             P predictions of all images   L steps   N places
"""

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor, nn

from picaset.lab.data.scenes import PRESENCE, Objects, from_vectors
from picaset.lab.networks.scene_decoders import AttentionDecoder, DescentDecoder
from picaset.lab.networks.scene_network import SceneNetwork

THRESHOLDS = (float("inf"), 1.0, 0.5, 0.25, 0.125)
"""Distances in CLEVR's units; at infinity only the properties count."""


def ranked(vectors: Float[Tensor, "B K V"]) -> tuple[Objects, Int[Tensor, "B K"]]:
    """Return the predictions of each image by decreasing presence, and their order; ties keep their order."""
    order = vectors[..., PRESENCE].argsort(dim=1, descending=True, stable=True)
    return from_vectors(vectors.gather(1, order[..., None].expand_as(vectors))), order


def match_objects(
    predicted: Objects, objects: Objects, limits: Float[Tensor, " T"]
) -> tuple[Bool[Tensor, "B K T"], Int[Tensor, "B K"]]:
    """Return which ranked predictions are correct at each threshold, and the object that each is matched with."""
    same = (predicted.properties[:, :, None] == objects.properties[:, None]).all(dim=-1)  # (B, K, M)
    same = same & (objects.presence > 0)[:, None]
    away = (predicted.coordinates[:, :, None] - objects.coordinates[:, None]).double().square().sum(dim=-1).sqrt()
    away = torch.where(same & away.isfinite(), away, torch.inf)
    distance, nearest = away.min(dim=2)  # (B, K): each may match this object only, even if another is free further away
    near = (distance.isfinite()[..., None]) & (distance[..., None] < limits)
    same_object = nearest[:, :, None] == nearest[:, None]  # (B, K, K)
    earlier = torch.ones_like(same_object[0]).tril(diagonal=-1)
    taken = ((same_object & earlier)[..., None] & near[:, None]).any(dim=2)
    return near & ~taken, nearest


def area(correct: Float[Tensor, "P T"], num_objects: Tensor) -> Float[Tensor, " T"]:
    """Return the area under interpolated precision (the best at this recall or a higher one) against recall."""
    hits = correct.cumsum(dim=0)
    precision = hits / torch.arange(1, len(correct) + 1, device=correct.device)[:, None]
    best_from_here = precision.flip(0).cummax(dim=0).values.flip(0)
    return (best_from_here * correct).sum(dim=0) / num_objects


def average_precision(
    predicted: Float[Tensor, "B K V"], targets: Float[Tensor, "B M V"], thresholds: Sequence[float] = THRESHOLDS
) -> Float[Tensor, " T"]:
    """Return the average precision at each threshold, from 0 to 1, over the predictions of all images together.

    Example:
        >>> targets = torch.rand(3, 10, 19).round()
        >>> average_precision(targets, targets).shape
        torch.Size([5])
    """
    (predictions, _), objects = ranked(predicted), from_vectors(targets)
    num_objects = (objects.presence > 0).sum()
    if num_objects == 0:
        raise ValueError("average_precision: the targets have no objects; pass scenes that have some.")
    correct, _ = match_objects(predictions, objects, torch.tensor(thresholds, device=predicted.device))
    order = predictions.presence.flatten().argsort(descending=True, stable=True)
    return area(correct.flatten(0, 1)[order].double(), num_objects)


SURE = 0.5
"""Presence above which a predicted object counts."""
NEAR = 1.0
"""Distance below which a prediction is correct, in CLEVR's units."""


class Marks(NamedTuple):
    """Predictions in the order of their presence, and which of them are correct.

    Shapes:
        order     (B, K)    index of the prediction at each rank
        correct   (B, K)    whether it counts and is correct
        matched   (B, K)    index of the object that it matches
    """

    predicted: Objects
    objects: Objects
    order: Int[Tensor, "B K"]
    correct: Bool[Tensor, "B K"]
    matched: Int[Tensor, "B K"]

    def num_predicted(self, scene: int) -> int:
        """Return the number of predictions that count; they come first."""
        return int((self.predicted.presence[scene] > SURE).sum())

    def missed(self, scene: int) -> list[int]:
        """Return the indices of the objects that no prediction matches."""
        unmatched = self.objects.presence[scene] > 0
        unmatched[self.matched[scene, self.correct[scene]]] = False
        return [index for index, is_unmatched in enumerate(unmatched) if is_unmatched]


def mark(vectors: Float[Tensor, "B K V"], objects: Objects) -> Marks:
    """Rank predictions by presence and match them with objects closer than ``NEAR``."""
    predicted, order = ranked(vectors)
    correct, matched = match_objects(predicted, objects, torch.tensor([NEAR]))
    return Marks(predicted, objects, order, correct[..., 0] & (predicted.presence > SURE), matched)


MAX_IMAGES_PER_BATCH = 50
"""Number of images of a forward pass."""
STEPS = (1, 2, 3, 4, 5, 7, 10)
"""Numbers of steps that a trained cascade or Slot Attention is tested with."""
DESCENT_STEPS = (5, 10, 20, 30, 50)
"""Numbers of steps that a trained descent is tested with."""


@torch.no_grad()
def predict(
    network: nn.Module, images: UInt8[Tensor, "B 3 S S"], *, num_steps: int | None = None
) -> Float[Tensor, "B K V"]:
    """Return the predicted vectors of all images; ``num_steps`` overrides the steps of the decoder."""
    device = next(network.parameters()).device
    starts = range(0, len(images), MAX_IMAGES_PER_BATCH)
    batches = (images[start : start + MAX_IMAGES_PER_BATCH].to(device) for start in starts)
    return torch.cat([network(batch, num_steps=num_steps).cpu() for batch in batches])


def precisions(predicted: Float[Tensor, "B K V"], targets: Float[Tensor, "B K V"]) -> dict[str, float]:
    """Return average precision, from 0 to 1, by threshold."""
    values = average_precision(predicted, targets)
    return {f"{threshold:g}": float(value) for threshold, value in zip(THRESHOLDS, values, strict=True)}


def by_steps(
    network: SceneNetwork, images: UInt8[Tensor, "B 3 S S"], targets: Float[Tensor, "B K V"]
) -> list[dict[str, Any]]:
    """Return average precision for several numbers of steps at test time; empty for a decoder without steps."""
    if isinstance(network.decoder, AttentionDecoder):
        return []
    numbers = DESCENT_STEPS if isinstance(network.decoder, DescentDecoder) else STEPS
    return [
        {"steps": steps, "average_precision": precisions(predict(network, images, num_steps=steps), targets)}
        for steps in numbers
    ]


def milliseconds_per_image(
    network: nn.Module, images: UInt8[Tensor, "B 3 S S"], *, num_steps: int | None = None
) -> float:
    """Return the time of a forward pass per image, in batches."""
    images = images[: 2 * MAX_IMAGES_PER_BATCH]
    predict(network, images, num_steps=num_steps)
    start = time.perf_counter()
    predict(network, images, num_steps=num_steps)
    return round(1e3 * (time.perf_counter() - start) / len(images), 4)


def shown_attention(network: SceneNetwork, images: UInt8[Tensor, "B 3 S S"]) -> list[Any] | None:
    """Return the attention of each template at each step, (B, L, K, N) averaged over heads; None for a descent."""
    trace = network.trace(images.to(next(network.parameters()).device))
    if trace is None:
        return None
    attention = trace.attention.mean(dim=2).transpose(0, 1)
    return attention.cpu().double().numpy().round(4).tolist()
