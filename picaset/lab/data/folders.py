"""Where data is found, and where what was generated is kept.

PICASET_DATA     folder of the real data sets, one folder in it for each; without it, stand-ins are used
PICASET_CACHE    folder of generated data; otherwise the user's cache folder

Data that is made once, row by row, into one file, and mapped into memory ever after.
"""

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

from picaset.files import replacing

Item = TypeVar("Item")


def write_rows(path: Path, rows: Iterable[bytes], *, count: int, row: Any) -> None:
    """Write a NumPy file of ``count`` rows of type ``row``, whole or not at all.

    It is written from front to back, not through a map: a full disk is then an error and not a crash.
    """
    kind = np.dtype(row)
    described = {
        "descr": np.lib.format.dtype_to_descr(kind.base),
        "fortran_order": False,
        "shape": (count, *kind.shape),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as unfinished, unfinished.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, described)
        written = sum(file.write(one) for one in rows)
        if written != count * kind.itemsize:
            raise ValueError(f"{path} must hold {count * kind.itemsize} bytes in {count} rows; {written} were made.")


def map_rows(path: Path) -> NDArray[Any]:
    """The rows of a file, read when they are used; a damaged file is refused."""
    try:
        return np.load(path, mmap_mode="r")
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(f"{path} is not a whole NumPy file ({error}); remove it, and it will be made again.") from None


def watched(items: list[Item], title: str) -> Iterator[Item]:
    """The same items, with a bar in a terminal and one line elsewhere."""
    console = Console(stderr=True)
    if not console.is_terminal:
        print(title, file=sys.stderr)
        yield from items
        return
    yield from track(items, description=title, console=console, transient=True)


class MissingDataError(FileNotFoundError, ValueError):
    """Real data that is not where it should be."""


def data_root() -> Path | None:
    """The folder of the real data sets, if the user named one."""
    named = os.environ.get("PICASET_DATA")
    if not named:
        return None
    root = Path(named).expanduser()
    if not root.is_dir():
        raise ValueError(
            f"PICASET_DATA must be the folder that holds the data sets; {root} is not a folder. "
            "Correct it, or unset it to use the stand-ins."
        )
    return root


def data_folder(name: str) -> Path:
    """The folder of a data set below ``PICASET_DATA``."""
    root = data_root()
    if root is None:
        raise MissingDataError(
            f"Real data is needed; set PICASET_DATA to the folder that holds {name}/, or name it by --data-root."
        )
    folder = root / name
    if not folder.is_dir():
        raise MissingDataError(
            f"{folder} is not a folder; PICASET_DATA, or --data-root, must be the folder that holds {name}/."
        )
    return folder


def use_data_root(root: Path | None) -> None:
    """Find data below this folder, in this process and those it starts; None leaves things as they are."""
    if root is None:
        return
    if not root.is_dir():
        raise ValueError(f"--data-root must be the folder that holds the data sets; {root} is not a folder.")
    os.environ["PICASET_DATA"] = str(root.resolve())


def cache_folder() -> Path:
    """Where generated data is kept between runs."""
    named = os.environ.get("PICASET_CACHE")
    if named:
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "picaset"
