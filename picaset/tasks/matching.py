"""Which prediction is meant for which object: the cheapest assignment of each set (Kuhn 1955).

Dimensions:  B sets   K predictions   M objects
"""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from picaset.extras import require


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
    costs = cost.detach().cpu().double().numpy()
    if not np.isfinite(costs).all():
        index = int(np.flatnonzero(~np.isfinite(costs).all(axis=(1, 2)))[0])
        wrong = costs[index][~np.isfinite(costs[index])][0]
        raise ValueError(
            f"assign: costs must be finite; set {index} has {wrong}. The network predicts numbers that are none: "
            "lower the learning rate, or cut gradients back."
        )
    columns = [optimize.linear_sum_assignment(one)[1] for one in costs]
    chosen = np.array(columns, dtype=np.int64).reshape(sets, predictions)
    return torch.as_tensor(chosen, device=cost.device)
