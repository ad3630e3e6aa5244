"""Writing files so that an interruption, or a full disk, loses nothing that was there."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


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
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield unfinished
        with unfinished.open("rb") as written:
            os.fsync(written.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
