"""One named setting: what is learned, and how.

From frozen dataclasses to JSON and back, refusing what does not fit.
"""

import dataclasses
import difflib
import json
import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from picaset.lab.tasks import TASKS
from picaset.lab.tasks.task import Task

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


FORMAT = "picaset-experiment"

Schedule = Literal["constant", "cosine", "one-cycle", "tenth-half-way", "halving"]
Precision = Literal["32-true", "bf16-mixed"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Training:
    """How any task is trained."""

    steps: int = 50_000
    """Optimizer steps."""
    batch_size: int = 10
    """Examples of a step, over all devices together."""
    learning_rate: float = 1e-3
    """Of Adam, at its highest."""
    schedule: Schedule = "one-cycle"
    """How the learning rate goes on after warming up: it stays, falls by a cosine, falls from a rise that takes three
    tenths of the training, is divided by ten half-way, or halves every 50 000 steps."""
    warmup_steps: int = 0
    """Steps over which the learning rate rises to its highest, where the schedule does not say."""
    clip: float = 0.0
    """The norm that gradients are cut back to; 0 leaves them as they are."""
    weight_decay: float = 0.0
    """What every weight loses of itself in a step, times the learning rate (AdamW); 0 is plain Adam."""
    average: float = 0.0
    """What a running average of the weights keeps of itself at each step; 0 takes the last weights instead."""
    score_every: int = 1000
    """Steps between scores; the best network so far is kept."""
    checkpoint_every: int = 500
    """Steps between checkpoints; at most so many are lost when a run is killed."""
    seed: int = 0
    """Seeds weights, data and shuffling alike."""
    precision: Precision = "32-true"
    """As Lightning Fabric names it."""

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "score_every", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}.")
        if not 0 <= self.average < 1:
            raise ValueError(f"average must be at least 0 and below 1; got {self.average}.")
        for name in ("clip", "warmup_steps", "weight_decay"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative; got {getattr(self, name)}.")
        if self.learning_rate <= 0:
            raise ValueError(f"learning_rate must be above 0; got {self.learning_rate}.")


@dataclass(frozen=True, kw_only=True, slots=True)
class Experiment:
    """One named setting: what is learned, and how."""

    name: str
    profile: str
    task: Task
    training: Training = field(default_factory=Training)

    @property
    def kind(self) -> str:
        """The name of the task."""
        return next(name for name, task in TASKS.items() if isinstance(self.task, task))

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "name": self.name,
            "profile": self.profile,
            "kind": self.kind,
            "task": as_json(self.task),
            "training": as_json(self.training),
        }

    @classmethod
    def from_json(cls, found: Any, *, where: str) -> "Experiment":
        """Refuses anything that is not an experiment of this version, naming what does not fit."""
        described = cast(dict[str, Any], found) if isinstance(found, dict) else {}
        if described.get("format") != FORMAT:
            raise ValueError(f'{where} does not describe an experiment: "format" must be "{FORMAT}".')
        wanted = {"format", "name", "profile", "kind", "task", "training"}
        if unknown := described.keys() - wanted:
            raise ValueError(
                f"{where}: there is no field {sorted(unknown)[0]!r}; fields are {', '.join(sorted(wanted))}."
            )
        if missing := wanted - described.keys():
            raise ValueError(f"{where}: the field {sorted(missing)[0]!r} is missing.")
        kind = described["kind"]
        if kind not in TASKS:
            raise ValueError(f"{where}: there is no task {kind!r}; tasks are {', '.join(TASKS)}.")
        return cls(
            name=described["name"],
            profile=described["profile"],
            task=from_json(TASKS[kind], described["task"], where=f"{where}, task"),
            training=from_json(Training, described["training"], where=f"{where}, training"),
        )

    @classmethod
    def read(cls, path: Path) -> "Experiment":
        """From a file written by hand or by a run."""
        try:
            found = json.loads(path.read_text())
        except ValueError as error:
            raise ValueError(f"{path} is not JSON ({error}).") from None
        return cls.from_json(found, where=str(path))
