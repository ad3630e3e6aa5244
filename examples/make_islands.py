"""Generate the data of ``picaset cluster --example``: nests on six fictional islands.

The islands differ in position, size and number of colonies (two to five).

    python examples/make_islands.py --out picaset/tables/islands.csv
"""

import argparse
import csv
from pathlib import Path

import numpy as np

ISLANDS = {"Auk": 3, "Bittern": 2, "Curlew": 4, "Dunlin": 5, "Eider": 3, "Fulmar": 4}
"""Number of colonies by island."""


def nests(num_colonies: int, random: np.random.Generator) -> np.ndarray:
    """Sample nests of an island somewhere in an archipelago, as kilometres east and north."""
    middle, radius = random.uniform(-400, 400, 2), random.uniform(1, 30)
    colonies = random.uniform(-radius, radius, (num_colonies, 2))
    sizes = random.multinomial(int(random.integers(90, 220)), random.dirichlet(np.full(num_colonies, 3.0)))
    spread = radius * random.uniform(0.06, 0.18, num_colonies)
    return middle + np.concatenate(
        [
            colony + width * random.standard_normal((size, 2))
            for colony, width, size in zip(colonies, spread, sizes, strict=True)
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("picaset/tables/islands.csv"))
    parser.add_argument("--seed", type=int, default=11)
    arguments = parser.parse_args()
    random = np.random.default_rng(arguments.seed)
    with arguments.out.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["island", "east", "north"])
        for island, num_colonies in ISLANDS.items():
            for east, north in nests(num_colonies, random):
                writer.writerow([island, f"{east:.3f}", f"{north:.3f}"])


if __name__ == "__main__":
    main()
