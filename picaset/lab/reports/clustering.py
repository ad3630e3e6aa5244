"""Clustering under shift: Table 2 of the paper, refinement by EM, scaled and rotated points, ablations, and figures."""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from picaset.estimators.mixture_plot import Panel, draw_panel
from picaset.figures import (
    COLOURS,
    GRID,
    MAX_STEPS,
    MAX_TEMPLATES,
    REFERENCE,
    draw_curves,
    draw_learning_curves,
    new_figure,
    spread,
    write_figure,
)
from picaset.files import read_json, read_value
from picaset.lab.data.gaussian_mixtures import benchmark_sets
from picaset.lab.experiments.clustering import ABLATIONS, ROWS, TABLE_ROWS
from picaset.lab.reports.page import (
    Cell,
    Figures,
    Reporter,
    Table,
    format_mean,
    group_digits,
    highest_mean,
    row_heading,
    score_cell,
)
from picaset.lab.reports.published import TABLE_2, TABLE_2_ORACLE
from picaset.lab.reports.records import Record, all_runs, hardware_of, runs_named, training_time
from picaset.lab.reports.schemas import Baselines, ClusteringResult
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
"""Labels of the rows of Table 2."""
ABLATION_NAMES = {
    "no-residual": "without residual",
    "no-feed-forward": "without feed-forward",
    "steps1": "1 step (PMA)",
    "steps3": "3 steps",
    "steps4": "4 steps",
    "separate-weights": "separate weights for each step",
    "paper-form": "the block as in the paper's Eq. 3",
    "norm": "with layer norm",
}
"""Labels of the ablations."""
SHIFT_COLUMNS = [f"{shift:+d}" if shift else "0" for shift in SHIFTS]


def row_label(name: str) -> str:
    if name.startswith("ablation-"):
        return ABLATION_NAMES[name.removeprefix("ablation-")]
    base = name.removesuffix("-canonical")
    return NAMES[base] + (", canonicalized" if name != base else "")


def row_name(record: Record) -> str:
    return record.experiment.name.removeprefix("clustering-")


def find_rows(records: Sequence[Record], names: Sequence[str] = TABLE_ROWS) -> dict[str, list[Record]]:
    """Return the runs of each row that has any, one for each seed."""
    return {name: runs for name in names if (runs := runs_named(records, f"clustering-{name}"))}


def likelihoods(runs: Sequence[Record], *, move: int, em_steps: int = 0) -> list[float]:
    """Return the log-likelihood per point of each seed, under the move with this index and after EM steps."""
    return [record.result["moves"][move]["log_likelihood"][str(em_steps)] for record in runs]


def oracle(records: Sequence[Record], move: int = 0) -> float:
    """Return the log-likelihood per point of the mixtures that generated the data."""
    return records[0].result["moves"][move]["oracle"]


def table_2(records: Sequence[Record]) -> Table | None:
    """Build the paper's table, with the published numbers, followed by the rows beyond it."""
    rows = find_rows(records)
    if not rows:
        return None
    runs = all_runs(rows)
    highest = [highest_mean(likelihoods(seeds, move=move) for seeds in rows.values()) for move in range(len(SHIFTS))]
    cells = list[list[Cell]]()
    for name, seeds in rows.items():
        published = TABLE_2.get(name) if is_comparable(seeds[0]) else None
        scores = [
            score_cell(
                likelihoods(seeds, move=move), highest=highest[move], published=published[move] if published else None
            )
            for move in range(len(SHIFTS))
        ]
        cells.append([*row_heading(row_label(name), seeds), *scores])
    beside_paper = is_comparable(runs[0])
    paper = f"paper {TABLE_2_ORACLE}" if beside_paper else ""
    scores = [Cell(f"{oracle(runs, move):.3f}", paper) for move in range(len(SHIFTS))]
    cells.append([Cell("oracle"), Cell(""), Cell(""), *scores])
    return Table(
        "Table 2: average log-likelihood per point when the points are shifted",
        ["architecture", "parameters", "", *SHIFT_COLUMNS],
        cells,
        [
            describe_setting(runs),
            "Below each number: the published one, and the difference. " * beside_paper
            + "± is the standard deviation over seeds.",
        ],
    )


