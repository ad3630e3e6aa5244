"""The runs of each table of the paper."""

from picaset.lab.experiments import odd_one_out, scenes, viewpoints
from picaset.lab.experiments.clustering import ABLATIONS, CANONICAL, ROWS

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
