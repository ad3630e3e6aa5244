"""What is measured of a network that predicts the objects of scenes.

Dimensions:  B images   S pixels a side   K slots   V numbers of an object's vector   L steps   N places
"""

import time
from typing import Any

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from picaset.extras import require
from picaset.lab.networks.scene_network import SceneNetwork
from picaset.lab.tasks.scene_hits import THRESHOLDS

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
