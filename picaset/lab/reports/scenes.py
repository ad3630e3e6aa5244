"""Objects in scenes: Table 5 on the stand-in and on CLEVR, what the parts of ours are worth, more steps in testing.

Figures of scenes: what was predicted, drawn over the image and said in words, and what every template looked at.

``look_at_scenes`` draws both for any network of this task.

Dimensions:  B scenes   K slots   L steps   N places

Scenes on the page: their tables and their figures.
"""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from picaset.figures import COLOURS, new_figure, write_figure
from picaset.lab.data.folders import cache_folder
from picaset.lab.data.ray_tracer import project
from picaset.lab.data.scenes import Scenes, from_vectors, in_words, to_vectors
from picaset.lab.data.traced_scenes import cameras_of, load_traced_scenes, usual_cameras
from picaset.lab.experiments.scenes import ROWS, VARIANTS, by_objective
from picaset.lab.networks.scene_network import SceneNetwork
from picaset.lab.reports.page import Section, drawing
from picaset.lab.reports.published import TABLE_5
from picaset.lab.reports.records import Record, time_taken
from picaset.lab.reports.table import Cell, Table, mean_and_spread
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
    "pb3-compete": "PB3, templates compete",
    "pb3-compete-both": "PB3, templates compete and choose",
    "pb3-located": "PB3, told where they look",
    "pb3-peaks": "PB3, from peaks of the image",
    "pb3-mixed": "PB3, templates attend to each other",
    "pb3-paper-form": "PB3, the block as in the paper's Eq. 3",
    "slot-attention-learned": "Slot Attention, learned slots",
    "slot-attention-waves": "Slot Attention, positions as waves",
}
SUFFIXES = {"-reweighted": ", coordinates reweighted", "-likelihood": ", by likelihood"}
"""What is minimised, where it is not what was published."""
DISTANCES = ("inf", "1", "0.5", "0.25", "0.125")
HEADINGS = ("∞", *DISTANCES[1:])


def rows_of(records: Sequence[Record], name: str, *, data: str = "traced") -> list[Record]:
    """The runs of one row of a table, one for each seed."""
    prefix = "scenes" if data == "traced" else "scenes-clevr"
    return [record for record in records if record.experiment.name == f"{prefix}-{name}"]


def percent(runs: Sequence[Record], distance: str) -> list[float]:
    """Average precision of each seed."""
    return [100 * record.result["average_precision"][distance] for record in runs]


def row_and_objective(name: str) -> tuple[str, str]:
    """The row without what it minimises, and that in words."""
    for suffix, words in SUFFIXES.items():
        if name.endswith(suffix):
            return name.removesuffix(suffix), words
    return name, ""


def row_label(name: str) -> str:
    row, objective = row_and_objective(name)
    return NAMES[row] + objective


def found_rows(records: Sequence[Record], names: Sequence[str], *, data: str = "traced") -> dict[str, list[Record]]:
    return {name: runs for name in names if (runs := rows_of(records, name, data=data))}


def precision_rows(found: dict[str, list[Record]]) -> list[list[Cell]]:
    best = {
        distance: max(statistics.fmean(percent(runs, distance)) for runs in found.values()) for distance in DISTANCES
    }
    rows = list[list[Cell]]()
    for name, runs in found.items():
        count = "one seed" if len(runs) == 1 else f"{len(runs)} seeds"
        cells = [
            Cell(
                mean_and_spread(percent(runs, distance), digits=1),
                best=statistics.fmean(percent(runs, distance)) >= best[distance] - 1e-9,
            )
            for distance in DISTANCES
        ]
        rows.append([Cell(row_label(name)), Cell(f"{runs[0].result['parameters'] / 1e3:.0f}k"), Cell(count), *cells])
    return rows


def table_5(records: Sequence[Record]) -> Table | None:
    """Every row of the paper's table and ours, on the stand-in."""
    found = found_rows(records, list(by_objective(ROWS)))
    if not found:
        return None
    return Table(
        "Table 5 on the stand-in: average precision in percent, by the largest distance that counts",
        ["decoder", "parameters", "", *HEADINGS],
        precision_rows(found),
        [
            setting([record for runs in found.values() for record in runs]),
            "These scenes are not CLEVR's, so that no published number stands beside them. Bold: the highest here. "
            "± is the standard deviation over seeds.",
        ],
    )


def on_clevr(records: Sequence[Record]) -> Table | None:
    """The rows that were trained on CLEVR's files, and in a column of its own what the paper has for all of CLEVR."""
    found = found_rows(records, list(by_objective(ROWS)), data="clevr")
    if not found:
        return None
    published = {name: " / ".join(f"{value:.1f}" for value in values) for name, values in TABLE_5.items()}
    rows = [
        [*row, Cell(published.get(row_and_objective(name)[0], ""))]
        for name, row in zip(found, precision_rows(found), strict=True)
    ]
    trained = [record for runs in found.values() for record in runs]
    kinds = " and ".join(sorted({record.environment["data"].split(",")[0] for record in trained}))
    return Table(
        f"Table 5 on {kinds}: average precision in percent, by the largest distance that counts",
        ["decoder", "parameters", "", *HEADINGS, "paper, ∞ / 1 / 0.5, another size of data"],
        rows,
        [
            setting(trained),
            "The paper's numbers are of the published loss, the whole of CLEVR and the published budget, whatever a "
            "row minimises here.",
        ],
    )


