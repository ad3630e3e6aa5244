"""What the page sends and gets, typed: the API's description is made from this."""

from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from picaset.studio.schemas import Gesture

MOST_POINTS = 5000
MOST_COMPONENTS = 8
FARTHEST = 1e6
"""The largest coordinate: networks compute in single precision."""

Coordinate = Annotated[float, Field(ge=-FARTHEST, le=FARTHEST, allow_inf_nan=False)]
Point = Annotated[list[Coordinate], Field(min_length=2, max_length=2)]
"""Two coordinates."""
Place = Annotated[list[float], Field(min_length=2, max_length=2)]
"""The same, in an answer."""
Points = Annotated[list[Point], Field(min_length=2, max_length=MOST_POINTS)]


class MethodName(StrEnum):
    """Who looks at the points."""

    PICASO = "picaso"
    PICASO_CANONICAL = "picaso-canonical"
    SET_TRANSFORMER = "set-transformer"
    DEEP_SETS = "deep-sets"
    CLUSTERER = "clusterer"
    SCIKIT_LEARN = "scikit-learn"


class CascadeName(StrEnum):
    """Who looks at the points in steps."""

    PICASO = "picaso"
    PICASO_CANONICAL = "picaso-canonical"


class Method(BaseModel):
    """A method, as it is told on its card."""

    name: MethodName
    title: str
    about: str
    fixed_components: int | None
    """Always so many, where the network was trained for one number."""
    num_steps: int
    """Of its cascade; 0 if it has none."""


class Asking(Gesture):
    """What every question about points has."""

    points: Points


class FitRequest(Asking):
    """Which mixture does a method take the points for?"""

    method: MethodName
    components: Annotated[int, Field(ge=1, le=MOST_COMPONENTS)] = 4
    """How many, for methods that can choose."""


class StepsRequest(Asking):
    """What did a cascade do, step by step?"""

    method: CascadeName


class Component(BaseModel):
    """One Gaussian of a mixture."""

    weight: float
    mean: Place
    deviation: float


class Fitted(BaseModel):
    """What a method made of the points."""

    method: MethodName
    gesture: int
    components: list[Component]
    labels: list[int]
    """For each point the component that it most likely belongs to."""
    log_likelihood: float
    """Per point."""
    milliseconds: float
    """Of computing, without the way there and back."""


class Step(BaseModel):
    """What the templates of a cascade stand for after so many steps."""

    components: list[Component]
    log_likelihood: float
    attention: list[list[int]]
    """For each template and point, from 0 to 255, how much this step looked at it; empty before the first."""


class Steps(BaseModel):
    """A cascade at work."""

    method: CascadeName
    gesture: int
    steps: list[Step]


class CsvRequest(BaseModel):
    """A table that was pasted or dropped."""

    model_config = ConfigDict(extra="forbid")

    text: Annotated[str, Field(max_length=900_000)]


class SomePoints(BaseModel):
    """Points, and where they come from in words."""

    points: list[Place]
    about: str


class ExampleName(StrEnum):
    """Points to begin with."""

    FOUR = "four"
    AS_MANY = "as-many"
    UNEVEN = "uneven"
    MOONS = "moons"
    RING = "ring"
    ISLAND = "island"


class Example(BaseModel):
    """Points to begin with, as the list shows them."""

    name: ExampleName
    title: str


def as_point(pair: Any) -> Place:
    """Two numbers with as many digits as a picture needs.

    Example:
        >>> as_point([1 / 3, 2])
        [0.333333, 2.0]
    """
    return [short(pair[0]), short(pair[1])]


def short(number: Any) -> float:
    return float(f"{float(number):.6g}")
