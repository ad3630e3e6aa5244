"""Files: durable output, names that cannot leave a folder, and JSON that is checked against a schema when it is read.

synced_write, atomic_write    on return the content is on the disk; a crash leaves the old file or the new one
create_folder                 on return the folder and its parents are on the disk
check_name, check_no_links    a name, or an entry of a folder, that would lead out of the folder is an error
check_regular                 a pipe or a device in the place of a file is an error
check_source, check_outputs   one input, and outputs that can be written and replace nothing that is read
read_json                     a JSON object of limited size and depth
to_json, from_json            dataclasses and typed values as JSON, and back with a check of every name and type
read_value                    a JSON value as the value of a type annotation, such as a TypedDict
"""

import dataclasses
import difflib
import json
import math
import os
import re
import reprlib
import stat
import threading
import types
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    TextIO,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import numpy as np

MAX_JSON_BYTES = 256_000_000
MAX_JSON_DEPTH = 100
MAX_NAME_LENGTH = 100
LARGEST_INTEGER = 2**63 - 1
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)

Measured = Annotated[float, "measured"]
"""A number in a schema that may be NaN or infinite; ``float`` must be finite."""
Numbers = Annotated[list[Any], "numbers"]
"""A rectangular list of numbers in a schema, nested to any depth."""

short = reprlib.Repr()
short.maxstring = short.maxother = 100


def describe_value(value: Any) -> str:
    """Return the representation of a value from a file, of limited length and depth.

    Example:
        >>> describe_value({"name": "a"}), describe_value([[[[[[[[1]]]]]]]])
        ("{'name': 'a'}", '[[[[[[[...]]]]]]]')
    """
    return short.repr(value)


def check_name(name: str, *, where: str, label: str = "name") -> str:
    """Return a name from a file that becomes part of a path; raise an error unless it is one plain component.

    Example:
        >>> check_name("../x", where="f.json")
        Traceback (most recent call last):
            ...
        ValueError: f.json: name must be letters, digits, '.', '_' or '-', at most 100, the first no mark; got '../x'.
    """
    if len(name) > MAX_NAME_LENGTH or not NAME.fullmatch(name):
        raise ValueError(
            f"{where}: {label} must be letters, digits, '.', '_' or '-', at most {MAX_NAME_LENGTH}, the first no "
            f"mark; got {describe_value(name)}."
        )
    return name


def check_no_links(folder: Path) -> None:
    """Raise an error if the folder, which may itself be a link, contains a symbolic link at any depth."""
    for path, folders, files in os.walk(folder):
        for name in (*folders, *files):
            if (entry := Path(path) / name).is_symlink():
                raise ValueError(f"{entry} is a symbolic link, which may lead anywhere; replace it by a copy.")


def read_json(path: Path, *, max_bytes: int = MAX_JSON_BYTES) -> dict[str, Any]:
    """Return the JSON object in a file.

    A ``ValueError`` that names the file is raised if the content is not JSON, is cut short, is too large or too deeply
    nested, or is not an object.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "config.json"
        >>> _ = path.write_text('{"steps": 3}')
        >>> read_json(path)
        {'steps': 3}
    """
    check_regular(path)
    if (size := path.stat().st_size) > max_bytes:
        raise ValueError(f"{path} must be JSON of at most {max_bytes} bytes; got {size}. Is it the right file?")
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON ({error}); was it cut short?") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold a JSON object; got {type(content).__name__}. Is it the right file?")
    return cast(dict[str, Any], content)


def check_regular(path: Path) -> None:
    """Raise an error for a folder, a pipe or a device, of which reading might never end, and if there is no file."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError(f"{path} must be a file; it is a folder, a pipe or a device. Copy its content to a file.")


def parse_json(text: str) -> Any:
    """Return the value of a JSON text; a ``ValueError`` is raised if it is nested too deeply to be used safely."""
    too_deep = f"it is nested more than {MAX_JSON_DEPTH} levels deep"
    try:
        content = json.loads(text)
    except RecursionError:
        raise ValueError(too_deep) from None
    level: list[Any] = [[content]]
    for _ in range(MAX_JSON_DEPTH + 2):
        parts = [cast(Any, value).values() if isinstance(value, dict) else value for value in level]
        level = [item for part in parts for item in cast(Iterable[Any], part) if isinstance(item, dict | list)]
        if not level:
            return content
    raise ValueError(too_deep)


def sync_folder(path: Path) -> None:
    """Sync the entries of a folder to disk: files created, renamed and removed in it."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def synced_write(path: Path, content: bytes, *, mode: Literal["wb", "ab"] = "wb") -> None:
    """Write or append to a file and sync it to disk, with its entry in the folder if it is new."""
    is_new = not path.exists()
    with path.open(mode) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    if is_new:
        sync_folder(path.parent)


