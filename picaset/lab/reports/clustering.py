"""Clustering under shift: Table 2, refinement by EM, other moves, and the ablations, from the records of runs.

Figures of the clustering experiment, from the records of runs: clusters under shift, likelihood against shift, the
cascade at work, and learning curves.
"""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from picaset.estimators.mixture_plot import Panel, draw_panel
from picaset.figures import COLOURS, new_figure, write_figure
from picaset.lab.data.gaussian_mixtures import benchmark
from picaset.lab.experiments.clustering import ABLATIONS, ROWS, TABLE_ROWS
from picaset.lab.reports.published import TABLE_2, TABLE_2_ORACLE
from picaset.lab.reports.records import Record, time_taken
from picaset.lab.reports.table import Cell, Table, mean_and_spread
from picaset.lab.tasks.clustering import MOVES, NUM_SHOWN, SHIFTS, Clustering

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


def shown_points(record: Record) -> NDArray[np.float32]:
    """The sets whose predictions a record keeps: the first of the benchmark."""
    assert isinstance(record.experiment.task, Clustering)
    points, _ = next(benchmark(NUM_SHOWN, sizes=record.experiment.task.sizes))
    return points.numpy()


def draw_clusters_under_shift(records: Sequence[Record], folder: Path) -> list[Path]:
    """Figure 4: what PICASO (above) and Set Transformer (below) make of shifted points."""
    rows = [(name, runs[0]) for name in ("ae32-pb-sa", "set-transformer") if (runs := rows_of(records, name))]
    shifts = (0, 8, -10)
    figure = new_figure(11, 3.6 * len(rows))
    axes = figure.subplots(len(rows), len(shifts), squeeze=False)
    for axis_row, (name, record) in zip(axes, rows, strict=True):
        for axis, shift in zip(axis_row, shifts, strict=True):
            points = shown_points(record)[0] + shift
            draw_mixture(axis, points, record.result["shown"]["predictions"][f"{shift:+d}"], 0)
            axis.set_title(
                f"{in_words(name)}, shift {shift:+d}" if shift else f"{in_words(name)}, not shifted", fontsize=11
            )
            frame(axis, points)
    return write_figure(figure, folder, "clusters_under_shift")


def draw_mixture(axis: Any, points: NDArray[np.float32], mixtures: dict[str, Any], index: int) -> None:
    """Points in the colour of the component that claims them, and an ellipse of two deviations for each component."""
    means, variances, log_weights = (np.array(mixtures[name][index]) for name in ("means", "variances", "log_weights"))
    squares = ((points[None] - means[:, None]) ** 2).sum(axis=-1)  # (K, N)
    joint = log_weights[:, None] - np.log(variances) - 0.5 * squares / variances
    panel = Panel("", points, joint.argmax(axis=0), means, np.broadcast_to(variances, means.shape))
    draw_panel(axis, panel)


def frame(axis: Any, points: NDArray[np.float32]) -> None:
    """The same window around the points, whatever was predicted outside of it."""
    middle = (points.min(axis=0) + points.max(axis=0)) / 2
    half = float((points.max(axis=0) - points.min(axis=0)).max()) / 2 * 1.25
    axis.set(xlim=(middle[0] - half, middle[0] + half), ylim=(middle[1] - half, middle[1] + half), aspect="equal")
    axis.tick_params(labelsize=8, colors="#777777")
    axis.grid(color="#eeeeee")
    axis.set_axisbelow(True)


