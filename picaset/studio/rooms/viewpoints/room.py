"""The routes of the room: which toys and networks there are, a picture, and what a network takes it for."""

from typing import Annotated

from fastapi import APIRouter, Query

from picaset.lab.data.crops import CROP
from picaset.lab.data.views import CATEGORIES, LABELS, SIZE, TRAINING_AZIMUTHS
from picaset.studio.lane import Lane
from picaset.studio.pictures import IS_PICTURE, PICTURE, Picture
from picaset.studio.rooms import Room, Settings
from picaset.studio.rooms.viewpoints.photographs import (
    KINDS,
    Category,
    Classifiers,
    Known,
    Photographs,
    Seen,
    SeenRequest,
    View,
    photographs,
)
from picaset.studio.schemas import REFUSALS, check_is_there


def build_viewpoints_room(settings: Settings) -> Room | None:
    """The room, if one of its networks is there."""
    folders = settings.networks({name: kind.folder for name, kind in KINDS.items()})
    if not folders:
        return None
    pictures = photographs()
    classifiers = Classifiers(folders, pictures)
    lane = Lane(classifiers.work, [PICTURE, *folders], advice="Try again in a moment.")

    return Room(
        "viewpoints",
        "Viewpoints",
        router_of(pictures, classifiers, lane),
        warm=lambda: lane.warm(View(category=Category.ANIMAL, instance=0)),
        close=lane.close,
    )


def router_of(pictures: Photographs, classifiers: Classifiers, lane: Lane) -> APIRouter:
    router = APIRouter(responses=REFUSALS)

    @router.get("/known")
    def known() -> Known:
        """Which toys there are, who names them, and what training had."""
        return Known(
            sources=pictures.told(),
            models=classifiers.told(),
            categories=list(CATEGORIES),
            instances=len(LABELS["instance"]),
            training_azimuths=list(TRAINING_AZIMUTHS),
            crop=[CROP, SIZE],
        )

    @router.get("/picture", response_class=Picture, responses=IS_PICTURE)
    async def picture(view: Annotated[View, Query()]) -> Picture:
        """A view, by the first camera."""
        await pictures.ready(view.source)
        return Picture(await lane.ask(PICTURE, view))

    @router.post("/seen")
    async def seen(asked: SeenRequest) -> Seen:
        """What one network takes a view for, and where it looked."""
        check_is_there(asked.model, classifiers.all)
        found = await lane.ask(asked.model, asked.view, page=asked.page, gesture=asked.gesture)
        return Seen(
            model=asked.model,
            gesture=asked.gesture,
            probabilities=found.probabilities,
            heat=found.heat,
            hottest=found.hottest,
            milliseconds=found.milliseconds,
        )

    return router
