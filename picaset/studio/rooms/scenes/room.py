"""The routes of the room: which scenes and networks there are, a picture, and what a network sees in it."""

from contextlib import suppress
from typing import Annotated

from fastapi import APIRouter, Query

from picaset.data.scene_layouts import FEWEST_OBJECTS
from picaset.data.scenes import MOST_OBJECTS
from picaset.studio.errors import REFUSALS, Refused
from picaset.studio.lane import Lane
from picaset.studio.pictures import IS_PICTURE, Picture, png_of
from picaset.studio.rooms import Room, Settings
from picaset.studio.rooms.scenes.pictures import CLEAR, Pictures, pictures
from picaset.studio.rooms.scenes.schemas import Known, Scene, Seen, SeenRequest
from picaset.studio.rooms.scenes.seeing import FOLDERS, Observers


def build_scenes_room(settings: Settings) -> Room | None:
    """The room, if one of its networks is there."""
    folders = settings.networks(FOLDERS)
    if not folders:
        return None
    shown = pictures()
    observers = Observers(folders, shown)
    lane = Lane(observers.work, list(folders), advice="Choose fewer objects.")

    def warm() -> None:
        with suppress(Refused):
            for name in folders:
                lane.enqueue(name, Scene())

    return Room("scenes", "Scenes", router_of(shown, observers, lane), warm=warm, close=lane.close)


def router_of(shown: Pictures, observers: Observers, lane: Lane) -> APIRouter:
    router = APIRouter(responses=REFUSALS)

    @router.get("/known")
    def known() -> Known:
        """Which scenes there are, and who says what is in them."""
        return Known(
            sources=shown.told(),
            models=observers.told(),
            fewest=FEWEST_OBJECTS,
            most=MOST_OBJECTS,
        )

    @router.get("/picture", response_class=Picture, responses=IS_PICTURE)
    def picture(scene: Annotated[Scene, Query()]) -> Picture:
        """A scene, squeezed into a square."""
        return Picture(png_of(shown.picture(scene, CLEAR)))

    @router.post("/seen")
    async def seen(asked: SeenRequest) -> Seen:
        """What one network sees in a scene, step by step, judged by what is there."""
        if asked.model not in observers.all:
            raise Refused(404, f"The network {asked.model} is not there.")
        found = await lane.ask(asked.model, asked.scene, page=asked.page, gesture=asked.gesture)
        return Seen(
            model=asked.model,
            gesture=asked.gesture,
            there=found.there,
            steps=found.steps,
            milliseconds=found.milliseconds,
        )

    return router
