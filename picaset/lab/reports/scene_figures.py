"""Figures of scenes: what was predicted, drawn over the image and said in words, and what every template looked at.

``look_at_scenes`` draws both for any network of this task.

Dimensions:  B scenes   K slots   L steps   N places
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from picaset.figures import COLOURS, new_figure, write_figure
from picaset.lab.data.folders import cache_folder
from picaset.lab.data.render import project
from picaset.lab.data.scene_vectors import from_vectors, to_vectors
from picaset.lab.data.scenes import Scenes, in_words
from picaset.lab.data.traced_scenes import cameras_of, load_traced_scenes, usual_cameras
from picaset.lab.networks.scene_network import SceneNetwork
from picaset.lab.reports.records import Record
from picaset.lab.reports.scenes import in_words as row_in_words
from picaset.lab.reports.scenes import rows_of
from picaset.lab.tasks.scene_marks import SURE, Marks, mark
from picaset.lab.tasks.scenes import SEEDS, SceneObjects

CLEAR = 192
"""Pixels at which generated scenes are drawn; the network sees fewer."""
NUM_DRAWN = 4
FOUND, INVENTED, MISSED = COLOURS[2], COLOURS[1], COLOURS[3]


@dataclass(frozen=True)
class Shown:
    """Scenes with what is in them and what was predicted.

    Shapes:
        images      (B, S, S, 3)
        aspects     (B,)            width over height, as they are drawn
        pixels      (B, K, 2)       right and down, from 0 to 1, of the predictions
        true_pixels (B, K, 2)       the same of the objects
        attention   (2, L, K, N)    or None
    """

    images: NDArray[np.uint8]
    aspects: Float[Tensor, " B"]
    marks: Marks
    pixels: Float[Tensor, "B K 2"]
    true_pixels: Float[Tensor, "B K 2"]
    attention: NDArray[np.float64] | None

    def extent(self, scene: int) -> tuple[float, float, float, float]:
        """Left, right, bottom and top of a picture, no longer squeezed into a square."""
        return 0.0, float(self.aspects[scene]), 1.0, 0.0


def shown_by(task: SceneObjects, kept: dict[str, Any]) -> Shown:
    """What a result keeps of the first test scenes, with the scenes themselves."""
    vectors = torch.tensor(kept["predicted"])
    count = len(vectors)
    scenes, clear = first_scenes(task, count)
    there = from_vectors(
        to_vectors(*(torch.as_tensor(part[:count]) for part in (scenes.present, scenes.coordinates, scenes.properties)))
    )
    marks = mark(vectors, there)
    traced = task.data == "traced"
    cameras = cameras_of(count, seed=SEEDS["test"]) if traced else usual_cameras(count)
    aspects = torch.as_tensor(scenes.aspects[:count]).float()
    pixels, true_pixels = (
        project(places.float(), cameras, stretch=aspects[:, None])
        for places in (marks.predicted.coordinates, there.coordinates)
    )
    attention = kept["attention"]
    if attention is not None:  # templates in the order of the predictions
        weights = np.array(attention)
        attention = np.stack([one[:, rank.numpy()] for one, rank in zip(weights, marks.order, strict=False)])
    return Shown(np.asarray(clear), aspects, marks, pixels, true_pixels, attention)


def first_scenes(task: SceneObjects, count: int) -> tuple[Scenes, NDArray[np.uint8]]:
    """The first test scenes, and pictures of them; generated ones are drawn clearer than the network sees them."""
    if task.data == "clevr":
        scenes = task.scenes("test")
        return scenes, np.asarray(scenes.images[:count])
    scenes = load_traced_scenes(count, seed=SEEDS["test"], size=CLEAR, folder=cache_folder())
    return scenes, np.asarray(scenes.images)


def draw_predictions(shown: Shown, folder: Path, *, title: str, name: str = "scene_predictions") -> list[Path]:
    """Images with their predicted objects, numbered and said in words; what was missed or invented is marked."""
    count = min(NUM_DRAWN, len(shown.images))
    figure = new_figure(13, 2.9 * ((count + 1) // 2))
    axes = figure.subplots((count + 1) // 2, 4, squeeze=False, width_ratios=(1, 1.05, 1, 1.05)).flatten()
    for axis in axes:
        axis.set_axis_off()
    for scene in range(count):
        picture, text = axes[2 * scene], axes[2 * scene + 1]
        extent = shown.extent(scene)
        picture.imshow(shown.images[scene], extent=extent)
        picture.set(xlim=extent[:2], ylim=extent[2:], anchor="N")
        for line, (sign, colour, words) in enumerate(marked(shown, scene, picture)):
            y = 0.97 - line / 13
            text.text(0.02, y, sign, color=colour, fontsize=9, fontweight="bold", va="center", transform=text.transAxes)
            text.text(0.13, y, words, fontsize=9, va="center", transform=text.transAxes)
    figure.suptitle(title, fontsize=11)
    return write_figure(figure, folder, name)


def marked(shown: Shown, scene: int, picture: Any) -> list[tuple[str, str, str]]:
    """Mark a scene's predictions and missed objects in its picture; what to say of each."""
    lines, marks, aspect = list[tuple[str, str, str]](), shown.marks, float(shown.aspects[scene])
    for slot in range(marks.num_made(scene)):
        right = bool(marks.right[scene, slot])
        words = in_words(marks.predicted.properties[scene, slot].numpy())
        colour = FOUND if right else INVENTED
        x, y = (float(value) for value in shown.pixels[scene, slot])
        picture.plot(aspect * x, y, marker="o" if right else "X", markersize=9, color=colour, markeredgecolor="white")
        picture.annotate(
            str(slot + 1), (aspect * x, y), color="white", fontsize=6, fontweight="bold", ha="center", va="center"
        )
        lines.append((str(slot + 1), colour, words if right else f"{words} (wrong)"))
    for slot in marks.missed(scene):
        x, y = (float(value) for value in shown.true_pixels[scene, slot])
        picture.plot(
            aspect * x, y, marker="s", markersize=13, color="none", markeredgecolor=MISSED, markeredgewidth=1.8
        )
        lines.append(("□", MISSED, f"{in_words(marks.there.properties[scene, slot].numpy())} (missed)"))
    return lines


