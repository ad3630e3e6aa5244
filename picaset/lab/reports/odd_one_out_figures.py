"""Figures of the odd-one-out experiment, from the records of runs: scores against the size of a set, and learning
curves.
"""

import statistics
from collections.abc import Sequence
from pathlib import Path

from picaset.figures import COLOURS, new_figure, write_figure
from picaset.lab.reports.odd_one_out import METRICS, NAMES, Source, found_rows, task_of
from picaset.lab.reports.records import Record


def draw_by_size(records: Sequence[Record], source: Source, folder: Path) -> list[Path]:
    """Every row, and random guessing, in sets of other sizes than those of training."""
    found = found_rows(records, source)
    if not found:
        return []
    figure = new_figure(12, 4.4)
    axes = figure.subplots(1, len(METRICS))
    trained = task_of(next(iter(found.values()))[0]).set_size
    for axis, (metric, label) in zip(axes, METRICS.items(), strict=True):
        sizes = list[int]()
        for number, (name, runs) in enumerate(found.items()):
            means = by_size(runs, metric)
            sizes = sorted({*sizes, *means})
            axis.plot(means.keys(), means.values(), "-" if number < len(COLOURS) else "--", marker="o", markersize=4,
                      color=COLOURS[number % len(COLOURS)], label=NAMES[name])  # fmt: skip
        chance = [0.5 if metric == "auroc" else 1 / size for size in sizes]
        axis.plot(sizes, chance, ":", color="#555555", label="random guessing")
        axis.axvline(trained, color="#999999", linewidth=1, zorder=0)
        axis.set_xscale("log")
        axis.set_xticks(sizes, [str(size) for size in sizes], fontsize=8)
        axis.minorticks_off()
        axis.set(xlabel="images of a set", title=label)
        axis.set_ylim(None if metric == "auroc" else 0, 1.02)
        axis.grid(color="#eeeeee")
        axis.set_axisbelow(True)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False, fontsize=9)
    return write_figure(figure, folder, f"odd_one_out_by_size_{source}")


def by_size(runs: Sequence[Record], metric: str) -> dict[int, float]:
    """The mean over seeds for every size that all of them were scored on."""
    seeds = [{row["set_size"]: row[metric] for row in record.result["by_size"]} for record in runs]
    return {
        size: statistics.fmean(one[size] for one in seeds) for size in seeds[0] if all(size in one for one in seeds)
    }


def draw_learning_curves(records: Sequence[Record], source: Source, folder: Path) -> list[Path]:
    """AUROC on validation sets while training, the first seed of every row."""
    found = found_rows(records, source)
    if not found:
        return []
    figure = new_figure(8, 4.4)
    axis = figure.subplots()
    for number, (name, runs) in enumerate(found.items()):
        steps, scores = zip(*((row["step"], row["auroc"]) for row in runs[0].metrics), strict=True)
        axis.plot(steps, scores, "-" if number < len(COLOURS) else "--", color=COLOURS[number % len(COLOURS)],
                  label=NAMES[name])  # fmt: skip
    axis.axhline(0.5, linestyle=":", color="#555555", label="random guessing")
    axis.set(xlabel="step", ylabel="AUROC on validation sets")
    axis.grid(color="#eeeeee")
    axis.legend(frameon=False, fontsize=8, ncols=2)
    return write_figure(figure, folder, f"odd_one_out_learning_{source}")
