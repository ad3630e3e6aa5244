"""Who scores the faces: networks of one shape that differ in how they pool the set."""

import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from picaset.lab.networks.odd_one_out import OddOneOutNetwork
from picaset.lab.tasks.odd_one_out_scores import as_tensor
from picaset.studio.lane import or_error
from picaset.studio.rooms.odd.faces import Pool
from picaset.studio.rooms.odd.schemas import ModelName, SourceName
from picaset.studio.told import Model

FOLDERS = {
    ModelName.GENERALIZED: "odd_one_out_faces",
    ModelName.PICASO: "odd_one_out_faces_sa_pb",
    ModelName.ATTENTION: "odd_one_out_faces_sa_pma",
}
TOLD = {
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
        return [Model(name=name, title=TOLD[name][0], about=TOLD[name][1]) for name in self.all]
