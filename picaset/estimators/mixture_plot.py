"""Plots of fitted mixtures: the points coloured by component, with an ellipse for each component."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from picaset.figures import COLOURS, new_figure
from picaset.files import atomic_write

MAX_PANELS = 12
"""Maximum number of sets in a figure."""


class Panel(NamedTuple):
    """Points of one set (N, 2), their components (N,), and the means and variances of the mixture, (K, 2) each."""

    title: str
    points: NDArray[np.floating]
    labels: NDArray[np.int64]
    means: NDArray[np.floating]
    variances: NDArray[np.floating]


def draw_mixtures(panels: Sequence[Panel], axis_names: Sequence[str], path: Path) -> None:
    """Write a figure with one panel for each set; the suffix of ``path`` determines the format."""
    panels = panels[:MAX_PANELS]
    columns = min(len(panels), 4 if len(panels) > 6 else 3)
    rows = math.ceil(len(panels) / columns)
    size = 6.0 if len(panels) == 1 else 3.4
    figure = new_figure(size * columns, size * rows)
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axis, panel in zip(axes, panels, strict=False):
        draw_panel(axis, panel)
        axis.set_aspect("equal", adjustable="datalim")
        axis.set_title(panel.title, fontsize=11)
        axis.set_xlabel(axis_names[0])
        axis.set_ylabel(axis_names[1])
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    with atomic_write(path) as unfinished:
        figure.savefig(unfinished, format=path.suffix[1:], dpi=150)


def draw_panel(axis: Any, panel: Panel) -> None:
    """Draw the points and components of one set into a matplotlib axis."""
    from matplotlib.patches import Ellipse

    marker_size = 14 if len(panel.points) < 300 else 6
    for component, (mean, variance) in enumerate(zip(panel.means, panel.variances, strict=True)):
        colour = COLOURS[component % len(COLOURS)]
        points = panel.points[panel.labels == component]
        axis.scatter(points[:, 0], points[:, 1], s=marker_size, color=colour, alpha=0.5, linewidths=0)
        width, height = 4 * np.sqrt(variance)  # two standard deviations to each side
        axis.add_patch(Ellipse(mean, width, height, facecolor="none", edgecolor=colour, linewidth=2))
        axis.plot(*mean, marker="+", markersize=9, color=colour, markeredgewidth=2)
    axis.tick_params(labelsize=8, colors="#777777")
    axis.grid(color="#eeeeee")
    axis.set_axisbelow(True)
