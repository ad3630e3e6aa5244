"""Initial mixtures for expectation-maximization: by k-means++, or by a network that proposes mixtures.

k-means++ (Arthur and Vassilvitskii 2007) chooses the first centre at random among the points, and each further centre
with a probability proportional to the squared distance to the nearest centre chosen so far.

A proposal network is a folder with ``config.json`` and ``model.safetensors``. Some are shipped with the library; those
that a user trains are in the folder named by the environment variable ``PICASET_WEIGHTS``, or in ``picaset/weights`` of
the user's data folder.

Dimensions:  B sets   N points (padded)   S initial mixtures   K components   D coordinates
"""

import math
import os
from functools import cache
from importlib import resources
from pathlib import Path

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from picaset.estimators.batched_em import Mixtures
from picaset.networks.mixture_proposer import MixtureProposer
from picaset.networks.pretrained import read_description

SHIPPED_WEIGHTS = Path(str(resources.files("picaset"))) / "weights"


def kmeans_plus_plus(
    points: Float[Tensor, "B N D"],
    mask: Bool[Tensor, "B N"] | None,
    *,
    num_components: int,
    num_mixtures: int,
    generator: torch.Generator,
) -> Mixtures:
    """Return mixtures of equal weights, centred at k-means++ centres, with the variance about the nearest centres."""
    present = torch.ones_like(points[..., 0]) if mask is None else mask.to(points.dtype)
    centres = list[Tensor]()
    nearest = torch.full_like(present, torch.inf)[:, None]  # (B, 1 or S, N): squared distances
    weights = present[:, None].expand(-1, num_mixtures, -1)
    for _ in range(num_components):
        indices = draw_indices(weights, generator)
        centres.append(points.gather(1, indices[..., None].expand(-1, -1, points.shape[2])))
        distances = torch.cdist(centres[-1], points, compute_mode="donot_use_mm_for_euclid_dist")
        nearest = torch.minimum(nearest, distances.square())
        weights = nearest * present[:, None]
    variances = weights.sum(dim=2) / (present.sum(dim=1, keepdim=True) * points.shape[2])  # (B, S)
    means = torch.stack(centres, dim=2)
    variances = variances.clamp(min=1e-4)[..., None, None].expand(-1, -1, num_components, 1)
    return Mixtures(means, variances, means.new_full(means.shape[:3], -math.log(num_components)))


def draw_indices(weights: Float[Tensor, "B S N"], generator: torch.Generator) -> Int[Tensor, "B S"]:
    """Draw one index in proportion to the weights along the last dimension; the first if all weights are zero."""
    cumulative = weights.cumsum(dim=2)
    thresholds = torch.rand(*weights.shape[:2], 1, generator=generator, dtype=weights.dtype) * cumulative[..., -1:]
    return torch.searchsorted(cumulative, thresholds, right=True)[..., 0].clamp(max=weights.shape[2] - 1)


def find_proposer(*, dim_in: int, num_components: int) -> MixtureProposer:
    """Load the smallest network for points with ``dim_in`` coordinates and at least ``num_components`` components."""
    return find_proposer_in(user_weights(), dim_in, num_components)


@cache
def find_proposer_in(trained: Path, dim_in: int, num_components: int) -> MixtureProposer:
    matches = [
        (config["max_components"], folder)
        for parent in (SHIPPED_WEIGHTS, trained)
        for folder in sorted(path.parent for path in parent.glob("clusterer_*/config.json"))
        if (config := read_config(folder))["dim_in"] == dim_in and config["max_components"] >= num_components
    ]
    if not matches:
        raise ValueError(
            f"AmortizedMixture: there is no network for {dim_in} coordinates and {num_components} components. Train "
            f"one with: picaset train-clusterer --coordinates {dim_in} --components {num_components}; or pass "
            "init='k-means++' (on the command line --init k-means++), which needs none."
        )
    return MixtureProposer.from_pretrained(min(matches)[1])


def register_proposer(folder: Path) -> Path:
    """Copy a trained network to the user's weights, replacing one with the same coordinates and components."""
    config = read_config(folder)
    target = user_weights() / f"clusterer_{config['dim_in']}d_{config['max_components']}"
    target.mkdir(parents=True, exist_ok=True)
    network = MixtureProposer.from_pretrained(folder)  # a damaged network raises before anything is replaced
    network.save_pretrained(target)
    find_proposer_in.cache_clear()
    return target


def user_weights() -> Path:
    """Return the folder for networks that the user has trained."""
    if folder := os.environ.get("PICASET_WEIGHTS"):
        return Path(folder)
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "picaset" / "weights"


def read_config(folder: Path) -> dict[str, int]:
    return read_description(folder / "config.json")["config"]
