"""Train the runs of the controlled study one after the other, on one thread, resuming what was interrupted.

    PICASET_DATA=... python examples/run_study.py --out runs                 # everything, days of one core
    PICASET_DATA=... python examples/run_study.py --out runs --only cascade  # runs whose name contains "cascade"
    python examples/run_study.py --list                                      # names and seeds, in their order

A finished run is skipped, so the script can be stopped at any moment and started again.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

from picaset.lab.experiments import experiment
from picaset.lab.experiments.study import CASCADES, CENTRE_ROWS, CLUSTERING_POOLS, FACES, FAIR_RECIPES, VIEWPOINT_POOLS
from picaset.lab.experiments.viewpoints import SPLITS
from picaset.lab.training.loop import resume, start
from picaset.lab.training.run_directory import run_name

TABLE_2 = ("ae32-pb-sa", "set-transformer", "ae32-pb")
SEEDS = {"set-transformer": 5, "pb3": 5, "pb1": 3}
"""Rows of Table 3 that the claims compare; the others have two seeds."""


def runs() -> Iterator[tuple[str, int]]:
    """Yield the name and the seed of every run, the most important first."""
    for row in TABLE_2:
        yield f"clustering-{row}", 0
    for seed in range(3):
        yield from ((f"viewpoints-azimuth-pool-{pool}", seed) for pool in VIEWPOINT_POOLS)
    for seed in range(5):
        yield from ((f"clustering-cascade-{row}", seed) for row in CASCADES)
    for seed in range(3):
        yield from ((f"clustering-pool-{pool}", seed) for pool in CLUSTERING_POOLS)
    for seed in range(3):
        yield from ((f"odd-one-out-celeba-pool-{row}", seed) for row in FACES)
    for seed in range(5):
        for row in FAIR_RECIPES:
            if seed < SEEDS.get(row, 2):
                yield from ((f"viewpoints-{split}-fair-{row}", seed) for split in SPLITS)
    for seed in range(3):
        yield from ((f"viewpoints-azimuth-centre-{row}", seed) for row in CENTRE_ROWS)
    for seed in (1, 2):
        yield from ((f"clustering-{row}", seed) for row in TABLE_2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs"), help="parent of the run directories")
    parser.add_argument("--only", default="", help="text that the names of the runs contain")
    parser.add_argument("--list", action="store_true", help="print names and seeds, and train nothing")
    arguments = parser.parse_args()
    for name, seed in runs():
        if arguments.only not in name:
            continue
        if arguments.list:
            print(name, seed)
            continue
        path = arguments.out / run_name(name, "study", seed)
        if path.exists():
            resume(path, threads=1)
        else:
            start(experiment(name, profile="study", seed=seed), path, threads=1)


if __name__ == "__main__":
    main()
