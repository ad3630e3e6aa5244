"""Odd one out: Table 4 on real faces, the same on the stand-in, and what it says, from the records of runs.

A table is of one data set: published numbers stand beside those of real faces only.

Figures of the odd-one-out experiment, from the records of runs: scores against the size of a set, and learning
curves.

Odd one out on the page: its tables and its figures.
"""

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from picaset.figures import COLOURS, new_figure, write_figure
from picaset.lab.experiments.odd_one_out import ROWS, VARIANTS
from picaset.lab.reports.odd_faces import draw_odd_faces, shown_sets
from picaset.lab.reports.page import Drawing, Section, drawing
from picaset.lab.reports.published import TABLE_4, TABLE_4_GUESSING
from picaset.lab.reports.records import Record
from picaset.lab.reports.table import Cell, Table, comparison, mean_and_spread
from picaset.lab.tasks.odd_one_out import OddOneOut

Source = Literal["celeba", "drawn"]
PREFIXES: dict[Source, str] = {"celeba": "odd-one-out-celeba", "drawn": "odd-one-out"}
"""What the names of experiments on real faces and on drawn ones begin with."""
METRICS = {"auroc": "AUROC", "aupr": "AUPR", "top1": "top 1"}
NAMES = {
    "set-transformer": "Set Transformer",
    "rff-pma": "rFF + PMA",
    "rff-sa-pma": "rFF + SA + PMA",
    "sa-pma": "SA + PMA",
    "rff-pb": "rFF + PB",
    "rff-sa-pb": "rFF + SA + PB",
    "sa-pb": "SA + PB",
    "sa-gpb": "SA + GPB",
    "authors-loss": "SA + GPB, the authors' loss",
    "paper-form": "SA + GPB, the block as in the paper's Eq. 3",
}
QUESTIONS = {
    "Is PB above PMA?": [("sa-pb", "sa-pma"), ("rff-sa-pb", "rff-sa-pma"), ("rff-pb", "rff-pma")],
    "Is GPB above PB?": [("sa-gpb", "sa-pb")],
    "What does the authors' loss do?": [("authors-loss", "sa-gpb")],
}
"""What the paper claims, as rows to compare: the first of a pair is claimed to be above the second."""


def task_of(record: Record) -> OddOneOut:
    task = record.experiment.task
    assert isinstance(task, OddOneOut)
    return task


def rows_of(records: Sequence[Record], source: Source, name: str) -> list[Record]:
    """The runs of one row, one for each seed."""
    wanted = f"{PREFIXES[source]}-{name}"
    return [record for record in records if record.experiment.name == wanted and task_of(record).data == source]


def found_rows(records: Sequence[Record], source: Source) -> dict[str, list[Record]]:
    """The rows that there are runs of, in the order of the table."""
    return {name: runs for name in ROWS if (runs := rows_of(records, source, name))}


def values(runs: Sequence[Record], metric: str) -> list[float]:
    """Of each seed, on the test sets."""
    return [record.result["test"][metric] for record in runs]


def measured(runs: Sequence[Record]) -> dict[str, list[float]]:
    return {name: values(runs, metric) for metric, name in METRICS.items()}


def table_4(records: Sequence[Record], source: Source) -> Table | None:
    """Every row of the paper's table that there are runs of, and random guessing."""
    found = found_rows(records, source)
    if not found:
        return None
    runs = [record for some in found.values() for record in some]
    beside_paper = all(as_published(record) for record in runs)
    best = {metric: max(statistics.fmean(values(some, metric)) for some in found.values()) for metric in METRICS}
    rows = [row(name, some, best, TABLE_4[name] if beside_paper else ()) for name, some in found.items()]
    guessing = runs[0].result["random_guessing"]
    theirs = (*TABLE_4_GUESSING, None) if beside_paper else (None,) * len(METRICS)
    rows.append(
        [
            *(Cell(text) for text in ("random guessing", "", "", "", "")),
            *(
                Cell(f"{guessing[metric]:.3f}", "" if number is None else f"paper {number}")
                for metric, number in zip(METRICS, theirs, strict=True)
            ),
        ]
    )
    what = "Table 4: the odd one among real faces" if source == "celeba" else "The stand-in of Table 4: drawn faces"
    return Table(
        f"{what} ({data_of(runs)})",
        ["architecture", "parameters", "", "steps", "minutes", *METRICS.values()],
        rows,
        [setting(runs, source), precision(runs), *answers(records, source)],
    )


