"""Where the networks behind AmortizedMixture are found: shipped with the library, or trained by the user.

A network is a folder with ``config.json`` and ``model.safetensors``. Those that a user trains lie in the folder that
``PICASET_WEIGHTS`` names, or in ``picaset/weights`` of the user's data folder.

Starts for expectation-maximization without any network: k-means++ (Arthur and Vassilvitskii 2007).

The first centre is a point at random; each further one is a point drawn with a chance that grows with the square of
its distance to the nearest centre so far. Many starts of many sets are drawn at once.

Dimensions:  B sets   N points (padded)   S starts   K components   D coordinates
"""

import math
import os
from functools import cache
from importlib import resources
from pathlib import Path

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from picaset.estimators.batched_em import Starts
from picaset.networks.mixture_proposer import MixtureProposer
from picaset.networks.pretrained import read_description


def seeds(
    points: Float[Tensor, "B N D"],
    mask: Bool[Tensor, "B N"] | None,
    *,
    num_components: int,
    num_starts: int,
    generator: torch.Generator,
) -> Starts:
    """Equal weights, centres among the points, and the spread of the points about their nearest centres."""
    present = torch.ones_like(points[..., 0]) if mask is None else mask.to(points.dtype)
    centres = list[Tensor]()
    nearest = torch.full_like(present, torch.inf)[:, None]  # (B, 1 or S, N): squared distances
    chances = present[:, None].expand(-1, num_starts, -1)
    for _ in range(num_components):
        chosen = drawn(chances, generator)  # (B, S)
        centres.append(points.gather(1, chosen[..., None].expand(-1, -1, points.shape[2])))
        nearest = torch.minimum(nearest, distances(points, centres[-1]))
        chances = nearest * present[:, None]
    spread = chances.sum(dim=2) / (present.sum(dim=1, keepdim=True) * points.shape[2])  # (B, S)
    means = torch.stack(centres, dim=2)
    variances = spread.clamp(min=1e-4)[..., None, None].expand(-1, -1, num_components, 1)
    return Starts(means, variances, means.new_full(means.shape[:3], -math.log(num_components)))


def drawn(chances: Float[Tensor, "B S N"], generator: torch.Generator) -> Tensor:
    """An index for each start, with these chances; where all are zero, the first."""
    summed = chances.cumsum(dim=2)
    thrown = torch.rand(*chances.shape[:2], 1, generator=generator, dtype=chances.dtype) * summed[..., -1:]
    return torch.searchsorted(summed, thrown, right=True)[..., 0].clamp(max=chances.shape[2] - 1)


def distances(points: Float[Tensor, "B N D"], centres: Float[Tensor, "B S D"]) -> Float[Tensor, "B S N"]:
    """Squared, from every centre to every point."""
    return torch.cdist(centres, points, compute_mode="donot_use_mm_for_euclid_dist").square()


SHIPPED = Path(str(resources.files("picaset"))) / "weights"


def proposer_for(*, dim_in: int, num_components: int) -> MixtureProposer:
    """The smallest network for points of so many coordinates that knows so many components."""
    return find(users_folder(), dim_in, num_components)


@cache
def find(trained: Path, dim_in: int, num_components: int) -> MixtureProposer:
    found = [
        (config["max_components"], folder)
        for folder in (*folders_in(SHIPPED), *folders_in(trained))
        if (config := config_of(folder))["dim_in"] == dim_in and config["max_components"] >= num_components
    ]
    if not found:
        raise ValueError(
            f"AmortizedMixture: there is no network for {dim_in} coordinates and {num_components} components. Train "
            f"one with: picaset train-clusterer --coordinates {dim_in} --components {num_components}; or pass "
            "init='k-means++' (on the command line --init k-means++), which needs none."
        )
    return MixtureProposer.from_pretrained(min(found)[1])


def register(folder: Path) -> Path:
    """Copy a trained network to where it is found, in place of one for the same points and components."""
    config = config_of(folder)
    target = users_folder() / f"clusterer_{config['dim_in']}d_{config['max_components']}"
    target.mkdir(parents=True, exist_ok=True)
    network = MixtureProposer.from_pretrained(folder)  # whole and readable, before anything is replaced
    network.save_pretrained(target)
    find.cache_clear()
    return target


def users_folder() -> Path:
    if named := os.environ.get("PICASET_WEIGHTS"):
        return Path(named)
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "picaset" / "weights"


def folders_in(parent: Path) -> list[Path]:
    return sorted(path.parent for path in parent.glob("clusterer_*/config.json"))


def config_of(folder: Path) -> dict[str, int]:
    return read_description(folder / "config.json")["config"]
