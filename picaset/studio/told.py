"""What rooms ask and tell alike: seeds, where pictures come from, who looks at them, and what is not there."""

from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field

from picaset.networks.pretrained import read_description
from picaset.studio.errors import Refused

MOST_SEED = 1_000_000
Seed = Annotated[int, Field(ge=0, le=MOST_SEED)]
"""What is drawn is the same for the same seed."""


class Source(BaseModel):
    """Where pictures come from."""

    name: str
    title: str
    about: str


class Model(BaseModel):
    """A network, as it is told on the page."""

    name: str
    title: str
    about: str


def check_is_there(name: str, networks: Collection[str]) -> None:
    if name not in networks:
        raise Refused(404, f"The network {name} is not there.")


def without_data(title: str) -> Refused:
    """For whoever asks for real data that was not found."""
    return Refused(404, f"{title} is not there; PICASET_DATA must be the folder that holds it.")


def config_of(folder: Path) -> dict[str, Any]:
    """What a network was made with, without reading its weights.

    Nothing if that cannot be read: the room opens all the same, and whoever asks this network is told why.
    """
    try:
        return read_description(folder / "config.json")["config"]
    except (ValueError, OSError):
        return {}
