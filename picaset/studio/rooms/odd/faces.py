"""Pools of faces to make sets of: drawn ones that training never had, and CelebA's test faces where they are.

What is asked of a pool is found by numbers and names that it knows; nothing from the page becomes a path.

What the page sends and gets about sets of faces, typed.

Who scores the faces: networks of one shape that differ in how they pool the set.
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
from picaset.lab.data.face_sets import LARGEST, SMALLEST, Faces, draw_odd_sets, pairs_with_enough
from picaset.lab.data.folders import cache_folder, data_root
from picaset.lab.networks.odd_one_out import OddOneOutNetwork
from picaset.lab.tasks.odd_one_out import DRAWN_SEED, as_tensor
from picaset.studio.lane import or_error
from picaset.studio.read_once import ReadOnce
from picaset.studio.schemas import Gesture, Model, Refused, Source

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


NUM_DRAWN = 512
SOURCE_DESCRIPTIONS = {
    SourceName.DRAWN: ("drawn faces", "Drawn from a seed; training had none of them."),
    SourceName.CELEBA: ("CelebA", "Photographs, of which the networks, trained on drawn faces, have never seen one."),
}


class Pool:
    """The faces of one source, read when they are first needed.

    Args:
        source: Which.
        read: Gives the faces, and which of them are for tests.
    """

    def __init__(self, source: SourceName, read: Callable[[], tuple[Faces, NDArray[np.int64]]]) -> None:
        self.read = ReadOnce(SOURCE_DESCRIPTIONS[source][0], read)

    @property
    def faces(self) -> Faces:
        return self.read.wait()[0]

    @property
    def numbers(self) -> NDArray[np.int64]:
        """Those that training never has."""
        return self.read.wait()[1]

    def images(self, numbers: Sequence[int]) -> NDArray[np.uint8]:
        self.check(numbers)
        return np.asarray(self.faces.images[list(numbers)])

    def face(self, number: int) -> Face:
        has = self.faces.attributes[number]
        return Face(number=number, attributes=[name for name, one in zip(self.faces.names, has, strict=True) if one])

    def check(self, numbers: Sequence[int]) -> None:
        known = len(self.faces)
        if max(numbers) >= known:
            raise Refused(404, f"There are {known} faces, counted from 0; {max(numbers)} is not among them.")

    def columns(self, names: Sequence[str]) -> list[int]:
        for name in names:
            if name not in self.faces.names:
                raise Refused(422, f"There is no attribute {name!r}; attributes are {', '.join(self.faces.names)}.")
        return [self.faces.names.index(name) for name in names]

    def draw(self, size: int, named: Sequence[str], *, seed: int) -> FaceSet:
        """A set whose pair of attributes has those that are named; chance chooses the others."""
        if len(set(named)) < len(named):
            raise Refused(422, f"Two different attributes are needed; both are {in_words(named[:1])}.")
        attributes, generator = self.faces.attributes[self.numbers], np.random.default_rng(seed)
        pairs = pairs_with_enough(attributes, size)
        for column in self.columns(named):
            pairs = pairs[(pairs == column).any(axis=1)]
        if len(pairs) == 0:
            raise Refused(422, too_few(attributes[:, self.columns(named)], named, size))
        pair = pairs[generator.integers(len(pairs))]
        found = draw_odd_sets(attributes[:, pair], 1, size, generator=generator)
        return FaceSet(
            faces=[self.face(int(number)) for number in self.numbers[found.members[0]]],
            pair=[self.faces.names[int(column)] for column in pair],
        )

    def another(self, kind: Kind, pair: Sequence[str], but: Sequence[int], *, seed: int) -> Face:
        """A face with both attributes, with neither, or any, that is not among these."""
        has = self.faces.attributes[self.numbers][:, self.columns(pair)]
        wanted = {Kind.FITS: has.all(axis=1), Kind.ODD: ~has.any(axis=1), Kind.ANY: np.ones(len(has), dtype=bool)}
        left = np.setdiff1d(self.numbers[wanted[kind]], np.array(but, dtype=np.int64))
        if len(left) == 0:
            raise Refused(422, "There is no such face that is not in the set already.")
        return self.face(int(np.random.default_rng(seed).choice(left)))


def too_few(has: NDArray[np.bool_], names: Sequence[str], size: int) -> str:
    """Why there is no set of so many faces with these attributes, and what to do."""
    if len(names) < 2:
        named = f"{in_words(names)} and another attribute" if names else "two attributes"
        return (
            f"There are no {size - 1} faces with {named} beside one with neither, whichever one takes. Take "
            f"{'another attribute, or ' if names else ''}fewer faces."
        )
    both, neither = int(has.all(axis=1).sum()), int((~has.any(axis=1)).sum())
    return (
        f"A set of {size} needs {size - 1} faces with {in_words(names)} and one with neither; there are {both} and "
        f"{neither}. Take other attributes, or fewer faces."
    )


def in_words(names: Sequence[str]) -> str:
    """Attributes as a person says them.

    Example:
        >>> in_words(["Big_Nose", "Smiling"])
        'big nose and smiling'
    """
    return " and ".join(name.replace("_", " ").lower() for name in names)


def pools() -> dict[SourceName, Pool]:
    """Drawn faces, and CelebA if the folder of real data has it."""
    found = {SourceName.DRAWN: Pool(SourceName.DRAWN, drawn)}
    root = data_root()
    if root is not None and (root / "celeba").is_dir():
        found[SourceName.CELEBA] = Pool(SourceName.CELEBA, lambda: celeba(root / "celeba"))
    return found


def drawn() -> tuple[Faces, NDArray[np.int64]]:
    faces = draw_faces(NUM_DRAWN, seed=DRAWN_SEED + 1)  # training has those of DRAWN_SEED
    return faces, np.arange(len(faces))


def celeba(folder: Path) -> tuple[Faces, NDArray[np.int64]]:
    faces = read_celeba(folder, cache_folder())
    return faces, faces.of_part("test")


def told(sources: Sequence[SourceName]) -> list[Source]:
    return [
        Source(name=name, title=SOURCE_DESCRIPTIONS[name][0], about=SOURCE_DESCRIPTIONS[name][1]) for name in sources
    ]


FOLDERS = {
    ModelName.GENERALIZED: "odd_one_out_faces",
    ModelName.PICASO: "odd_one_out_faces_sa_pb",
    ModelName.ATTENTION: "odd_one_out_faces_sa_pma",
}
MODEL_DESCRIPTIONS = {
    ModelName.GENERALIZED: (
        "SA + GPB",
        "PICASO generalized: the set and its summary rewrite each other, step by step.",
    ),
    ModelName.PICASO: ("SA + PB", "PICASO: the summary asks the set again with its last answer."),
    ModelName.ATTENTION: ("SA + PMA", "Attention pooling: the summary asks the set once."),
}
MOST_REMEMBERED = 4096
"""Vectors of faces that a network keeps, so that changing one face of a set costs one look."""


@dataclass(frozen=True)
class Question:
    """A set of faces."""

    source: SourceName
    faces: tuple[int, ...]


@dataclass(frozen=True)
class Answer:
    """How likely each face is the odd one."""

    scores: list[float]
    milliseconds: float


class Scorer:
    """One network, read when it is first asked."""

    def __init__(self, folder: Path, pools: Mapping[SourceName, Pool]) -> None:
        self.folder = folder
        self.pools = pools
        self.network: OddOneOutNetwork | None = None
        self.vectors: OrderedDict[tuple[SourceName, int], Tensor] = OrderedDict()

    @torch.no_grad()
    def score(self, question: Question) -> Answer:
        if self.network is None:
            self.network = OddOneOutNetwork.from_pretrained(self.folder).float().eval()
        pool = self.pools[question.source]
        began = time.perf_counter()
        unseen = [number for number in dict.fromkeys(question.faces) if (question.source, number) not in self.vectors]
        if unseen:
            looked = self.network.look(as_tensor(pool.images(unseen)))
            self.vectors.update({(question.source, number): one for number, one in zip(unseen, looked, strict=True)})
        vectors = torch.stack([self.vectors[question.source, number] for number in question.faces])
        scores = self.network.scorer(vectors[None]).softmax(dim=1)[0]
        milliseconds = 1e3 * (time.perf_counter() - began)
        while len(self.vectors) > MOST_REMEMBERED:
            self.vectors.popitem(last=False)
        return Answer([round(score, 6) for score in scores.tolist()], round(milliseconds, 2))


class Scorers:
    """All networks that are there, as work for a lane."""

    def __init__(self, folders: Mapping[ModelName, Path], pools: Mapping[SourceName, Pool]) -> None:
        self.all = {name: Scorer(folder, pools) for name, folder in folders.items()}

    def work(self, kind: str, questions: list[Question]) -> list[Any]:
        return [or_error(self.all[ModelName(kind)].score, question) for question in questions]

    def told(self) -> list[Model]:
        return [
            Model(name=name, title=MODEL_DESCRIPTIONS[name][0], about=MODEL_DESCRIPTIONS[name][1]) for name in self.all
        ]
