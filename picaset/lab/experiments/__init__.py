"""Named settings: functions that return experiments, in three sizes.

smoke    the same path end to end in seconds; the tests train these
quick    minutes on two cores
paper    the published setting
"""

import difflib
from collections.abc import Callable
from typing import Literal

from picaset.lab.experiments.clustering import CLUSTERERS, CLUSTERING
from picaset.lab.experiments.odd_one_out import ODD_ONE_OUT
from picaset.lab.experiments.scenes import SCENES
from picaset.lab.experiments.viewpoints import VIEWPOINTS
from picaset.lab.training.experiment import Experiment

Profile = Literal["smoke", "quick", "paper"]

EXPERIMENTS: dict[str, Callable[[str, int], Experiment]] = {
    **CLUSTERING,
    **CLUSTERERS,
    **VIEWPOINTS,
    **ODD_ONE_OUT,
    **SCENES,
}
"""By name: from a profile and a seed to an experiment."""


def experiment(name: str, *, profile: Profile = "quick", seed: int = 0) -> Experiment:
    """A named experiment in one of its sizes.

    Example:
        >>> experiment("clustering-ae32-pb-sa", profile="smoke").training.steps
        20
    """
    if name not in EXPERIMENTS:
        close = difflib.get_close_matches(name, EXPERIMENTS, n=1)
        hint = f" Did you mean {close[0]}?" if close else ""
        raise ValueError(f"There is no experiment {name!r}.{hint} All of them: picaset experiments")
    return EXPERIMENTS[name](profile, seed)