def create_folder(path: Path) -> Path:
    """Create a folder and its parents if they do not exist, sync them to disk, and return the path."""
    missing = [part for part in (path, *path.parents) if not part.is_dir()]
    if (file := next((part for part in missing if part.exists()), None)) is not None:
        raise ValueError(f"{file} is a file; a folder is needed to write to.")
    path.mkdir(parents=True, exist_ok=True)
    for part in reversed(missing):
        sync_folder(part.parent)
    return path


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
        sync_folder(path.parent)
    except OSError as error:
        if error.filename != str(temporary):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None  # the caller has not chosen the other name
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def open_output(path: Path) -> TextIO:
    """Open a text file for writing a table, in UTF-8; lone surrogates, which JSON may hold, are escaped."""
    return path.open("w", newline="", encoding="utf-8", errors="backslashreplace")


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
        raise ValueError(f"{where} must be an object with fields; got {describe_value(values)}.")
    hints = get_type_hints(kind)
    names = [field.name for field in dataclasses.fields(cast(Any, kind))]
    fields = dict[str, Any]()
    for name, value in cast(Mapping[str, Any], values).items():
        check_known(name, names, where=where, label="field")
        fields[name] = read_value(value, hints[name], where=where, name=name)
    try:
        return kind(**fields)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from None


def read_value(value: Any, hint: Any, *, where: str, name: str) -> Any:
    """Return a JSON value as the Python value of a type annotation, or raise an error that names both.

    An object may be annotated as a ``TypedDict``, whose required keys must be there; other keys are left as they are.

    Example:
        >>> read_value({"a": [1, "x"]}, dict[str, list[int]], where="f.json", name="counts")
        Traceback (most recent call last):
            ...
        ValueError: f.json: counts.a[1] must be a whole number; got 'x'.
    """
    if isinstance(hint, type) and hasattr(hint, "from_json"):
        return cast(Any, hint).from_json(value, where=f"{where}, {name}")
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return from_json(hint, value, where=f"{where}, {name}")
    if get_origin(hint) is NotRequired:
        hint = get_args(hint)[0]
    label, schema = f"{where}: {name}" if name else where, cast(Any, hint)
    if is_typeddict(schema) or get_origin(schema) is dict:
        if not isinstance(value, dict):
            raise ValueError(f"{label} must be an object; got {describe_value(value)}.")
        fields = cast(dict[str, Any], value)
        if is_typeddict(schema):
            hints = get_type_hints(schema, include_extras=True)
            required: frozenset[str] = schema.__required_keys__
            for key in sorted(required - fields.keys()):
                raise ValueError(f"{label} lacks {key!r}; was it written by another program?")
        else:
            hints = dict[str, Any].fromkeys(fields, get_args(schema)[1])
        read = dict(fields)
        for key in fields.keys() & hints.keys():
            inside = f"{name}.{describe_value(key)[1:-1]}".removeprefix(".")
            read[key] = read_value(fields[key], hints[key], where=where, name=inside)
        return read
    if get_origin(hint) is list and isinstance(value, list):
        items = enumerate(cast(list[Any], value))
        return [read_value(item, get_args(hint)[0], where=where, name=f"{name}[{index}]") for index, item in items]
    if not fits(value, hint):
        raise ValueError(f"{label} must be {describe_type(hint)}; got {describe_value(value)}.")
    if hint in (float, Measured):
        return float(value)
    return tuple(cast(list[Any], value)) if isinstance(value, list) and hint != Numbers else cast(Any, value)


def check_known(name: str, names: Iterable[str], *, where: str, label: str) -> None:
    """Raise an error with the closest match if ``name`` is not one of ``names``."""
    names = list(names)
    if name not in names:
        close = difflib.get_close_matches(name[:MAX_NAME_LENGTH], names, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"{label}s are {', '.join(names)}."
        raise ValueError(f"{where}: there is no {label} {describe_value(name)}; {hint}")


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
    if hint == Numbers:
        return isinstance(value, list) and is_rectangular(cast(list[Any], value))
    if get_origin(hint) is dict:
        return isinstance(value, dict) and all(fits(item, get_args(hint)[1]) for item in cast(Any, value).values())
    if hint in (int, float, Measured):
        if not isinstance(value, int if hint is int else int | float) or isinstance(value, bool):
            return False
        return abs(value) <= LARGEST_INTEGER if isinstance(value, int) else hint is Measured or math.isfinite(value)
    return isinstance(value, hint)


def is_rectangular(value: list[Any]) -> bool:
    try:
        return np.asarray(value).dtype.kind in "if"
    except ValueError:  # its parts have different lengths
        return False


def describe_type(hint: Any) -> str:
    """Describe the type of an annotation for an error message."""
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(map(repr, get_args(hint)))
    names = {
        int: "a whole number",
        float: "a number",
        Measured: "a number",
        Numbers: "a rectangular list of numbers",
        bool: "true or false",
        str: "a string",
    }
    return names.get(hint, f"of class {hint.__name__}" if isinstance(hint, type) else str(hint))
