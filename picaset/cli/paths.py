"""Checks of the paths that commands take: one input, and outputs that can be written and replace nothing they read."""

import os
from collections.abc import Sequence
from pathlib import Path

PLOT_SUFFIXES = (".png", ".svg", ".pdf")


def check_source(file: Path | None, *, example: bool) -> None:
    """Raise unless a command has one input: a file or the example."""
    if (file is None) != example:
        raise ValueError(f"expected either a file or --example; got {'neither' if file is None else 'both'}.")


def check_outputs(source: Path | None, **outputs: tuple[Path | None, Sequence[str]]) -> None:
    """Raise unless every output has one of its suffixes, a folder that exists, and a file that nothing else uses.

    Args:
        source: File that the command reads, or None.
        outputs: Path and accepted suffixes of each output, by the name of its option; no suffixes accept all.
    """
    used = {} if source is None else {source.resolve(): "the file to read"}
    for name, (path, suffixes) in outputs.items():
        if path is None:
            continue
        if suffixes and path.suffix.lower() not in suffixes:
            raise ValueError(f"--{name} must end in {' or '.join(suffixes)}; got {path}.")
        if not path.parent.is_dir():
            raise ValueError(f"--{name}: there is no folder {path.parent}; create it, or choose another.")
        if (other := used.setdefault(path.resolve(), f"--{name}")) != f"--{name}":
            raise ValueError(f"--{name} must differ from {other}; both are {path}.")


def check_output_folder(name: str, path: Path | None) -> None:
    """Raise unless a folder exists and is writable, or can be created."""
    if path is not None:
        existing = next(parent for parent in (path.absolute(), *path.absolute().parents) if parent.exists())
        if not (existing.is_dir() and os.access(existing, os.W_OK)):
            raise ValueError(f"--{name} must be a folder that can be written to, or a new one; got {path}.")
