"""Plots of fitted mixtures: points coloured by component with an ellipse for each, or a histogram with the density."""

import math
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from picaset.figures import COLOURS, literal, new_figure
from picaset.files import atomic_write

Floats = NDArray[np.floating]
MAX_PANELS = 12
"""Maximum number of sets in a figure."""
MAX_DRAWN = 20_000
"""Maximum number of points in a panel."""
PLAIN_EXPONENTS = (-4, 8)
"""Powers of ten within which the numbers at an axis are written out."""
MAX_CANDIDATES = 20
"""Number of columns among which the two of a figure are searched."""
PALETTE = (
    *COLOURS, "#551111", "#22ee00", "#000088", "#9900ff", "#005500", "#990077", "#1100ff", "#ff22ff", "#11eecc",
    "#884422", "#ffaaff", "#5522aa", "#ff0066",
)  # fmt: skip
"""Colours of the components: each added one is as far as possible from those before it and from grey, in OKLab."""
NOISE = "#aaaaaa"


class Panel(NamedTuple):
    """One set and its mixture in one or two columns d.

    Shapes:
        points       (N, d)
        labels       (N,)        components of the points, -1 for noise
        means        (K, d)
        covariances  (K, d, d)
        weights      (K,)
    """

    title: str
    points: Floats
    labels: NDArray[np.int64]
    means: Floats
    covariances: Floats
    weights: Floats
    background: float = 0.0
    """Density of the noise; shown with one column."""


def draw_mixtures(panels: Sequence[Panel], axis_names: Sequence[str], path: Path) -> None:
    """Write a figure with one panel for each set; the suffix of ``path`` determines the format."""
    panels = panels[:MAX_PANELS]
    columns = min(len(panels), 4 if len(panels) > 6 else 3)
    rows = math.ceil(len(panels) / columns)
    size = 6.0 if len(panels) == 1 else 3.4
    figure = new_figure(size * columns, size * rows)
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axis, panel in zip(axes, panels, strict=False):
        (draw_panel if len(axis_names) == 2 else draw_histogram)(axis, panel)
        axis.set_title(literal(panel.title), fontsize=11)
        axis.set_xlabel(literal(axis_names[0]))
        axis.set_ylabel(literal(axis_names[1]) if len(axis_names) == 2 else "density")
        axis.tick_params(labelsize=8, colors="#777777")
        axis.ticklabel_format(useOffset=False, scilimits=PLAIN_EXPONENTS)
        axis.grid(color="#eeeeee")
        axis.set_axisbelow(True)
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    with atomic_write(path) as unfinished:
        figure.savefig(unfinished, format=path.suffix[1:].lower(), dpi=150)


def draw_panel(axis: Any, panel: Panel) -> None:
    """Draw the points and components of one set into a matplotlib axis."""
    from matplotlib.patches import Ellipse
    from matplotlib.patheffects import withStroke

    # In random order, so that no component hides the others; all of them are below the ellipses.
    shown = np.random.default_rng(0).permutation(len(panel.points))[:MAX_DRAWN]
    points, labels = panel.points[shown], panel.labels[shown]
    colours = np.array([*PALETTE, NOISE])[np.where(labels < 0, -1, labels % len(PALETTE))]
    marker_size = 14 if len(points) < 300 else max(1.5, 6 - len(points) / 4000)
    opacity = 0.5 if len(points) < 3000 else 0.3
    axis.scatter(*points.T, s=marker_size, color=colours, alpha=opacity, linewidths=0, rasterized=len(points) > 3000)
    halo: Any = [withStroke(linewidth=3.2, foreground="white")]
    for component, (mean, covariance) in enumerate(zip(panel.means, panel.covariances, strict=True)):
        colour = PALETTE[component % len(PALETTE)]
        variances, directions = np.linalg.eigh(covariance)
        width, height = 4 * np.sqrt(np.maximum(variances, 0))  # two standard deviations to each side
        angle = math.degrees(math.atan2(directions[1, 0], directions[0, 0]))
        ellipse = Ellipse(mean, width, height, angle=angle, facecolor="none", edgecolor=colour, linewidth=1.8)
        ellipse.set_path_effects(halo)
        axis.add_patch(ellipse)
        deviation = math.sqrt(max(covariance[1, 1], 1e-300))
        top = (mean[0] + 2 * covariance[0, 1] / deviation, mean[1] + 2 * deviation)  # the highest point of the ellipse
        axis.annotate(
            str(component), top, (0, 3), textcoords="offset points", ha="center", color=colour, fontweight="bold",
            fontsize=9, path_effects=halo, zorder=5, annotation_clip=True,
        )  # fmt: skip
    if len(panel.points) > MAX_DRAWN:
        note = f"{MAX_DRAWN:,} of {len(panel.points):,} points drawn"
        axis.text(0.99, 0.01, note, transform=axis.transAxes, ha="right", va="bottom", fontsize=7, color="#777777")
    spread = np.nanstd(panel.points, axis=0)
    if spread.max() < 5 * spread.min():  # the same unit, it seems
        axis.set_aspect("equal", adjustable="datalim")


