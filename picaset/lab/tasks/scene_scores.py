"""What is measured of a network that predicts the objects of scenes.

Dimensions:  B images   S pixels a side   K slots   V numbers of an object's vector   L steps   N places

Which predicted objects are right, as on CLEVR (Zhang et al. 2019; Locatello et al. 2020).

All predictions of the whole test set are ranked by presence. One is right if an object of its image has the same four
properties, and the nearest of these objects is closer than a threshold and not taken by a prediction that is ranked
higher. Average precision is the area under the curve of precision, made to fall, against recall.

Dimensions:  B images   K predictions   M objects   T thresholds   P predictions of all images

What was found, invented and missed in a scene: for figures, and for the studio.

Dimensions:  B scenes   K predictions   M objects   V numbers of a vector

Average precision of predicted objects, as a metric that adds up over batches and processes.

Dimensions:  B images   K predictions   M objects   T thresholds
"""

import time
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor, nn

from picaset.extras import require
from picaset.lab.data.scenes import PRESENCE, Objects, from_vectors
from picaset.lab.networks.scene_network import SceneNetwork

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


SURE = 0.5
"""Presence above which a prediction counts as made."""
NEAR = 1.0
"""Distance at which a prediction is right, in CLEVR's units."""


class Marks(NamedTuple):
    """Predictions in the order of their presence, and which of them are right.

    Shapes:
        order   (B, K)    which prediction comes where
        right   (B, K)    of those that are made
        takes   (B, K)    the object that a right one has found
    """

    predicted: Objects
    there: Objects
    order: Int[Tensor, "B K"]
    right: Bool[Tensor, "B K"]
    takes: Int[Tensor, "B K"]

    def num_made(self, scene: int) -> int:
        """Predictions that count; they come first."""
        return int((self.predicted.presence[scene] > SURE).sum())

    def missed(self, scene: int) -> list[int]:
        """Objects that no prediction has found."""
        left = self.there.presence[scene] > 0
        left[self.takes[scene, self.right[scene]]] = False
        return [number for number, is_left in enumerate(left) if is_left]


def mark(vectors: Float[Tensor, "B K V"], there: Objects) -> Marks:
    """Rank predictions by their presence, and judge them within ``NEAR``."""
    predicted, order = ranked(vectors)
    right, takes = right_ones(predicted, there, torch.tensor([NEAR]))
    return Marks(predicted, there, order, right[..., 0] & (predicted.presence > SURE), takes)


def joined(parts: list[Tensor] | Tensor) -> Tensor:
    """Batches together; between processes, torchmetrics has joined them already."""
    return parts if isinstance(parts, Tensor) else torch.cat(parts)


AT_ONCE = 50
"""Images that a network is shown together."""
STEPS = (1, 2, 3, 4, 5, 7, 10)
"""Numbers of steps that a trained cascade is tested with."""
DESCENT_STEPS = (5, 10, 20, 30, 50)
"""The same of a descent."""


@torch.no_grad()
def predict(network: nn.Module, images: UInt8[Tensor, "B 3 S S"]) -> Float[Tensor, "B K V"]:
    """The vectors of all images."""
    device = next(network.parameters()).device
    firsts = range(0, len(images), AT_ONCE)
    return torch.cat([network(images[first : first + AT_ONCE].to(device)).cpu() for first in firsts])


def precisions(predicted: Float[Tensor, "B K V"], wanted: Float[Tensor, "B K V"]) -> dict[str, float]:
    """Average precision by threshold, from 0 to 1."""
    require("torchmetrics", extra="experiments", purpose="measuring average precision")
    from picaset.lab.tasks.scene_precision import ScenePrecision

    metric = ScenePrecision()
    metric.update(predicted, wanted)
    return {f"{threshold:g}": float(value) for threshold, value in zip(THRESHOLDS, metric.compute(), strict=True)}


def by_steps(
    network: SceneNetwork, images: UInt8[Tensor, "B 3 S S"], wanted: Float[Tensor, "B K V"]
) -> list[dict[str, Any]]:
    """Average precision with fewer and more steps than in training; nothing where a network has none."""
    usual = network.num_test_steps
    if network.config["decoder"] == "attention":
        return []
    found = list[dict[str, Any]]()
    for steps in DESCENT_STEPS if "descent" in network.config["decoder"] else STEPS:
        network.num_test_steps = steps
        network.eval()
        found.append({"steps": steps, "average_precision": precisions(predict(network, images), wanted)})
    network.num_test_steps = usual
    network.eval()
    return found


def milliseconds_per_image(network: nn.Module, images: UInt8[Tensor, "B 3 S S"]) -> float:
    """From an image to its objects, many at a time."""
    some = images[: 2 * AT_ONCE]
    predict(network, some)
    began = time.perf_counter()
    predict(network, some)
    return round(1e3 * (time.perf_counter() - began) / len(some), 4)


def shown_attention(network: SceneNetwork, images: UInt8[Tensor, "B 3 S S"]) -> list[Any] | None:
    """Of each image, what each template looked at in each step: (B, L, K, N), or nothing for a descent."""
    trace = network.trace(images.to(next(network.parameters()).device))
    if trace is None:
        return None
    attention = trace.attention.mean(dim=2).transpose(0, 1)  # over heads
    return attention.cpu().double().numpy().round(4).tolist()
