"""Face images with binary attributes, and sets of them with one anomaly: the odd one.

All images of a set but one share two attributes, and the odd one has neither.

    Faces                images, attributes, and the part each image belongs to; the common type of all sources
    usable_pairs    pairs of attributes from which sets can be drawn
    draw_odd_sets        random sets from a pool of images
    fixed_sets           the same sets in every call, as the 800 training and 200 test sets of the paper
    draw_album           images and sets of them that overlap

A pool is the images of one part, so that training and test sets have no image in common.

Dimensions:  F faces   A attributes   S pixels a side   B sets   N images of a set   P images of an album
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Int, UInt8

Part = Literal["train", "validation", "test"]
PARTS: tuple[Part, ...] = ("train", "validation", "test")
"""Parts in the order of their numbers in ``list_eval_partition.txt``."""
FIXED_SEED = 2021
"""Seed of ``fixed_sets``."""
MIN_SET_SIZE, MAX_SET_SIZE = 3, 64
"""Range of set sizes; in a set of two images, either could be the odd one."""


@dataclass(frozen=True, eq=False)
class Faces:
    """Face images with attributes.

    Shapes:
        images      (F, S, S, 3)    RGB bytes, possibly memory-mapped
        attributes  (F, A)          True where a face has an attribute
        parts       (F,)            0, 1, 2 for training, validation, test
    """

    images: UInt8[np.ndarray, "F S S 3"]
    attributes: Bool[np.ndarray, "F A"]
    names: tuple[str, ...]
    """Names of the attributes, in the order of the columns."""
    parts: Int[np.ndarray, " F"]
    description: str
    """Short description of the images for tables."""

    def __len__(self) -> int:
        return len(self.images)

    def of_part(self, part: Part) -> Int[np.ndarray, " P"]:
        """Return the indices of the images of a part, in ascending order."""
        return np.flatnonzero(self.parts == PARTS.index(part))

    def __repr__(self) -> str:
        counts = ", ".join(f"{len(self.of_part(part))} {part}" for part in PARTS)
        return f"Faces({self.description}: {counts}; {len(self.names)} attributes)"


class OddSets(NamedTuple):
    """Sets as indices of images, the position of the odd one in each, and the two attributes it lacks."""

    members: Int[np.ndarray, "B N"]
    odd: Int[np.ndarray, " B"]
    pairs: Int[np.ndarray, "B 2"]


class Album(NamedTuple):
    """Images and sets of them; ``members`` holds indices into ``images``."""

    images: UInt8[np.ndarray, "P S S 3"]
    members: Int[np.ndarray, "B N"]
    odd: Int[np.ndarray, " B"]


def usable_pairs(attributes: Bool[np.ndarray, "F A"], set_size: int) -> Int[np.ndarray, "pairs 2"]:
    """Return the pairs of attributes that at least ``set_size - 1`` images share and at least one image lacks."""
    if not MIN_SET_SIZE <= set_size <= MAX_SET_SIZE:
        raise ValueError(f"A set must have from {MIN_SET_SIZE} to {MAX_SET_SIZE} images; got {set_size}.")
    has, lacks = attributes.astype(np.float32), (~attributes).astype(np.float32)
    enough = (has.T @ has >= set_size - 1) & (lacks.T @ lacks >= 1)
    first, second = np.nonzero(np.triu(enough, k=1))
    return np.stack([first, second], axis=1)


def draw_odd_sets(
    attributes: Bool[np.ndarray, "F A"], num_sets: int, set_size: int, *, generator: np.random.Generator
) -> OddSets:
    """Draw sets from a pool of images; pair of attributes, images and position of the odd one are random.

    Example:
        >>> has = np.random.default_rng(0).random((200, 5)) < 0.5
        >>> sets = draw_odd_sets(has, 3, 8, generator=np.random.default_rng(0))
        >>> int(has[sets.members[0]][:, sets.pairs[0]].sum())
        14
    """
    pairs = usable_pairs(attributes, set_size)
    if len(pairs) == 0:
        raise ValueError(
            f"Sets of {set_size} need {set_size - 1} images with two attributes and one with neither; "
            f"no pair has so many among {len(attributes)} images. Use smaller sets or more images."
        )
    drawn_pairs = pairs[generator.integers(len(pairs), size=num_sets)]
    odd = generator.integers(set_size, size=num_sets)
    members = np.empty((num_sets, set_size), dtype=np.int64)
    for index, (pair, position) in enumerate(zip(drawn_pairs, odd, strict=True)):
        has = attributes[:, pair]
        usual = generator.choice(np.flatnonzero(has.all(axis=1)), size=set_size - 1, replace=False)
        members[index] = np.insert(usual, position, generator.choice(np.flatnonzero(~has.any(axis=1))))
    return OddSets(members, odd, drawn_pairs)


def fixed_sets(faces: Faces, part: Part, num_sets: int, set_size: int = 8) -> OddSets:
    """Draw sets of one part that depend on the arguments alone; ``members`` holds indices into ``faces``."""
    pool = faces.of_part(part)
    generator = np.random.default_rng([FIXED_SEED, PARTS.index(part), set_size])
    sets = draw_odd_sets(faces.attributes[pool], num_sets, set_size, generator=generator)
    return sets._replace(members=pool[sets.members])


def draw_album(
    faces: Faces, part: Part, *, num_drawn: int, num_sets: int, set_size: int, generator: np.random.Generator
) -> Album:
    """Draw ``num_drawn`` sets from a part, and the remaining ones of ``num_sets`` from the images of these.

    A network encodes each image once, however many sets contain it, and encoding is the expensive part.
    """
    pool = faces.of_part(part)
    drawn = draw_odd_sets(faces.attributes[pool], num_drawn, set_size, generator=generator)
    images, members = np.unique(pool[drawn.members], return_inverse=True)
    members, odd = members.reshape(num_drawn, set_size), drawn.odd
    # All albums have the same number of images, so that they can be batched: further images replace repeated ones.
    unused = np.setdiff1d(pool, images)
    images = np.concatenate([images, generator.permutation(unused)[: num_drawn * set_size - len(images)]])
    if num_sets > num_drawn:
        more = draw_odd_sets(faces.attributes[images], num_sets - num_drawn, set_size, generator=generator)
        members, odd = np.concatenate([members, more.members]), np.concatenate([odd, more.odd])
    return Album(faces.images[images], members, odd)


def album_from_sets(faces: Faces, sets: OddSets) -> Album:
    """Create an album in which sets share no images; an image of two sets is repeated."""
    images = faces.images[sets.members.reshape(-1)]
    return Album(images, np.arange(sets.members.size).reshape(sets.members.shape), sets.odd)


def augment_faces(images: UInt8[np.ndarray, "P S S 3"], generator: np.random.Generator) -> UInt8[np.ndarray, "P S S 3"]:
    """Augment images by random mirroring and shifts of up to four pixels, which preserve all attributes.

    Shifted images are padded by repeating their edge.
    """
    count, side = len(images), int(images.shape[1])
    along = np.arange(side)
    mirrored = generator.random(count) < 0.5
    columns = np.where(mirrored[:, None], along[::-1], along) + generator.integers(-4, 5, (count, 1))
    rows = along + generator.integers(-4, 5, (count, 1))
    rows, columns = np.clip(rows, 0, side - 1), np.clip(columns, 0, side - 1)
    return images[np.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :]]
