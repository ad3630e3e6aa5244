"""A figure: templates walking step by step to the clusters of a set.

Three operators start from the same places and look at the same points:

    soft K-means             each point is shared out among the templates; the K-means that Proposition 2 means
    a bare cascade           each template weighs all points by itself; Proposition 2 as its equation has it
    a trained cascade        PICASO with learned maps, residual and feed-forward

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
from picaset.operators.canonicalize import place_of
from picaset.operators.soft_kmeans import SoftKMeans

WEIGHTS = Path(str(resources.files("picaset"))) / "weights" / "walking_templates"


@dataclass(frozen=True)
class Walk:
    """Where the templates of a cascade were, and the points they were looking at."""

    title: str
    caption: str
    points: Float[Tensor, "N 2"]
    templates: Float[Tensor, "L_plus_1 K 2"]


@torch.no_grad()
def walk_through_mixture(*, seed: int, num_points: int = 300) -> list[Walk]:
    """The three cascades on one set of points, from one start."""
    points, _ = draw_mixtures(1, num_points, generator=torch.Generator().manual_seed(seed))
    shift, scale = place_of(points, None)
    canonical = (points - shift) / scale
    trained = Picaso.from_pretrained(WEIGHTS)
    learned = trained.decoder(trained.trace(canonical).templates)[:, 0]  # (L + 1, K, 2)

    def kmeans(**options: Any) -> Tensor:
        operator = SoftKMeans(2, num_templates=learned.shape[1], num_steps=learned.shape[0] - 1, **options)
        operator.templates.copy_(learned[0])
        return operator.trace(canonical).templates[:, 0]

    walks = [
        ("Soft K-means", "each point is shared out among templates", kmeans(temperature=0.1)),
        ("Bare cascade", "each template weighs all points by itself", kmeans(compete=False)),
        ("PICASO, trained", "each answer asks the next question", learned),
    ]
    back = [(title, caption, templates * scale[0] + shift[0]) for title, caption, templates in walks]
    return [Walk(title, caption, points[0], templates) for title, caption, templates in back]


def draw_template_walk(walks: list[Walk], folder: Path) -> list[Path]:
    """Draw the walks side by side as ``template_walk.svg`` and ``.png``."""
    figure = new_figure(4 * len(walks), 4.6)
    axes = figure.subplots(1, len(walks), sharex=True, sharey=True, squeeze=False)[0]
    for axis, walk in zip(axes, walks, strict=True):
        draw_walk(axis, walk)
    draw_legend(figure)
    return write_figure(figure, folder, "template_walk")


def draw_walk(axis: Any, walk: Walk) -> None:
    """One panel: points in the colour of their nearest template at the end, and each template's path."""
    nearest = torch.cdist(walk.points, walk.templates[-1]).argmin(dim=1)
    last = len(walk.templates) - 1
    for index, colour in enumerate(COLOURS[: walk.templates.shape[1]]):
        held = walk.points[nearest == index]
        axis.scatter(held[:, 0], held[:, 1], s=7, color=colour, alpha=0.3, linewidths=0)
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
    """What the marks mean, below the panels."""
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
