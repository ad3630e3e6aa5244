"""What is asked of a set: each task is data, a network, a loss and a score.

A task is a frozen dataclass, so that it is its own configuration, and has the methods of :class:`Task`.
"""

from picaset.tasks.clustering import Clustering
from picaset.tasks.mixture_proposals import MixtureProposals
from picaset.tasks.odd_one_out import OddOneOut
from picaset.tasks.scenes import SceneObjects
from picaset.tasks.task import Task
from picaset.tasks.viewpoints import Viewpoints

TASKS: dict[str, type[Task]] = {
    "clustering": Clustering,
    "mixture-proposals": MixtureProposals,
    "odd-one-out": OddOneOut,
    "scenes": SceneObjects,
    "viewpoints": Viewpoints,
}
"""By the name that stands in ``config.json``."""
