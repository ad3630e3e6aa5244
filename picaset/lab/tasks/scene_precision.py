"""Average precision of predicted objects, as a metric that accumulates over batches and processes.

Dimensions:  B images   K predictions   M objects   T thresholds
"""

from collections.abc import Sequence
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor
from torchmetrics import Metric

from picaset.lab.data.scenes import from_vectors
from picaset.lab.tasks.scene_scores import THRESHOLDS, area, match_objects, ranked


class ScenePrecision(Metric):
    """Average precision at each threshold, over all images since the last reset.

    Predictions are matched with objects within their image, so images can come in any batches and on any devices; only
    the ranking waits for all of them.

    Args:
        thresholds: Distances below which a prediction is correct.

    Shapes:
        predicted  (B, K, 19)    vectors; the first feature is the presence
        targets    (B, M, 19)    vectors; zeros where there is no object
        compute    (T,)          between 0 and 1

    Example:
        >>> metric, targets = ScenePrecision(), torch.rand(3, 10, 19).round()
        >>> metric.update(targets, targets)
        >>> metric.compute().shape
        torch.Size([5])
    """

    full_state_update = False
    higher_is_better = True
    presence: list[Tensor]
    right: list[Tensor]
    num_objects: Tensor

    def __init__(self, thresholds: Sequence[float] = THRESHOLDS, **options: Any) -> None:
        super().__init__(**options)
        self.thresholds = tuple(thresholds)
        add = cast(Any, self).add_state
        add("presence", default=[], dist_reduce_fx="cat")
        add("right", default=[], dist_reduce_fx="cat")
        add("num_objects", default=torch.tensor(0), dist_reduce_fx="sum")

    def update(self, predicted: Float[Tensor, "B K V"], targets: Float[Tensor, "B M V"]) -> None:
        (predictions, _), objects = ranked(predicted), from_vectors(targets)
        right, _ = match_objects(predictions, objects, torch.tensor(self.thresholds, device=predicted.device))
        self.presence.append(predictions.presence.flatten())
        self.right.append(right.flatten(0, 1))
        self.num_objects += (objects.presence > 0).sum()

    def compute(self) -> Float[Tensor, " T"]:
        if not self.presence or self.num_objects == 0:
            raise ValueError("ScenePrecision: there are no objects; call update with scenes that have some first.")
        presence, right = joined(self.presence), joined(self.right)
        order = presence.argsort(descending=True, stable=True)
        return area(right[order].double(), self.num_objects)


def joined(parts: list[Tensor] | Tensor) -> Tensor:
    """Concatenate batches; torchmetrics has already joined those of several processes."""
    return parts if isinstance(parts, Tensor) else torch.cat(parts)