def row(name: str, runs: Sequence[Record], best: dict[str, float], published: Sequence[float]) -> list[Cell]:
    steps = " or ".join(sorted({f"{record.experiment.training.steps}" for record in runs}, key=int))
    minutes = statistics.fmean(record.result["seconds"] / 60 for record in runs)
    cells = [Cell(NAMES[name]), Cell(f"{runs[0].result['parameters'] / 1e3:.0f}k")]
    cells += [Cell("one seed" if len(runs) == 1 else f"{len(runs)} seeds"), Cell(steps), Cell(f"{minutes:.0f}")]
    for index, metric in enumerate(METRICS):
        ours = values(runs, metric)
        mean = statistics.fmean(ours)
        theirs = f"paper {published[index]:.3f} ({mean - published[index]:+.3f})" if index < len(published) else ""
        cells.append(Cell(mean_and_spread(ours), theirs, best=mean >= best.get(metric, math.inf)))
    return cells


def as_published(record: Record) -> bool:
    """Whether it was scored on real faces in as many sets of the same size, so that numbers may stand side by side."""
    task = task_of(record)
    return task.data == "celeba" and task.set_size == 8 and task.num_test_sets >= 200


def data_of(runs: Sequence[Record]) -> str:
    return " or ".join(sorted({record.result["data"] for record in runs}))


def setting(runs: Sequence[Record], source: Source) -> str:
    """What a reader must know of how the runs were made, and what the paper did."""
    budgets = {
        f"{record.experiment.training.steps} steps of {record.experiment.training.batch_size} albums, "
        f"{task_of(record).sets_per_album} sets from the images of each"
        for record in runs
    }
    hardware = " or ".join(sorted({record.environment["hardware"] for record in runs}))
    told = (
        f"Profile {runs[0].experiment.profile}: {' or '.join(sorted(budgets))}; on {hardware}. Scored on "
        f"{task_of(runs[0]).num_test_sets} test sets of {task_of(runs[0]).set_size}, the same for every row; no image "
        "of training is in them. "
    )
    if source == "drawn":
        return told + "Faces are generated; nothing here can be compared with the paper."
    return told + (
        "The paper used all of CelebA, 800 training sets and 200 test sets drawn from one pool of images, and nine "
        "convolutions; docs/reproduction.md lists what else differs. Below each number the paper's, and ours minus "
        "theirs."
    )


def precision(runs: Sequence[Record]) -> str:
    """How far the number of test sets alone lets a share be known."""
    sets = task_of(runs[0]).num_test_sets
    return (
        f"± is the standard deviation over seeds. Beside it, {sets} sets leave a top 1 near one half uncertain by "
        f"{0.5 / math.sqrt(sets):.3f} (one standard error), for all rows alike."
    )


def answers(records: Sequence[Record], source: Source) -> list[str]:
    """What the runs say to each question, as far as there are runs."""
    told = list[str]()
    for question, pairs in QUESTIONS.items():
        compared = [
            comparison(NAMES[first], NAMES[second], measured(ours), measured(theirs))
            for first, second in pairs
            if (ours := rows_of(records, source, first)) and (theirs := rows_of(records, source, second))
        ]
        if compared:
            told.append(" ".join([question, *compared]))
    return told


def variants(records: Sequence[Record], source: Source) -> Table | None:
    """SA + GPB as it is, and with one thing changed."""
    full = rows_of(records, source, "sa-gpb")
    found = {name: runs for name in VARIANTS if (runs := rows_of(records, source, name))}
    if not full or not found:
        return None
    runs = [*full, *(record for some in found.values() for record in some)]
    return Table(
        f"SA + GPB with one thing changed ({data_of(runs)})",
        ["", "parameters", "", "steps", "minutes", *METRICS.values()],
        [row(name, some, {}, ()) for name, some in {"sa-gpb": full, **found}.items()],
        ["The authors' program takes a softmax and then a binary loss with a sigmoid of its own; all else is equal."]
        * ("authors-loss" in found),
    )