def is_comparable(record: Record) -> bool:
    """Whether the run was evaluated on sets like those of the paper, so that published numbers may stand beside it."""
    task = record.task_as(Clustering)
    return task.sizes == (300, 600) and task.num_benchmark_sets >= 1000


def describe_setting(records: Sequence[Record]) -> str:
    """Describe how the runs were trained and evaluated, and the setting of the paper."""
    budgets = dict[str, list[Record]]()
    for record in records:
        training = record.experiment.training
        budget = f"{group_digits(training.steps)} steps of {training.batch_size} sets"
        budgets.setdefault(budget, []).append(record)
    usual, *others = sorted(budgets, key=lambda budget: -len(budgets[budget]))
    exceptions = "".join(
        f" ({', '.join(sorted({row_label(row_name(record)) for record in budgets[other]}))}: {other})"
        for other in others
    )
    return (
        f"Profile {records[0].experiment.profile}: every row {usual}, the same sets for the same seed{exceptions}; "
        f"{training_time(records)} each on {hardware_of(records)}. Evaluated on "
        f"{records[0].environment['data']}. The paper trains for 50 000 steps of 10 sets. "
        "docs/reproduction.md lists the other differences."
    )


def refinement(records: Sequence[Record], baselines: Sequence[dict[str, Any]]) -> Table | None:
    """Build the table of log-likelihoods before and after EM steps, with scikit-learn and the time per set."""
    rows = find_rows(records)
    if not rows:
        return None
    far = SHIFTS.index(-12)
    cells = list[list[Cell]]()
    for name, runs in rows.items():
        scores = [
            Cell(format_mean(likelihoods(runs, move=move, em_steps=steps))) for move in (0, far) for steps in (0, 1, 5)
        ]
        milliseconds = statistics.fmean(record.result["milliseconds_per_set"] for record in runs)
        cells.append([Cell(row_label(name)), *scores, Cell(f"{milliseconds:.2f}")])
    for baseline in baselines:
        starts = baseline["num_starts"]
        near, distant = (f"{baseline['moves'][move]['log_likelihood']:.3f}" for move in (0, far))
        cells.append(
            [
                Cell(f"scikit-learn, {starts} start{'s' * (starts > 1)}"),
                *(Cell(text) for text in ("", "", near, "", "", distant)),
                Cell(f"{baseline['milliseconds_per_set']:.2f}"),
            ]
        )
    steps = ("alone", "1 EM step", "5 EM steps")
    notes = [
        f"The oracle reaches {oracle(records):.3f}; a fitted mixture may exceed it, because it is evaluated on the "
        "points it was fitted to. The time is that of the network alone, in batches of ten sets, on a "
        "machine with other load."
    ]
    if baselines:
        notes.append("scikit-learn runs EM to convergence; its time is that of fitting one set at a time.")
    return Table(
        "Refinement by EM, and its cost",
        ["method", f"shift 0: {steps[0]}", *steps[1:], f"shift -12: {steps[0]}", *steps[1:], "ms per set"],
        cells,
        notes,
    )


def scaled_and_rotated(records: Sequence[Record]) -> Table | None:
    """Build the table of gaps to the oracle when points are scaled or rotated."""
    rows = find_rows(records)
    if not rows:
        return None
    moves = [index for index, move in enumerate(MOVES) if move.scale != 1 or move.degrees]

    def gap(runs: Sequence[Record], move: int) -> Cell:
        return Cell(format_mean([oracle(runs, move) - value for value in likelihoods(runs, move=move)]))

    return Table(
        "Beyond the paper: gap to the oracle when points are scaled or rotated",
        ["architecture", "as in training", *(str(MOVES[move]) for move in moves)],
        [[Cell(row_label(name)), *(gap(runs, move) for move in (0, *moves))] for name, runs in rows.items()],
        ["Nats per point below the mixture that generated the points; lower is better."],
    )


