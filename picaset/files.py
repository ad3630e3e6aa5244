"""Writing files so that an interruption, or a full disk, loses nothing that was there; reading what may be damaged."""

import json
import os
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast


def read_json(path: Path) -> dict[str, Any]:
    """The object that a file holds; an empty one where it holds something else."""
    try:
        found = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} is not JSON ({error}); was it cut short?") from None
    return cast(dict[str, Any], found) if isinstance(found, dict) else {}


def made_folder(path: Path) -> Path:
    """A folder to write to, made where there is none."""
    if (taken := next((part for part in (path, *path.parents) if part.is_file()), None)) is not None:
        raise ValueError(f"{taken} is a file; a folder is needed to write to.")
    path.mkdir(parents=True, exist_ok=True)
    return path


@contextmanager
def replacing(path: Path) -> Generator[Path]:
    """Write to a temporary name beside ``path``; when all went well, sync it and give it the name.

    Example:
        >>> import tempfile
        >>> target = Path(tempfile.mkdtemp()) / "notes.txt"
        >>> with replacing(target) as unfinished:
        ...     _ = unfinished.write_text("whole or not at all")
        >>> target.read_text()
        'whole or not at all'
    """
    unfinished = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        yield unfinished
        with unfinished.open("rb") as written:
            os.fsync(written.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
