"""From frozen dataclasses to JSON and back, refusing what does not fit."""

import dataclasses
import difflib
import types
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

Settings = TypeVar("Settings")


def as_json(settings: Any) -> dict[str, Any]:
    """The fields of a dataclass as JSON values."""
    return {field.name: plain(getattr(settings, field.name)) for field in dataclasses.fields(settings)}


def plain(value: Any) -> Any:
    return [plain(one) for one in cast(tuple[Any, ...], value)] if isinstance(value, tuple) else value


def from_json(kind: type[Settings], values: Any, *, where: str) -> Settings:
    """A dataclass from JSON values; a field that it does not have, or a value of another type, is refused by name.

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
    given = cast(Mapping[str, Any], values)
    hints = get_type_hints(kind)
    names = [field.name for field in dataclasses.fields(cast(Any, kind))]
    for name, value in given.items():
        if name not in names:
            close = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"fields are {', '.join(names)}."
            raise ValueError(f"{where}: there is no field {name!r}; {hint}")
        if not fits(value, hints[name]):
            raise ValueError(f"{where}: {name} must be {in_words(hints[name])}; got {value!r}.")
    try:
        return kind(**{name: frozen(value, hints[name]) for name, value in given.items()})
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from None


def frozen(value: Any, hint: Any) -> Any:
    if hint is float:
        return float(value)
    return tuple(cast(list[Any], value)) if isinstance(value, list) else value


def fits(value: Any, hint: Any) -> bool:
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if get_origin(hint) in (Union, types.UnionType):
        return any(fits(value, one) for one in get_args(hint))
    if get_origin(hint) is tuple:
        wanted = get_args(hint)
        return (
            isinstance(value, list | tuple)
            and len(wanted) == len(cast(list[Any], value))
            and all(fits(one, want) for one, want in zip(cast(list[Any], value), wanted, strict=True))
        )
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)


def in_words(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(map(repr, get_args(hint)))
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
    return names.get(hint, str(hint))
