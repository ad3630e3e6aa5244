"""Objects in scenes: Table 5 of the paper on generated scenes and on CLEVR, the parts of our decoder, and figures.

The figures show the predicted objects over the image and in words, and the attention of every template. They are drawn
from the record of a run, or by ``look_at_scenes`` from any network of this task.

Dimensions:  B scenes   K slots   L steps   N patches
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from picaset.figures import COLOURS, MAX_STEPS, MAX_TEMPLATES, new_figure, spread, write_figure
from picaset.lab.data.folders import cache_folder
from picaset.lab.data.ray_tracer import project
from picaset.lab.data.scenes import Scenes, describe_object, from_vectors, to_vectors
from picaset.lab.data.traced_scenes import default_cameras, load_traced_scenes, scene_cameras
from picaset.lab.experiments.scenes import ROWS, VARIANTS, by_objective
from picaset.lab.networks.scene_network import SceneNetwork
from picaset.lab.reports.page import Cell, Figures, Reporter, Table, highest_mean, row_heading, score_cell
from picaset.lab.reports.published import TABLE_5
from picaset.lab.reports.records import Record, all_runs, alternatives, runs_named, training_time
from picaset.lab.reports.schemas import ScenesResult
from picaset.lab.tasks.scene_scores import SURE, Marks, mark
from picaset.lab.tasks.scenes import SEEDS, SceneObjects
from picaset.lab.training.experiment import Training

NAMES = {
    "dspn10": "DSPN, 10 steps",
    "dspn30": "DSPN, 30 steps in testing",
    "idspn": "iDSPN",
    "slot-attention": "Slot Attention",
    "set-transformer": "Set Transformer",
    "pb3": "PB3",
    "ours": "ours (PB3, positions as waves, every step trained)",
    "pb3-every-step": "PB3, every step trained",
    "pb3-waves": "PB3, positions as waves",
    "pb3-paper-form": "PB3, the block as in the paper's Eq. 3",
    "slot-attention-learned": "Slot Attention, learned slots",
    "slot-attention-waves": "Slot Attention, positions as waves",
}
"""Labels of the rows."""
SUFFIXES = {"-reweighted": ", coordinates reweighted", "-likelihood": ", by likelihood"}
"""Labels of the losses other than the published one, by the suffix of the experiment's name."""
DISTANCES = ("inf", "1", "0.5", "0.25", "0.125")
HEADINGS = ("∞", *DISTANCES[1:])


def find_runs(records: Sequence[Record], name: str, *, data: str = "traced") -> list[Record]:
    """Return the runs of one row, one for each seed."""
    return runs_named(records, f"{'scenes' if data == 'traced' else 'scenes-clevr'}-{name}")


def find_rows(
    records: Sequence[Record], names: Iterable[str] = tuple(by_objective(ROWS)), *, data: str = "traced"
) -> dict[str, list[Record]]:
    """Return the runs of each row that has any."""
    return {name: runs for name in names if (runs := find_runs(records, name, data=data))}


def average_precision(runs: Sequence[Record], distance: str) -> list[float]:
    """Return the average precision of each seed in percent."""
    return [100 * record.result["average_precision"][distance] for record in runs]


def split_objective(name: str) -> tuple[str, str]:
    """Split the name of a row into the decoder and the label of its loss."""
    for suffix, label in SUFFIXES.items():
        if name.endswith(suffix):
            return name.removesuffix(suffix), label
    return name, ""


def row_label(name: str) -> str:
    decoder, objective = split_objective(name)
    return NAMES[decoder] + objective


def precision_table(title: str, rows: dict[str, list[Record]], *notes: str) -> Table:
    """Build a table of average precision by distance."""
    highest = {
        distance: highest_mean(average_precision(runs, distance) for runs in rows.values()) for distance in DISTANCES
    }
    cells = [
        [
            *row_heading(row_label(name), runs),
            *(score_cell(average_precision(runs, key), highest=highest[key], digits=1) for key in DISTANCES),
        ]
        for name, runs in rows.items()
    ]
    return Table(title, ["decoder", "parameters", "", *HEADINGS], cells, [describe_setting(all_runs(rows)), *notes])


def table_5(records: Sequence[Record]) -> Table | None:
    """Build the paper's table, and our rows, on generated scenes."""
    rows = find_rows(records)
    if not rows:
        return None
    return precision_table(
        "Table 5 on the stand-in: average precision in percent, by the largest distance that counts as correct",
        rows,
        "The scenes are generated, not CLEVR's, so there are no published numbers for them. Bold is the highest here. "
        "± is the standard deviation over seeds.",
    )