def ablations(records: Sequence[Record]) -> Table | None:
    """Build the table of AE32 + PB + SA with one part changed at a time."""
    full = runs_named(records, "clustering-ae32-pb-sa")
    changed = find_rows(records, [f"ablation-{name}" for name in ABLATIONS])
    if not full or not changed:
        return None
    rows = {"AE32 + PB + SA, 2 steps": full} | {row_label(name): runs for name, runs in changed.items()}
    return Table(
        "Ablations: AE32 + PB + SA with one part changed",
        ["", "parameters", "", *SHIFT_COLUMNS],
        [
            [*row_heading(label, runs), *(score_cell(likelihoods(runs, move=move)) for move in range(len(SHIFTS)))]
            for label, runs in rows.items()
        ],
        [describe_setting(all_runs(rows))],
    )


def baselines_file(profile: str) -> str:
    """Return the name of the file with scikit-learn's scores; each profile is evaluated on sets of its own."""
    return f"clustering-scikit-learn-{profile}.json"


def read_baselines(folders: Sequence[Path], profile: str) -> list[dict[str, Any]]:
    """Read the scores of scikit-learn on the sets of a profile, from the first folder that has them."""
    for folder in folders:
        if (path := folder / baselines_file(profile)).is_file():
            rows = read_value(read_json(path), Baselines, where=str(path), name="")["rows"]
            if any(len(row["moves"]) < len(SHIFTS) for row in rows):
                raise ValueError(
                    f"{path} must have scores for {len(SHIFTS)} shifts; remove it; it will be regenerated."
                )
            return rows
    return []


def build_tables(runs: Sequence[Record], folders: Sequence[Path]) -> list[Table]:
    baselines = read_baselines(folders, runs[0].experiment.profile)
    tables = [table_2(runs), refinement(runs, baselines), scaled_and_rotated(runs), ablations(runs)]
    return [table for table in tables if table is not None]


def benchmark_points(record: Record) -> NDArray[np.float32]:
    """Return the first test sets, whose predictions a record stores."""
    points, _ = next(benchmark_sets(NUM_SHOWN, sizes=record.task_as(Clustering).sizes))
    return points.numpy()


def draw_clusters_under_shift(records: Sequence[Record], folder: Path) -> list[Path]:
    """Draw Figure 4 of the paper: the clusters that PICASO (above) and Set Transformer (below) predict."""
    rows = find_rows(records, ("ae32-pb-sa", "set-transformer"))
    shifts = (0, 8, -10)
    figure = new_figure(11, 3.6 * len(rows))
    axes = figure.subplots(len(rows), len(shifts), squeeze=False)
    for axis_row, (name, runs) in zip(axes, rows.items(), strict=True):
        for axis, shift in zip(axis_row, shifts, strict=True):
            points = benchmark_points(runs[0])[0] + shift
            draw_mixture(axis, points, runs[0].result["shown"]["predictions"][f"{shift:+d}"], 0)
            axis.set_title(f"{row_label(name)}, {f'shift {shift:+d}' if shift else 'not shifted'}", fontsize=11)
            set_frame(axis, points)
    return write_figure(figure, folder, "clusters_under_shift")


def draw_mixture(axis: Any, points: NDArray[np.float32], mixtures: dict[str, Any], index: int) -> None:
    """Draw points in the colour of their most likely component, and an ellipse of two deviations per component."""
    means, variances, log_weights = (np.array(mixtures[name][index]) for name in ("means", "variances", "log_weights"))
    squares = ((points[None] - means[:, None]) ** 2).sum(axis=-1)  # (K, N)
    joint = log_weights[:, None] - np.log(variances) - 0.5 * squares / variances
    covariances = variances[:, :, None] * np.eye(means.shape[1])  # (K, 2, 2)
    panel = Panel("", points.astype(np.float64), joint.argmax(axis=0), means, covariances, np.exp(log_weights))
    draw_panel(axis, panel)


def set_frame(axis: Any, points: NDArray[np.float32]) -> None:
    """Show a square window around the points, also if a prediction lies outside of it."""
    middle = (points.min(axis=0) + points.max(axis=0)) / 2
    half = float((points.max(axis=0) - points.min(axis=0)).max()) / 2 * 1.25
    axis.set(xlim=(middle[0] - half, middle[0] + half), ylim=(middle[1] - half, middle[1] + half))
    axis.set_aspect("equal", adjustable="box")  # else matplotlib changes the limits, and says so each time
    axis.tick_params(labelsize=8, colors="#777777")
    axis.grid(color=GRID)
    axis.set_axisbelow(True)


