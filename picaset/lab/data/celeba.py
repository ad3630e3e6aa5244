"""CelebA (Liu et al. 2015) in its original layout, or any subset of it.

    img_align_celeba/*.jpg      aligned faces, 178 x 218
    list_attr_celeba.txt        number of images; names of the attributes; then a file name and 1 or -1 per attribute
    list_eval_partition.txt     a file name and 0, 1 or 2: training, validation, test

The attribute list defines the images; each must be in the folder and in the partition list. Images are decoded once,
cropped and resized as in the paper, into one file that is memory-mapped from then on.
"""

from functools import cache
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Int, UInt8

from picaset.lab.data.face_sets import Faces
from picaset.lab.data.folders import (
    MissingDataError,
    fingerprint,
    folder_files,
    is_file_name,
    load_image,
    map_rows,
    resized,
    with_progress,
    write_rows,
)

CROP, SIDE = 160, 64
"""Side of the centre crop, and of the image that it is resized to, in pixels."""
IMAGES, ATTRIBUTES, PARTITION = "img_align_celeba", "list_attr_celeba.txt", "list_eval_partition.txt"
LAYOUT = f"CelebA is {IMAGES}/, {ATTRIBUTES} and {PARTITION}"
RECIPE = "crop 160, bilinear 64, version 1"
"""Part of the fingerprint of the decoded file, so that a change of the recipe decodes the images again."""
NUM_IMAGES = 202_599
"""Number of images in the complete data set."""


@cache
def read_celeba(folder: Path, cache_folder: Path) -> Faces:
    """Read the images in the attribute list; the first call decodes them into ``cache_folder``."""
    names, attribute_names, attributes = read_attributes(folder / ATTRIBUTES)
    parts = read_parts(folder / PARTITION, names)
    images = decoded_images(folder / IMAGES, names, cache_folder)
    subset = "" if len(names) == NUM_IMAGES else f", {len(names)}-image subset"
    return Faces(images, attributes, attribute_names, parts, f"CelebA{subset}")


def read_attributes(path: Path) -> tuple[list[str], tuple[str, ...], Bool[np.ndarray, "F A"]]:
    """Return the names of the images, the names of the attributes, and the attributes of each image."""
    lines = read_lines(path)
    if len(lines) < 3 or not lines[0].strip().isdigit():
        raise ValueError(f"{path} must begin with the number of images and the names of the attributes.")
    count, attribute_names = int(lines[0]), tuple(lines[1].split())
    if len(lines) - 2 != count:
        raise ValueError(f"{path} says {count} images in its first line and lists {len(lines) - 2}; was it cut short?")
    attributes = dict[str, list[bool]]()
    for number, line in enumerate(lines[2:], start=3):
        words = line.split()
        if len(words) != len(attribute_names) + 1:
            raise ValueError(
                f"{path}, line {number}: expected a name and {len(attribute_names)} attributes; got {len(words)} words."
            )
        name, *values = words
        if invalid := [value for value in values if value not in ("1", "-1")]:
            raise ValueError(f"{path}, line {number}: an attribute must be 1 or -1; got {invalid[0]!r}.")
        if not is_file_name(name):
            raise ValueError(f"{path}, line {number}: {name!r} must be the name of a file in {IMAGES}, without a path.")
        if name in attributes:
            raise ValueError(f"{path}, line {number}: {name} is listed twice.")
        attributes[name] = [value == "1" for value in values]
    return list(attributes), attribute_names, np.array(list(attributes.values()))


def read_parts(path: Path, names: list[str]) -> Int[np.ndarray, " F"]:
    """Return the part of each image; the list may contain more images."""
    parts = dict[str, int]()
    for number, line in enumerate(read_lines(path), start=1):
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


def read_lines(path: Path) -> list[str]:
    if not path.is_file():
        raise MissingDataError(f"{path} does not exist; {LAYOUT}.")
    try:
        return path.read_text().rstrip().splitlines()
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not text.") from None


def decoded_images(folder: Path, names: list[str], cache_folder: Path) -> UInt8[np.ndarray, "F 64 64 3"]:
    """Memory-map the decoded images; they are decoded if no intact file of exactly these images exists."""
    files = folder_files(folder, layout=LAYOUT)
    if missing := [name for name in names if name not in files]:
        raise MissingDataError(
            f"{folder / missing[0]} does not exist; {len(missing)} of the {len(names)} images that {ATTRIBUTES} lists "
            "are missing. Add them, or remove their lines and correct the number in the first line."
        )
    path = cache_folder / f"celeba-{fingerprint(RECIPE, [(name, files[name]) for name in names])}.npy"
    if not is_intact(path, (len(names), SIDE, SIDE, 3)):
        images = with_progress(names, f"decoding {len(names)} images, once")
        rows = (decode(folder / name).tobytes() for name in images)
        write_rows(path, rows, count=len(names), row=("u1", (SIDE, SIDE, 3)))
    return map_rows(path)


def is_intact(path: Path, shape: tuple[int, ...]) -> bool:
    """Return whether a file of decoded images exists and is not damaged."""
    try:
        images = np.load(path, mmap_mode="r")
    except (OSError, ValueError, EOFError):
        return False
    return images.shape == shape and images.dtype == np.uint8


def decode(path: Path) -> UInt8[np.ndarray, "64 64 3"]:
    """Return the centre crop of an image, resized."""
    image = load_image(path, remedy=f"remove its line from {ATTRIBUTES}")
    width, height = image.size
    if min(width, height) < CROP:
        raise ValueError(f"{path} must be at least {CROP} x {CROP} pixels; got {width} x {height}.")
    left, top = (width - CROP) // 2, (height - CROP) // 2
    return resized(image.crop((left, top, left + CROP, top + CROP)), SIDE)
