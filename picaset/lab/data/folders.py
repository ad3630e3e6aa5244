"""Folders of data sets, and helpers of their loaders.

Two environment variables name the folders:

    PICASET_DATA     folder with one subfolder per real data set; if unset, generated stand-ins are used
    PICASET_CACHE    folder for generated and decoded data; defaults to ``picaset`` in the user's cache folder

Generated and decoded data is written once, row by row, into a NumPy file, which is memory-mapped from then on.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from rich.progress import track

from picaset.extras import require
from picaset.files import atomic_write
from picaset.terminal import Terminal, say

Item = TypeVar("Item")


class MissingDataError(FileNotFoundError, ValueError):
    """Files of a real data set do not exist."""


def data_root() -> Path | None:
    """Return the folder of the real data sets, or None if PICASET_DATA is unset."""
    value = os.environ.get("PICASET_DATA")
    if not value:
        return None
    root = Path(value).expanduser()
    if not root.is_dir():
        raise ValueError(
            f"PICASET_DATA must be the folder that holds the data sets; {root} is not a folder. "
            "Correct it, or unset it to use the stand-ins."
        )
    return root


def data_folder(name: str) -> Path:
    """Return the folder of one data set, which must exist below PICASET_DATA."""
    root = data_root()
    if root is None:
        raise MissingDataError(
            f"Real data is needed; set PICASET_DATA to the folder that holds {name}/, or pass it by --data-root."
        )
    folder = root / name
    if not folder.is_dir():
        raise MissingDataError(
            f"{folder} is not a folder; PICASET_DATA, or --data-root, must be the folder that holds {name}/."
        )
    return folder


def use_data_root(root: Path | None) -> None:
    """Set PICASET_DATA for this process and its children; None changes nothing."""
    if root is None:
        return
    if not root.is_dir():
        raise ValueError(f"--data-root must be the folder that holds the data sets; {root} is not a folder.")
    os.environ["PICASET_DATA"] = str(root.resolve())


def cache_folder() -> Path:
    """Return the folder of generated and decoded data; it may not exist yet."""
    if value := os.environ.get("PICASET_CACHE"):
        return Path(value).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "picaset"


def write_rows(path: Path, rows: Iterable[bytes], *, count: int, row: Any) -> None:
    """Write a NumPy file of ``count`` rows of dtype ``row``.

    The file is written sequentially rather than through a memory map, so that a full disk raises an error instead of
    crashing the process.
    """
    dtype = np.dtype(row)
    header = {"descr": np.lib.format.dtype_to_descr(dtype.base), "fortran_order": False, "shape": (count, *dtype.shape)}
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        written = sum(file.write(content) for content in rows)
        if written != count * dtype.itemsize:
            raise ValueError(f"{path} must hold {count * dtype.itemsize} bytes in {count} rows; got {written} bytes.")


def map_rows(path: Path) -> NDArray[Any]:
    """Memory-map the rows of a NumPy file."""
    try:
        return np.load(path, mmap_mode="r")
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(
            f"{path} is not a whole NumPy file ({error}); remove it, and it will be created again."
        ) from None


def with_progress(items: list[Item], title: str) -> Iterator[Item]:
    """Yield the items while showing a progress bar in a terminal, or one line elsewhere."""
    console = Terminal(stderr=True)
    if not console.is_terminal:
        say(title, error=True)
        yield from items
        return
    yield from track(items, description=title, console=console, transient=True)


def folder_files(folder: Path, *, layout: str) -> dict[str, os.stat_result]:
    """Return name and status of every file in a folder; ``layout`` completes the error for a missing folder."""
    if not folder.is_dir():
        raise MissingDataError(f"{folder} is not a folder; {layout}.")
    with os.scandir(folder) as entries:
        return {entry.name: entry.stat() for entry in entries if entry.is_file()}


def fingerprint(recipe: str, files: Iterable[tuple[str, os.stat_result]]) -> str:
    """Return a hash of a decoding recipe and of the names, sizes and modification times of its input files."""
    digest = hashlib.sha256(recipe.encode())
    for name, status in files:
        digest.update(f"{name} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


def is_file_name(name: object) -> bool:
    """Return whether a value is the name of a visible file, without a path."""
    return isinstance(name, str) and name != "" and not {"/", "\\"} & set(name) and not name.startswith(".")


def load_image(path: Path, *, remedy: str) -> Any:
    """Decode an image file with Pillow and convert it to RGB; ``remedy`` completes the error for a damaged file."""
    pillow: Any = require("PIL.Image", extra="experiments", purpose="reading images")
    try:
        with pillow.open(path) as image:
            return image.convert("RGB")
    except (OSError, SyntaxError, ValueError, pillow.DecompressionBombError) as error:
        raise ValueError(f"{path} is not an image that can be read ({error}); fetch it again, or {remedy}.") from None


def resized(image: Any, size: int) -> NDArray[np.uint8]:
    """Resize a Pillow image to a square by bilinear interpolation and return its pixels."""
    pillow: Any = require("PIL.Image", extra="experiments", purpose="reading images")
    return np.asarray(image.resize((size, size), pillow.Resampling.BILINEAR))
