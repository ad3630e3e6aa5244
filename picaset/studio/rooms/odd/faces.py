"""Sets of faces and the networks that score them.

Faces come from a :class:`FacePool`: drawn faces that are not in the training data, and the test faces of CelebA where
they exist. Requests refer to faces and attributes by numbers and names that the pool knows; nothing from the page
becomes a path. The networks differ only in how they pool the set.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, Field
from torch import Tensor

from picaset.lab.data.celeba import read_celeba
from picaset.lab.data.drawn_faces import draw_faces
from picaset.lab.data.face_sets import MAX_SET_SIZE, MIN_SET_SIZE, Faces, draw_odd_sets, usable_pairs
from picaset.lab.data.folders import cache_folder, data_root
from picaset.lab.networks.odd_one_out import OddOneOutNetwork
from picaset.lab.tasks.odd_one_out import DRAWN_SEED, as_tensor
from picaset.studio.background import LazyData, result_or_error
from picaset.studio.schemas import DescribedName, Milliseconds, Option, PageRequest, RequestError

FaceNumber = Annotated[int, Field(ge=0, lt=1_000_000)]
"""Index of a face in its source."""
AttributeName = Annotated[str, Field(max_length=40)]
SetSize = Annotated[int, Field(ge=MIN_SET_SIZE, le=MAX_SET_SIZE)]
NUM_DRAWN = 512
MAX_CACHED = 4096
"""Encoded faces that each network caches, so that changing one face of a set encodes one image."""


class SourceName(DescribedName):
    """Sources of faces."""

    DRAWN = "drawn", "drawn faces", "Computer-drawn faces that are not in the training data."
    CELEBA = "celeba", "CelebA", "Photographs. The networks were trained on drawn faces only."


class ModelName(DescribedName):
    """Networks that score the faces; SA, GPB, PB and PMA are the blocks in the paper's tables."""

    GENERALIZED = (
        "sa-gpb",
        "Generalized PICASO",
        "Generalized PICASO pooling: faces and summary update each other, step by step (SA + GPB).",
        "odd_one_out_faces",
    )
    PICASO = (
        "sa-pb",
        "PICASO",
        "PICASO pooling: attention in steps, each output is the next query (SA + PB).",
        "odd_one_out_faces_sa_pb",
    )
    ATTENTION = (
        "sa-pma",
        "Attention pooling",
        "Pooling by one attention step, as in the Set Transformer (SA + PMA).",
        "odd_one_out_faces_sa_pma",
    )


class Kind(StrEnum):
    """Kinds of face with respect to a pair of attributes."""

    FITS = "fits"
    ODD = "odd"
    ANY = "any"


class OddOptions(BaseModel):
    """Options of the room."""

    sources: list[Option]
    models: list[Option]
    smallest: int
    """Smallest number of faces in a set."""
    largest: int


class Attributes(BaseModel):
    """Attributes that faces of a source may have."""

    names: list[str]


class Face(BaseModel):
    """A face of a source and its attributes."""

    number: int
    attributes: list[str]


class FaceSet(BaseModel):
    """A set in which all faces but one have both attributes of a pair; the odd one has neither."""

    faces: list[Face]
    pair: Annotated[list[str], Field(min_length=2, max_length=2)]


class ScoresRequest(PageRequest):
    """Score the faces of a set with one network."""

    model: ModelName
    source: SourceName = SourceName.DRAWN
    faces: Annotated[list[FaceNumber], Field(min_length=MIN_SET_SIZE, max_length=MAX_SET_SIZE)]


class Scores(BaseModel):
    """Probabilities of being the odd face."""

    scores: list[float]
    """One probability per face; they sum to one."""
    milliseconds: Milliseconds


class ScoresResponse(Scores):
    """The scores by one network."""

    model: ModelName
    gesture: int


class FacePool:
    """The faces of one source, loaded on first use.

    Args:
        source: Name of the source.
        load: Returns the faces and the indices of those that are not in the training data.
    """

    def __init__(self, source: SourceName, load: Callable[[], tuple[Faces, NDArray[np.int64]]]) -> None:
        self.data = LazyData(source.heading, load)

    @property
    def faces(self) -> Faces:
        return self.data.wait()[0]

    @property
    def test_numbers(self) -> NDArray[np.int64]:
        """Indices of the faces that are not in the training data."""
        return self.data.wait()[1]

    def images(self, numbers: Sequence[int]) -> NDArray[np.uint8]:
        if max(numbers) >= len(self.faces):
            raise RequestError(404, f"Faces are numbered from 0 to {len(self.faces) - 1}; got {max(numbers)}.")
        return np.asarray(self.faces.images[list(numbers)])

    def face(self, number: int) -> Face:
        has = self.faces.attributes[number]
        return Face(
            number=number, attributes=[name for name, is_set in zip(self.faces.names, has, strict=True) if is_set]
        )

    def columns(self, names: Sequence[str]) -> list[int]:
        for name in names:
            if name not in self.faces.names:
                raise RequestError(422, f"Unknown attribute {name!r}; choose one of {', '.join(self.faces.names)}.")
        return [self.faces.names.index(name) for name in names]

    def draw_set(self, size: int, names: Sequence[str], *, seed: int) -> FaceSet:
        """Draw a set whose pair of attributes includes ``names``; the others are drawn at random."""
        if len(set(names)) < len(names):
            raise RequestError(422, f"The two attributes must differ; both are {format_attributes(names[:1])}.")
        attributes, generator = self.faces.attributes[self.test_numbers], np.random.default_rng(seed)
        pairs = usable_pairs(attributes, size)
        for column in self.columns(names):
            pairs = pairs[(pairs == column).any(axis=1)]
        if len(pairs) == 0:
            raise RequestError(422, describe_shortage(attributes[:, self.columns(names)], names, size))
        pair = pairs[generator.integers(len(pairs))]
        sets = draw_odd_sets(attributes[:, pair], 1, size, generator=generator)
        return FaceSet(
            faces=[self.face(int(number)) for number in self.test_numbers[sets.members[0]]],
            pair=[self.faces.names[int(column)] for column in pair],
        )

    def draw_face(self, kind: Kind, pair: Sequence[str], exclude: Sequence[int], *, seed: int) -> Face:
        """Draw one face: with both attributes of a pair, with neither, or any."""
        has = self.faces.attributes[self.test_numbers][:, self.columns(pair)]
        matches = {Kind.FITS: has.all(axis=1), Kind.ODD: ~has.any(axis=1), Kind.ANY: np.ones(len(has), dtype=bool)}
        candidates = np.setdiff1d(self.test_numbers[matches[kind]], np.array(exclude, dtype=np.int64))
        if len(candidates) == 0:
            raise RequestError(422, "All faces of this kind are in the set already; remove one first.")
        return self.face(int(np.random.default_rng(seed).choice(candidates)))