def draw_likelihood_against_shift(records: Sequence[Record], folder: Path) -> list[Path]:
    """Draw every row and the oracle: plain networks on the left, canonicalized ones on the right."""
    order = sorted(range(len(SHIFTS)), key=lambda index: SHIFTS[index])
    rows = find_rows(records)
    figure = new_figure(12, 4.6)
    left, right = figure.subplots(1, 2, sharey=True)
    for axis, title in ((left, "as published"), (right, "canonicalized")):
        group = {name: runs for name, runs in rows.items() if (name in ROWS) == (axis is left)}
        curves = {
            row_label(name): {SHIFTS[index]: statistics.fmean(likelihoods(runs, move=index)) for index in order}
            for name, runs in group.items()
        }
        draw_curves(axis, curves, marker="o", markersize=4)
        if group:
            axis.axhline(oracle(all_runs(group)), color=REFERENCE, linestyle=":", linewidth=1.5, label="oracle")
            axis.legend(frameon=False, fontsize=8, loc="lower center", ncols=2)
        axis.set(title=title, xlabel="shift of both coordinates")
        axis.set_xticks([SHIFTS[index] for index in order])
    left.set_ylabel("log-likelihood per point")
    left.set_yscale("symlog", linthresh=2)
    left.set_ylim(-80, -1.3)
    left.set_yticks([-1.5, -2, -3, -5, -10, -20], ["-1.5", "-2", "-3", "-5", "-10", "-20"])
    return write_figure(figure, folder, "likelihood_against_shift")


def draw_cascade(name: str, record: Record, folder: Path) -> list[Path]:
    """Draw the attention of each template at each step on one set, averaged over heads."""
    attention = np.array(record.result["shown"]["attention"])  # (L, K, N)
    points = benchmark_points(record)[0]
    steps, templates = spread(len(attention), MAX_STEPS), spread(attention.shape[1], MAX_TEMPLATES)
    figure = new_figure(2.7 * len(templates), 2.9 * len(steps))
    for row, axis_row in zip(steps, figure.subplots(len(steps), len(templates), squeeze=False), strict=True):
        for column, axis in zip(templates, axis_row, strict=True):
            weights = attention[row, column]
            order = weights.argsort()
            axis.scatter(*points[order].T, c=np.sqrt(weights[order]), s=9, cmap="viridis", linewidths=0)
            axis.set_title(f"step {row + 1}, template {column + 1}", fontsize=10)
            set_frame(axis, points)
            mean = (weights[:, None] * points).sum(axis=0) / weights.sum()
            axis.plot(*mean, marker="+", markersize=12, markeredgewidth=2.5, color=COLOURS[1])
    title = f"Attention of the cascade of {row_label(name)}; a cross marks the mean of the attended points"
    figure.suptitle(title, fontsize=11)
    return write_figure(figure, folder, "cascade_at_work")


def draw_figures(records: Sequence[Record], folder: Path) -> Figures:
    rows = find_rows(records)
    figures: Figures = {}
    if {"ae32-pb-sa", "set-transformer"} & rows.keys():
        figures[
            "Figure 4: one set, not shifted and shifted. Circles are two standard deviations of each predicted "
            "component; points have the colour of their most likely component."
        ] = draw_clusters_under_shift(records, folder)
    figures["Log-likelihood against shift, with that of the mixtures that generated the points (oracle)."] = (
        draw_likelihood_against_shift(records, folder)
    )
    if cascades := find_rows(records, ("ours", "ae32-pb-sa-canonical", "ae32-pb-sa")):
        name, runs = next(iter(cascades.items()))
        figures["Attention of the cascade: brighter points have more weight."] = draw_cascade(name, runs[0], folder)
    figures["Score on a hundred sets during training."] = draw_learning_curves(
        {row_label(name): runs[0].curve("below_oracle") for name, runs in rows.items()},
        folder,
        "learning_curves",
        label="below the oracle, nats per point",
        scale="log",
    )
    return figures


CLUSTERING = Reporter(
    table="table2",
    title="Clustering under shift",
    text="A network reads a set of points and predicts, in one pass, the mixture of four Gaussians that generated "
    "them. At test time the points are shifted to places where training had none.",
    result=ClusteringResult,
    build_tables=build_tables,
    draw_figures=draw_figures,
)
