"""The routes of the room: which faces and networks there are, a set, another face, a picture, and scores of a set."""

from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Path, Query

from picaset.lab.data.face_sets import LARGEST, SMALLEST
from picaset.studio.lane import Lane
from picaset.studio.pictures import IS_PICTURE, Picture, png_of
from picaset.studio.rooms import Room, Settings
from picaset.studio.rooms.odd.faces import (
    FOLDERS,
    SOURCE_DESCRIPTIONS,
    AttributeName,
    Attributes,
    Face,
    FaceNumber,
    FaceSet,
    Kind,
    Known,
    Pool,
    Question,
    Scorers,
    Scores,
    ScoresRequest,
    SetSize,
    SourceName,
    pools,
    told,
)
from picaset.studio.schemas import REFUSALS, Seed, check_is_there, without_data


def build_odd_room(settings: Settings) -> Room | None:
    """The room, if one of its networks is there."""
    folders = settings.networks(FOLDERS)
    if not folders:
        return None
    faces = pools()
    scorers = Scorers(folders, faces)
    lane = Lane(scorers.work, list(folders), advice="Use fewer faces.")
    few = Question(SourceName.DRAWN, tuple(range(SMALLEST)))
    router = router_of(faces, scorers, lane)
    return Room("odd", "Odd one out", router, warm=lambda: lane.warm(few), close=lane.close)


def router_of(faces: Mapping[SourceName, Pool], scorers: Scorers, lane: Lane) -> APIRouter:
    router = APIRouter(responses=REFUSALS)

    def pool(source: SourceName) -> Pool:
        if source not in faces:
            raise without_data(SOURCE_DESCRIPTIONS[source][0])
        return faces[source]

    @router.get("/known")
    async def known() -> Known:
        """Where faces come from, and who scores them."""
        return Known(sources=told(list(faces)), models=scorers.told(), smallest=SMALLEST, largest=LARGEST)

    @router.get("/attributes")
    def attributes(source: SourceName = SourceName.DRAWN) -> Attributes:
        """What faces of a source may have."""
        return Attributes(names=list(pool(source).faces.names))

    @router.get("/set")
    def new_set(
        source: SourceName = SourceName.DRAWN,
        size: Annotated[SetSize, Query()] = 8,
        first: AttributeName | None = None,
        second: AttributeName | None = None,
        seed: Annotated[Seed, Query()] = 0,
    ) -> FaceSet:
        """Faces of which all but one have two attributes; chance chooses those that are not named."""
        return pool(source).draw(size, [name for name in (first, second) if name is not None], seed=seed)

    @router.get("/another")
    def another(
        first: AttributeName,
        second: AttributeName,
        kind: Kind = Kind.ANY,
        source: SourceName = SourceName.DRAWN,
        but: Annotated[list[FaceNumber], Query(max_length=LARGEST)] = [],  # noqa: B006 - FastAPI copies it
        seed: Annotated[Seed, Query()] = 0,
    ) -> Face:
        """One more face, that is not among these."""
        return pool(source).another(kind, [first, second], but, seed=seed)

    @router.get("/face/{source}/{number}", response_class=Picture, responses=IS_PICTURE)
    def picture(source: SourceName, number: Annotated[FaceNumber, Path()]) -> Picture:
        """A face."""
        return Picture(png_of(pool(source).images([number])[0]))

    @router.post("/scores")
    async def scores(asked: ScoresRequest) -> Scores:
        """How likely each face of a set is the odd one, as one network sees it."""
        check_is_there(asked.model, scorers.all)
        await pool(asked.source).read.ready()
        question = Question(asked.source, tuple(asked.faces))
        found = await lane.ask(asked.model, question, page=asked.page, gesture=asked.gesture)
        return Scores(model=asked.model, gesture=asked.gesture, scores=found.scores, milliseconds=found.milliseconds)

    return router
