"""Attention of the network of a run, drawn as figures.

``look`` reads a run and draws its network with the function in ``LOOKS`` for its task. Scenes are drawn by
:mod:`picaset.lab.reports.scenes`. Viewpoints are drawn here, like the paper's Figure 3: one toy from several sides.
Heat is the attention to a patch times the number of patches: 1 is uniform attention, and patches with less stay grey.

Dimensions:  V viewpoints   L steps   H heads   N patches   P pixels of a crop
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from picaset.figures import MAX_HEADS, MAX_STEPS, new_figure, spread, write_figure
from picaset.lab.data.crops import centre_crops
from picaset.lab.data.gaussian_mixtures import seeded_generator
from picaset.lab.data.views import CATEGORIES, Views
from picaset.lab.networks.view_classifier import ViewClassifier
from picaset.lab.reports.page import Figures
from picaset.lab.reports.records import training_command
from picaset.lab.reports.scenes import look_at_scenes
from picaset.lab.tasks.viewpoint_scores import as_shown, attention_to_places, heat_limit, heat_of, spaced_indices
from picaset.lab.tasks.viewpoints import Viewpoints, objects
from picaset.lab.training.run_directory import RunDirectory
from picaset.networks.set_networks import Picaso

MAX_VIEWS = 6
"""Largest number of viewpoints in a figure."""


class ToyAttention(NamedTuple):
    """One toy from several viewpoints, and the attention of a network to its patches.

    Shapes:
        crops      (V, P, P)        first camera, 8 bits
        attention  (L, V, H, N)     averaged over templates; sums to one over patches
    """

    category: str
    labels: list[str]
    """Headings of the viewpoints: angle, whether it is novel, and the predicted category."""
    novel: list[bool]
    crops: UInt8[Tensor, "V P P"]
    attention: Float[Tensor, "L V H N"]


def look_at_views(
    task: Viewpoints, network: nn.Module, out: Path, *, category: str | None = None, seed: int = 0
) -> Figures:
    """Draw the attention to a test object of a category; the seed chooses whatever is not given."""
    return draw_toy_attention(task, network, choose_views(task, category, seed), out)


def draw_toy_attention(task: Viewpoints, network: nn.Module, views: Views, out: Path) -> Figures:
    """Draw each head at the last step, and each head at every step."""
    if not isinstance(network, Picaso | ViewClassifier):
        raise ValueError(
            f"A {task.network.name} has no attention to draw; choose a run of a SetTransformer, Picaso or "
            "ViewClassifier."
        )
    toy = attend_to_toy(task, network, views)
    data = task.describe_data()
    heads = (
        f"Attention of each head at the last step, on {with_article(toy.category)} that training never had ({data}). "
        "A column is a viewpoint; heat is the attention to a patch as a multiple of uniform attention, from 1 on."
    )
    steps = f"The same step by step, at a viewpoint like those of training and at a novel one ({data})."
    return {heads: draw_heads(toy, out), steps: draw_steps(toy, out)}


def choose_views(task: Viewpoints, category: str | None, seed: int) -> Views:
    """Choose one test object in one lighting, at several azimuths or elevations, from a seed."""
    if category is not None and category not in CATEGORIES:
        raise ValueError(f"category must be one of {', '.join(CATEGORIES)}; got {category!r}.")
    views, generator = objects(task.data)[1], seeded_generator(seed)
    if category is not None:
        views = views.where(views.category == CATEGORIES.index(category))
    fixed = [name for name in ("category", "instance", "lighting", "elevation", "azimuth") if name != task.split]
    for name in fixed:
        values = getattr(views, name)
        choices = values.unique()
        views = views.where(values == choices[int(torch.randint(len(choices), (), generator=generator))])
    order = getattr(views, task.split).argsort()
    selected = order[spaced_indices(len(order), MAX_VIEWS)]
    return Views(*(getattr(views, name)[selected] for name in views.__dataclass_fields__))


@torch.no_grad()
def attend_to_toy(task: Viewpoints, network: Picaso | ViewClassifier, views: Views) -> ToyAttention:
    """Run the network on the central crops of the viewpoints."""
    inputs = as_shown(
        views.images if task.stereo else views.images[:, :1],
        bag=task.bag,
        like=next(network.parameters()),
        normalization=task.normalization,
    )
    predicted = network(inputs).reshape(len(views), -1).argmax(dim=1).tolist()
    attention = attention_to_places(network, inputs)
    assert attention is not None
    first, step = (30, 5) if task.split == "elevation" else (0, 10)  # degrees
    novel = [not bool(familiar) for familiar in views.familiar(task.split)]
    labels = [
        f"{task.split} {first + step * angle}°\n{'novel' if is_novel else 'as in training'}\n"
        f"predicted: {CATEGORIES[category]}"
        for angle, is_novel, category in zip(getattr(views, task.split).tolist(), novel, predicted, strict=True)
    ]
    crops = centre_crops(views.images[:, :1])[:, 0]
    return ToyAttention(CATEGORIES[int(views.category[0])], labels, novel, crops, attention)


def draw_heads(toy: ToyAttention, folder: Path) -> list[Path]:
    """Draw a column for each viewpoint: the crop, every head at the last step, and their mean."""
    last = toy.attention[-1]  # (V, H, N)
    rows = {
        "": None,
        **{f"head {head + 1}": last[:, head] for head in spread(last.shape[1], MAX_HEADS)},
        "mean": last.mean(dim=1),
    }
    figure = new_figure(1.7 * len(toy.crops) + 1, 1.6 * len(rows) + 1)
    grid = figure.subplots(len(rows), len(toy.crops), squeeze=False)
    top, overlay = heat_limit(last), None
    for axes, (label, heat) in zip(grid, rows.items(), strict=True):
        for view, axis in enumerate(axes):
            overlay = draw_panel(axis, toy.crops[view], None if heat is None else heat[view], top) or overlay
        axes[0].set_ylabel(label, fontsize=10)
    for axis, label in zip(grid[0], toy.labels, strict=True):
        axis.set_title(label, fontsize=8)
    return finish(
        figure, overlay, grid, f"{toy.category}: heads at the last of {len(toy.attention)} steps", folder, "look_heads"
    )


def draw_steps(toy: ToyAttention, folder: Path) -> list[Path]:
    """Draw a column for each step, at a viewpoint like those of training and at a novel one."""
    groups = [[view for view, is_novel in enumerate(toy.novel) if is_novel == novel] for novel in (False, True)]
    views = [group[len(group) // 2] for group in groups if group]
    heads = toy.attention.shape[2]
    # Step -1 is the crop itself, and the head after the last one is their mean.
    columns = [(view, step) for view in views for step in (-1, *spread(len(toy.attention), MAX_STEPS))]
    rows = [*spread(heads, MAX_HEADS), heads]
    figure = new_figure(1.6 * len(columns) + 1, 1.6 * len(rows) + 1)
    grid = figure.subplots(len(rows), len(columns), squeeze=False)
    top, overlay = heat_limit(toy.attention[:, views]), None
    for column, (view, step) in enumerate(columns):
        for axis, head in zip(grid[:, column], rows, strict=True):
            if step < 0 and head:
                axis.set_axis_off()
                continue
            weights = None
            if step >= 0:
                of_step = toy.attention[step, view]  # (H, N)
                weights = of_step[head] if head < heads else of_step.mean(dim=0)
            overlay = draw_panel(axis, toy.crops[view], weights, top) or overlay
            if column == 1:
                axis.set_ylabel(f"head {head + 1}" if head < heads else "mean", fontsize=10)
        grid[0, column].set_title(toy.labels[view] if step < 0 else f"step {step + 1}", fontsize=8)
    return finish(figure, overlay, grid, f"{toy.category}, step by step", folder, "look_steps")


def draw_panel(axis: Any, crop: UInt8[Tensor, "P P"], weights: Float[Tensor, " N"] | None, top: float) -> Any:
    """Draw a crop in grey, overlaid with its attention; return the overlay, or None without weights."""
    pixels = crop.shape[0]
    extent = (0, pixels, pixels, 0)
    axis.imshow(crop.numpy(), cmap="gray", vmin=0, vmax=255, extent=extent)
    axis.set_xticks([])
    axis.set_yticks([])
    if weights is None:
        return None
    side = math.isqrt(len(weights))
    heat = heat_of(weights).reshape(side, side).numpy()
    strength = 0.85 * ((heat - 1) / (top - 1)).clip(0, 1)  # a patch below uniform attention stays grey
    return axis.imshow(heat, cmap="inferno", vmin=1, vmax=top, alpha=strength, extent=extent, interpolation="nearest")


def finish(figure: Any, overlay: Any, grid: Any, title: str, folder: Path, name: str) -> list[Path]:
    """Add a colour bar and a title, and write the figure."""
    from matplotlib.cm import ScalarMappable

    scale = ScalarMappable(norm=overlay.norm, cmap=overlay.cmap)  # without the transparency of the panels
    bar = figure.colorbar(scale, ax=grid, shrink=0.5, pad=0.01)
    bar.set_label("attention, times the number of patches", fontsize=8)
    bar.ax.tick_params(labelsize=8)
    figure.suptitle(title, fontsize=12)
    return write_figure(figure, folder, name)


def with_article(noun: str) -> str:
    """Add the indefinite article.

    Example:
        >>> with_article("animal"), with_article("truck")
        ('an animal', 'a truck')
    """
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


LOOKS: dict[str, Callable[..., Figures]] = {"viewpoints": look_at_views, "scenes": look_at_scenes}
"""Functions by task: from the task, its network, a folder, ``category`` and ``seed`` to figures."""


def look(
    run: Path, out: Path, *, which: Literal["final", "best"] = "final", category: str | None = None, seed: int = 0
) -> Figures:
    """Draw the attention of the network of a run, as SVG and PNG; return the files by caption.

    Args:
        run: Run directory, with its network.
        out: Folder of the figures.
        which: The network of the last step, or the one with the best score.
        category: Category of the toy to draw; chosen by the seed if None.
        seed: Chooses the example.
    """
    directory = RunDirectory.open(run)
    kind = directory.experiment.kind
    if kind not in LOOKS:
        raise ValueError(
            f"{run} is a run of the task {kind!r}, which has no pictures. Choose a run of {' or '.join(LOOKS)}."
        )
    if not directory.network(which).is_dir():
        raise ValueError(
            f"{run} has no network ({directory.network(which)} does not exist); committed records hold numbers only. "
            f"Train it with: {training_command(directory.experiment)}"
        )
    task: Any = directory.experiment.task
    network: nn.Module = task.read_network(directory.network(which))
    return LOOKS[kind](task, network, out, category=category, seed=seed)
