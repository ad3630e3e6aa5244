"""Odd one out: Table 4 of the paper on real faces, the same on drawn faces, variants, and figures.

Published numbers stand beside those of real faces only; each data set has tables of its own.
"""

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from picaset.figures import REFERENCE, draw_curves, draw_learning_curves, new_figure, write_figure
from picaset.lab.experiments.odd_one_out import ROWS, VARIANTS
from picaset.lab.reports.odd_faces import draw_odd_faces, stored_sets
from picaset.lab.reports.page import Cell, Figures, Reporter, Table, highest_mean, row_heading, score_cell
from picaset.lab.reports.published import TABLE_4, TABLE_4_GUESSING
from picaset.lab.reports.records import Record, all_runs, alternatives, hardware_of, mean_minutes, runs_named
from picaset.lab.reports.schemas import OddOneOutResult
from picaset.lab.reports.verdicts import compare_rows
from picaset.lab.tasks.odd_one_out import OddOneOut

Source = Literal["celeba", "drawn"]
PREFIXES: dict[Source, str] = {"celeba": "odd-one-out-celeba", "drawn": "odd-one-out"}
"""Prefix of the experiments' names, by data set; real faces first."""
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
"""Labels of the rows."""
QUESTIONS = {
    "Is PB better than PMA?": [("sa-pb", "sa-pma"), ("rff-sa-pb", "rff-sa-pma"), ("rff-pb", "rff-pma")],
    "Is GPB better than PB?": [("sa-gpb", "sa-pb")],
    "What is the effect of the authors' loss?": [("authors-loss", "sa-gpb")],
}
"""Pairs of rows to compare; the paper claims that the first of a pair is better."""


def find_runs(records: Sequence[Record], source: Source, name: str) -> list[Record]:
    """Return the runs of one row on one data set, one for each seed."""
    runs = runs_named(records, f"{PREFIXES[source]}-{name}")
    return [record for record in runs if record.task_as(OddOneOut).data == source]


def find_rows(records: Sequence[Record], source: Source) -> dict[str, list[Record]]:
    """Return the runs of each row that has any, in the order of the table."""
    return {name: runs for name in ROWS if (runs := find_runs(records, source, name))}


def scores_on_test_sets(runs: Sequence[Record], metric: str) -> list[float]:
    """Return a metric on the test sets, for each seed."""
    return [record.result["test"][metric] for record in runs]


def all_scores(runs: Sequence[Record]) -> dict[str, list[float]]:
    return {label: scores_on_test_sets(runs, metric) for metric, label in METRICS.items()}


def table_4(records: Sequence[Record], source: Source) -> Table | None:
    """Build the paper's table from the rows that have runs, and a row for random guessing."""
    rows = find_rows(records, source)
    if not rows:
        return None
    runs = all_runs(rows)
    beside_paper = all(is_comparable(record) for record in runs)
    highest = {
        metric: highest_mean(scores_on_test_sets(seeds, metric) for seeds in rows.values()) for metric in METRICS
    }
    cells = [score_row(name, seeds, highest, TABLE_4[name] if beside_paper else ()) for name, seeds in rows.items()]
    guessing = runs[0].result["random_guessing"]
    published = [f"paper {number}" if beside_paper else "" for number in TABLE_4_GUESSING] + [""]
    cells.append(
        [
            *(Cell(text) for text in ("random guessing", "", "", "", "")),
            *(Cell(f"{guessing[metric]:.3f}", paper) for metric, paper in zip(METRICS, published, strict=True)),
        ]
    )
    title = "Table 4: the odd one among real faces" if source == "celeba" else "Table 4 on the stand-in: drawn faces"
    return Table(
        f"{title} ({data_of(runs)})",
        ["architecture", "parameters", "", "steps", "minutes", *METRICS.values()],
        cells,
        [describe_setting(runs, source), describe_precision(runs), *compare_claims(records, source)],
    )


def score_row(name: str, runs: Sequence[Record], highest: dict[str, float], published: Sequence[float]) -> list[Cell]:
    steps = " or ".join(map(str, sorted({record.experiment.training.steps for record in runs})))
    scores = [
        score_cell(
            scores_on_test_sets(runs, metric),
            highest=highest.get(metric, math.inf),
            published=published[index] if index < len(published) else None,
        )
        for index, metric in enumerate(METRICS)
    ]
    return [*row_heading(NAMES[name], runs), Cell(steps), Cell(f"{mean_minutes(runs):.0f}"), *scores]


def is_comparable(record: Record) -> bool:
    """Whether the run was tested on real faces in at least as many sets of the same size as in the paper."""
    task = record.task_as(OddOneOut)
    return task.data == "celeba" and task.set_size == 8 and task.num_test_sets >= 200


def data_of(runs: Sequence[Record]) -> str:
    return alternatives(record.result["data"] for record in runs)


def describe_setting(runs: Sequence[Record], source: Source) -> str:
    """Describe how the runs were trained and tested, and the setting of the paper."""
    budgets = alternatives(
        f"{record.experiment.training.steps} steps of {record.experiment.training.batch_size} albums, "
        f"{record.task_as(OddOneOut).sets_per_album} sets from the images of each"
        for record in runs
    )
    task = runs[0].task_as(OddOneOut)
    setting = (
        f"Profile {runs[0].experiment.profile}: {budgets}; on {hardware_of(runs)}. Tested on {task.num_test_sets} sets "
        f"of {task.set_size}, the same for every row; they contain no training image. "
    )
    if source == "drawn":
        return setting + "The faces are generated, so the numbers cannot be compared with the paper's."
    return setting + (
        "The paper uses all of CelebA, 800 training sets and 200 test sets drawn from one pool of images, and nine "
        "convolutions; docs/reproduction.md lists the other differences. Below each number: the published one, and the "
        "difference."
    )


