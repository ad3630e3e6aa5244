"""Which runs a table of the paper is made of."""

from picaset.experiments.clustering import ABLATIONS, CANONICAL, ROWS

SEEDS = (0, 1, 2)
"""Of the rows that the paper's claims rest on."""

TABLE_2 = [
    *((f"clustering-{name}", 0) for name in ROWS),
    ("clustering-ours", 0),
    *((f"clustering-{name}-canonical", 0) for name in CANONICAL),
    *((f"clustering-{name}", seed) for seed in SEEDS[1:] for name in CANONICAL),
    *((f"clustering-{name}-canonical", seed) for seed in SEEDS[1:] for name in CANONICAL),
    *(("clustering-ours", seed) for seed in SEEDS[1:]),
    *((f"clustering-ablation-{name}", 0) for name in ABLATIONS),
]
"""Name and seed of every run, the most telling first."""

TABLES: dict[str, list[tuple[str, int]]] = {"table2": TABLE_2}


def tables_named(names: tuple[str, ...]) -> list[str]:
    """The tables of these names, or all of them if there are none."""
    for name in names:
        if name not in TABLES:
            raise ValueError(f"There is no table {name!r}; tables are {', '.join(TABLES)}.")
    return list(names or TABLES)
