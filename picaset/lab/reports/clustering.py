"""Clustering under shift: Table 2, refinement by EM, other moves, and the ablations, from the records of runs."""

import statistics
from collections.abc import Sequence
from typing import Any

from picaset.lab.experiments.clustering import ABLATIONS, TABLE_ROWS
from picaset.lab.reports.published import TABLE_2, TABLE_2_ORACLE
from picaset.lab.reports.records import Record, time_taken
from picaset.lab.reports.table import Cell, Table, mean_and_spread
from picaset.lab.tasks.clustering import MOVES, SHIFTS, Clustering

NAMES = {
    "deepset-mean": "DeepSet, mean",
    "deepset-max": "DeepSet, maximum",
    "set-transformer": "Set Transformer",
    "ae16-pma": "AE16 + PMA",
    "ae32-pma": "AE32 + PMA",
    "ae16-pb": "AE16 + PB",
    "sa-pb": "SA + PB",
    "ae32-pb": "AE32 + PB",
    "ae32-pb-sa": "AE32 + PB + SA",
    "ours": "ours (claims, canonicalized)",
}
ABLATION_NAMES = {
    "no-residual": "without residual",
    "no-feed-forward": "without feed-forward",
    "steps1": "1 step (PMA)",
    "steps3": "3 steps",
    "steps4": "4 steps",
    "separate-weights": "weights of its own for each step",
    "paper-form": "the block as in the paper's Eq. 3",
    "norm": "with layer norm",
}


def rows_of(records: Sequence[Record], name: str) -> list[Record]:
    """The runs of one row of a table, one for each seed."""
    return [record for record in records if record.experiment.name == f"clustering-{name}"]


def likelihoods(records: Sequence[Record], *, move: int, em_steps: int = 0) -> list[float]:
    """Of each seed, under the move of that number."""
    return [record.result["moves"][move]["log_likelihood"][str(em_steps)] for record in records]


def oracle(records: Sequence[Record], move: int = 0) -> float:
    return records[0].result["moves"][move]["oracle"]


def seeds(runs: Sequence[Record]) -> str:
    return "one seed" if len(runs) == 1 else f"{len(runs)} seeds"


def table_2(records: Sequence[Record]) -> Table | None:
    """Every row of the paper's table, ours beside theirs, then the rows beyond it."""
    found = {name: runs for name in TABLE_ROWS if (runs := rows_of(records, name))}
    if not found:
        return None
    best = [
        max(statistics.fmean(likelihoods(runs, move=move)) for runs in found.values()) for move in range(len(SHIFTS))
    ]
    rows = list[list[Cell]]()
    for name, runs in found.items():
        published = TABLE_2.get(name) if as_published(runs[0]) else None
        cells = [
            beside(likelihoods(runs, move=move), published[move] if published else None, best[move])
            for move in range(len(SHIFTS))
        ]
        parameters = f"{runs[0].result['parameters'] / 1e3:.0f}k"
        rows.append([Cell(in_words(name)), Cell(parameters), Cell(seeds(runs)), *cells])
    first = next(iter(found.values()))
    rows.append(
        [
            Cell("oracle"),
            Cell(""),
            Cell(""),
            *(
                Cell(f"{oracle(first, move):.3f}", f"paper {TABLE_2_ORACLE}" if as_published(first[0]) else "")
                for move in range(len(SHIFTS))
            ),
        ]
    )
    return Table(
        "Table 2: average log-likelihood per point when the points are shifted",
        ["architecture", "parameters", "", *(f"{shift:+d}" if shift else "0" for shift in SHIFTS)],
        rows,
        [
            setting([record for runs in found.values() for record in runs]),
            "Below each number the paper's, and ours minus theirs; ± is the standard deviation over seeds.",
        ],
    )


def as_published(record: Record) -> bool:
    """Whether it was scored on sets like those of the paper, so that numbers may stand side by side."""
    task = record.experiment.task
    assert isinstance(task, Clustering)
    return task.sizes == (300, 600) and task.num_benchmark_sets >= 1000


def setting(records: Sequence[Record]) -> str:
    """What a reader must know of how the runs were made, and what the paper did."""
    budgets = dict[str, list[Record]]()
    for record in records:
        training = record.experiment.training
        budgets.setdefault(f"{training.steps:,} steps of {training.batch_size} sets".replace(",", " "), []).append(
            record
        )
    usual, *others = sorted(budgets, key=lambda budget: -len(budgets[budget]))
    exceptions = "".join(
        f" ({', '.join(sorted({in_words(name_of(record)) for record in budgets[other]}))}: {other})" for other in others
    )
    hardware = " or ".join(sorted({record.environment["hardware"] for record in records}))
    return (
        f"Profile {records[0].experiment.profile}: every row {usual}, the same sets for the same seed{exceptions}; "
        f"{time_taken(records)} each on {hardware}. Scored on "
        f"{records[0].environment['data']}. The paper used 50 000 steps of 10 sets. "
        "docs/reproduction.md lists what else differs."
    )


