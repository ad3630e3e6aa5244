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
