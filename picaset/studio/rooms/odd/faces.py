"""Pools of faces to make sets of: drawn ones that training never had, and CelebA's test faces where they are.

What is asked of a pool is found by numbers and names that it knows; nothing from the page becomes a path.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from picaset.lab.data.celeba import read_celeba
from picaset.lab.data.drawn_faces import draw_faces
from picaset.lab.data.faces import Faces
from picaset.lab.data.folders import cache_folder, data_root
from picaset.lab.data.odd_sets import draw_odd_sets, pairs_with_enough
from picaset.lab.tasks.odd_one_out import DRAWN_SEED
from picaset.studio.errors import Refused
from picaset.studio.read_once import ReadOnce
from picaset.studio.rooms.odd.schemas import Face, FaceSet, Kind, SourceName
from picaset.studio.told import Source

NUM_DRAWN = 512
TOLD = {
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
        self.read = ReadOnce(TOLD[source][0], read)

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
    return [Source(name=name, title=TOLD[name][0], about=TOLD[name][1]) for name in sources]
