"""Sets with one odd element: all but one of the images share two attributes, and one has neither.

    pairs_with_enough    which pairs of attributes sets can be made from
    draw_odd_sets        sets drawn from a pool of images
    fixed_sets           sets that stay the same: the 800 of training and the 200 of the test in the paper
    draw_album           images and sets made from them, of which an image may be in many

A pool is the images of one part, so that no test set ever holds an image of training.

Dimensions:  F faces of a pool   A attributes   B sets   N images of a set   P images of an album

Face images with named binary attributes, in the three parts that their owners give: what every source provides.

Dimensions:  F faces   A attributes   S pixels a side
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Int, UInt8

Part = Literal["train", "validation", "test"]
PARTS: tuple[Part, ...] = ("train", "validation", "test")
"""In the order of their numbers in ``list_eval_partition.txt``."""


@dataclass(frozen=True, eq=False)
class Faces:
    """Images with attributes; an image belongs to one part only.

    Shapes:
        images      (F, S, S, 3)    bytes, red green blue; may be a memory map
        attributes  (F, A)          True where a face has an attribute
        parts       (F,)            0, 1, 2 for training, validation, test
    """

    images: UInt8[np.ndarray, "F S S 3"]
    attributes: Bool[np.ndarray, "F A"]
    names: tuple[str, ...]
    """Of the attributes, in the order of the columns."""
    parts: Int[np.ndarray, " F"]
    description: str
    """What the images are, in words that a table can carry."""

    def __len__(self) -> int:
        return len(self.images)

    def of_part(self, part: Part) -> Int[np.ndarray, " P"]:
        """Which images belong to a part, in rising order."""
        return np.flatnonzero(self.parts == PARTS.index(part))

    def __repr__(self) -> str:
        counts = ", ".join(f"{len(self.of_part(part))} {part}" for part in PARTS)
        return f"Faces({self.description}: {counts}; {len(self.names)} attributes)"


def with_attributes(faces: Faces, names: Sequence[str]) -> Bool[np.ndarray, " F"]:
    """Which faces have all of these attributes.

    Example:
        >>> from picaset.lab.data.drawn_faces import draw_faces
        >>> faces = draw_faces(40, seed=0)
        >>> bool(with_attributes(faces, ["Bald", "Bangs"]).any())
        False
    """
    for name in names:
        if name not in faces.names:
            raise ValueError(f"There is no attribute {name!r}; attributes are {', '.join(faces.names)}.")
    return np.asarray(faces.attributes[:, [faces.names.index(name) for name in names]].all(axis=1))


SMALLEST, LARGEST = 3, 64
"""Sizes that sets may have: among two images, neither is the odd one."""


class OddSets(NamedTuple):
    """Sets as numbers of images, where the odd one stands in each, and which attributes it lacks."""

    members: Int[np.ndarray, "B N"]
    odd: Int[np.ndarray, " B"]
    pairs: Int[np.ndarray, "B 2"]


class Album(NamedTuple):
    """Images, each once, and sets of them: ``members`` counts within the album."""

    images: UInt8[np.ndarray, "P S S 3"]
    members: Int[np.ndarray, "B N"]
    odd: Int[np.ndarray, " B"]


def pairs_with_enough(attributes: Bool[np.ndarray, "F A"], set_size: int) -> Int[np.ndarray, "pairs 2"]:
    """Pairs of attributes that ``set_size - 1`` images or more have both of, and at least one has neither of."""
    if not SMALLEST <= set_size <= LARGEST:
        raise ValueError(f"A set must have from {SMALLEST} to {LARGEST} images; got {set_size}.")
    has, lacks = attributes.astype(np.float32), (~attributes).astype(np.float32)
    enough = (has.T @ has >= set_size - 1) & (lacks.T @ lacks >= 1)
    first, second = np.nonzero(np.triu(enough, k=1))
    return np.stack([first, second], axis=1)


def draw_odd_sets(
    attributes: Bool[np.ndarray, "F A"], num_sets: int, set_size: int, *, generator: np.random.Generator
) -> OddSets:
    """Draw sets: a pair of attributes at random, all images but one with both, one with neither, in any order.

    Example:
        >>> has = np.random.default_rng(0).random((200, 5)) < 0.5
        >>> sets = draw_odd_sets(has, 3, 8, generator=np.random.default_rng(0))
        >>> int(has[sets.members[0]][:, sets.pairs[0]].sum())
        14
    """
    pairs = pairs_with_enough(attributes, set_size)
    if len(pairs) == 0:
        raise ValueError(
            f"Sets of {set_size} need {set_size - 1} images with two attributes and one with neither; "
            f"no pair has so many among {len(attributes)} images. Take smaller sets or more images."
        )
    chosen = pairs[generator.integers(len(pairs), size=num_sets)]
    odd = generator.integers(set_size, size=num_sets)
    members = np.empty((num_sets, set_size), dtype=np.int64)
    for index, (pair, place) in enumerate(zip(chosen, odd, strict=True)):
        has = attributes[:, pair]
        usual = generator.choice(np.flatnonzero(has.all(axis=1)), size=set_size - 1, replace=False)
        members[index] = np.insert(usual, place, generator.choice(np.flatnonzero(~has.any(axis=1))))
    return OddSets(members, odd, chosen)


def fixed_sets(faces: Faces, part: Part, num_sets: int, set_size: int = 8, *, seed: int = 2021) -> OddSets:
    """Sets of one part that every method sees alike; ``members`` counts within all faces."""
    pool = faces.of_part(part)
    generator = np.random.default_rng([seed, PARTS.index(part), set_size])
    sets = draw_odd_sets(faces.attributes[pool], num_sets, set_size, generator=generator)
    return sets._replace(members=pool[sets.members])


def draw_album(
    faces: Faces, part: Part, *, num_drawn: int, num_sets: int, set_size: int, generator: np.random.Generator
) -> Album:
    """``num_drawn`` sets from a part, and as many more as are asked for from the images of these.

    A network has to look at an image once, however many sets it is in, and looking is what costs.
    """
    pool = faces.of_part(part)
    drawn = draw_odd_sets(faces.attributes[pool], num_drawn, set_size, generator=generator)
    images, members = np.unique(pool[drawn.members], return_inverse=True)
    members, odd = members.reshape(num_drawn, set_size), drawn.odd
    # As many images in every album, so that albums fill a batch: those that stand in two sets leave room for others.
    missing = np.setdiff1d(pool, images)
    images = np.concatenate([images, generator.permutation(missing)[: num_drawn * set_size - len(images)]])
    if num_sets > num_drawn:
        more = draw_odd_sets(faces.attributes[images], num_sets - num_drawn, set_size, generator=generator)
        members, odd = np.concatenate([members, more.members]), np.concatenate([odd, more.odd])
    return Album(faces.images[images], members, odd)


def album_of(faces: Faces, sets: OddSets) -> Album:
    """Every set with images of its own."""
    images = faces.images[sets.members.reshape(-1)]
    return Album(images, np.arange(sets.members.size).reshape(sets.members.shape), sets.odd)


def shaken(images: UInt8[np.ndarray, "P S S 3"], generator: np.random.Generator) -> UInt8[np.ndarray, "P S S 3"]:
    """Each mirrored or not and moved by up to four pixels, its edge repeated; no attribute changes by that."""
    count, side = len(images), int(images.shape[1])
    along = np.arange(side)
    mirrored = generator.random(count) < 0.5
    columns = np.where(mirrored[:, None], along[::-1], along) + generator.integers(-4, 5, (count, 1))
    rows = along + generator.integers(-4, 5, (count, 1))
    rows, columns = np.clip(rows, 0, side - 1), np.clip(columns, 0, side - 1)
    return images[np.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :]]
