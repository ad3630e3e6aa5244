"""Modules that record their constructor arguments, and descriptions of modules as plain values.

Configurable     a module that records its constructor arguments as ``config``
ModuleConfig     a class name and arguments: compared, written as JSON, and built
"""

import inspect
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar, Unpack, cast, get_args, get_origin, get_type_hints

from torch import nn

from picaset.typed_json import check_known, describe_type, read_value, to_json

CLASSES: dict[str, type["Configurable"]] = {}
"""Every configurable class by name."""

Module = TypeVar("Module", bound="Configurable")


class Configurable(nn.Module):
    """A module that records the arguments of its constructor.

    ``config`` holds all of them as JSON values, defaults included; a module among the arguments is recorded as its
    class name and its own arguments.

    Example:
        >>> class Scale(Configurable):
        ...     def __init__(self, factor: float, *, bias: bool = False) -> None:
        ...         super().__init__()
        >>> Scale(2.0).config
        {'factor': 2.0, 'bias': False}
    """

    config: dict[str, Any]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        CLASSES[cls.__name__] = cls

    def __new__(cls: type[Module], *arguments: Any, **options: Any) -> Module:
        module = super().__new__(cls)  # pyright: ignore[reportArgumentType]
        # Wrong arguments are reported by the constructor; copying and unpickling pass none and restore config later.
        with suppress(TypeError):
            bound = inspect.signature(cls).bind(*arguments, **options)
            bound.apply_defaults()
            module.config = {name: described(value) for name, value in flat(bound).items()}
        return module


def flat(bound: inspect.BoundArguments) -> dict[str, Any]:
    """Return bound arguments by name, those of ``**options`` beside the others."""
    values = dict[str, Any]()
    for name, value in bound.arguments.items():
        if bound.signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            values.update(value)
        else:
            values[name] = value
    return values


def described(value: Any) -> Any:
    """Return an argument as a JSON value."""
    if isinstance(value, Configurable):
        return {"class": type(value).__name__, "arguments": value.config}
    return to_json(value)


@dataclass(frozen=True)
class ModuleConfig:
    """The class of a module and its constructor arguments, as a value.

    Arguments left out are filled in with their defaults, so two descriptions of the same module are equal.

    Example:
        >>> from picaset.networks.set_networks import DeepSets
        >>> small = ModuleConfig.of(DeepSets, dim_in=2, dim_out=5, dim=8)
        >>> small.replace(pool="max")["pool"], type(small.build()).__name__
        ('max', 'DeepSets')
        >>> small.replace(pol="max")
        Traceback (most recent call last):
            ...
        ValueError: DeepSets: there is no argument 'pol'; did you mean 'pool'?
    """

    name: str
    arguments: tuple[tuple[str, Any], ...]

    @classmethod
    def of(cls, module: type[Configurable], **arguments: Any) -> "ModuleConfig":
        """Describe a module; arguments are checked by name and by type."""
        return cls.checked(module.__name__, arguments, where=module.__name__)

    @classmethod
    def checked(cls, name: str, arguments: dict[str, Any], *, where: str) -> "ModuleConfig":
        hints, defaults = parameters_of(CLASSES[name])
        values = dict(defaults)
        for key, value in arguments.items():
            check_known(key, hints, where=where, what="argument")
            if isinstance(value, dict):
                value = cls.from_json(value, where=f"{where}, {key}")
            if isinstance(value, cls):
                check_subclass(value.name, hints[key], where=where, name=key)
                values[key] = value
            else:
                values[key] = read_value(value, hints[key], where=where, name=key)
        missing = [key for key in hints if key not in values and key not in optional(name)]
        if missing:
            raise ValueError(f"{where}: the argument {missing[0]!r} is missing.")
        return cls(name, tuple((key, values[key]) for key in hints if key in values))

    def __getitem__(self, name: str) -> Any:
        return dict(self.arguments)[name]

    def __contains__(self, name: str) -> bool:
        return name in dict(self.arguments)

    def replace(self, **changes: Any) -> "ModuleConfig":
        """Return the description with some arguments changed."""
        return self.checked(self.name, dict(self.arguments) | changes, where=self.name)

    def build(self) -> Any:
        """Build the module, with random weights."""
        values = {key: value.build() if isinstance(value, ModuleConfig) else value for key, value in self.arguments}
        return CLASSES[self.name](**values)

    def to_json(self) -> dict[str, Any]:
        return {"class": self.name, "arguments": {key: to_json(value) for key, value in self.arguments}}

    @classmethod
    def from_json(cls, values: Any, *, where: str) -> "ModuleConfig":
        """Read a description; an unknown class, an unknown argument or a value of the wrong type is an error."""
        if not isinstance(values, dict) or not isinstance(cast(dict[str, Any], values).get("class"), str):
            raise ValueError(f'{where} must be an object with "class" and "arguments"; got {values!r}.')
        name, arguments = cast(str, values["class"]), cast(dict[str, Any], values).get("arguments", {})
        check_known(name, CLASSES, where=where, what="module")
        if not isinstance(arguments, dict):
            raise ValueError(f"{where}: arguments must be an object; got {arguments!r}.")
        return cls.checked(name, cast(dict[str, Any], arguments), where=where)


def check_subclass(described: str, hint: Any, *, where: str, name: str) -> None:
    """Raise an error if the class that is described for an argument is not of the annotated type."""
    if hint is not Any and not (isinstance(hint, type) and issubclass(CLASSES[described], hint)):
        raise ValueError(f"{where}: {name} must be {describe_type(hint)}; got a description of {described}.")


@cache
def parameters_of(module: type[Configurable]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the types and the defaults of a constructor's parameters by name, those of ``**options`` included."""
    hints, defaults = dict[str, Any](), dict[str, Any]()
    annotations = get_type_hints(module.__init__)
    for name, parameter in inspect.signature(module).parameters.items():
        hint = annotations.get(name, Any)
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            options = get_args(hint)[0] if get_origin(hint) is Unpack else None
            hints.update(get_type_hints(options) if options is not None else {})
            continue
        hints[name] = hint
        if parameter.default is not inspect.Parameter.empty:
            defaults[name] = parameter.default
    return hints, defaults


def optional(name: str) -> set[str]:
    """Return the names of the keywords that a constructor takes as ``**options``."""
    return set(parameters_of(CLASSES[name])[0]) - set(inspect.signature(CLASSES[name]).parameters)
