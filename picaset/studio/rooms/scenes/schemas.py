"""What the page sends and gets about scenes, typed."""

from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from picaset.lab.data.scene_layouts import FEWEST_OBJECTS
from picaset.lab.data.scenes import MOST_OBJECTS
from picaset.studio import told
from picaset.studio.gesture import Gesture
from picaset.studio.told import Seed, Source

Place = Annotated[list[float], Field(min_length=2, max_length=2)]
"""How far right and down in the picture, from 0 to 1 inside of it."""


class SourceName(StrEnum):
    """Where scenes come from."""

    TRACED = "traced"
    CLEVR = "clevr"


class ModelName(StrEnum):
    """Who says what is in a scene."""

    OURS = "ours"
    PB3 = "pb3"
    SLOT_ATTENTION = "slot-attention"


class Model(told.Model):
    """A network, as it is told on its card."""

    num_steps: int


class Known(BaseModel):
    """What there is in the room."""

    sources: list[Source]
    models: list[Model]
    fewest: int
    """Objects of a scene."""
    most: int


class Scene(BaseModel):
    """One scene: the same for the same seed."""

    model_config = ConfigDict(extra="forbid")

    source: SourceName = SourceName.TRACED
    seed: Seed = 0
    objects: Annotated[int, Field(ge=FEWEST_OBJECTS, le=MOST_OBJECTS)] | None = None
    """How many; any number if it is not said."""


class SeenRequest(Gesture):
    """What does a network see in a scene?"""

    model: ModelName
    scene: Scene


class Thing(BaseModel):
    """An object that is there."""

    words: str
    place: Place


class Prediction(BaseModel):
    """An object that a template stands for."""

    template: int
    words: str
    place: Place
    presence: float
    right: bool


class Step(BaseModel):
    """What the templates stand for after so many steps."""

    predictions: list[Prediction]
    """The surest first; only those that the network is sure of."""
    missed: list[int]
    """Which of the objects that are there nobody stands for."""
    attention: list[list[int]]
    """For each template, from 0 to 255, how much this step looked at a place, row by row; empty before the first."""


class Seen(BaseModel):
    """What a network sees in a scene, step by step."""

    model: ModelName
    gesture: int
    there: list[Thing]
    steps: list[Step]
    milliseconds: float
    """Of computing, without the way there and back."""
