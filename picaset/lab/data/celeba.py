"""CelebA (Liu et al. 2015) in its original layout, or any subset of it.

    img_align_celeba/*.jpg      aligned faces, 178 x 218
    list_attr_celeba.txt        how many; the names of the attributes; then a name and 1 or -1 for each attribute
    list_eval_partition.txt     a name and 0, 1 or 2: training, validation, test

The attribute list says which images there are; each must be in the folder and in the other list. They are decoded
once, cropped and shrunk as the paper says, into one file that is mapped into memory ever after.
"""

import hashlib
import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Int, UInt8

from picaset.extras import require
from picaset.lab.data.face_sets import Faces
from picaset.lab.data.folders import MissingDataError, map_rows, watched, write_rows

CROP, SIDE = 160, 64
"""Pixels of the centre crop, and of the image that it is shrunk to."""
IMAGES, ATTRIBUTES, PARTITION = "img_align_celeba", "list_attr_celeba.txt", "list_eval_partition.txt"
RECIPE = "crop 160, bilinear 64, version 1"
"""Part of the name of the decoded file: another recipe never reads this one's pixels."""
WHOLE = 202_599
"""Images of the whole data set."""


@cache
def read_celeba(folder: Path, cache_folder: Path) -> Faces:
    """All images that the attribute list names, decoded into ``cache_folder`` the first time."""
    names, attribute_names, attributes = read_attributes(folder / ATTRIBUTES)
    parts = read_parts(folder / PARTITION, names)
    images = decoded(folder / IMAGES, names, cache_folder)
    subset = "" if len(names) == WHOLE else f", {len(names)}-image subset"
    return Faces(images, attributes, attribute_names, parts, f"CelebA{subset}")


def read_attributes(path: Path) -> tuple[list[str], tuple[str, ...], Bool[np.ndarray, "F A"]]:
    """The names of the images, those of the attributes, and which image has which."""
    lines = lines_of(path)
    if len(lines) < 3 or not lines[0].strip().isdigit():
        raise ValueError(f"{path} must begin with the number of images and the names of the attributes.")
    attribute_names = tuple(lines[1].split())
    rows = [line.split() for line in lines[2:]]
    if len(rows) != int(lines[0]):
        raise ValueError(
            f"{path} says {int(lines[0])} images in its first line and lists {len(rows)}; was it cut short?"
        )
    for number, row in enumerate(rows, start=3):
        if len(row) != len(attribute_names) + 1:
            raise ValueError(
                f"{path}, line {number}: expected a name and {len(attribute_names)} attributes; got {len(row)} words."
            )
        if not set(row[1:]) <= {"1", "-1"}:
            wrong = next(value for value in row[1:] if value not in ("1", "-1"))
            raise ValueError(f"{path}, line {number}: an attribute must be 1 or -1; got {wrong!r}.")
    names = [row[0] for row in rows]
    check_names(names, path)
    return names, attribute_names, np.array([[value == "1" for value in row[1:]] for row in rows])


def read_parts(path: Path, names: list[str]) -> Int[np.ndarray, " F"]:
    """The part of each image; the list may name more."""
    parts = dict[str, int]()
    for number, line in enumerate(lines_of(path), start=1):
        words = line.split()
        if len(words) != 2 or words[1] not in ("0", "1", "2"):
            raise ValueError(f"{path}, line {number}: expected a name and 0, 1 or 2; got {line.strip()!r}.")
        if words[0] in parts:
            raise ValueError(f"{path}, line {number}: {words[0]} is listed twice.")
        parts[words[0]] = int(words[1])
    for name in names:
        if name not in parts:
            raise ValueError(f"{path} does not say to which part {name} belongs, which {ATTRIBUTES} lists.")
    return np.array([parts[name] for name in names])


def lines_of(path: Path) -> list[str]:
    if not path.is_file():
        raise MissingDataError(f"{path} does not exist; CelebA is {IMAGES}/, {ATTRIBUTES} and {PARTITION}.")
    try:
        return path.read_text().rstrip().splitlines()
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not text.") from None


def check_names(names: list[str], path: Path) -> None:
    seen = set[str]()
    for number, name in enumerate(names, start=3):
        if "/" in name or "\\" in name or name.startswith("."):
            raise ValueError(f"{path}, line {number}: {name!r} must be the name of a file in {IMAGES}, without a path.")
        if name in seen:
            raise ValueError(f"{path}, line {number}: {name} is listed twice.")
        seen.add(name)


def decoded(folder: Path, names: list[str], cache_folder: Path) -> UInt8[np.ndarray, "F 64 64 3"]:
    """All images as one memory map; decoded if there is no whole one of exactly these files."""
    path = cache_folder / f"celeba-{fingerprint(folder, names)}.npy"
    shape = (len(names), SIDE, SIDE, 3)
    if not is_whole(path, shape):
        pillow: Any = require("PIL.Image", extra="experiments", purpose="reading images")
        decoding = (
            decode(folder / image, pillow).tobytes() for image in watched(names, f"decoding {len(names)} images, once")
        )
        write_rows(path, decoding, count=len(names), row=("u1", (SIDE, SIDE, 3)))
    return map_rows(path)


def is_whole(path: Path, shape: tuple[int, ...]) -> bool:
    """Whether a decoded file is there and was not damaged since it was written."""
    try:
        found = np.load(path, mmap_mode="r")
    except (OSError, ValueError, EOFError):
        return False
    return found.shape == shape and found.dtype == np.uint8


def fingerprint(folder: Path, names: list[str]) -> str:
    """Of the files as they are now; refuses if one is missing."""
    if not folder.is_dir():
        raise MissingDataError(f"{folder} is not a folder; CelebA is {IMAGES}/, {ATTRIBUTES} and {PARTITION}.")
    with os.scandir(folder) as entries:
        found = {entry.name: entry.stat() for entry in entries if entry.is_file()}
    missing = [name for name in names if name not in found]
    if missing:
        raise MissingDataError(
            f"{folder / missing[0]} does not exist; {len(missing)} of the {len(names)} images that {ATTRIBUTES} lists "
            "are missing. Put them there, or take their lines out and correct the number in the first."
        )
    digest = hashlib.sha256(RECIPE.encode())
    for name in names:
        digest.update(f"{name} {found[name].st_size} {found[name].st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


def decode(path: Path, pillow: Any) -> UInt8[np.ndarray, "64 64 3"]:
    """The centre of an image, shrunk."""
    try:
        with pillow.open(path) as image:
            width, height = image.size
            if min(width, height) >= CROP:
                left, top = (width - CROP) // 2, (height - CROP) // 2
                centre = image.convert("RGB").crop((left, top, left + CROP, top + CROP))
                return np.asarray(centre.resize((SIDE, SIDE), pillow.Resampling.BILINEAR))
    except (OSError, SyntaxError, ValueError, pillow.DecompressionBombError) as error:
        raise ValueError(
            f"{path} is not an image that can be read ({error}); fetch it again, or take its line out of {ATTRIBUTES}."
        ) from None
    raise ValueError(f"{path} must be at least {CROP} x {CROP} pixels; got {width} x {height}.")
