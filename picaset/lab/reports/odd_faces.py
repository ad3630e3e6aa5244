"""A figure like the paper's Figures 1 and 5: sets of faces as rows, the odd one framed, each with its score.

Of drawn faces only. Real faces appear in no file that picaset writes.

Dimensions:  B sets   N faces of a set   S pixels a side
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8

from picaset.checks import check_positive
from picaset.figures import COLOURS, new_figure, write_figure
from picaset.lab.data.drawn_faces import draw_faces, draw_images
from picaset.lab.data.face_sets import draw_odd_sets
from picaset.lab.networks.odd_one_out import OddOneOutNetwork
from picaset.lab.reports.records import Record
from picaset.lab.tasks.odd_one_out import DRAWN_SEED, OddOneOut, as_tensor

FRESH = 512
"""Faces that are drawn to make sets of which training had none."""

MOST_FOUND, MOST_MISSED = 4, 3
"""Sets that a figure has room for, of each kind."""
ODD_COLOUR, WRONG_COLOUR = COLOURS[0], COLOURS[1]
SPACE = 0.34
"""Room below a face for its score, as a share of the face."""
FACE = 0.95
"""Inches that a face and the gap beside it take."""
LABEL = 1.5
"""Room for the attributes of a set, in faces."""


@dataclass(frozen=True, eq=False)
class ScoredSet:
    """One set of faces, how likely each is to be the odd one, and which is."""

    faces: UInt8[np.ndarray, "N S S 3"]
    scores: Float[np.ndarray, " N"]
    odd: int
    attributes: tuple[str, str]

    @property
    def chosen(self) -> int:
        """The face that was taken for the odd one."""
        return int(np.argmax(self.scores))

    @property
    def was_found(self) -> bool:
        return self.chosen == self.odd


def shown_sets(record: Record) -> list[ScoredSet]:
    """The test sets whose scores a run has kept; their faces are drawn again from the seed."""
    task = record.experiment.task
    if not isinstance(task, OddOneOut) or task.data != "drawn":
        raise ValueError(
            f"{record.path} is not a run on drawn faces; pictures of real faces are put into no figure. "
            "Take a run of an experiment without celeba in its name."
        )
    shown = record.result["shown"]
    sizes = [len(members) for members in shown["members"]]
    numbers = [number for members in shown["members"] for number in members]
    images = np.split(draw_images(numbers, task.num_faces, seed=DRAWN_SEED), np.cumsum(sizes)[:-1])
    return [
        ScoredSet(faces, np.array(scores, dtype=float), odd, (first, second))
        for faces, scores, odd, (first, second) in zip(
            images, shown["scores"], shown["odd"], shown["attributes"], strict=True
        )
    ]


@torch.no_grad()
def fresh_sets(network: OddOneOutNetwork, *, num_sets: int, set_size: int, seed: int) -> list[ScoredSet]:
    """Sets of faces that are drawn from a seed which training never has, and how a network scores them."""
    check_positive(caller="fresh_sets", num_sets=num_sets)
    if seed < 0:
        raise ValueError(f"fresh_sets: seed must not be negative; got {seed}.")
    faces = draw_faces(FRESH, seed=DRAWN_SEED + 1 + seed)
    sets = draw_odd_sets(faces.attributes, num_sets, set_size, generator=np.random.default_rng(seed))
    vectors = network.look(as_tensor(faces.images))
    scores = network.scorer(vectors[torch.as_tensor(sets.members)]).softmax(dim=1).double().numpy()
    return [
        ScoredSet(faces.images[members], score, int(odd), (faces.names[int(pair[0])], faces.names[int(pair[1])]))
        for members, score, odd, pair in zip(sets.members, scores, sets.odd, sets.pairs, strict=True)
    ]


def draw_odd_faces(sets: Sequence[ScoredSet], folder: Path, name: str = "odd_faces") -> list[Path]:
    """The first sets whose odd face was found, and below them the first where it was not; none is chosen by hand."""
    found = [one for one in sets if one.was_found][:MOST_FOUND]
    missed = [one for one in sets if not one.was_found][:MOST_MISSED]
    if not found and not missed:
        raise ValueError("draw_odd_faces: expected at least one set; got none.")
    blocks = [block for block in (("found", found), ("missed", missed)) if block[1]]
    widest = max(len(one.scores) for one in (*found, *missed))
    height = sum(len(rows) * (1 + SPACE) + 0.5 for _, rows in blocks)
    figure = new_figure(FACE * (widest + LABEL), FACE * height + 0.35)
    panels = figure.subfigures(
        len(blocks), 1, squeeze=False, height_ratios=[len(rows) * (1 + SPACE) + 0.5 for _, rows in blocks]
    )
    for panel, (title, rows) in zip(panels.flat, blocks, strict=True):
        count = sum(one.was_found == rows[0].was_found for one in sets)
        mark = "✓" if title == "found" else "✗"
        colour = ODD_COLOUR if title == "found" else WRONG_COLOUR
        said = f"{mark}  the odd one was {title}, in {count} of {len(sets)} sets; {shown_in_words(len(rows), count)}"
        panel.suptitle(said, x=0.01, ha="left", fontsize=12, weight="bold", color=colour)
        axis = panel.subplots()
        for place, one in enumerate(rows):
            draw_set(axis, one, top=place * (1 + SPACE))
        axis.set(xlim=(-LABEL, widest), ylim=(len(rows) * (1 + SPACE), -0.08), aspect="equal")
        axis.set_axis_off()
    return write_figure(figure, folder, name)


def shown_in_words(shown: int, count: int) -> str:
    if shown == count:
        return "all are shown" if count > 1 else "this one"
    return f"the first {shown}" if shown > 1 else "the first one"


def draw_set(axis: Any, one: ScoredSet, *, top: float) -> None:
    """A row of faces; a solid frame for the odd one, a dashed one for a face that was wrongly taken for it."""
    from matplotlib.patches import Rectangle

    label = "\n".join(name.replace("_", " ").lower() for name in one.attributes)
    axis.text(-0.15, top + 0.45, f"all but one:\n{label}", ha="right", va="center", fontsize=9)
    for place, (face, score) in enumerate(zip(one.faces, one.scores, strict=True)):
        left = place + 0.04
        axis.imshow(face, extent=(left, left + 0.92, top + 0.92, top), interpolation="none")
        if place == one.odd or place == one.chosen:
            colour, style = (ODD_COLOUR, "-") if place == one.odd else (WRONG_COLOUR, "--")
            axis.add_patch(Rectangle((left, top), 0.92, 0.92, fill=False, edgecolor=colour, linewidth=3.5,
                                     linestyle=style, zorder=3))  # fmt: skip
        axis.text(left + 0.46, top + 0.97, f"{score:.2f}", ha="center", va="top", fontsize=9,
                  weight="bold" if place == one.chosen else "normal")  # fmt: skip
