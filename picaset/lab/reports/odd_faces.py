"""A figure like the paper's Figures 1 and 5: one set of faces per row, with scores, the odd face framed.

It shows drawn faces only: picaset writes no picture of a real face to any file.

Dimensions:  B sets   N faces per set   S pixels per side
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

NUM_NEW_FACES = 512
"""Number of faces from which new sets are sampled."""

MAX_FOUND, MAX_MISSED = 4, 3
"""Largest number of sets in a figure whose odd face was found, and was missed."""
ODD_COLOUR, WRONG_COLOUR = COLOURS[0], COLOURS[1]
SCORE_HEIGHT = 0.34
"""Space for the score below a face, in faces."""
FACE_INCHES = 0.95
"""Width of a face and the gap beside it, in inches."""
LABEL_WIDTH = 1.5
"""Space for the attributes of a set, in faces."""


@dataclass(frozen=True, eq=False)
class ScoredSet:
    """One set of faces with the predicted probability of each to be the odd one, and the index of the odd one."""

    faces: UInt8[np.ndarray, "N S S 3"]
    scores: Float[np.ndarray, " N"]
    odd: int
    attributes: tuple[str, str]

    @property
    def chosen(self) -> int:
        """Index of the face with the highest score."""
        return int(np.argmax(self.scores))

    @property
    def was_found(self) -> bool:
        return self.chosen == self.odd


def stored_sets(record: Record) -> list[ScoredSet]:
    """Return the test sets whose scores a run has stored; their faces are drawn again from the seed."""
    task = record.experiment.task
    if not isinstance(task, OddOneOut) or task.data != "drawn":
        raise ValueError(
            f"{record.path} is not a run on drawn faces; figures never show real faces. "
            "Use a run of an experiment without celeba in its name."
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
def sample_scored_sets(network: OddOneOutNetwork, *, num_sets: int, set_size: int, seed: int) -> list[ScoredSet]:
    """Sample sets of faces from a seed that training never uses, and score them with a network."""
    check_positive(caller="sample_scored_sets", num_sets=num_sets)
    if seed < 0:
        raise ValueError(f"sample_scored_sets: seed must not be negative; got {seed}.")
    faces = draw_faces(NUM_NEW_FACES, seed=DRAWN_SEED + 1 + seed)
    sets = draw_odd_sets(faces.attributes, num_sets, set_size, generator=np.random.default_rng(seed))
    vectors = network.encode_images(as_tensor(faces.images))
    scores = network.scorer(vectors[torch.as_tensor(sets.members)]).softmax(dim=1).double().numpy()
    return [
        ScoredSet(faces.images[members], score, int(odd), (faces.names[int(pair[0])], faces.names[int(pair[1])]))
        for members, score, odd, pair in zip(sets.members, scores, sets.odd, sets.pairs, strict=True)
    ]


def draw_odd_faces(sets: Sequence[ScoredSet], folder: Path, name: str = "odd_faces") -> list[Path]:
    """Draw the first sets whose odd face was found, and below them the first where it was missed."""
    found = [scored for scored in sets if scored.was_found][:MAX_FOUND]
    missed = [scored for scored in sets if not scored.was_found][:MAX_MISSED]
    if not found and not missed:
        raise ValueError("draw_odd_faces: expected at least one set; got none.")
    blocks = [(title, rows) for title, rows in (("found", found), ("missed", missed)) if rows]
    widest = max(len(scored.scores) for scored in (*found, *missed))
    heights = [len(rows) * (1 + SCORE_HEIGHT) + 0.5 for _, rows in blocks]
    figure = new_figure(FACE_INCHES * (widest + LABEL_WIDTH), FACE_INCHES * sum(heights) + 0.35)
    panels = figure.subfigures(len(blocks), 1, squeeze=False, height_ratios=heights)
    for panel, (title, rows) in zip(panels.flat, blocks, strict=True):
        count = sum(scored.was_found == rows[0].was_found for scored in sets)
        mark, colour = ("✓", ODD_COLOUR) if title == "found" else ("✗", WRONG_COLOUR)
        heading = f"{mark}  odd face {title} in {count} of {len(sets)} sets; {describe_selection(len(rows), count)}"
        panel.suptitle(heading, x=0.01, ha="left", fontsize=12, weight="bold", color=colour)
        axis = panel.subplots()
        for row, scored in enumerate(rows):
            draw_set(axis, scored, top=row * (1 + SCORE_HEIGHT))
        axis.set(xlim=(-LABEL_WIDTH, widest), ylim=(len(rows) * (1 + SCORE_HEIGHT), -0.08), aspect="equal")
        axis.set_axis_off()
    return write_figure(figure, folder, name)


def describe_selection(shown: int, count: int) -> str:
    if shown == count:
        return "all shown" if count > 1 else "shown here"
    return f"the first {shown} shown" if shown > 1 else "the first shown"


def draw_set(axis: Any, scored: ScoredSet, *, top: float) -> None:
    """Draw a row of faces; a solid frame marks the odd one, a dashed frame a wrong prediction."""
    from matplotlib.patches import Rectangle

    label = "\n".join(name.replace("_", " ").lower() for name in scored.attributes)
    axis.text(-0.15, top + 0.45, f"all but one:\n{label}", ha="right", va="center", fontsize=9)
    for index, (face, score) in enumerate(zip(scored.faces, scored.scores, strict=True)):
        left = index + 0.04
        axis.imshow(face, extent=(left, left + 0.92, top + 0.92, top), interpolation="none")
        if index in (scored.odd, scored.chosen):
            colour, style = (ODD_COLOUR, "-") if index == scored.odd else (WRONG_COLOUR, "--")
            axis.add_patch(Rectangle((left, top), 0.92, 0.92, fill=False, edgecolor=colour, linewidth=3.5,
                                     linestyle=style, zorder=3))  # fmt: skip
        axis.text(left + 0.46, top + 0.97, f"{score:.2f}", ha="center", va="top", fontsize=9,
                  weight="bold" if index == scored.chosen else "normal")  # fmt: skip
