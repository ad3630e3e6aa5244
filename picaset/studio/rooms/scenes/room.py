"""Routes of the room: sources and networks, the image of a scene, the objects that a network detects in it."""

from typing import Annotated

from fastapi import APIRouter, Query

from picaset.lab.data.folders import data_root
from picaset.lab.data.scene_layouts import MIN_OBJECTS
from picaset.lab.data.scenes import MAX_OBJECTS
from picaset.studio.background import Worker
from picaset.studio.pictures import PICTURE, PNG_RESPONSES, PngResponse
from picaset.studio.rooms import Room, Settings
from picaset.studio.rooms.scenes.pictures import (
    DISPLAY_SIZE,
    DetectionRequest,
    DetectionResponse,
    Detectors,
    ModelName,
    Scene,
    SceneImages,
    SceneOptions,
)
from picaset.studio.schemas import ERROR_RESPONSES, read_config


def build_scenes_room(settings: Settings) -> Room | None:
    """Build the room if at least one of its networks exists."""
    folders = settings.find_networks(ModelName)
    if not folders:
        return None
    sizes = {read_config(folder).get("image_size", DISPLAY_SIZE) for folder in folders.values()}
    images = SceneImages(data_root(), {DISPLAY_SIZE, *sizes})
    detectors = Detectors(folders, images)
    worker = Worker(detectors.run, [PICTURE, *folders], advice="Choose fewer objects.")
    router = create_router(settings, images, detectors, worker)
    return Room("scenes", "Scenes", router, warm=lambda: worker.warm(Scene()), close=worker.close)


def create_router(settings: Settings, images: SceneImages, detectors: Detectors, worker: Worker) -> APIRouter:
    router = APIRouter(responses=ERROR_RESPONSES)

    @router.get("/options")
    def options() -> SceneOptions:
        """List the sources of scenes, the networks and the numbers of objects."""
        return SceneOptions(
            sources=images.list_sources(), models=detectors.list_models(), fewest=MIN_OBJECTS, most=MAX_OBJECTS
        )

    @router.get("/picture", response_class=PngResponse, responses=PNG_RESPONSES)
    async def picture(scene: Annotated[Scene, Query()]) -> PngResponse:
        """Return the image of a scene, scaled to a square."""
        await images.ready(scene.source)
        return PngResponse(await worker.submit(PICTURE, scene))

    @router.post("/predict")
    async def predict(request: DetectionRequest) -> DetectionResponse:
        """Return the objects that one network detects, step by step, compared with those of the scene."""
        settings.check_network(request.model, detectors.by_name)
        result = await worker.submit(request.model, request.scene, page=request.page, gesture=request.gesture)
        return DetectionResponse(model=request.model, gesture=request.gesture, **dict(result))

    return router
