"""Where the networks behind AmortizedMixture are found: shipped with the library, or trained by the user.

A network is a folder with ``config.json`` and ``model.safetensors``. Those that a user trains lie in the folder that
``PICASET_WEIGHTS`` names, or in ``picaset/weights`` of the user's data folder.
"""

import os
from functools import cache
from importlib import resources
from pathlib import Path

from picaset.networks.mixture_proposer import MixtureProposer
from picaset.networks.pretrained import read_description

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