def on_clevr(records: Sequence[Record]) -> Table | None:
    """Build the table of the runs on CLEVR's files, with the published numbers in a column of their own."""
    rows = find_rows(records, data="clevr")
    if not rows:
        return None
    data = " and ".join(sorted({record.environment["data"].split(",")[0] for record in all_runs(rows)}))
    table = precision_table(
        f"Table 5 on {data}: average precision in percent, by the largest distance that counts as correct",
        rows,
        "The published numbers are for the published loss, all of CLEVR and the published budget, whichever loss a row "
        "uses here.",
    )
    published = {name: " / ".join(f"{value:.1f}" for value in values) for name, values in TABLE_5.items()}
    return replace(
        table,
        columns=[*table.columns, "paper, ∞ / 1 / 0.5, on more data"],
        rows=[
            [*cells, Cell(published.get(split_objective(name)[0], ""))]
            for name, cells in zip(rows, table.rows, strict=True)
        ],
    )


def parts(records: Sequence[Record]) -> Table | None:
    """Build the table of PB3 and Slot Attention with one part changed, beside the unchanged ones and ours."""
    if not find_rows(records, VARIANTS):
        return None
    return precision_table(
        "Effect of each part of our decoder: one part changed, by likelihood, on the stand-in",
        find_rows(records, ["pb3-likelihood", "slot-attention-likelihood", *VARIANTS, "ours-likelihood"]),
    )


def by_steps(records: Sequence[Record]) -> Table | None:
    """Build the table of average precision at 0.5 with fewer and more steps than in training."""
    first_of = dict[tuple[SceneObjects, Training], tuple[str, Record]]()
    for name, (record, *_) in find_rows(records).items():
        if record.result["by_steps"]:  # rows that share a training are shown once, as the first of them
            training = replace(record.task_as(SceneObjects), num_test_steps=0), record.experiment.training
            first_of.setdefault(training, (name, record))
    if not first_of:
        return None
    tested = dict(first_of.values())
    precision = {
        name: {row["steps"]: row["average_precision"]["0.5"] for row in record.result["by_steps"]}
        for name, record in tested.items()
    }
    steps = sorted({count for by_count in precision.values() for count in by_count})
    tasks = [record.task_as(SceneObjects) for record in tested.values()]
    num_scenes = " or ".join(map(str, sorted({task.num_scored_scenes for task in tasks})))
    return Table(
        "More steps at test time: average precision at 0.5 in percent, on the stand-in",
        ["decoder", *(f"{count} step{'s' * (count > 1)}" for count in steps)],
        [
            [
                Cell(row_label(name)),
                *(Cell(f"{100 * by_count[count]:.1f}" if count in by_count else "") for count in steps),
            ]
            for name, by_count in precision.items()
        ],
        [
            f"One seed each, on the first {num_scenes} test scenes, so the numbers differ slightly from those on all. "
            f"Steps in training: {steps_in_training(tasks)}."
        ],
    )


def steps_in_training(tasks: Iterable[SceneObjects]) -> str:
    """Return the numbers of steps of each kind of decoder."""
    steps = {"cascades and slots": set[int](), "descents": set[int]()}
    for task in tasks:
        decoder = task.network["decoder"]
        if "num_steps" in decoder:
            steps["descents" if decoder.name == "DescentDecoder" else "cascades and slots"].add(decoder["num_steps"])
    return ", ".join(f"{kind} {' or '.join(map(str, sorted(counts)))}" for kind, counts in steps.items() if counts)


def describe_setting(records: Sequence[Record]) -> str:
    """Describe how the runs were trained and tested, and the published setting."""
    trainings = [record.experiment.training for record in records]
    budgets = {f"{training.steps} steps of {training.batch_size} images" for training in trainings}
    budget = f"every row {budgets.pop()}" if len(budgets) == 1 else "unequal budgets"
    return (
        f"Profile {records[0].experiment.profile}: {budget}, "
        f"{training_time(records)} each on {records[0].environment['hardware']}; {learning_rates(records)}. Scenes: "
        f"{alternatives(record.environment['data'] for record in records)}. Published: 150 000 steps of 512 images of "
        "128 x 128 pixels. docs/reproduction.md lists the other differences."
    )


def learning_rates(records: Sequence[Record]) -> str:
    """Return the peak learning rate of most rows, then those of the rows that differ."""
    rows = dict[float, set[str]]()
    for record in records:
        name = record.experiment.name.removeprefix("scenes-").removeprefix("clevr-")
        rows.setdefault(record.experiment.training.learning_rate, set()).add(NAMES[split_objective(name)[0]])
    usual, *others = sorted(rows, key=lambda rate: len(rows[rate]), reverse=True)
    return ", ".join(
        [f"Adam up to {usual:g}", *(f"{' and '.join(sorted(rows[rate]))} up to {rate:g}" for rate in others)]
    )


