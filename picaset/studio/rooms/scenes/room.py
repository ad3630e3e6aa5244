"""The routes of the room: which scenes and networks there are, a picture, and what a network sees in it."""

from typing import Annotated

from fastapi import APIRouter, Query

from picaset.lab.data.scene_layouts import FEWEST_OBJECTS
from picaset.lab.data.scenes import MOST_OBJECTS
from picaset.studio.lane import Lane
from picaset.studio.pictures import IS_PICTURE, PICTURE, Picture
from picaset.studio.rooms import Room, Settings
from picaset.studio.rooms.scenes.pictures import (
    CLEAR,
    FOLDERS,
    Known,
    Observers,
    Pictures,
    Scene,
    Seen,
    SeenRequest,
    pictures,
)
from picaset.studio.schemas import REFUSALS, check_is_there, config_of


def build_scenes_room(settings: Settings) -> Room | None:
    """The room, if one of its networks is there."""
    folders = settings.networks(FOLDERS)
    if not folders:
        return None
    shown = pictures({CLEAR, *(config_of(folder).get("image_size", CLEAR) for folder in folders.values())})
    observers = Observers(folders, shown)
    lane = Lane(observers.work, [PICTURE, *folders], advice="Choose fewer objects.")
    router = router_of(shown, observers, lane)
    return Room("scenes", "Scenes", router, warm=lambda: lane.warm(Scene()), close=lane.close)


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
    async def picture(scene: Annotated[Scene, Query()]) -> Picture:
        """A scene, squeezed into a square."""
        await shown.ready(scene.source)
        return Picture(await lane.ask(PICTURE, scene))

    @router.post("/seen")
    async def seen(asked: SeenRequest) -> Seen:
        """What one network sees in a scene, step by step, judged by what is there."""
        check_is_there(asked.model, observers.all)
        found = await lane.ask(asked.model, asked.scene, page=asked.page, gesture=asked.gesture)
        return Seen(
            model=asked.model,
            gesture=asked.gesture,
            there=found.there,
            steps=found.steps,
            milliseconds=found.milliseconds,
        )

    return router
