"""The rooms of the studio: independent sections of the page, one folder each.

A room's folder has a Python module with its routes, ``section.html`` for the page, ``room.js`` and ``room.css``. To add
a room, add such a folder and a line in ``build_rooms``. A room without any of its networks is left out.
"""

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TypeVar

from fastapi import APIRouter

from picaset.lab.networks.odd_one_out import WEIGHTS
from picaset.studio.schemas import DescribedName, RequestError

Name = TypeVar("Name", bound=DescribedName)
NETWORK_FILES = ("config.json", "model.safetensors")


@dataclass(frozen=True)
class Settings:
    """Folders that the studio reads."""

    runs: Sequence[Path] = (Path("runs"), Path("results/runs"))
    """Folders of run directories: curves are shown from the first that has runs, tables from all of them."""
    weights: Path = WEIGHTS
    """Folder of the networks that the rooms show, one subfolder each."""

    def find_networks(self, names: Iterable[Name]) -> dict[Name, Path]:
        """Return the folders of those networks that exist."""
        folders = {name: self.weights / name.folder for name in names if name.folder}
        return {name: path for name, path in folders.items() if all((path / file).is_file() for file in NETWORK_FILES)}

    def check_network(self, name: DescribedName, available: Container[DescribedName]) -> None:
        """Raise a :class:`RequestError` if a network was not found when the studio started."""
        if name.folder and name not in available:
            raise RequestError(
                404,
                f"The network {name} is missing: {self.weights / name.folder} must contain "
                f"{' and '.join(NETWORK_FILES)} when the studio starts.",
            )


def do_nothing() -> None:
    """Default of the callbacks of a room."""


@dataclass(frozen=True)
class Room:
    """A section of the page with its routes."""

    name: str
    """Name of its folder, used in addresses."""
    title: str
    """Text of the link to it."""
    router: APIRouter
    warm: Callable[[], None] = do_nothing
    """Called in a thread when the server has started; prepares the room so that its first request is fast."""
    close: Callable[[], None] = do_nothing
    """Called when the server stops, possibly twice; refuses waiting requests."""

    @property
    def folder(self) -> Path:
        return Path(str(resources.files("picaset"))) / "studio" / "rooms" / self.name


Builder = Callable[[Settings], Room | None]


def build_rooms(settings: Settings) -> list[Room]:
    """Return every room that has at least one of its networks, in the order of their links."""
    from picaset.studio.rooms.cluster.room import build_cluster_room
    from picaset.studio.rooms.odd.room import build_odd_room
    from picaset.studio.rooms.runs.room import build_runs_room
    from picaset.studio.rooms.scenes.room import build_scenes_room
    from picaset.studio.rooms.viewpoints.room import build_viewpoints_room

    builders: tuple[Builder, ...] = (
        build_cluster_room, build_viewpoints_room, build_odd_room, build_scenes_room, build_runs_room,
    )  # fmt: skip
    return [room for build in builders if (room := build(settings)) is not None]