def build_tables(runs: Sequence[Record], folders: Sequence[Path]) -> list[Table]:
    tables = [table_5(runs), parts(runs), by_steps(runs), on_clevr(runs)]
    return [table for table in tables if table is not None]


DRAWN_SIZE = 192
"""Pixels per side of generated scenes in figures; the network sees fewer."""
NUM_DRAWN = 4
"""Largest number of scenes in a figure."""
CORRECT_COLOUR, WRONG_COLOUR, MISSED_COLOUR = COLOURS[2], COLOURS[1], COLOURS[3]


@dataclass(frozen=True)
class PredictedScenes:
    """Scenes with their true and their predicted objects.

    Shapes:
        images      (B, S, S, 3)
        aspects     (B,)            width over height of the picture
        pixels      (B, K, 2)       predictions: right and down, from 0 to 1
        true_pixels (B, K, 2)       objects: right and down, from 0 to 1
        attention   (2, L, K, N)    of the first scenes, in the order of the predictions; or None
    """

    images: NDArray[np.uint8]
    aspects: Float[Tensor, " B"]
    marks: Marks
    pixels: Float[Tensor, "B K 2"]
    true_pixels: Float[Tensor, "B K 2"]
    attention: NDArray[np.float64] | None

    def extent(self, scene: int) -> tuple[float, float, float, float]:
        """Return left, right, bottom and top of a picture with its original aspect ratio."""
        return 0.0, float(self.aspects[scene]), 1.0, 0.0


def combine_predictions(task: SceneObjects, stored: dict[str, Any]) -> PredictedScenes:
    """Combine the predictions for the first test scenes that a result stores with the scenes themselves."""
    vectors = torch.tensor(stored["predicted"])
    count = len(vectors)
    scenes, pictures = first_scenes(task, count)
    objects = from_vectors(
        to_vectors(*(torch.as_tensor(part[:count]) for part in (scenes.present, scenes.coordinates, scenes.properties)))
    )
    marks = mark(vectors, objects)
    cameras = scene_cameras(count, seed=SEEDS["test"]) if task.data == "traced" else default_cameras(count)
    aspects = torch.as_tensor(scenes.aspects[:count]).float()
    pixels, true_pixels = (
        project(coordinates.float(), cameras, stretch=aspects[:, None])
        for coordinates in (marks.predicted.coordinates, objects.coordinates)
    )
    attention = None
    if stored["attention"] is not None:
        weights = np.array(stored["attention"])
        attention = np.stack([scene[:, order.numpy()] for scene, order in zip(weights, marks.order, strict=False)])
    return PredictedScenes(pictures, aspects, marks, pixels, true_pixels, attention)


def first_scenes(task: SceneObjects, count: int) -> tuple[Scenes, NDArray[np.uint8]]:
    """Return the first test scenes and pictures of them; generated ones have more pixels than the network sees."""
    if task.data == "clevr":
        scenes = task.scenes("test")
        return scenes, np.asarray(scenes.images[:count])
    scenes = load_traced_scenes(count, seed=SEEDS["test"], size=DRAWN_SIZE, folder=cache_folder())
    return scenes, np.asarray(scenes.images)


