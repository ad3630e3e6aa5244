"""Experiments: a task and its training, as JSON files that are checked when they are read.

A named experiment comes in several profiles:

    smoke    the same code path in seconds; the tests train these
    quick    minutes on two cores
    paper    the published setting
    study    the controlled study of ``lab/experiments/study.py``, and Table 2 with the published budget
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from picaset.files import check_known, check_name, describe_value, from_json, read_json, to_json
from picaset.lab.tasks.clustering import Clustering
from picaset.lab.tasks.mixture_proposals import MixtureProposals
from picaset.lab.tasks.odd_one_out import OddOneOut
from picaset.lab.tasks.plugins import UnknownTask, find_plugin_task
from picaset.lab.tasks.scenes import SceneObjects
from picaset.lab.tasks.task import Task
from picaset.lab.tasks.viewpoints import Viewpoints

TASKS: dict[str, type[Task]] = {
    "clustering": Clustering,
    "mixture-proposals": MixtureProposals,
    "odd-one-out": OddOneOut,
    "scenes": SceneObjects,
    "viewpoints": Viewpoints,
}
"""Tasks by their names in ``config.json``."""


FORMAT = "picaset-experiment"
FORMAT_VERSION = 2
"""Version 1, which had no number, kept the arguments of the network as fields of the task."""

LARGEST = 1_000_000
"""Largest number in the settings of a task, and largest batch size: a config must not ask for years of work."""
MOST_STEPS = 1_000_000_000

Schedule = Literal["constant", "cosine", "one-cycle", "tenth-half-way", "halving"]
Precision = Literal["32-true", "bf16-mixed"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Training:
    """Settings of training."""

    steps: int = 50_000
    """Number of optimizer steps."""
    batch_size: int = 10
    """Number of examples of a step, over all devices together."""
    learning_rate: float = 1e-3
    """Peak learning rate of Adam."""
    schedule: Schedule = "one-cycle"
    """Learning rate after the warm-up: constant, cosine decay, one cycle (a rise over three tenths of the training,
    then cosine decay), divided by ten half-way, or halved every 50 000 steps."""
    warmup_steps: int = 0
    """Number of steps over which the learning rate rises linearly; not for one-cycle."""
    clip: float = 0.0
    """Norm that gradients are clipped to; 0 does not clip."""
    weight_decay: float = 0.0
    """Weight decay of AdamW; 0 is plain Adam."""
    average: float = 0.0
    """Decay of an exponential moving average of the weights; 0 takes the last weights instead."""
    score_every: int = 1000
    """Number of steps between validations; the best network so far is saved."""
    checkpoint_every: int = 500
    """Number of steps between checkpoints."""
    seed: int = 0
    """Seed of weights, data and shuffling."""
    precision: Precision = "32-true"
    """Precision, as Lightning Fabric names it."""

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "score_every", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}.")
        for name, largest in (("steps", MOST_STEPS), ("batch_size", LARGEST), ("seed", 2**32 - 1)):
            if getattr(self, name) > largest:
                raise ValueError(f"{name} must be at most {largest}; got {getattr(self, name)}.")
        if not 0 <= self.average < 1:
            raise ValueError(f"average must be at least 0 and below 1; got {self.average}.")
        for name in ("clip", "warmup_steps", "weight_decay", "seed"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative; got {getattr(self, name)}.")
        if self.learning_rate <= 0:
            raise ValueError(f"learning_rate must be above 0; got {self.learning_rate}.")


@dataclass(frozen=True, kw_only=True, slots=True)
class Experiment:
    """A named task with its training."""

    name: str
    profile: str
    task: Task
    training: Training = field(default_factory=Training)

    def __post_init__(self) -> None:
        """Check the names, which become the name of a folder, and the magnitude of the task's numbers."""
        check_name(self.name, where="experiment")
        check_name(self.profile, where="experiment", label="profile")
        for setting in fields(self.task):
            value = getattr(self.task, setting.name)
            numbers = cast(tuple[Any, ...], value if isinstance(value, tuple) else (value,))
            if any(isinstance(number, int) and abs(number) > LARGEST for number in numbers):
                raise ValueError(f"{setting.name} must be at most {LARGEST}; got {describe_value(value)}.")

    @property
    def kind(self) -> str:
        """The name of the task."""
        return kind_of(self.task)

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "name": self.name,
            "profile": self.profile,
            "kind": self.kind,
            "task": to_json(self.task),
            "training": to_json(self.training),
        }

    @classmethod
    def from_json(cls, values: Any, *, where: str) -> "Experiment":
        """Read an experiment of this or an earlier format version; an error names the field that does not fit."""
        settings = cast(dict[str, Any], values) if isinstance(values, dict) else {}
        if settings.get("format") != FORMAT:
            raise ValueError(f'{where} does not describe an experiment: "format" must be "{FORMAT}".')
        version = settings.get("format_version", 1)
        if version not in range(1, FORMAT_VERSION + 1):
            raise ValueError(
                f"{where} has format version {describe_value(version)}; this picaset reads versions 1 to "
                f"{FORMAT_VERSION}. Install the picaset that wrote it."
            )
        fields = ("format", "format_version", "name", "profile", "kind", "task", "training")
        for name in settings:
            check_known(name, fields, where=where, label="field")
        for name in fields:
            if name not in settings and name != "format_version":
                raise ValueError(f"{where}: the field {name!r} is missing.")
        for name in ("name", "profile", "kind"):
            if not isinstance(settings[name], str):
                raise ValueError(f"{where}: {name} must be a text; got {describe_value(settings[name])}.")
        kind, described = settings["kind"], settings["task"]
        task = find_plugin_task(kind) if ":" in kind else TASKS.get(kind)
        if ":" not in kind:
            check_known(kind, TASKS, where=where, label="task")
        if task is None:
            task, described = UnknownTask, {"kind": kind, "settings": described}
        if version == 1 and isinstance(described, dict):
            described = upgraded(task, cast(dict[str, Any], described), where=where)
        described_task = from_json(task, described, where=f"{where}, task")
        training = from_json(Training, settings["training"], where=f"{where}, training")
        try:
            return cls(name=settings["name"], profile=settings["profile"], task=described_task, training=training)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None

    @classmethod
    def read(cls, path: Path) -> "Experiment":
        """Read an experiment from a file written by hand or by a run."""
        return cls.from_json(read_json(path), where=str(path))


