"""Named experiments: the rows of the paper's tables, and further ones, in several sizes; the runs of each table."""

from typing import Any

from picaset.files import check_known
from picaset.lab.experiments import odd_one_out, scenes, viewpoints
from picaset.lab.experiments.clustering import ABLATIONS, CANONICAL, CLUSTERERS, CLUSTERING, ROWS
from picaset.lab.experiments.odd_one_out import ODD_ONE_OUT
from picaset.lab.experiments.scenes import SCENES
from picaset.lab.experiments.study import STUDY
from picaset.lab.experiments.viewpoints import VIEWPOINTS
from picaset.lab.tasks.plugins import announced, import_from
from picaset.lab.training.experiment import Builder, Experiment, Profile

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


SEEDS = (0, 1, 2)
"""Seeds of the rows of the paper's main claims."""

TABLE_2 = [
    *((f"clustering-{name}", 0) for name in ROWS),
    ("clustering-ours", 0),
    *((f"clustering-{name}-canonical", 0) for name in CANONICAL),
    *((f"clustering-{name}", seed) for seed in SEEDS[1:] for name in CANONICAL),
    *((f"clustering-{name}-canonical", seed) for seed in SEEDS[1:] for name in CANONICAL),
    *(("clustering-ours", seed) for seed in SEEDS[1:]),
    *((f"clustering-ablation-{name}", 0) for name in ABLATIONS),
]
"""Name and seed of every run, the most important first."""

TABLE_3 = [
    *((f"viewpoints-{split}-{name}", 0) for name in viewpoints.ROWS for split in viewpoints.SPLITS),
    *(
        (f"viewpoints-{split}-{name}", seed)
        for seed in SEEDS[1:]
        for name in viewpoints.SEEDED
        for split in viewpoints.SPLITS
    ),
    *((f"viewpoints-{split}-{name}-toys", 0) for name in viewpoints.ROWS for split in viewpoints.SPLITS),
]
"""Photographs, and generated toys with one seed."""

TABLE_4 = [
    *((f"odd-one-out-celeba-{name}", 0) for name in odd_one_out.ROWS),
    *((f"odd-one-out-celeba-{name}", seed) for seed in SEEDS[1:] for name in odd_one_out.SEEDED),
    *((f"odd-one-out-celeba-{name}", 0) for name in odd_one_out.VARIANTS),
    *((f"odd-one-out-{name}", 0) for name in (*odd_one_out.ROWS, *odd_one_out.VARIANTS)),
]
"""Real faces, and drawn ones with one seed."""

TABLE_5 = [
    *((f"scenes-{row}-likelihood", 0) for row in scenes.ROWS),
    *((f"scenes-{name}", 0) for name in scenes.VARIANTS),
    *((f"scenes-{row}-likelihood", seed) for seed in SEEDS[1:] for row in (*scenes.SEEDED, "ours")),
    *(
        (f"scenes-{scenes.row_name(row, objective)}", seed)
        for seed in SEEDS
        for row in scenes.SEEDED
        for objective in scenes.WEIGHTINGS
    ),
    ("scenes-set-transformer", 0),
]
"""On generated scenes, which need no download, the most important first."""

TABLES: dict[str, list[tuple[str, int]]] = {"table2": TABLE_2, "table3": TABLE_3, "table4": TABLE_4, "table5": TABLE_5}


def tables_named(names: tuple[str, ...]) -> list[str]:
    """Return the tables of these names without repetition, or all of them if none is given."""
    for name in names:
        if name not in TABLES:
            raise ValueError(f"There is no table {name!r}; tables are {', '.join(TABLES)}.")
    return list(dict.fromkeys(names or TABLES))
