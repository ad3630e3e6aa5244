"""Line plots that several experiments share."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from picaset.figures import COLOURS, new_figure, write_figure
from picaset.lab.reports.records import Record

GRID = "#eeeeee"
REFERENCE = "#555555"
"""Colour of lines that are no results: the oracle, guessing."""


def draw_curves(axis: Any, curves: Mapping[str, Mapping[Any, float]], **options: Any) -> None:
    """Draw one labelled line for each entry, from x to y; dashed lines reuse the colours."""
    for number, (label, curve) in enumerate(curves.items()):
        style = "-" if number < len(COLOURS) else "--"
        colour = COLOURS[number % len(COLOURS)]
        axis.plot(list(curve), list(curve.values()), style, color=colour, label=label, **options)
    axis.grid(color=GRID)


def draw_learning_curves(
    rows: Mapping[str, Sequence[Record]],
    folder: Path,
    name: str,
    *,
    metric: str,
    label: str,
    scale: str = "linear",
    guessing: float | None = None,
) -> list[Path]:
    """Draw a metric against the training step, for the first seed of each labelled row."""
    figure = new_figure(8, 4.4)
    axis = figure.subplots()
    draw_curves(
        axis,
        {
            row: {entry["step"]: entry[metric] for entry in runs[0].metrics if metric in entry}
            for row, runs in rows.items()
        },
    )
    if guessing is not None:
        axis.axhline(guessing, linestyle=":", color=REFERENCE, label="random guessing")
    axis.set(xlabel="step", ylabel=label, yscale=scale)
    axis.grid(color=GRID, which="both")
    axis.legend(frameon=False, fontsize=8, ncols=2)
    return write_figure(figure, folder, name)