def draw_histogram(axis: Any, panel: Panel) -> None:
    """Draw the values of one column, stacked by component, and the density of the mixture and of its components."""
    values = panel.points[:, 0]
    values, labels = values[~np.isnan(values)], panel.labels[~np.isnan(values)]
    edges: Floats = np.histogram_bin_edges(values, bins=min(max(10, math.ceil(2 * len(values) ** (1 / 2))), 80))
    heights = np.zeros(len(edges) - 1)
    for label in (-1, *range(len(panel.means))):
        counts = np.histogram(values[labels == label], edges)[0] / (len(values) * np.diff(edges))
        colour = NOISE if label < 0 else PALETTE[label % len(PALETTE)]
        axis.bar(edges[:-1], counts, np.diff(edges), bottom=heights, align="edge", color=colour, alpha=0.4, linewidth=0)
        heights += counts
    means, deviations = panel.means[:, 0], np.sqrt(np.maximum(panel.covariances[:, 0, 0], 1e-300))
    # Narrow components get points of their own; an even grid would miss their peaks.
    own: Floats = (means[:, None] + deviations[:, None] * np.linspace(-4, 4, 81)).ravel()
    even: Floats = np.linspace(float(edges[0]), float(edges[-1]), 400)
    grid = np.sort(np.concatenate([own, even]))
    standardized = (grid - means[:, None]) / deviations[:, None]
    scale = panel.weights / (math.sqrt(2 * math.pi) * deviations)
    densities = scale[:, None] * np.exp(-0.5 * standardized**2)
    for component, density in enumerate(densities):
        axis.plot(grid, density, color=PALETTE[component % len(PALETTE)], linewidth=1.8)
        top = (means[component], scale[component])
        axis.annotate(
            str(component), top, (0, 3), textcoords="offset points", ha="center", fontweight="bold", fontsize=9,
            color=PALETTE[component % len(PALETTE)],
        )  # fmt: skip
    axis.plot(grid, densities.sum(axis=0) + panel.background, color="#333333", linewidth=1, linestyle="--")
    margin = 0.03 * (edges[-1] - edges[0])
    axis.set_xlim(edges[0] - margin, edges[-1] + margin)
    # The peak of a component on equal values may be far above all bars.
    highest = float(heights.max())
    axis.set_ylim(0, 1.15 * min(max(float(densities.sum(axis=0).max()), highest), 3 * highest))


def separating_columns(means: Sequence[Floats], covariances: Sequence[Floats]) -> tuple[int, int]:
    """Return the two columns in which the components of the mixtures overlap least.

    Args:
        means: Means of the components of each mixture, (K, D) each.
        covariances: Their covariances, (K, D, D) each.

    Example:
        >>> means = np.array([[0.0, 0.0, 0.0], [0.0, 9.0, 0.1], [0.0, 0.0, 9.0]])
        >>> separating_columns([means], [np.stack([np.eye(3)] * 3)])
        (1, 2)
    """
    dim = means[0].shape[1]
    scale = np.sqrt(np.concatenate([np.diagonal(part, axis1=1, axis2=2) for part in covariances]).mean(axis=0))
    scale = np.where(scale > 0, scale, 1)
    means = [part / scale for part in means]
    covariances = [part / np.outer(scale, scale) + 1e-9 * np.eye(dim) for part in covariances]  # never singular
    alone = [mean_overlap(means, covariances, [column]) for column in range(dim)]
    candidates = sorted(np.argsort(alone, kind="stable")[:MAX_CANDIDATES].tolist())
    return min(combinations(candidates, 2), key=lambda pair: mean_overlap(means, covariances, list(pair)))


def mean_overlap(means: Sequence[Floats], covariances: Sequence[Floats], columns: list[int]) -> float:
    """Return the Bhattacharyya coefficient of two components in some columns, averaged over pairs and mixtures."""
    overlaps = list[float]()
    for centres, matrices in zip(means, covariances, strict=True):
        first, second = np.triu_indices(len(centres), 1)
        if len(first) == 0:
            continue
        matrices = matrices[:, columns][:, :, columns]
        shared = (matrices[first] + matrices[second]) / 2
        differences = (centres[first] - centres[second])[:, columns]
        solved = np.linalg.solve(shared, differences[:, :, None])[:, :, 0]
        logs = np.linalg.slogdet(matrices)[1]
        distances = (differences * solved).sum(axis=1) / 8 + (
            np.linalg.slogdet(shared)[1] - (logs[first] + logs[second]) / 2
        ) / 2
        overlaps.append(float(np.exp(-distances).mean()))
    return float(np.mean(overlaps)) if overlaps else 0.0
