"""What is minimised and what is measured when one element of a set is to be found.

Dimensions:  B sets   N elements of a set
"""

from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor
from torch.nn import functional

from picaset.checks import check_choice
from picaset.extras import require

Objective = Literal["elements", "authors"]


def odd_one_out_loss(
    scores: Float[Tensor, "B N"], odd: Int[Tensor, " B"], *, loss: Objective = "elements"
) -> Float[Tensor, ""]:
    """Cross-entropy over the elements of each set, averaged over the sets.

    ``loss="authors"`` is what their program computes: a softmax over the elements, whose probabilities then go through
    a sigmoid as if they were scores, and a binary loss for each element. Since a probability lies between 0 and 1, the
    sigmoid gives between 0.5 and 0.73: an element can never be told to be usual with confidence, the loss cannot fall
    below about 0.65 for eight elements, and its gradient fades where the softmax is sure, right or wrong.

    Example:
        >>> scores, odd = torch.tensor([[20.0, 0.0, 0.0]]), torch.tensor([0])
        >>> round(float(odd_one_out_loss(scores, odd)), 4)
        0.0
        >>> round(float(odd_one_out_loss(scores, odd, loss="authors")), 4)
        0.5665
    """
    check_choice(loss, ("elements", "authors"), caller="odd_one_out_loss", name="loss")
    if loss == "elements":
        return functional.cross_entropy(scores, odd)
    target = functional.one_hot(odd, scores.shape[1]).to(scores.dtype)
    return functional.binary_cross_entropy_with_logits(scores.softmax(dim=1), target)


def found_of(scores: Float[Tensor, "B N"], odd: Int[Tensor, " B"]) -> dict[str, float]:
    """AUROC and AUPR over the elements of all sets together, and how often the odd one has the highest score.

    Example:
        >>> found_of(torch.tensor([[0.9, 0.1, 0.0], [0.2, 0.3, 0.5]]), torch.tensor([0, 1]))["auroc"]
        0.875
    """
    metrics: Any = require("torchmetrics.functional.classification", extra="experiments", purpose="measuring AUROC")
    is_odd = functional.one_hot(odd, scores.shape[1]).flatten()
    return {
        "auroc": float(metrics.binary_auroc(scores.flatten(), is_odd)),
        "aupr": float(metrics.binary_average_precision(scores.flatten(), is_odd)),
        "top1": float((scores.argmax(dim=1) == odd).double().mean()),
    }


def as_tensor(images: UInt8[np.ndarray, "*n S S 3"]) -> UInt8[Tensor, "*n 3 S S"]:
    """Channels first, as torch has them; nothing is copied."""
    return torch.as_tensor(np.ascontiguousarray(images)).movedim(-1, -3)
