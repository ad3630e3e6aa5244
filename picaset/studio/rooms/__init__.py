"""The rooms of the studio: each one folder, with nothing that another room needs.

A room's folder has a Python module with its routes, ``section.html`` for the page, ``room.js`` that brings the section
to life, and ``room.css``. A new room is such a folder and one line in ``build_rooms``. A room whose weights are not
there is not shown.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TypeVar

from fastapi import APIRouter

from picaset.lab.networks.odd_one_out import WEIGHTS

Name = TypeVar("Name", bound=str)


@dataclass(frozen=True)
class Settings:
    """What a person chose when starting the studio."""

    runs: Sequence[Path] = (Path("runs"), Path("results/runs"))
    """Folders of run directories; the first that exists has the curves, all of them the tables."""
    weights: Path = WEIGHTS
    """Folder of the networks that the rooms show, each in a folder of its own."""

    def networks(self, folders: Mapping[Name, str]) -> dict[Name, Path]:
        """Where those of these networks are that are there."""
        return {name: self.weights / folder for name, folder in folders.items() if is_network(self.weights / folder)}


def is_network(folder: Path) -> bool:
    return all((folder / name).is_file() for name in ("config.json", "model.safetensors"))


def nothing() -> None:
    """There is nothing to prepare, or to end."""


@dataclass(frozen=True)
class Room:
    """A part of the page, and what it asks the server."""

    name: str
    """Of its folder, and in addresses."""
    title: str
    """On its door."""
    router: APIRouter
    warm: Callable[[], None] = nothing
    """Called in a thread once the server runs, so that the first gesture is as fast as the next."""
    close: Callable[[], None] = nothing
    """Called when the server ends, perhaps twice; refuses whatever waits."""

    @property
    def folder(self) -> Path:
        return Path(str(resources.files("picaset"))) / "studio" / "rooms" / self.name


Builder = Callable[[Settings], Room | None]


def build_rooms(settings: Settings) -> list[Room]:
    """Every room whose weights and data are there, in the order of their doors."""
    from picaset.studio.rooms.cluster.room import build_cluster_room
    from picaset.studio.rooms.odd.room import build_odd_room
    from picaset.studio.rooms.runs.room import build_runs_room
    from picaset.studio.rooms.scenes.room import build_scenes_room
    from picaset.studio.rooms.viewpoints.room import build_viewpoints_room

    builders: tuple[Builder, ...] = (
        build_cluster_room, build_viewpoints_room, build_odd_room, build_scenes_room, build_runs_room,
    )  # fmt: skip
    return [room for build in builders if (room := build(settings)) is not None]
