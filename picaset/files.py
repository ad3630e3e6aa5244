"""File output that an interruption or a full disk cannot leave half written, and JSON input with clear errors."""

import json
import os
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file.

    A ``ValueError`` that names the file is raised if the content is not JSON, is cut short, or is not an object.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "config.json"
        >>> _ = path.write_text('{"steps": 3}')
        >>> read_json(path)
        {'steps': 3}
    """
    try:
        content = json.loads(path.read_text())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON ({error}); was it cut short?") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold a JSON object; got {type(content).__name__}. Is it the right file?")
    return cast(dict[str, Any], content)


def create_folder(path: Path) -> Path:
    """Create a folder and its parents if they do not exist, and return its path."""
    if (file := next((part for part in (path, *path.parents) if part.is_file()), None)) is not None:
        raise ValueError(f"{file} is a file; a folder is needed to write to.")
    path.mkdir(parents=True, exist_ok=True)
    return path


@contextmanager
def atomic_write(path: Path) -> Generator[Path]:
    """Write to a temporary file beside ``path`` that is synced and renamed to ``path`` if no error occurs.

    Example:
        >>> import tempfile
        >>> target = Path(tempfile.mkdtemp()) / "notes.txt"
        >>> with atomic_write(target) as temporary:
        ...     _ = temporary.write_text("complete or absent")
        >>> target.read_text()
        'complete or absent'
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