def describe_precision(runs: Sequence[Record]) -> str:
    """Describe the uncertainty due to the number of test sets."""
    sets = runs[0].task_as(OddOneOut).num_test_sets
    return (
        f"± is the standard deviation over seeds. In addition, a top 1 near one half on {sets} sets has a standard "
        f"error of {0.5 / math.sqrt(sets):.3f}, which all rows share."
    )


def compare_claims(records: Sequence[Record], source: Source) -> list[str]:
    """Answer each question for which there are runs of both rows."""
    sentences = list[str]()
    for question, pairs in QUESTIONS.items():
        comparisons = [
            compare_rows(NAMES[first], NAMES[second], all_scores(first_runs), all_scores(second_runs))
            for first, second in pairs
            if (first_runs := find_runs(records, source, first)) and (second_runs := find_runs(records, source, second))
        ]
        if comparisons:
            sentences.append(" ".join([question, *comparisons]))
    return sentences


def variants(records: Sequence[Record], source: Source) -> Table | None:
    """Build the table of SA + GPB with one part changed at a time."""
    full = find_runs(records, source, "sa-gpb")
    changed = {name: runs for name in VARIANTS if (runs := find_runs(records, source, name))}
    if not full or not changed:
        return None
    rows = {"sa-gpb": full, **changed}
    return Table(
        f"SA + GPB with one part changed ({data_of(all_runs(rows))})",
        ["", "parameters", "", "steps", "minutes", *METRICS.values()],
        [score_row(name, runs, {}, ()) for name, runs in rows.items()],
        ["The authors' program applies a softmax and then a binary loss with its own sigmoid; the rest is equal."]
        * ("authors-loss" in changed),
    )


def build_tables(runs: Sequence[Record], folders: Sequence[Path]) -> list[Table]:
    tables = [table for source in PREFIXES for table in (table_4(runs, source), variants(runs, source))]
    return [table for table in tables if table is not None]


def draw_by_size(rows: dict[str, list[Record]], folder: Path, name: str) -> list[Path]:
    """Draw the scores of every row, and of random guessing, against the size of the test sets."""
    figure = new_figure(12, 4.4)
    axes = figure.subplots(1, len(METRICS))
    for axis, (metric, label) in zip(axes, METRICS.items(), strict=True):
        curves = {NAMES[row]: mean_by_size(runs, metric) for row, runs in rows.items()}
        sizes = sorted({size for curve in curves.values() for size in curve})
        draw_curves(axis, curves, marker="o", markersize=4)
        chance = [0.5 if metric == "auroc" else 1 / size for size in sizes]
        axis.plot(sizes, chance, ":", color=REFERENCE, label="random guessing")
        axis.axvline(all_runs(rows)[0].task_as(OddOneOut).set_size, color="#999999", linewidth=1, zorder=0)
        axis.set_xscale("log")
        axis.set_xticks(sizes, [str(size) for size in sizes], fontsize=8)
        axis.minorticks_off()
        axis.set(xlabel="images per set", title=label)
        axis.set_ylim(None if metric == "auroc" else 0, 1.02)
        axis.set_axisbelow(True)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False, fontsize=9)
    return write_figure(figure, folder, name)


def mean_by_size(runs: Sequence[Record], metric: str) -> dict[int, float]:
    """Return the mean over seeds for each set size that all of them were tested on."""
    seeds = [{row["set_size"]: row[metric] for row in record.result["by_size"]} for record in runs]
    return {
        size: statistics.fmean(scores[size] for scores in seeds)
        for size in seeds[0]
        if all(size in scores for scores in seeds)
    }


def draw_figures(runs: Sequence[Record], folder: Path) -> Figures:
    """Draw every figure that the runs allow; pictures show drawn faces only."""
    figures: Figures = {}
    for source in PREFIXES:
        rows = find_rows(runs, source)
        if not rows:
            continue
        data = data_of(all_runs(rows))
        figures[
            f"Scores against the size of test sets; training used the size at the grey line. Means over seeds; {data}."
        ] = draw_by_size(rows, folder, f"odd_one_out_by_size_{source}")
        figures[f"AUROC on validation sets during training, one seed of each row; {data}."] = draw_learning_curves(
            {NAMES[name]: seeds[0].curve("auroc") for name, seeds in rows.items()},
            folder,
            f"odd_one_out_learning_{source}",
            label="AUROC on validation sets",
            guessing=0.5,
        )
    best = next((seeds[0] for name in ("sa-gpb", "sa-pb", "sa-pma") if (seeds := find_runs(runs, "drawn", name))), None)
    if best is not None:
        sets = stored_sets(best)
        caption = (
            f"Like Figures 1 and 5, on drawn faces: of {len(sets)} test sets of {best.experiment.name}, the first "
            "whose odd face was found and the first where it was missed. A row is a set. A solid frame marks the odd "
            "face, a dashed one a face that was taken for it; below each face is its predicted probability of being "
            "the odd one."
        )
        figures[caption] = draw_odd_faces(sets, folder, "odd_one_out_faces")
    return figures


ODD_ONE_OUT = Reporter(
    table="table4",
    title="Odd one out",
    text="All images of a set but one share two attributes; that one has neither. A network reads the set and scores "
    "every image. AUROC and AUPR are over the images of all sets together; top 1 is the share of sets in which the odd "
    "image has the highest score.",
    result=OddOneOutResult,
    build_tables=build_tables,
    draw_figures=draw_figures,
)
