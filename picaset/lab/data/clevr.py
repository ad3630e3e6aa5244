"""CLEVR (Johnson et al. 2017) in its original layout, any subset of it, or other scenes in the same layout.

    images/{train,val}/*.png or *.jpg
    scenes/CLEVR_{train,val}_scenes.json    for each image, the objects in it

The scene file says which images there are. They are decoded once, the whole picture shrunk to a square without a crop
(as Locatello et al. 2020 do for this task), into one file that is mapped into memory ever after. The published test
images come without scenes, so that everybody's test is ``val``. What the scene file says of itself decides what the
images are called: only those that were published are CLEVR.

Dimensions:  F scenes   S pixels a side   K = 10 slots
"""

import hashlib
import json
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from jaxtyping import Float, UInt8

from picaset.checks import check_choice, check_positive
from picaset.extras import require
from picaset.lab.data.folders import MissingDataError, map_rows, watched, write_rows
from picaset.lab.data.scenes import EXTENT, MOST_OBJECTS, PROPERTIES, Row, Scenes, row_of, scenes_in

ClevrPart = Literal["train", "val"]

RECIPE = "whole image, bilinear, version 2"
"""Part of the name of the decoded file: another recipe never reads this one's pixels."""
WHOLE = {"train": 70_000, "val": 15_000}
"""Images of the published data set."""
PUBLISHED = {"version": "1.0", "date": "2/14/2017"}
"""What the published scene files say of themselves."""
DENIED = "not the published images"
"""What the scene files of images that were rendered anew say in their note."""
CLEVR, RENDERED, LAYOUT = "CLEVR", "small rendered CLEVR", "scenes in CLEVR's layout"
KINDS = (CLEVR, RENDERED, LAYOUT)
"""Of images; a row of the decoded file has the number of its own."""
TOLERANCE = 1e-3
"""By which a coordinate may lie outside, through rounding."""


@cache
def read_clevr(folder: Path, cache_folder: Path, *, part: ClevrPart, size: int = 128) -> Scenes:
    """All scenes of a part, decoded into ``cache_folder`` the first time."""
    check_choice(part, ("train", "val"), caller="read_clevr", name="part")
    check_positive(caller="read_clevr", size=size)
    images, described = folder / "images" / part, folder / "scenes" / f"CLEVR_{part}_scenes.json"
    path = cache_folder / f"clevr-{part}-{size}-{fingerprint(images, described)}.npy"
    if not path.is_file():
        kind, scenes = read_scene_file(described)
        check_images(images, described, [name for name, _ in scenes])
        write_rows(path, decoded(images, scenes, size, kind), count=len(scenes), row=clevr_row(size))
    rows = map_rows(path)
    description = describe(KINDS[int(rows["kind"][0])], len(rows), whole=WHOLE[part])
    return scenes_in(rows["scene"], np.array(rows["aspect"]), description)


def describe(kind: str, count: int, *, whole: int) -> str:
    """The images in words.

    Example:
        >>> describe("CLEVR", 425, whole=15_000)
        'CLEVR, 425-image subset'
    """
    if kind != CLEVR:
        return f"{kind}, {count} images"
    return CLEVR if count == whole else f"{CLEVR}, {count}-image subset"


def clevr_row(size: int) -> Row:
    """One scene in the decoded file, what kind of image it has, and how wide that was for its height."""
    return np.dtype([("scene", row_of(size)), ("kind", "u1"), ("aspect", "<f4")])


