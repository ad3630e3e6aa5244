"""What the page sends and gets about toys and viewpoints, typed."""

from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from picaset.studio import told
from picaset.studio.gesture import Gesture


class SourceName(StrEnum):
    """Where toys come from."""

    TOYS = "toys"
    SMALL_NORB = "small-norb"


class Category(StrEnum):
    """What a toy is: :data:`picaset.lab.data.views.CATEGORIES`."""

    ANIMAL = "animal"
    HUMAN = "human"
    AIRPLANE = "airplane"
    TRUCK = "truck"
    CAR = "car"


class ModelName(StrEnum):
    """Who names the toy."""

    OURS = "ours"
    PB3 = "pb3"
    SET_TRANSFORMER = "set-transformer"
    DEEP_SETS = "deep-sets"


Instance = Annotated[int, Field(ge=0, le=9)]
Elevation = Annotated[int, Field(ge=0, le=8)]
"""Steps of five degrees, from 30."""
Azimuth = Annotated[int, Field(ge=0, le=35)]
"""Tens of degrees."""
Lighting = Annotated[int, Field(ge=0, le=5)]


class Source(told.Source):
    """Toys."""

    azimuth_step: int
    """Between two azimuths that there are, in tens of degrees."""
    trained_instances: list[int]
    """Toys of each category that training had, from some azimuths."""
    trained_elevations: list[int]
    trained_lightings: list[int]


class Model(told.Model):
    """A network, as it is told on its card."""

    num_steps: int
    """Of its attention to the picture; 0 if it has none."""
    num_heads: int


class Known(BaseModel):
    """What there is in the room."""

    sources: list[Source]
    models: list[Model]
    categories: list[str]
    """In the order of the networks' answers."""
    instances: int
    """Toys of a category."""
    training_azimuths: list[int]
    """Tens of degrees."""
    crop: Annotated[list[int], Field(min_length=2, max_length=2)]
    """Pixels of the middle that networks are shown, and of the whole picture."""


class View(BaseModel):
    """One toy from one viewpoint in one light."""

    model_config = ConfigDict(extra="forbid")

    source: SourceName = SourceName.TOYS
    category: Category
    instance: Instance
    elevation: Elevation = 0
    azimuth: Azimuth = 0
    lighting: Lighting = 0


class SeenRequest(Gesture):
    """What does a network take this for?"""

    model: ModelName
    view: View


class Seen(BaseModel):
    """What a network says of a view, and where it looked."""

    model: ModelName
    gesture: int
    probabilities: list[float]
    """Of each category."""
    heat: list[list[list[float]]]
    """Of each step and head, place by place, row by row: how many times its even share a place gets."""
    hottest: float
    """Where the scale of heat ends."""
    milliseconds: float
    """Of computing, without the way there and back."""