def upgraded(task: type[Task], settings: dict[str, Any], *, where: str) -> dict[str, Any]:
    """Return the settings of a task in a record of format version 1 as those of today."""
    try:
        return task.upgrade(settings)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise ValueError(f"{where}, task: {error}") from None


def kind_of(task: Task) -> str:
    """Return the name of a task in ``config.json``; ``module:class`` if it is defined outside the package."""
    if isinstance(task, UnknownTask):
        return task.kind
    own = next((name for name, kind in TASKS.items() if isinstance(task, kind)), None)
    return own or f"{type(task).__module__}:{type(task).__qualname__}"


Profile = Literal["smoke", "quick", "paper", "study"]
Builder = Callable[[str, int], Experiment]
"""From a profile and a seed to an experiment."""
AnyTask = TypeVar("AnyTask", bound=Task)
Sizing = Callable[[AnyTask, int], tuple[AnyTask, Training]]
"""From a task and a seed to the task in the size of a profile, and its training."""


def builders(prefix: str, tasks: Mapping[str, AnyTask], profiles: Mapping[str, Sizing[AnyTask]]) -> dict[str, Builder]:
    """Return the experiments of a table by name, ``prefix-row``."""
    return {f"{prefix}-{row}": partial(build, f"{prefix}-{row}", task, profiles) for row, task in tasks.items()}


def build(name: str, task: AnyTask, profiles: Mapping[str, Sizing[AnyTask]], profile: str, seed: int) -> Experiment:
    """Return a task in the size of a profile as an experiment."""
    if profile not in profiles:
        raise ValueError(f"{name} has no profile {profile!r}; profiles are {', '.join(profiles)}.")
    sized, training = profiles[profile](task, seed)
    return Experiment(name=name, profile=profile, task=sized, training=training)