def draw_by_size(records: Sequence[Record], source: Source, folder: Path) -> list[Path]:
    """Every row, and random guessing, in sets of other sizes than those of training."""
    found = found_rows(records, source)
    if not found:
        return []
    figure = new_figure(12, 4.4)
    axes = figure.subplots(1, len(METRICS))
    trained = task_of(next(iter(found.values()))[0]).set_size
    for axis, (metric, label) in zip(axes, METRICS.items(), strict=True):
        sizes = list[int]()
        for number, (name, runs) in enumerate(found.items()):
            means = by_size(runs, metric)
            sizes = sorted({*sizes, *means})
            axis.plot(means.keys(), means.values(), "-" if number < len(COLOURS) else "--", marker="o", markersize=4,
                      color=COLOURS[number % len(COLOURS)], label=NAMES[name])  # fmt: skip
        chance = [0.5 if metric == "auroc" else 1 / size for size in sizes]
        axis.plot(sizes, chance, ":", color="#555555", label="random guessing")
        axis.axvline(trained, color="#999999", linewidth=1, zorder=0)
        axis.set_xscale("log")
        axis.set_xticks(sizes, [str(size) for size in sizes], fontsize=8)
        axis.minorticks_off()
        axis.set(xlabel="images of a set", title=label)
        axis.set_ylim(None if metric == "auroc" else 0, 1.02)
        axis.grid(color="#eeeeee")
        axis.set_axisbelow(True)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False, fontsize=9)
    return write_figure(figure, folder, f"odd_one_out_by_size_{source}")


def by_size(runs: Sequence[Record], metric: str) -> dict[int, float]:
    """The mean over seeds for every size that all of them were scored on."""
    seeds = [{row["set_size"]: row[metric] for row in record.result["by_size"]} for record in runs]
    return {
        size: statistics.fmean(one[size] for one in seeds) for size in seeds[0] if all(size in one for one in seeds)
    }


def draw_learning_curves(records: Sequence[Record], source: Source, folder: Path) -> list[Path]:
    """AUROC on validation sets while training, the first seed of every row."""
    found = found_rows(records, source)
    if not found:
        return []
    figure = new_figure(8, 4.4)
    axis = figure.subplots()
    for number, (name, runs) in enumerate(found.items()):
        steps, scores = zip(*((row["step"], row["auroc"]) for row in runs[0].metrics), strict=True)
        axis.plot(steps, scores, "-" if number < len(COLOURS) else "--", color=COLOURS[number % len(COLOURS)],
                  label=NAMES[name])  # fmt: skip
    axis.axhline(0.5, linestyle=":", color="#555555", label="random guessing")
    axis.set(xlabel="step", ylabel="AUROC on validation sets")
    axis.grid(color="#eeeeee")
    axis.legend(frameon=False, fontsize=8, ncols=2)
    return write_figure(figure, folder, f"odd_one_out_learning_{source}")


SOURCES: tuple[Source, ...] = ("celeba", "drawn")


def odd_one_out_tables(runs: Sequence[Record], folders: Sequence[Path]) -> list[Table]:
    """Real faces first, the stand-in in tables of its own."""
    made = [table for source in SOURCES for table in (table_4(runs, source), variants(runs, source))]
    return [table for table in made if table is not None]


def odd_one_out_section(runs: Sequence[Record], folders: Sequence[Path], out: Path) -> Section:
    text = (
        "All images of a set but one share two attributes; that one has neither. A network reads the set and gives "
        "every image a score. AUROC and AUPR are over the images of all sets together, top 1 is how often the odd one "
        "has the highest score of its set."
    )
    return Section(
        anchor="odd-one-out",
        title="Odd one out",
        text=text,
        tables=odd_one_out_tables(runs, folders),
        figures=odd_one_out_figures(runs, out / "figures"),
    )


def odd_one_out_figures(runs: Sequence[Record], folder: Path) -> list[Drawing]:
    """Every figure that the runs allow; pictures of faces from the stand-in alone."""
    drawings = list[Drawing]()
    for source in SOURCES:
        found = found_rows(runs, source)
        if not found:
            continue
        data = data_of([record for some in found.values() for record in some])
        size = "Sets of other sizes than in training (grey line), means over seeds"
        drawings.append(drawing(draw_by_size(runs, source, folder)[0], f"{size}; {data}."))
        curves = "AUROC on sets of the validation part while training, one seed of each row"
        drawings.append(drawing(draw_learning_curves(runs, source, folder)[0], f"{curves}; {data}."))
    best = next((some for name in ("sa-gpb", "sa-pb", "sa-pma") if (some := rows_of(runs, "drawn", name))), None)
    if best is not None:
        paths = draw_odd_faces(shown_sets(best[0]), folder, "odd_one_out_faces")
        drawings.append(drawing(paths[0], faces_caption(best[0])))
    return drawings


def faces_caption(record: Record) -> str:
    kept = len(record.result["shown"]["odd"])
    return (
        f"Like Figures 1 and 5, on drawn faces: the first of {kept} test sets that were found and that were missed by "
        f"{record.experiment.name}. A set is a row, the odd one has a solid frame, a face that was wrongly taken for "
        "it a dashed one; below each is the probability that it is the odd one."
    )
