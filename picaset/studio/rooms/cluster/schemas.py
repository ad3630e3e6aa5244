"""Request and response types of the cluster room."""

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from picaset.studio.schemas import DescribedName, Milliseconds, Option, PageRequest, Position

MAX_POINTS = 5000
MAX_COMPONENTS = 8
MAX_COORDINATE = 1e9
"""Largest absolute coordinate, more than that of any place on a map in metres; networks compute in single precision."""

Covariance = Literal["auto", "spherical", "diag", "tied", "full"]
Coordinate = Annotated[float, Field(ge=-MAX_COORDINATE, le=MAX_COORDINATE, allow_inf_nan=False)]
Point = Annotated[list[Coordinate], Field(min_length=2, max_length=2)]
Points = Annotated[list[Point], Field(min_length=2, max_length=MAX_POINTS)]


class MethodName(DescribedName):
    """Methods that fit a mixture to points."""

    PICASO = "picaso", "PICASO", "Network: attention in steps, each output is the next query.", "mixture_picaso"
    PICASO_CANONICAL = (
        "picaso-canonical",
        "PICASO, canonicalized",
        "Same network, but points are first moved to the origin: the fit follows any shift and scale.",
        "mixture_picaso_canonical",
    )
    SET_TRANSFORMER = (
        "set-transformer",
        "Set Transformer",
        "Network: attention with learned queries, one step.",
        "mixture_set_transformer",
    )
    DEEP_SETS = "deep-sets", "DeepSets", "Network: encodes each point alone and averages.", "mixture_deep_sets"
    CLUSTERER = (
        "clusterer",
        "picaset cluster",
        "AmortizedMixture: expectation-maximization, with any covariances and noise.",
    )
    SCIKIT_LEARN = (
        "scikit-learn",
        "scikit-learn",
        "GaussianMixture: expectation-maximization from ten random starts, full covariances if none are chosen.",
    )


class CascadeName(StrEnum):
    """Methods that attend to the points in several steps."""

    PICASO = "picaso"
    PICASO_CANONICAL = "picaso-canonical"


class Method(Option):
    """A method that can be chosen on the page."""

    fixed_components: int | None
    """Number of components of a network that was trained for one number; None if it can be chosen."""
    num_steps: int
    """Attention steps that can be shown; 0 if there are none."""


class PointsRequest(PageRequest):
    """A request about a set of points."""

    points: Points


class FitRequest(PointsRequest):
    """Fit a mixture with one method."""

    method: MethodName
    components: Annotated[int, Field(ge=1, le=MAX_COMPONENTS)] = 4
    """Number of components, for methods that can choose it."""
    covariance: Covariance = "auto"
    """Shape of the components, for methods that can choose it."""
    noise: bool = False
    """Whether to add a uniform background, for methods that have one."""


class StepsRequest(PointsRequest):
    """Show the attention steps of a network."""

    method: CascadeName


class Component(BaseModel):
    """One Gaussian of a mixture."""

    weight: float
    mean: Position
    covariance: Annotated[list[float], Field(min_length=3, max_length=3)]
    """Variance of x, covariance of x and y, variance of y."""


class Fit(BaseModel):
    """A mixture and how well it fits the points."""

    components: list[Component]
    labels: list[int]
    """Index of the most likely component of each point; -1 is noise."""
    log_likelihood: float
    """Mean log-likelihood of a point."""
    reference: float | None = None
    """Mean log-likelihood of the mixture with the number and shape of components that the points call for."""
    milliseconds: Milliseconds


class FitResponse(Fit):
    """The fit of one method."""

    method: MethodName
    gesture: int


class Step(BaseModel):
    """The mixture that a network would predict after a step."""

    components: list[Component]
    log_likelihood: float
    attention: list[list[int]]
    """Attention of each template to each point, from 0 to 255; empty before the first step."""


class StepsResponse(BaseModel):
    """All steps of a network, beginning with its learned templates."""

    method: CascadeName
    gesture: int
    steps: list[Step]


class CsvRequest(BaseModel):
    """A table as text."""

    model_config = ConfigDict(extra="forbid")

    text: Annotated[str, Field(max_length=900_000)]


class PointsResponse(BaseModel):
    """Points and a sentence about their origin."""

    points: list[Position]
    about: str


class ExampleName(DescribedName):
    """Example sets of points."""

    FOUR = "four", "Four Gaussians, as in training", "Drawn like the training data."
    AS_MANY = (
        "as-many",
        "Gaussians, as many as “Components”",
        "Drawn like the training data, with any number of components.",
    )
    UNEVEN = "uneven", "One large cluster, three small", "Clusters of different size and spread."
    MOONS = "moons", "Two moons", "Two half circles."
    RING = "ring", "A ring", "A circle with noise."
    ISLAND = "island", "Nests on an island (example table)", "One island of the shipped example table, scaled to fit."


def round_point(pair: Any) -> Position:
    """Round two coordinates to twelve significant digits: places on a map differ in the last of them.

    Example:
        >>> round_point([1 / 3, 2])
        [0.333333333333, 2.0]
    """
    return [float(f"{float(coordinate):.12g}") for coordinate in pair]


def round_number(number: Any) -> float:
    return float(f"{float(number):.6g}")