def name_of(record: Record) -> str:
    return record.experiment.name.removeprefix("clustering-")


def beside(found: Sequence[float], published: float | None, best: float) -> Cell:
    mean = statistics.fmean(found)
    theirs = "" if published is None else f"paper {published:.3f} ({mean - published:+.3f})"
    return Cell(mean_and_spread(found), theirs, best=mean >= best - 1e-9)


def in_words(name: str) -> str:
    if name.startswith("ablation-"):
        return ABLATION_NAMES[name.removeprefix("ablation-")]
    base = name.removesuffix("-canonical")
    return NAMES[base] + (", canonicalized" if name != base else "")


def refinement(records: Sequence[Record], baselines: Sequence[dict[str, Any]]) -> Table:
    """The network alone and after EM steps, beside scikit-learn, with the time per set."""
    rows = list[list[Cell]]()
    far = SHIFTS.index(-12)
    for name in TABLE_ROWS:
        if runs := rows_of(records, name):
            cells = [
                Cell(mean_and_spread(likelihoods(runs, move=move, em_steps=steps)))
                for move in (0, far)
                for steps in (0, 1, 5)
            ]
            milliseconds = statistics.fmean(record.result["milliseconds_per_set"] for record in runs)
            rows.append([Cell(in_words(name)), *cells, Cell(f"{milliseconds:.2f}")])
    for baseline in baselines:
        starts = baseline["num_starts"]
        near, distant = (f"{baseline['moves'][move]['log_likelihood']:.3f}" for move in (0, far))
        rows.append(
            [
                Cell(f"scikit-learn, {starts} start{'s' * (starts > 1)}"),
                *(Cell(text) for text in ("", "", near, "", "", distant)),
                Cell(f"{baseline['milliseconds_per_set']:.2f}"),
            ]
        )
    return Table(
        "Refined by EM, and what it costs",
        [
            "method",
            "shift 0: alone",
            "1 EM step",
            "5 EM steps",
            "shift -12: alone",
            "1 EM step",
            "5 EM steps",
            "ms a set",
        ],
        rows,
        [
            f"The oracle has {oracle(records):.3f}; a fitted mixture may pass it, since it is scored on the points "
            "that it saw. Time is of the network alone, in batches of ten, while other runs kept the machine busy.",
            *(
                ["scikit-learn runs EM until it converges; its time is that of fitting, one set at a time."]
                * bool(baselines)
            ),
        ],
    )


def other_moves(records: Sequence[Record]) -> Table:
    """How far below the oracle each row is when points are scaled or rotated."""
    moves = [index for index, move in enumerate(MOVES) if move.scale != 1 or move.degrees]
    names = [name for name in TABLE_ROWS if rows_of(records, name)]
    rows = [
        [Cell(in_words(name)), *(Cell(below(rows_of(records, name), move)) for move in (0, *moves))] for name in names
    ]
    return Table(
        "Beyond the paper: below the oracle when points are scaled or rotated",
        ["architecture", "as in training", *(str(MOVES[move]) for move in moves)],
        rows,
        ["Nats per point below the mixture that the points come from; lower is better."],
    )


def below(runs: Sequence[Record], move: int) -> str:
    return mean_and_spread([oracle(runs, move) - found for found in likelihoods(runs, move=move)])


def ablations(records: Sequence[Record]) -> Table | None:
    """AE32 + PB + SA without each of its parts."""
    full = rows_of(records, "ae32-pb-sa")
    found = {name: runs for name in ABLATIONS if (runs := rows_of(records, f"ablation-{name}"))}
    if not full or not found:
        return None
    rows = [
        [Cell(label), Cell(f"{runs[0].result['parameters'] / 1e3:.0f}k"), Cell(seeds(runs))]
        + [Cell(mean_and_spread(likelihoods(runs, move=move))) for move in range(len(SHIFTS))]
        for label, runs in [
            ("AE32 + PB + SA, 2 steps", full),
            *((ABLATION_NAMES[name], runs) for name, runs in found.items()),
        ]
    ]
    return Table(
        "Ablations: AE32 + PB + SA with one thing changed",
        ["", "parameters", "", *(f"{shift:+d}" if shift else "0" for shift in SHIFTS)],
        rows,
        [setting([*full, *(record for runs in found.values() for record in runs)])],
    )
