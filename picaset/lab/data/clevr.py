"""CLEVR (Johnson et al. 2017) in its original layout, any subset of it, or other scenes in the same layout.

    images/{train,val}/*.png or *.jpg
    scenes/CLEVR_{train,val}_scenes.json    the objects of each image

The scene file defines the images. They are decoded once, resized to a square without cropping (as Locatello et al. 2020
do for this task), into one file that is memory-mapped from then on. The published test images have no scenes, so
results are reported on ``val``. The ``info`` of the scene file decides how the data is described: only the published
images are called CLEVR.

Dimensions:  F scenes   S pixels a side   K = 10 slots
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from jaxtyping import Float, UInt8

from picaset.checks import check_choice, check_positive
from picaset.files import describe_value, read_json
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
from picaset.lab.data.scenes import EXTENT, MAX_OBJECTS, PROPERTIES, RowType, Scenes, row_type, scenes_from_rows

ClevrPart = Literal["train", "val"]

LAYOUT = "CLEVR is images/ and scenes/, as it is distributed"
RECIPE = "whole image, bilinear, version 2"
"""Part of the fingerprint of the decoded file, so that a change of the recipe decodes the images again."""
NUM_PUBLISHED = {"train": 70_000, "val": 15_000}
"""Number of images in each part of the published data set."""
PUBLISHED_INFO = {"version": "1.0", "date": "2/14/2017"}
"""Fields in the ``info`` of the published scene files."""
RENDERED_NOTE = "not the published images"
"""Phrase in the ``note`` of scene files whose images are a new rendering."""
CLEVR, RENDERED, LAYOUT_ONLY = "CLEVR", "small rendered CLEVR", "scenes in CLEVR's layout"
KINDS = (CLEVR, RENDERED, LAYOUT_ONLY)
"""Kinds of images; rows of the decoded file hold an index into these."""
MAX_BYTES = 2_000_000_000
"""Largest scene file; that of the published training images has some hundred megabytes."""
TOLERANCE = 1e-3
"""Distance by which rounding may move a coordinate outside the scene."""


@cache
def read_clevr(folder: Path, cache_folder: Path, *, part: ClevrPart, size: int = 128) -> Scenes:
    """Read all scenes of a part; the first call decodes the images into ``cache_folder``."""
    check_choice(part, ("train", "val"), caller="read_clevr", name="part")
    check_positive(caller="read_clevr", size=size)
    images, scene_file = folder / "images" / part, folder / "scenes" / f"CLEVR_{part}_scenes.json"
    if not scene_file.is_file():
        raise MissingDataError(f"{scene_file} does not exist; {LAYOUT}.")
    files = folder_files(images, layout=LAYOUT)
    inputs = [("", scene_file.stat()), *sorted(files.items())]
    path = cache_folder / f"clevr-{part}-{size}-{fingerprint(RECIPE, inputs)}.npy"
    if not path.is_file():
        kind, scenes = read_scene_file(scene_file)
        if missing := [name for name, _ in scenes if name not in files]:
            raise MissingDataError(
                f"{images / missing[0]} does not exist; {len(missing)} of the {len(scenes)} images that "
                f"{scene_file.name} lists are missing. Add them, or remove their scenes."
            )
        write_rows(path, decoded_rows(images, scenes, size, kind), count=len(scenes), row=clevr_row_type(size))
    rows = map_rows(path)
    description = describe(KINDS[int(rows["kind"][0])], len(rows), published=NUM_PUBLISHED[part])
    return scenes_from_rows(rows["scene"], np.array(rows["aspect"]), description)


def describe(kind: str, count: int, *, published: int) -> str:
    """Describe the images for tables.

    Example:
        >>> describe("CLEVR", 425, published=15_000)
        'CLEVR, 425-image subset'
    """
    if kind != CLEVR:
        return f"{kind}, {count} images"
    return CLEVR if count == published else f"{CLEVR}, {count}-image subset"


def clevr_row_type(size: int) -> RowType:
    """Return the dtype of a decoded row: scene, index of the kind of image, and width divided by height."""
    return np.dtype([("scene", row_type(size)), ("kind", "u1"), ("aspect", "<f4")])


def read_scene_file(path: Path) -> tuple[str, list[tuple[str, Float[np.ndarray, "K 8"]]]]:
    """Return the kind of the images, and for each image its file name and the slots of its objects."""
    content = read_json(path, max_bytes=MAX_BYTES)
    scenes = content.get("scenes")
    if not isinstance(scenes, list) or not scenes:
        raise ValueError(f'{path} must be an object whose "scenes" is a list of at least one scene.')
    named_slots = dict[str, Any]()
    for number, scene in enumerate(cast(list[Any], scenes)):
        where = f"{path}, scene {number}"
        name, objects = get_field(scene, "image_filename", where), get_field(scene, "objects", where)
        if not is_file_name(name):
            raise ValueError(
                f"{where}: image_filename must be the name of a file, without a path; got {describe_value(name)}."
            )
        if name in named_slots:
            raise ValueError(f"{where}: {name} is listed twice.")
        count = len(cast(list[Any], objects)) if isinstance(objects, list) else 0
        if not 1 <= count <= MAX_OBJECTS:
            got = count if isinstance(objects, list) else f"a {type(objects).__name__}"
            raise ValueError(f"{where}: a scene must have a list of 1 to {MAX_OBJECTS} objects; got {got}.")
        slots = np.zeros((MAX_OBJECTS, 4 + len(PROPERTIES)), dtype=np.float32)
        for index, description in enumerate(cast(list[Any], objects)):
            slots[index] = read_object(description, f"{where}, object {index}")
        named_slots[name] = slots
    return image_kind(content.get("info")), list(named_slots.items())


def image_kind(info: Any) -> str:
    """Return the kind of images that the ``info`` of a scene file indicates.

    Example:
        >>> image_kind({"split": "val", "version": "1.0", "date": "2/14/2017"})
        'CLEVR'
        >>> image_kind({"split": "val", "version": "1.0"})
        "scenes in CLEVR's layout"
    """
    fields = cast(dict[str, Any], info) if isinstance(info, dict) else {}
    if RENDERED_NOTE in str(fields.get("note")):
        return RENDERED
    return CLEVR if all(fields.get(key) == value for key, value in PUBLISHED_INFO.items()) else LAYOUT_ONLY


def read_object(description: Any, where: str) -> list[float]:
    """Return the presence, the coordinates and the property indices of an object."""
    coordinates = get_field(description, "3d_coords", where)
    numbers = cast(list[Any], coordinates) if isinstance(coordinates, list) else []
    if len(numbers) != 3 or not all(is_coordinate(number) for number in numbers):
        raise ValueError(
            f"{where}: 3d_coords must be three numbers from {-EXTENT:g} to {EXTENT:g}; got "
            f"{describe_value(coordinates)}."
        )
    indices = list[float]()
    for name, values in PROPERTIES.items():
        value = get_field(description, name, where)
        if value not in values:
            raise ValueError(f"{where}: {name} must be one of {', '.join(values)}; got {describe_value(value)}.")
        indices.append(float(values.index(value)))
    return [1.0, *(float(number) for number in numbers), *indices]


def is_coordinate(number: Any) -> bool:
    # The comparison is False for NaN and, unlike float(), accepts integers of any length.
    return isinstance(number, int | float) and not isinstance(number, bool) and abs(number) <= EXTENT + TOLERANCE


def get_field(description: Any, key: str, where: str) -> Any:
    if not isinstance(description, dict) or key not in description:
        raise ValueError(f"{where}: {key!r} is missing.")
    return cast(dict[str, Any], description)[key]


def decoded_rows(
    images: Path, scenes: list[tuple[str, Float[np.ndarray, "K 8"]]], size: int, kind: str
) -> Iterator[bytes]:
    row = np.zeros((), dtype=clevr_row_type(size))
    row["kind"] = KINDS.index(kind)
    for name, slots in with_progress(scenes, f"decoding {len(scenes)} images, once"):
        row["scene"]["image"], row["aspect"] = decode(images / name, size)
        row["scene"]["objects"] = slots
        yield row.tobytes()


def decode(path: Path, size: int) -> tuple[UInt8[np.ndarray, "S S 3"], float]:
    """Return an image resized to a square, and its original width divided by its height."""
    image = load_image(path, remedy="remove its scene")
    return resized(image, size), image.width / image.height
