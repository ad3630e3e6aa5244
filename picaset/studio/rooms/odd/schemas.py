"""What the page sends and gets about sets of faces, typed."""

from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, Field

from picaset.lab.data.odd_sets import LARGEST, SMALLEST
from picaset.studio.gesture import Gesture
from picaset.studio.told import Model, Source

FaceNumber = Annotated[int, Field(ge=0, lt=1_000_000)]
"""Of a face in its source."""
AttributeName = Annotated[str, Field(max_length=40)]
SetSize = Annotated[int, Field(ge=SMALLEST, le=LARGEST)]


class SourceName(StrEnum):
    """Where faces come from."""

    DRAWN = "drawn"
    CELEBA = "celeba"


class ModelName(StrEnum):
    """Who scores the faces."""

    GENERALIZED = "sa-gpb"
    PICASO = "sa-pb"
    ATTENTION = "sa-pma"


class Kind(StrEnum):
    """Which face is wanted, as to the two attributes."""

    FITS = "fits"
    ODD = "odd"
    ANY = "any"


class Known(BaseModel):
    """What there is in the room."""

    sources: list[Source]
    models: list[Model]
    smallest: int
    """Faces of a set."""
    largest: int


class Attributes(BaseModel):
    """Of the faces of a source."""

    names: list[str]


class Face(BaseModel):
    """A face of a source, and what can be seen on it."""

    number: int
    attributes: list[str]


class FaceSet(BaseModel):
    """All faces but one share two attributes; one has neither."""

    faces: list[Face]
    pair: Annotated[list[str], Field(min_length=2, max_length=2)]


class ScoresRequest(Gesture):
    """How little does each face fit the others?"""

    model: ModelName
    source: SourceName = SourceName.DRAWN
    faces: Annotated[list[FaceNumber], Field(min_length=SMALLEST, max_length=LARGEST)]


class Scores(BaseModel):
    """What a network says of a set."""

    model: ModelName
    gesture: int
    scores: list[float]
    """For each face how likely it is the odd one; they sum to one."""
    milliseconds: float
    """Of computing, without the way there and back."""
