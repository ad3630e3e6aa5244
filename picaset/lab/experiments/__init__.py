"""Named experiments: the rows of the paper's tables, and further ones, in several sizes."""

from typing import Any

from picaset.files import check_known
from picaset.lab.experiments.clustering import CLUSTERERS, CLUSTERING
from picaset.lab.experiments.odd_one_out import ODD_ONE_OUT
from picaset.lab.experiments.profiles import Builder, Profile
from picaset.lab.experiments.scenes import SCENES
from picaset.lab.experiments.study import STUDY
from picaset.lab.experiments.viewpoints import VIEWPOINTS
from picaset.lab.tasks.plugins import announced, import_from
from picaset.lab.training.experiment import Experiment

EXPERIMENTS: dict[str, Builder] = {**CLUSTERING, **CLUSTERERS, **VIEWPOINTS, **ODD_ONE_OUT, **SCENES}
"""Functions from a profile and a seed to an experiment, by name; each has the profiles smoke, quick and paper."""


def names_of(profile: Profile) -> list[str]:
    """Return the names of the experiments that have a profile."""
    return [*CLUSTERING, *STUDY] if profile == "study" else [*EXPERIMENTS, *announced()]


def experiment(name: str, *, profile: Profile = "quick", seed: int = 0) -> Experiment:
    """Return a named experiment in one of its sizes.

    The name is one of this package, one that an installed package announces, or ``module:function``.

    Example:
        >>> experiment("clustering-ae32-pb-sa", profile="smoke").training.steps
        20
    """
    known = EXPERIMENTS | STUDY
    if name in known:
        return known[name](profile, seed)
    points = announced()
    if ":" not in name:
        check_known(name, [*known, *points], where="picaset experiments", label="experiment")
    build: Any = import_from(points[name].value if name in points else name)
    built = build(profile, seed) if callable(build) else None
    if not isinstance(built, Experiment):
        got = f"it returned {type(built).__name__}" if callable(build) else f"it is of type {type(build).__name__}"
        raise ValueError(f"{name} must be a function of a profile and a seed that returns an Experiment; {got}.")
    return built
