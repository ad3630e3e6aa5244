"""Routes of the room: sources and networks, the image of a view, the category that a network predicts for it."""

from typing import Annotated

from fastapi import APIRouter, Query

from picaset.lab.data.crops import CROP
from picaset.lab.data.folders import data_root
from picaset.lab.data.views import CATEGORIES, LABELS, SIZE, TRAINING_AZIMUTHS
from picaset.studio.background import Worker
from picaset.studio.pictures import PICTURE, PNG_RESPONSES, PngResponse
from picaset.studio.rooms import Room, Settings
from picaset.studio.rooms.viewpoints.photographs import (
    Category,
    Classifiers,
    ModelName,
    PredictionRequest,
    PredictionResponse,
    View,
    ViewImages,
    ViewOptions,
)
from picaset.studio.schemas import ERROR_RESPONSES


def build_viewpoints_room(settings: Settings) -> Room | None:
    """Build the room if at least one of its networks exists."""
    folders = settings.find_networks(ModelName)
    if not folders:
        return None
    images = ViewImages(data_root())
    classifiers = Classifiers(folders, images)
    worker = Worker(classifiers.run, [PICTURE, *folders], advice="Try again in a moment.")
    router = create_router(settings, images, classifiers, worker)
    first = View(category=Category.ANIMAL, instance=0)
    return Room("viewpoints", "Viewpoints", router, warm=lambda: worker.warm(first), close=worker.close)


def create_router(settings: Settings, images: ViewImages, classifiers: Classifiers, worker: Worker) -> APIRouter:
    router = APIRouter(responses=ERROR_RESPONSES)

    @router.get("/options")
    def options() -> ViewOptions:
        """List the sources of toys, the networks, the categories and the views of the training data."""
        return ViewOptions(
            sources=images.list_sources(),
            models=classifiers.list_models(),
            categories=list(CATEGORIES),
            instances=len(LABELS["instance"]),
            training_azimuths=list(TRAINING_AZIMUTHS),
            crop=[CROP, SIZE],
        )

    @router.get("/picture", response_class=PngResponse, responses=PNG_RESPONSES)
    async def picture(view: Annotated[View, Query()]) -> PngResponse:
        """Return the image of a view by the first camera."""
        await images.ready(view.source)
        return PngResponse(await worker.submit(PICTURE, view))

    @router.post("/predict")
    async def predict(request: PredictionRequest) -> PredictionResponse:
        """Return the category that one network predicts for a view, and its attention."""
        settings.check_network(request.model, classifiers.by_name)
        result = await worker.submit(request.model, request.view, page=request.page, gesture=request.gesture)
        return PredictionResponse(model=request.model, gesture=request.gesture, **dict(result))

    return router