def draw_predictions(scenes: PredictedScenes, folder: Path, *, title: str) -> list[Path]:
    """Draw images with the predicted objects, numbered and in words; missed and wrong ones are marked."""
    count = min(NUM_DRAWN, len(scenes.images))
    figure = new_figure(13, 2.9 * ((count + 1) // 2))
    axes = figure.subplots((count + 1) // 2, 4, squeeze=False, width_ratios=(1, 1.05, 1, 1.05)).flatten()
    for axis in axes:
        axis.set_axis_off()
    for scene in range(count):
        picture, text = axes[2 * scene], axes[2 * scene + 1]
        extent = scenes.extent(scene)
        picture.imshow(scenes.images[scene], extent=extent)
        picture.set(xlim=extent[:2], ylim=extent[2:], anchor="N")
        for line, (sign, colour, words) in enumerate(mark_objects(scenes, scene, picture)):
            y = 0.97 - line / 13
            text.text(0.02, y, sign, color=colour, fontsize=9, fontweight="bold", va="center", transform=text.transAxes)
            text.text(0.13, y, words, fontsize=9, va="center", transform=text.transAxes)
    figure.suptitle(title, fontsize=11)
    return write_figure(figure, folder, "scene_predictions")


def mark_objects(scenes: PredictedScenes, scene: int, picture: Any) -> list[tuple[str, str, str]]:
    """Mark predictions and missed objects in the picture of a scene; return marker, colour and description of each."""
    lines, marks, aspect = list[tuple[str, str, str]](), scenes.marks, float(scenes.aspects[scene])
    for slot in range(marks.num_predicted(scene)):
        correct = bool(marks.correct[scene, slot])
        words = describe_object(marks.predicted.properties[scene, slot].numpy())
        colour = CORRECT_COLOUR if correct else WRONG_COLOUR
        x, y = (float(value) for value in scenes.pixels[scene, slot])
        picture.plot(aspect * x, y, marker="o" if correct else "X", markersize=9, color=colour, markeredgecolor="white")
        picture.annotate(
            str(slot + 1), (aspect * x, y), color="white", fontsize=6, fontweight="bold", ha="center", va="center"
        )
        lines.append((str(slot + 1), colour, words if correct else f"{words} (wrong)"))
    for slot in marks.missed(scene):
        x, y = (float(value) for value in scenes.true_pixels[scene, slot])
        picture.plot(
            aspect * x, y, marker="s", markersize=13, color="none", markeredgecolor=MISSED_COLOUR, markeredgewidth=1.8
        )
        lines.append(("□", MISSED_COLOUR, f"{describe_object(marks.objects.properties[scene, slot].numpy())} (missed)"))
    return lines


def draw_attention(scenes: PredictedScenes, folder: Path, *, title: str) -> list[Path]:
    """Draw the attention of each template at each step over the first image; templates in the order of presence."""
    assert scenes.attention is not None
    scene = 0
    attention = scenes.attention[scene]  # (L, K, N)
    steps, templates = spread(len(attention), MAX_STEPS), spread(attention.shape[1], MAX_TEMPLATES)
    side = round(attention.shape[2] ** 0.5)
    figure = new_figure(1.5 * len(templates), (1.5 / float(scenes.aspects[scene]) + 0.05) * len(steps) + 0.8)
    image = scenes.images[scene] / 255
    for step, row in zip(steps, figure.subplots(len(steps), len(templates), squeeze=False), strict=True):
        for slot, axis in zip(templates, row, strict=True):
            weights = attention[step, slot].reshape(side, side)
            brightness = 0.25 + 0.75 * upsample(weights / max(weights.max(), 1e-9), len(image))
            axis.imshow(image * brightness, extent=scenes.extent(scene))
            axis.set(xticks=[], yticks=[])
            if slot == 0:
                axis.set_ylabel(f"step {step + 1}", fontsize=8)
            if step == 0:
                presence = float(scenes.marks.predicted.presence[scene, slot])
                words = describe_object(scenes.marks.predicted.properties[scene, slot].numpy()).replace(" ", "\n", 2)
                axis.set_title(words if presence > SURE else "nothing", fontsize=7)
    figure.suptitle(title, fontsize=10)
    return write_figure(figure, folder, "scene_attention")


def upsample(weights: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """Upsample a square grid to (S, S, 1) by repeating its values."""
    places = np.arange(size) * len(weights) // size
    return weights[places][:, places, None]


def look_at_scenes(
    task: SceneObjects, network: SceneNetwork, folder: Path, *, category: str | None, seed: int
) -> Figures:
    """Draw the predictions and the attention of a network for the first test scenes."""
    if category is not None:
        raise ValueError(
            f"a category can be chosen for viewpoints only; got {category!r}. Leave it out: scenes show objects of all "
            "kinds."
        )
    return draw_scenes(combine_predictions(task, task.figure_data(network)), folder, title=task.describe_data())


def draw_scenes(scenes: PredictedScenes, folder: Path, *, title: str) -> Figures:
    figures: Figures = {
        "Predicted objects of test scenes. A number marks a correct one, within one unit of its place; a cross one "
        "that is wrong, absent or predicted twice; a square a missed object. Generated scenes are drawn with more "
        "pixels than the network sees.": draw_predictions(scenes, folder, title=title)
    }
    if scenes.attention is not None:
        caption = (
            "Attention of each template, step by step, in the first of these scenes, relative to its maximum: brighter "
            "is more; an evenly bright picture is uniform attention."
        )
        figures[caption] = draw_attention(scenes, folder, title=title)
    return figures


def draw_figures(records: Sequence[Record], folder: Path) -> Figures:
    """Draw the first of these runs on generated scenes."""
    rows = find_rows(records, ("ours-likelihood", "pb3-likelihood", "ours", "pb3", "slot-attention"))
    if not rows:
        return {}
    name, (record, *_) = next(iter(rows.items()))
    return draw_scenes(
        combine_predictions(record.task_as(SceneObjects), record.result["shown"]), folder, title=row_label(name)
    )


SCENES = Reporter(
    table="table5",
    title="Objects in scenes",
    text="A network sees one image and predicts the set of its three to ten objects, each with position, shape, "
    "material, colour and size.",
    result=ScenesResult,
    build_tables=build_tables,
    draw_figures=draw_figures,
)