def fingerprint(images: Path, described: Path) -> str:
    """Of the files as they are now."""
    if not described.is_file():
        raise MissingDataError(f"{described} does not exist; CLEVR is images/ and scenes/, as it is distributed.")
    if not images.is_dir():
        raise MissingDataError(f"{images} is not a folder; CLEVR is images/ and scenes/, as it is distributed.")
    with os.scandir(images) as entries:
        found = sorted((entry.name, entry.stat()) for entry in entries if entry.is_file())
    digest = hashlib.sha256(RECIPE.encode())
    for name, stat in [("", described.stat()), *found]:
        digest.update(f"{name} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


def check_images(images: Path, described: Path, names: list[str]) -> None:
    missing = [name for name in names if not (images / name).is_file()]
    if missing:
        raise MissingDataError(
            f"{images / missing[0]} does not exist; {len(missing)} of the {len(names)} images that {described.name} "
            "lists are missing. Put them there, or take their scenes out."
        )


def read_scene_file(path: Path) -> tuple[str, list[tuple[str, Float[np.ndarray, "K 8"]]]]:
    """The kind of the images; the name of each, and its objects as a row of a file of scenes has them."""
    try:
        found = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} is not JSON ({error}); was it cut short?") from None
    told = cast(dict[str, Any], found) if isinstance(found, dict) else {}
    scenes = told.get("scenes")
    if not isinstance(scenes, list) or not scenes:
        raise ValueError(f'{path} must be an object whose "scenes" is a list of at least one scene.')
    read = list[tuple[str, Any]]()
    seen = set[str]()
    for number, scene in enumerate(cast(list[Any], scenes)):
        where = f"{path}, scene {number}"
        name, objects = value_of(scene, "image_filename", where), value_of(scene, "objects", where)
        if not isinstance(name, str) or not name or "/" in name or "\\" in name or name.startswith("."):
            raise ValueError(f"{where}: image_filename must be the name of a file, without a path; got {name!r}.")
        if name in seen:
            raise ValueError(f"{where}: {name} is listed twice.")
        seen.add(name)
        count = len(cast(list[Any], objects)) if isinstance(objects, list) else 0
        if not 1 <= count <= MOST_OBJECTS:
            got = count if isinstance(objects, list) else f"a {type(objects).__name__}"
            raise ValueError(f"{where}: a scene must have a list of 1 to {MOST_OBJECTS} objects; got {got}.")
        slots = np.zeros((MOST_OBJECTS, 4 + len(PROPERTIES)), dtype=np.float32)
        for index, one in enumerate(cast(list[Any], objects)):
            slots[index] = read_object(one, f"{where}, object {index}")
        read.append((name, slots))
    return kind_of(told.get("info")), read


def kind_of(info: Any) -> str:
    """What images are, by what their scene file says of itself.

    Example:
        >>> kind_of({"split": "val", "version": "1.0", "date": "2/14/2017"})
        'CLEVR'
        >>> kind_of({"split": "val", "version": "1.0"})
        "scenes in CLEVR's layout"
    """
    told = cast(dict[str, Any], info) if isinstance(info, dict) else {}
    if DENIED in str(told.get("note")):
        return RENDERED
    return CLEVR if all(told.get(key) == value for key, value in PUBLISHED.items()) else LAYOUT


def read_object(one: Any, where: str) -> list[float]:
    """Presence, coordinates and properties."""
    place = value_of(one, "3d_coords", where)
    numbers = cast(list[Any], place) if isinstance(place, list) else []
    if len(numbers) != 3 or not all(is_coordinate(number) for number in numbers):
        raise ValueError(f"{where}: 3d_coords must be three numbers from {-EXTENT:g} to {EXTENT:g}; got {place!r}.")
    indices = list[float]()
    for name, values in PROPERTIES.items():
        value = value_of(one, name, where)
        if value not in values:
            raise ValueError(f"{where}: {name} must be one of {', '.join(values)}; got {value!r}.")
        indices.append(float(values.index(value)))
    return [1.0, *(float(number) for number in numbers), *indices]


def is_coordinate(number: Any) -> bool:
    # A comparison, unlike a conversion, takes whole numbers of any length; one that is none is not within.
    return isinstance(number, int | float) and not isinstance(number, bool) and abs(number) <= EXTENT + TOLERANCE


def value_of(described: Any, key: str, where: str) -> Any:
    if not isinstance(described, dict) or key not in described:
        raise ValueError(f"{where}: {key!r} is missing.")
    return cast(dict[str, Any], described)[key]


def decoded(images: Path, scenes: list[tuple[str, Float[np.ndarray, "K 8"]]], size: int, kind: str) -> Iterator[bytes]:
    pillow: Any = require("PIL.Image", extra="experiments", purpose="reading images")
    one = np.zeros((), dtype=clevr_row(size))
    one["kind"] = KINDS.index(kind)
    for name, slots in watched(scenes, f"decoding {len(scenes)} images, once"):
        one["scene"]["image"], one["aspect"] = decode(images / name, size, pillow)
        one["scene"]["objects"] = slots
        yield one.tobytes()


def decode(path: Path, size: int, pillow: Any) -> tuple[UInt8[np.ndarray, "S S 3"], float]:
    """The whole image as a square, and its width over its height."""
    try:
        with pillow.open(path) as image:
            square = np.asarray(image.convert("RGB").resize((size, size), pillow.Resampling.BILINEAR))
            return square, image.width / image.height
    except (OSError, SyntaxError, ValueError, pillow.DecompressionBombError) as error:
        raise ValueError(
            f"{path} is not an image that can be read ({error}); fetch it again, or take its scene out."
        ) from None
