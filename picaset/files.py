"""Atomic file output, and JSON input and output with clear errors.

atomic_write            an interruption or a full disk leaves the old file or the new one, never half of one
read_json               a JSON object from a file
to_json, from_json      dataclasses and typed values as JSON, and back with a check of every name and type
"""

import dataclasses
import difflib
import json
import os
import threading
import types
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints


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


Settings = TypeVar("Settings")


def to_json(value: Any) -> Any:
    """Convert a value to JSON types: a dataclass to an object, a tuple to a list."""
    if hasattr(value, "to_json"):
        return value.to_json()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple | list):
        return [to_json(item) for item in cast(list[Any], value)]
    return value


def from_json(kind: type[Settings], values: Any, *, where: str) -> Settings:
    """Build a dataclass from a JSON object, checking the name and the type of every field.

    A field may itself be a dataclass, or a class with a ``from_json(values, where=...)`` of its own.

    Example:
        >>> @dataclasses.dataclass(frozen=True)
        ... class Size:
        ...     width: int = 1
        >>> from_json(Size, {"widht": 3}, where="size.json")
        Traceback (most recent call last):
            ...
        ValueError: size.json: there is no field 'widht'; did you mean 'width'?
    """
    if not isinstance(values, Mapping):
        raise ValueError(f"{where} must be an object with fields; got {values!r}.")
    hints = get_type_hints(kind)
    names = [field.name for field in dataclasses.fields(cast(Any, kind))]
    fields = dict[str, Any]()
    for name, value in cast(Mapping[str, Any], values).items():
        check_known(name, names, where=where, what="field")
        fields[name] = read_value(value, hints[name], where=where, name=name)
    try:
        return kind(**fields)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from None


def read_value(value: Any, hint: Any, *, where: str, name: str) -> Any:
    """Return a JSON value as the Python value of a type annotation, or raise an error that names both."""
    if isinstance(hint, type) and hasattr(hint, "from_json"):
        return cast(Any, hint).from_json(value, where=f"{where}, {name}")
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return from_json(hint, value, where=f"{where}, {name}")
    if not fits(value, hint):
        raise ValueError(f"{where}: {name} must be {describe_type(hint)}; got {value!r}.")
    if hint is float:
        return float(value)
    return tuple(cast(list[Any], value)) if isinstance(value, list) else value


def check_known(name: str, names: Iterable[str], *, where: str, what: str) -> None:
    """Raise an error with the closest match if ``name`` is not one of ``names``."""
    names = list(names)
    if name not in names:
        close = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"{what}s are {', '.join(names)}."
        raise ValueError(f"{where}: there is no {what} {name!r}; {hint}")


def fits(value: Any, hint: Any) -> bool:
    """Return whether a JSON value has the type of an annotation."""
    if hint is Any:
        return True
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if get_origin(hint) in (Union, types.UnionType):
        return any(fits(value, option) for option in get_args(hint))
    if get_origin(hint) is list:
        return isinstance(value, list | tuple) and all(fits(item, get_args(hint)[0]) for item in cast(list[Any], value))
    if get_origin(hint) is tuple:
        kinds = get_args(hint)
        return (
            isinstance(value, list | tuple)
            and len(kinds) == len(cast(list[Any], value))
            and all(fits(item, kind) for item, kind in zip(cast(list[Any], value), kinds, strict=True))
        )
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)


def describe_type(hint: Any) -> str:
    """Describe the type of an annotation for an error message."""
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(map(repr, get_args(hint)))
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "a string"}
    return names.get(hint, f"of class {hint.__name__}" if isinstance(hint, type) else str(hint))
