"""Routes of the room: sources and networks, a set of faces, one more face, an image, the scores of a set."""

from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Path, Query

from picaset.lab.data.face_sets import MAX_SET_SIZE, MIN_SET_SIZE
from picaset.studio.background import Worker
from picaset.studio.pictures import PNG_RESPONSES, PngResponse, encode_png
from picaset.studio.rooms import Room, Settings
from picaset.studio.rooms.odd.faces import (
    AttributeName,
    Attributes,
    Face,
    FaceNumber,
    FacePool,
    FaceSelection,
    FaceSet,
    Kind,
    ModelName,
    OddOptions,
    Scorers,
    ScoresRequest,
    ScoresResponse,
    SetSize,
    SourceName,
    find_pools,
)
from picaset.studio.schemas import ERROR_RESPONSES, Option, Seed, missing_data


def build_odd_room(settings: Settings) -> Room | None:
    """Build the room if at least one of its networks exists."""
    folders = settings.find_networks(ModelName)
    if not folders:
        return None
    pools = find_pools()
    scorers = Scorers(folders, pools)
    worker = Worker(scorers.run, list(folders), advice="Use fewer faces.")
    smallest = FaceSelection(SourceName.DRAWN, tuple(range(MIN_SET_SIZE)))
    router = create_router(settings, pools, scorers, worker)
    return Room("odd", "Odd one out", router, warm=lambda: worker.warm(smallest), close=worker.close)


def create_router(
    settings: Settings, pools: Mapping[SourceName, FacePool], scorers: Scorers, worker: Worker
) -> APIRouter:
    router = APIRouter(responses=ERROR_RESPONSES)

    def pool(source: SourceName) -> FacePool:
        if source not in pools:
            raise missing_data(source.heading)
        return pools[source]

    @router.get("/options")
    async def options() -> OddOptions:
        """List the sources of faces, the networks and the sizes of a set."""
        return OddOptions(
            sources=[Option.of(name) for name in pools],
            models=[Option.of(name) for name in scorers.by_name],
            smallest=MIN_SET_SIZE,
            largest=MAX_SET_SIZE,
        )

    @router.get("/attributes")
    def attributes(source: SourceName = SourceName.DRAWN) -> Attributes:
        """List the attributes of a source."""
        return Attributes(names=list(pool(source).faces.names))

    @router.get("/set")
    def draw_set(
        source: SourceName = SourceName.DRAWN,
        size: Annotated[SetSize, Query()] = 8,
        first: AttributeName | None = None,
        second: AttributeName | None = None,
        seed: Annotated[Seed, Query()] = 0,
    ) -> FaceSet:
        """Draw a set in which all faces but one have two attributes; omitted attributes are drawn at random."""
        return pool(source).draw_set(size, [name for name in (first, second) if name is not None], seed=seed)

    @router.get("/another")
    def draw_face(
        first: AttributeName,
        second: AttributeName,
        kind: Kind = Kind.ANY,
        source: SourceName = SourceName.DRAWN,
        exclude: Annotated[list[FaceNumber], Query(max_length=MAX_SET_SIZE)] = [],  # noqa: B006 - FastAPI copies it
        seed: Annotated[Seed, Query()] = 0,
    ) -> Face:
        """Draw one more face that is not among those excluded."""
        return pool(source).draw_face(kind, [first, second], exclude, seed=seed)

    @router.get("/face/{source}/{number}", response_class=PngResponse, responses=PNG_RESPONSES)
    def picture(source: SourceName, number: Annotated[FaceNumber, Path()]) -> PngResponse:
        """Return the image of a face."""
        return PngResponse(encode_png(pool(source).images([number])[0]))

    @router.post("/scores")
    async def scores(request: ScoresRequest) -> ScoresResponse:
        """Return the probability of each face of being the odd one, by one network."""
        settings.check_network(request.model, scorers.by_name)
        await pool(request.source).data.ready()
        selection = FaceSelection(request.source, tuple(request.faces))
        result = await worker.submit(request.model, selection, page=request.page, gesture=request.gesture)
        return ScoresResponse(model=request.model, gesture=request.gesture, **dict(result))

    return router
