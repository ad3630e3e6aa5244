"""Tasks: each has data, a network, a loss and a score.

A task is a frozen dataclass that is its own configuration, with the methods of :class:`Task`.
"""

from picaset.lab.tasks.clustering import Clustering
from picaset.lab.tasks.mixture_proposals import MixtureProposals
from picaset.lab.tasks.odd_one_out import OddOneOut
from picaset.lab.tasks.plugins import UnknownTask
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


def kind_of(task: Task) -> str:
    """Return the name of a task in ``config.json``; ``module:class`` if it is defined outside the package."""
    if isinstance(task, UnknownTask):
        return task.kind
    own = next((name for name, kind in TASKS.items() if isinstance(task, kind)), None)
    return own or f"{type(task).__module__}:{type(task).__qualname__}"
