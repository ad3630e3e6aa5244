"""A figure of templates that move to the clusters of a set, step by step.

Three operators start from the same templates and read the same points:

    soft K-means         attention is normalised over templates: each point is divided among them, as in K-means
    bare cascade         attention is normalised over points, as in the equation of Proposition 2
    trained cascade      PICASO with learned projections, residual and feed-forward

Dimensions:  N points   K templates   L steps
"""

from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from picaset.figures import COLOURS, new_figure, write_figure
from picaset.lab.data.gaussian_mixtures import draw_mixtures
from picaset.networks.set_networks import Picaso
from picaset.operators.canonicalize import shift_and_scale
from picaset.operators.soft_kmeans import SoftKMeans

WEIGHTS = Path(str(resources.files("picaset"))) / "weights" / "walking_templates"
NUM_POINTS = 300


@dataclass(frozen=True)
class Walk:
    """Positions of the templates at every step of a cascade, and the points it reads."""

    title: str
    caption: str
    points: Float[Tensor, "N 2"]
    templates: Float[Tensor, "L_plus_1 K 2"]


@torch.no_grad()
def walk_through_mixture(*, seed: int) -> list[Walk]:
    """Run the three operators on one set of points, from the same templates."""
    points, _ = draw_mixtures(1, NUM_POINTS, generator=torch.Generator().manual_seed(seed))
    shift, scale = shift_and_scale(points, None)
    canonical = (points - shift) / scale
    trained = Picaso.from_pretrained(WEIGHTS)
    learned = trained.decoder(trained.trace(canonical).templates)[:, 0]  # (L + 1, K, 2)

    def kmeans(**options: Any) -> Tensor:
        operator = SoftKMeans(2, num_templates=learned.shape[1], num_steps=learned.shape[0] - 1, **options)
        operator.templates.copy_(learned[0])
        return operator.trace(canonical).templates[:, 0]

    walks = [
        ("Soft K-means", "each point is divided among the templates", kmeans(temperature=0.1)),
        ("Bare cascade", "each template weights all points independently", kmeans(compete=False)),
        ("PICASO, trained", "each output is the next query", learned),
    ]
    return [Walk(title, caption, points[0], path * scale[0] + shift[0]) for title, caption, path in walks]


def draw_template_walk(walks: list[Walk], folder: Path) -> list[Path]:
    """Draw the walks side by side as ``template_walk.svg`` and ``.png``."""
    figure = new_figure(4 * len(walks), 4.6)
    axes = figure.subplots(1, len(walks), sharex=True, sharey=True, squeeze=False)[0]
    for axis, walk in zip(axes, walks, strict=True):
        draw_walk(axis, walk)
    draw_legend(figure)
    return write_figure(figure, folder, "template_walk")


def draw_walk(axis: Any, walk: Walk) -> None:
    """Draw one panel: the path of each template, and the points in the colour of the nearest final template."""
    nearest = torch.cdist(walk.points, walk.templates[-1]).argmin(dim=1)
    last = len(walk.templates) - 1
    for index, colour in enumerate(COLOURS[: walk.templates.shape[1]]):
        cluster = walk.points[nearest == index]
        axis.scatter(cluster[:, 0], cluster[:, 1], s=7, color=colour, alpha=0.3, linewidths=0)
    for index, colour in enumerate(COLOURS[: walk.templates.shape[1]]):
        x, y = walk.templates[:, index].T
        axis.plot(x, y, color=colour, linewidth=1.6, zorder=3)
        axis.scatter(x[0], y[0], s=46, facecolor="white", edgecolor=colour, linewidths=1.6, zorder=4)
        axis.scatter(x[1:last], y[1:last], s=22, color=colour, edgecolor="white", linewidths=0.8, zorder=4)
        axis.scatter(x[last], y[last], s=190, marker="*", color=colour, edgecolor="white", linewidths=1.1, zorder=5)
    axis.set_title(f"{walk.title}\n", fontsize=13, fontweight="bold")
    axis.text(0.5, 1.02, walk.caption, transform=axis.transAxes, ha="center", fontsize=10, color="#555555")
    axis.set_aspect("equal")
    axis.tick_params(labelsize=8, colors="#888888", length=0)
    axis.grid(color="#eeeeee")
    axis.set_axisbelow(True)
    for spine in axis.spines.values():
        spine.set_visible(False)


def draw_legend(figure: Any) -> None:
    """Explain the markers, below the panels."""
    marks = {
        "start": dict(marker="o", markersize=7, markerfacecolor="white", markeredgewidth=1.6),
        "step": dict(marker="o", markersize=5, markeredgecolor="white"),
        "end": dict(marker="*", markersize=13, markeredgecolor="white"),
    }
    axis = figure.axes[0]
    handles = [
        axis.plot([], [], linestyle="none", color="#555555", label=name, **mark)[0] for name, mark in marks.items()
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, fontsize=10, frameon=False, handletextpad=0.2)
