"""Profiles: every experiment in several sizes.

smoke    the same code path in seconds; the tests train these
quick    minutes on two cores
paper    the published setting
study    the controlled study of study.py, and Table 2 with the published budget
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal, TypeVar

from picaset.lab.tasks.task import Task
from picaset.lab.training.experiment import Experiment, Training

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
