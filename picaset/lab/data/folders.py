"""Where data is found, and where what was generated is kept.

PICASET_DATA     folder of the real data sets, one folder in it for each; without it, stand-ins are used
PICASET_CACHE    folder of generated data; otherwise the user's cache folder
"""

import os
from pathlib import Path


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