def draw_likelihood_against_shift(records: Sequence[Record], folder: Path) -> list[Path]:
    """Every row, and the oracle: plain networks on the left, canonicalized ones on the right."""
    order = sorted(range(len(SHIFTS)), key=lambda index: SHIFTS[index])
    shifts = [SHIFTS[index] for index in order]
    plain = [name for name in ROWS if rows_of(records, name)]
    moving = [name for name in TABLE_ROWS if name not in ROWS and rows_of(records, name)]
    figure = new_figure(12, 4.6)
    left, right = figure.subplots(1, 2, sharey=True)
    for axis, names, title in ((left, plain, "as published"), (right, moving, "canonicalized")):
        for number, name in enumerate(names):
            runs = rows_of(records, name)
            means = [statistics.fmean(likelihoods(runs, move=index)) for index in order]
            style = "-" if number < len(COLOURS) else "--"
            axis.plot(shifts, means, style, marker="o", markersize=4, color=COLOURS[number % len(COLOURS)],
                      label=in_words(name))  # fmt: skip
        if names:
            level = oracle(rows_of(records, names[0]))
            axis.axhline(level, color="#555555", linestyle=":", linewidth=1.5, label="oracle")
            axis.legend(frameon=False, fontsize=8, loc="lower center", ncols=2)
        axis.set(title=title, xlabel="shift of both coordinates")
        axis.set_xticks(shifts)
        axis.grid(color="#eeeeee")
    left.set_ylabel("log-likelihood per point")
    left.set_yscale("symlog", linthresh=2)
    left.set_ylim(-80, -1.3)
    left.set_yticks([-1.5, -2, -3, -5, -10, -20], ["-1.5", "-2", "-3", "-5", "-10", "-20"])
    return write_figure(figure, folder, "likelihood_against_shift")


def draw_cascade(records: Sequence[Record], folder: Path) -> list[Path]:
    """What each template looks at, step by step, on one set; brightness is attention, averaged over heads."""
    for name in ("ours", "ae32-pb-sa-canonical", "ae32-pb-sa"):
        if runs := rows_of(records, name):
            break
    else:
        return []
    record = runs[0]
    attention = np.array(record.result["shown"]["attention"])  # (L, K, N)
    points = shown_points(record)[0]
    steps, templates, _ = attention.shape
    figure = new_figure(2.7 * templates, 2.9 * steps)
    for row, axis_row in enumerate(figure.subplots(steps, templates, squeeze=False)):
        for column, axis in enumerate(axis_row):
            weights = attention[row, column]
            order = weights.argsort()
            axis.scatter(*points[order].T, c=np.sqrt(weights[order]), s=9, cmap="viridis", linewidths=0)
            axis.set_title(f"step {row + 1}, template {column + 1}", fontsize=10)
            frame(axis, points)
            mean = (weights[:, None] * points).sum(axis=0) / weights.sum()
            axis.plot(*mean, marker="+", markersize=12, markeredgewidth=2.5, color=COLOURS[1])
    figure.suptitle(
        f"The cascade of {in_words(name)} at work; a cross marks the mean of what a template looks at", fontsize=11
    )
    return write_figure(figure, folder, "cascade_at_work")


def draw_learning_curves(records: Sequence[Record], folder: Path) -> list[Path]:
    """The score while training, of every row."""
    figure = new_figure(8, 4.4)
    axis = figure.subplots()
    names = [name for name in TABLE_ROWS if rows_of(records, name)]
    for number, name in enumerate(names):
        record = rows_of(records, name)[0]
        steps, scores = zip(*((row["step"], row["below_oracle"]) for row in record.metrics), strict=True)
        axis.plot(steps, scores, "-" if number < len(COLOURS) else "--", color=COLOURS[number % len(COLOURS)],
                  label=in_words(name))  # fmt: skip
    axis.set(xlabel="step", ylabel="below the oracle, nats per point", yscale="log")
    axis.grid(color="#eeeeee", which="both")
    axis.legend(frameon=False, fontsize=8, ncols=2)
    return write_figure(figure, folder, "learning_curves")


def draw_all(records: Sequence[Record], folder: Path) -> dict[str, list[Path]]:
    """Every figure that the records allow, by its caption."""
    figures: dict[str, list[Path]] = {}
    if rows_of(records, "ae32-pb-sa") or rows_of(records, "set-transformer"):
        figures[
            "Figure 4: one set, not shifted and shifted. Circles are two standard deviations of each predicted "
            "component; points have the colour of the component that claims them."
        ] = draw_clusters_under_shift(records, folder)
    figures["Log-likelihood against shift, and the mixtures that the points come from (oracle)."] = (
        draw_likelihood_against_shift(records, folder)
    )
    if cascade := draw_cascade(records, folder):
        figures["The cascade at work: brighter points get more attention."] = cascade
    figures["The score on a hundred sets while training."] = draw_learning_curves(records, folder)
    return figures
