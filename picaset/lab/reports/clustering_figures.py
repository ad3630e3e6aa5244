"""Figures of the clustering experiment, from the records of runs: clusters under shift, likelihood against shift, the
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
from picaset.lab.experiments.clustering import ROWS, TABLE_ROWS
from picaset.lab.reports.clustering import in_words, likelihoods, oracle, rows_of
from picaset.lab.reports.records import Record
from picaset.lab.tasks.clustering import NUM_SHOWN, SHIFTS, Clustering


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
