"""Experiments and tasks that are defined outside the package.

A package announces its experiments as entry points of the group ``picaset.experiments``; a module that is not installed
is named on the command line, ``module:function``. Nothing else is imported: a run directory names its task, and a task
whose module was neither imported nor announced is read as an :class:`UnknownTask`, which can be reported only.
"""

import os
import sys
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from picaset.files import check_known
from picaset.lab.tasks.task import PLUGIN_TASKS, Task
from picaset.terminal import say

GROUP = "picaset.experiments"


def announced() -> dict[str, EntryPoint]:
    """Return the experiments that installed packages announce, by name."""
    return {point.name: point for point in entry_points(group=GROUP)}


def import_from(path: str) -> Any:
    """Return an object that is named as ``module:name``; the module may be in the working directory."""
    module_name, _, name = path.partition(":")
    if not all(map(str.isidentifier, module_name.split("."))):
        raise ValueError(f"an experiment must be MODULE:FUNCTION, such as my_experiments:drawings; got {path!r}.")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # a module that this one imports
        raise ValueError(
            f"{path}: there is no module {error.name}; run this in its folder, or install its package."
        ) from None
    check_known(name, [key for key in vars(module) if not key.startswith("_")], where=module_name, label="name")
    return getattr(module, name)


def find_plugin_task(kind: str) -> type[Task] | None:
    """Return a task by ``module:class``, if its module is imported or its package announces an experiment."""
    if kind not in PLUGIN_TASKS:
        package = kind.partition(":")[0].partition(".")[0]
        for point in announced().values():
            if point.module.partition(".")[0] == package:
                try:
                    point.load()
                except Exception as error:  # a broken package must not stop a report of other runs
                    say(f"picaset: {point.value} cannot be imported: {error!r}", error=True)
    return PLUGIN_TASKS.get(kind)


@dataclass(frozen=True, kw_only=True, slots=True)
class UnknownTask(Task):
    """The task of a run whose module is not imported; its results can be reported, and nothing else."""

    network: Any = None
    kind: str
    settings: Any

    def refuse(self, *_: Any, **__: Any) -> Any:
        """Raise the error of every method."""
        raise ValueError(
            f"the task {self.kind} is not known here; name its experiment as MODULE:FUNCTION, "
            f"where MODULE imports {self.kind.partition(':')[0]}, or install its package."
        )

    build_network = read_network = batch = loss = score = evaluate = describe_data = refuse

    def to_json(self) -> Any:
        """Return the settings as they were read."""
        return self.settings
