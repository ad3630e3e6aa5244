"""The part of ``result.json`` that the reports of each task read; :func:`picaset.files.read_value` checks it."""

from typing import NotRequired, TypedDict

from picaset.files import Measured

Vectors = list[list[Measured]]


class Move(TypedDict):
    """Scores under one shift, scale or rotation of the points."""

    oracle: Measured
    log_likelihood: dict[str, Measured]


class Mixtures(TypedDict):
    """Mixtures that were predicted for a few test sets."""

    means: list[Vectors]
    variances: list[Vectors]
    log_weights: Vectors


class ShownClusters(TypedDict):
    predictions: dict[str, Mixtures]
    attention: NotRequired[list[Vectors]]


class ClusteringResult(TypedDict):
    moves: list[Move]
    milliseconds_per_set: Measured
    shown: ShownClusters


class BaselineMove(TypedDict):
    log_likelihood: Measured


class Baseline(TypedDict):
    num_starts: int
    moves: list[BaselineMove]
    milliseconds_per_set: Measured


class Baselines(TypedDict):
    """Scores of scikit-learn on the same sets, in a file beside the runs."""

    rows: list[Baseline]


class Examples(TypedDict):
    """Number of test images."""

    novel: int
    familiar: int
    moved: NotRequired[int]


class Viewpoint(TypedDict):
    degrees: int
    accuracy: Measured
    examples: int


class ViewpointsResult(TypedDict):
    accuracy: dict[str, Measured]
    examples: Examples
    by_viewpoint: list[Viewpoint]


class SetSize(TypedDict):
    set_size: int
    auroc: Measured
    aupr: Measured
    top1: Measured


class ShownFaces(TypedDict):
    members: list[list[int]]
    odd: list[int]
    attributes: list[tuple[str, str]]
    scores: Vectors


class OddOneOutResult(TypedDict):
    data: str
    test: dict[str, Measured]
    random_guessing: dict[str, Measured]
    by_size: list[SetSize]
    shown: ShownFaces


class Steps(TypedDict):
    steps: int
    average_precision: dict[str, Measured]


class ShownScenes(TypedDict):
    predicted: list[Vectors]
    attention: list[list[Vectors]] | None


class ScenesResult(TypedDict):
    average_precision: dict[str, Measured]
    by_steps: list[Steps]
    shown: ShownScenes
