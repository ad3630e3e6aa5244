"""Figures of the experiment on novel viewpoints, from the records of runs: accuracy far from where training was."""

from collections.abc import Sequence
from pathlib import Path

from picaset.figures import COLOURS, new_figure, write_figure
from picaset.lab.data.views import Split
from picaset.lab.experiments.viewpoints import SPLITS
from picaset.lab.reports.records import Record
from picaset.lab.reports.viewpoints import NAMES, Source, found_rows, rows_of


def by_distance(runs: Sequence[Record]) -> dict[int, float]:
    """Percent right at each distance in degrees from the nearest viewpoint of training, over all seeds."""
    right, tested = dict[int, float](), dict[int, int]()
    for record in runs:
        for row in record.result["by_viewpoint"]:
            degrees = row["degrees"]
            right[degrees] = right.get(degrees, 0.0) + row["accuracy"] * row["examples"]
            tested[degrees] = tested.get(degrees, 0) + row["examples"]
    return {degrees: 100 * right[degrees] / tested[degrees] for degrees in sorted(tested)}


def draw_accuracy_by_distance(records: Sequence[Record], source: Source, folder: Path) -> list[Path]:
    """All rows, azimuth on the left and elevation on the right; at zero degrees are the viewpoints of training."""
    names = list(found_rows(records, source))
    shown: list[Split] = [split for split in SPLITS if any(rows_of(records, source, split, name) for name in names)]
    figure = new_figure(6 * len(shown), 4.6)
    for axis, split in zip(figure.subplots(1, len(shown), sharey=True, squeeze=False)[0], shown, strict=True):
        ticks = set[int]()
        for number, name in enumerate(names):
            if runs := rows_of(records, source, split, name):
                found = by_distance(runs)
                ticks |= found.keys()
                axis.plot(
                    list(found), list(found.values()), "-" if number < len(COLOURS) else "--", marker="o", markersize=4,
                    color=COLOURS[number % len(COLOURS)], label=NAMES[name],
                )  # fmt: skip
        axis.axhline(20, color="#555555", linestyle=":", linewidth=1.2, label="guessing")
        axis.set(title=f"novel {split}s", xlabel=f"degrees of {split} from the nearest of training")
        axis.set_xticks(sorted(ticks))
        axis.grid(color="#eeeeee")
    figure.axes[0].set_ylabel("right, percent")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, fontsize=8, frameon=False, handlelength=4)
    return write_figure(figure, folder, f"accuracy_by_distance{'_toys' if source == 'toys' else ''}")
