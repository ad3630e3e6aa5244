"""Named experiments: the rows of the paper's tables, and further ones, in several sizes."""

from picaset.files import check_known
from picaset.lab.experiments.clustering import CLUSTERERS, CLUSTERING
from picaset.lab.experiments.odd_one_out import ODD_ONE_OUT
from picaset.lab.experiments.profiles import Builder, Profile
from picaset.lab.experiments.scenes import SCENES
from picaset.lab.experiments.study import STUDY
from picaset.lab.experiments.viewpoints import VIEWPOINTS
from picaset.lab.training.experiment import Experiment

EXPERIMENTS: dict[str, Builder] = {**CLUSTERING, **CLUSTERERS, **VIEWPOINTS, **ODD_ONE_OUT, **SCENES}
"""Functions from a profile and a seed to an experiment, by name; each has the profiles smoke, quick and paper."""


def names_of(profile: Profile) -> list[str]:
    """Return the names of the experiments that have a profile."""
    return [*CLUSTERING, *STUDY] if profile == "study" else list(EXPERIMENTS)


def experiment(name: str, *, profile: Profile = "quick", seed: int = 0) -> Experiment:
    """Return a named experiment in one of its sizes.

    Example:
        >>> experiment("clustering-ae32-pb-sa", profile="smoke").training.steps
        20
    """
    known = EXPERIMENTS | STUDY
    check_known(name, known, where="picaset experiments", what="experiment")
    return known[name](profile, seed)