def parts(records: Sequence[Record]) -> Table | None:
    """PB3 and Slot Attention with one thing changed, beside themselves and ours."""
    variants = found_rows(records, list(VARIANTS))
    if not variants:
        return None
    found = found_rows(records, ["pb3-likelihood", "slot-attention-likelihood", *VARIANTS, "ours-likelihood"])
    return Table(
        "What the parts of ours are worth: one thing changed, by likelihood, on the stand-in",
        ["decoder", "parameters", "", *HEADINGS],
        precision_rows(found),
        [setting([record for runs in found.values() for record in runs])],
    )


def by_steps(records: Sequence[Record]) -> Table | None:
    """Average precision at 0.5 with fewer and more steps than in training."""
    first_of = dict[tuple[SceneObjects, Training], tuple[str, Record]]()
    for name, runs in found_rows(records, list(by_objective(ROWS))).items():
        if runs[0].result["by_steps"]:  # two rows may be one training, which is shown as the first of them
            trained = replace(task_of(runs[0]), num_test_steps=0), runs[0].experiment.training
            first_of.setdefault(trained, (name, runs[0]))
    tested = dict(first_of.values())
    if not tested:
        return None
    found = {
        name: {row["steps"]: row["average_precision"] for row in record.result["by_steps"]}
        for name, record in tested.items()
    }
    steps = sorted({count for counts in found.values() for count in counts})
    rows = [
        [
            Cell(row_label(name)),
            *(Cell(f"{100 * counts[count]['0.5']:.1f}" if count in counts else "") for count in steps),
        ]
        for name, counts in found.items()
    ]
    return Table(
        "More steps in testing: average precision at 0.5 in percent, on the stand-in",
        ["decoder", *(f"{count} step{'s' * (count > 1)}" for count in steps)],
        rows,
        [
            f"One seed each, on the first {scenes_tested(tested.values())} test scenes: numbers are not quite those "
            f"of all. Steps in training: {steps_in_training(tested.values())}."
        ],
    )


def scenes_tested(records: Iterable[Record]) -> str:
    """On how many a network is tested with other numbers of steps."""
    return " or ".join(map(str, sorted({task_of(record).num_scored_scenes for record in records})))


def task_of(record: Record) -> SceneObjects:
    task = record.experiment.task
    assert isinstance(task, SceneObjects)
    return task


def steps_in_training(records: Iterable[Record]) -> str:
    """Of each kind of decoder that there is."""
    steps = {"cascades and slots": set[int](), "descents": set[int]()}
    for record in records:
        task = task_of(record)
        steps["descents" if "descent" in task.decoder else "cascades and slots"].add(task.num_steps)
    return ", ".join(f"{kind} {' or '.join(map(str, sorted(counts)))}" for kind, counts in steps.items() if counts)


def setting(records: Sequence[Record]) -> str:
    """What a reader must know of how the runs were made, and what was published."""
    training = records[0].experiment.training
    budgets = {(record.experiment.training.steps, record.experiment.training.batch_size) for record in records}
    budget = f"{training.steps} steps of {training.batch_size} images" if len(budgets) == 1 else "unequal budgets"
    data = " or ".join(sorted({record.environment["data"] for record in records}))
    return (
        f"Profile {records[0].experiment.profile}: every row {budget}, {time_taken(records)} each on "
        f"{records[0].environment['hardware']}; {rates(records)}. Scenes: {data}. Published are 150 000 steps of 512 "
        "images of 128 x 128 pixels. docs/reproduction.md lists what else differs."
    )


def rates(records: Sequence[Record]) -> str:
    """How fast the rows learned at most, and which of them otherwise than most."""
    rows = dict[float, set[str]]()
    for record in records:
        name = record.experiment.name.removeprefix("scenes-").removeprefix("clevr-")
        rows.setdefault(record.experiment.training.learning_rate, set()).add(NAMES[row_and_objective(name)[0]])
    usual, *others = sorted(rows, key=lambda rate: len(rows[rate]), reverse=True)
    said = [f"Adam up to {usual:g}", *(f"{' and '.join(sorted(rows[rate]))} up to {rate:g}" for rate in others)]
    return ", ".join(said)


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
            return draw_both(shown_by(task, runs[0].result["shown"]), folder, what=row_label(name))
    return {}


def scenes_section(runs: Sequence[Record], folders: Sequence[Path], out: Path) -> Section:
    figures = draw_all(runs, out / "figures")
    return Section(
        anchor="scenes",
        title="Objects in scenes",
        text="A network sees one image and predicts the set of its three to ten objects: where each is, its shape, "
        "material, colour and size.",
        tables=scenes_tables(runs, folders),
        figures=[drawing(paths[0], caption) for caption, paths in figures.items()],
    )


def scenes_tables(runs: Sequence[Record], folders: Sequence[Path]) -> list[Table]:
    """Every table that the runs allow."""
    tables = [table_5(runs), parts(runs), by_steps(runs), on_clevr(runs)]
    return [table for table in tables if table is not None]