def draw_attention(
    shown: Shown, folder: Path, *, title: str, scene: int = 0, name: str = "scene_attention"
) -> list[Path]:
    """What each template looked at in each step, over the image; templates in the order of their presence."""
    assert shown.attention is not None
    attention = shown.attention[scene]  # (L, K, N)
    steps, templates, places = attention.shape
    side = round(places**0.5)
    figure = new_figure(1.5 * templates, (1.5 / float(shown.aspects[scene]) + 0.05) * steps + 0.8)
    image = shown.images[scene] / 255
    for step, row in enumerate(figure.subplots(steps, templates, squeeze=False)):
        for slot, axis in enumerate(row):
            weights = attention[step, slot].reshape(side, side)
            bright = 0.25 + 0.75 * enlarged(weights / max(weights.max(), 1e-9), len(image))
            axis.imshow(image * bright, extent=shown.extent(scene))
            axis.set(xticks=[], yticks=[])
            if slot == 0:
                axis.set_ylabel(f"step {step + 1}", fontsize=8)
            if step == 0:
                sure = float(shown.marks.predicted.presence[scene, slot])
                words = in_words(shown.marks.predicted.properties[scene, slot].numpy()).replace(" ", "\n", 2)
                axis.set_title(words if sure > SURE else "nothing", fontsize=7)
    figure.suptitle(title, fontsize=10)
    return write_figure(figure, folder, name)


def enlarged(weights: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """A coarse grid as fine as an image, the same value over each of its squares: (S, S, 1)."""
    places = np.arange(size) * len(weights) // size
    return weights[places][:, places, None]


def look_at_scenes(
    task: SceneObjects, network: SceneNetwork, folder: Path, *, category: str | None, seed: int
) -> dict[str, list[Path]]:
    """Both figures of a network, by their captions; it is always shown the first test scenes."""
    if category is not None:
        raise ValueError(f"a scene has objects of all kinds: leave the category out; got {category!r}.")
    return draw_both(shown_by(task, task.shown(network)), folder, what=task.describe_data())


def draw_both(shown: Shown, folder: Path, *, what: str) -> dict[str, list[Path]]:
    figures = {
        "What was predicted for test scenes: a number marks an object that was found, within one unit of its place; a "
        "cross one that is wrong, not there or found already; a square one that was missed. Generated scenes are drawn "
        "clearer than the network saw them.": draw_predictions(shown, folder, title=what)
    }
    if shown.attention is not None:
        caption = (
            "What each template looked at, step by step, in the first of these scenes: the brighter, the more, up to "
            "the place it looked at most; where all is bright, it looked everywhere."
        )
        figures[caption] = draw_attention(shown, folder, title=what)
    return figures


def draw_all(records: Sequence[Record], folder: Path) -> dict[str, list[Path]]:
    """The figures of the most telling run on generated scenes."""
    for name in ("ours-likelihood", "pb3-likelihood", "ours", "pb3", "slot-attention"):
        if runs := rows_of(records, name):
            task = runs[0].experiment.task
            assert isinstance(task, SceneObjects)
            return draw_both(shown_by(task, runs[0].result["shown"]), folder, what=row_in_words(name))
    return {}