def describe_shortage(has: NDArray[np.bool_], names: Sequence[str], size: int) -> str:
    """Explain why no set of this size can be drawn with these attributes, and what to choose instead."""
    if len(names) < 2:
        pair = f"{format_attributes(names)} and any other attribute" if names else "any two attributes"
        return (
            f"There are not enough faces for a set of {size}: no {size - 1} faces share {pair}. Choose "
            f"{'another attribute or ' if names else ''}fewer faces."
        )
    both, neither = int(has.all(axis=1).sum()), int((~has.any(axis=1)).sum())
    return (
        f"A set of {size} needs {size - 1} faces with {format_attributes(names)} and one with neither; there are "
        f"{both} and {neither}. Choose other attributes or fewer faces."
    )


def format_attributes(names: Sequence[str]) -> str:
    """Join the names of attributes for a message.

    Example:
        >>> format_attributes(["Big_Nose", "Smiling"])
        'big nose and smiling'
    """
    return " and ".join(name.replace("_", " ").lower() for name in names)


def find_pools() -> dict[SourceName, FacePool]:
    """Return the available sources: drawn faces, and CelebA if the data folder has it."""
    pools = {SourceName.DRAWN: FacePool(SourceName.DRAWN, load_drawn)}
    root = data_root()
    if root is not None and (root / "celeba").is_dir():
        pools[SourceName.CELEBA] = FacePool(SourceName.CELEBA, lambda: load_celeba(root / "celeba"))
    return pools


def load_drawn() -> tuple[Faces, NDArray[np.int64]]:
    faces = draw_faces(NUM_DRAWN, seed=DRAWN_SEED + 1)  # the training data has seed DRAWN_SEED
    return faces, np.arange(len(faces))


def load_celeba(folder: Path) -> tuple[Faces, NDArray[np.int64]]:
    faces = read_celeba(folder, cache_folder())
    return faces, faces.of_part("test")


@dataclass(frozen=True)
class FaceSelection:
    """Faces of one source, as a job."""

    source: SourceName
    numbers: tuple[int, ...]


class Scorer:
    """One network, loaded on first use, with a cache of encoded faces."""

    def __init__(self, folder: Path, pools: Mapping[SourceName, FacePool]) -> None:
        self.folder = folder
        self.pools = pools
        self.network: OddOneOutNetwork | None = None
        self.vectors: OrderedDict[tuple[SourceName, int], Tensor] = OrderedDict()

    @torch.no_grad()
    def score(self, selection: FaceSelection) -> Scores:
        if self.network is None:
            self.network = OddOneOutNetwork.from_pretrained(self.folder).float().eval()
        source, pool = selection.source, self.pools[selection.source]
        began = time.perf_counter()
        uncached = [number for number in dict.fromkeys(selection.numbers) if (source, number) not in self.vectors]
        if uncached:
            encoded = self.network.encode_images(as_tensor(pool.images(uncached)))
            self.vectors.update({(source, number): vector for number, vector in zip(uncached, encoded, strict=True)})
        vectors = torch.stack([self.vectors[source, number] for number in selection.numbers])
        scores = self.network.scorer(vectors[None]).softmax(dim=1)[0]
        milliseconds = 1e3 * (time.perf_counter() - began)
        while len(self.vectors) > MAX_CACHED:
            self.vectors.popitem(last=False)
        return Scores(scores=[round(score, 6) for score in scores.tolist()], milliseconds=round(milliseconds, 2))


class Scorers:
    """All available networks, for a worker."""

    def __init__(self, folders: Mapping[ModelName, Path], pools: Mapping[SourceName, FacePool]) -> None:
        self.by_name = {name: Scorer(folder, pools) for name, folder in folders.items()}

    def run(self, kind: str, selections: list[FaceSelection]) -> list[Any]:
        return [result_or_error(self.by_name[ModelName(kind)].score, selection) for selection in selections]
