"""Tasks: each has data, a network, a loss and a score.

A task is a frozen dataclass that is its own configuration, with the methods of :class:`Task`.
"""

from picaset.lab.tasks.clustering import Clustering
from picaset.lab.tasks.mixture_proposals import MixtureProposals
from picaset.lab.tasks.odd_one_out import OddOneOut
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
