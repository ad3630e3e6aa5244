"""What a trained network looks at: from a run to figures, drawn as its task draws them.

A task that can be looked at has a function in ``LOOKS``; everything else about a run is the same for all.

A figure like the paper's Figure 3: what a classifier of toys attends to, on one toy from several viewpoints.

Heat is attention times the number of places: 1 is what every place would have if all were looked at alike, and what
gets less stays grey.

Dimensions:  V viewpoints   L steps   H heads   N places   P pixels of a crop
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from picaset.figures import new_figure, write_figure
from picaset.lab.data.crops import centre_crops
from picaset.lab.data.gaussian_mixtures import generator_for
from picaset.lab.data.views import CATEGORIES, Views
from picaset.lab.networks.view_classifier import ViewClassifier
from picaset.lab.reports.scenes import look_at_scenes
from picaset.lab.tasks.viewpoint_scores import as_shown, attention_to_places, heat_of, hottest
from picaset.lab.tasks.viewpoints import Viewpoints, objects
from picaset.lab.training.run_directory import RunDirectory
from picaset.networks.set_networks import Picaso

NUM_VIEWS = 6
"""Viewpoints of a figure, at most."""


class Seen(NamedTuple):
    """One toy from several viewpoints, and what a network made of it.

    Shapes:
        crops      (V, P, P)        of the first camera, 8 bits
        attention  (L, V, H, N)     of each step, averaged over templates; sums to one over places
    """

    category: str
    labels: list[str]
    """What stands above each viewpoint."""
    novel: list[bool]
    crops: UInt8[Tensor, "V P P"]
    attention: Float[Tensor, "L V H N"]


def look_at_views(
    task: Viewpoints, network: nn.Module, out: Path, *, category: str | None = None, seed: int = 0
) -> dict[str, list[Path]]:
    """Draw a test object as :func:`draw_looked_at` does; what is not said of it, the seed chooses."""
    return draw_looked_at(task, network, chosen_views(task, category, seed), out)


def draw_looked_at(task: Viewpoints, network: nn.Module, views: Views, out: Path) -> dict[str, list[Path]]:
    """Draw each head at the last step, and every step of each head; figures by their captions."""
    if not isinstance(network, Picaso | ViewClassifier):
        raise ValueError(
            f"A network of the kind {task.network!r} has no attention to look at; runs of set-transformer, picaso and "
            "view-classifier have."
        )
    seen = see(task, network, views)
    data = task.describe_data()
    heads = (
        f"What each head attends to at the last step, on {a(seen.category)} that training never had ({data}). A column "
        "is a viewpoint; heat shows how many times its even share of the attention a patch gets, from 1 on."
    )
    steps = f"The same step by step, at a viewpoint like those of training and at a novel one ({data})."
    return {heads: draw_heads(seen, out), steps: draw_steps(seen, out)}


def chosen_views(task: Viewpoints, category: str | None, seed: int) -> Views:
    """One test object in one lighting, along the azimuths or elevations; what is not said, the seed chooses."""
    if category is not None and category not in CATEGORIES:
        raise ValueError(f"category must be one of {', '.join(CATEGORIES)}; got {category!r}.")
    views, generator = objects(task.data)[1], generator_for(seed)
    if category is not None:
        views = views.where(views.category == CATEGORIES.index(category))
    fixed = [name for name in ("category", "instance", "lighting", "elevation", "azimuth") if name != task.split]
    for name in fixed:
        values = getattr(views, name)
        known = values.unique()
        one = known[int(torch.randint(len(known), (), generator=generator))]
        views = views.where(values == one)
    order = getattr(views, task.split).argsort()
    count = min(NUM_VIEWS, len(order))
    picked = order[torch.arange(count) * len(order) // count]
    return Views(*(getattr(views, name)[picked] for name in views.__dataclass_fields__))


@torch.no_grad()
def see(task: Viewpoints, network: Picaso | ViewClassifier, views: Views) -> Seen:
    """Show the viewpoints to the network, crops in the middle."""
    shown = as_shown(
        views.images if task.stereo else views.images[:, :1], bag=task.look().bag, like=next(network.parameters())
    )
    called = network(shown).reshape(len(views), -1).argmax(dim=1).tolist()
    attention = attention_to_places(network, shown)
    assert attention is not None
    first, step = (30, 5) if task.split == "elevation" else (0, 10)  # degrees
    novel = [not bool(familiar) for familiar in views.familiar(task.split)]
    labels = [
        f"{task.split} {first + step * value}°\n{'novel' if is_novel else 'as in training'}\ncalled {CATEGORIES[name]}"
        for value, is_novel, name in zip(getattr(views, task.split).tolist(), novel, called, strict=True)
    ]
    return Seen(CATEGORIES[int(views.category[0])], labels, novel, centre_crops(views.images[:, :1])[:, 0], attention)


def draw_heads(seen: Seen, folder: Path) -> list[Path]:
    """A column for each viewpoint: the crop, then every head at the last step, then their mean."""
    last = seen.attention[-1]  # (V, H, N)
    rows = {"": None, **{f"head {head + 1}": last[:, head] for head in range(last.shape[1])}, "mean": last.mean(dim=1)}
    figure = new_figure(1.7 * len(seen.crops) + 1, 1.6 * len(rows) + 1)
    grid = figure.subplots(len(rows), len(seen.crops), squeeze=False)
    top, drawn = hottest(last), None
    for axes, (label, heat) in zip(grid, rows.items(), strict=True):
        for view, axis in enumerate(axes):
            drawn = draw_panel(axis, seen.crops[view], None if heat is None else heat[view], top) or drawn
        axes[0].set_ylabel(label, fontsize=10)
    for axis, label in zip(grid[0], seen.labels, strict=True):
        axis.set_title(label, fontsize=8)
    return finish(
        figure, drawn, grid, f"{seen.category}: heads at the last of {len(seen.attention)} steps", folder, "look_heads"
    )


def draw_steps(seen: Seen, folder: Path) -> list[Path]:
    """A column for each step, at a viewpoint like those of training and at the novel one in the middle of the rest."""
    places = [[view for view, is_novel in enumerate(seen.novel) if is_novel == wanted] for wanted in (False, True)]
    views = [some[len(some) // 2] for some in places if some]
    steps, _, heads, _ = seen.attention.shape
    columns = [(view, step) for view in views for step in range(-1, steps)]  # the crop itself comes first
    figure = new_figure(1.6 * len(columns) + 1, 1.6 * (heads + 1) + 1)
    grid = figure.subplots(heads + 1, len(columns), squeeze=False)
    top, drawn = hottest(seen.attention[:, views]), None
    for column, (view, step) in enumerate(columns):
        for head in range(heads + 1):
            axis = grid[head, column]
            if step < 0 and head:
                axis.set_axis_off()
                continue
            weights = None
            if step >= 0:
                of_step = seen.attention[step, view]  # (H, N)
                weights = of_step[head] if head < heads else of_step.mean(dim=0)
            drawn = draw_panel(axis, seen.crops[view], weights, top) or drawn
            if column == 1:
                axis.set_ylabel(f"head {head + 1}" if head < heads else "mean", fontsize=10)
        grid[0, column].set_title(seen.labels[view] if step < 0 else f"step {step + 1}", fontsize=8)
    return finish(figure, drawn, grid, f"{seen.category}, step by step", folder, "look_steps")


def draw_panel(axis: Any, crop: UInt8[Tensor, "P P"], weights: Float[Tensor, " N"] | None, top: float) -> Any:
    """A crop in grey, and over it where attention is, stronger where there is more."""
    pixels = crop.shape[0]
    extent = (0, pixels, pixels, 0)
    axis.imshow(crop.numpy(), cmap="gray", vmin=0, vmax=255, extent=extent)
    axis.set_xticks([])
    axis.set_yticks([])
    if weights is None:
        return None
    side = math.isqrt(len(weights))
    heat = heat_of(weights).reshape(side, side).numpy()
    strength = 0.85 * ((heat - 1) / (top - 1)).clip(0, 1)  # a patch with less than its share stays grey
    return axis.imshow(heat, cmap="inferno", vmin=1, vmax=top, alpha=strength, extent=extent, interpolation="nearest")


def finish(figure: Any, drawn: Any, grid: Any, title: str, folder: Path, name: str) -> list[Path]:
    from matplotlib.cm import ScalarMappable

    scale = ScalarMappable(norm=drawn.norm, cmap=drawn.cmap)  # without the transparency of the panels
    bar = figure.colorbar(scale, ax=grid, shrink=0.5, pad=0.01)
    bar.set_label("attention, times the number of patches", fontsize=8)
    bar.ax.tick_params(labelsize=8)
    figure.suptitle(title, fontsize=12)
    return write_figure(figure, folder, name)


def a(category: str) -> str:
    """The category with its article.

    Example:
        >>> a("animal"), a("truck")
        ('an animal', 'a truck')
    """
    return f"{'an' if category[0] in 'aeiou' else 'a'} {category}"


Draw = Callable[..., dict[str, list[Path]]]
"""From a task, its network, a folder, ``category`` and ``seed`` to figures by their captions."""

LOOKS: dict[str, Draw] = {"viewpoints": look_at_views, "scenes": look_at_scenes}
"""By the task of a run."""


def look(
    run: Path, out: Path, *, which: Literal["final", "best"] = "final", category: str | None = None, seed: int = 0
) -> dict[str, list[Path]]:
    """Draw what the network of a run looks at, as SVG and PNG; figures by their captions.

    Args:
        run: The run directory, with its network.
        out: Folder of the figures.
        which: The network at the end, or the best one on the way.
        category: What is looked at; the seed chooses if it is None.
        seed: Chooses the example.
    """
    directory = RunDirectory.open(run)
    kind = directory.experiment.kind
    if kind not in LOOKS:
        raise ValueError(
            f"{run} is a run of the task {kind!r}, which has no pictures; looked at can be: {', '.join(LOOKS)}."
        )
    if not directory.network(which).is_dir():
        raise ValueError(
            f"{run} has no network ({directory.network(which)} is not there): a record keeps numbers alone. Train it "
            f"with: picaset train {directory.experiment.name} --profile {directory.experiment.profile}"
        )
    task: Any = directory.experiment.task
    network: nn.Module = task.read_network(directory.network(which))
    return LOOKS[kind](task, network, out, category=category, seed=seed)
