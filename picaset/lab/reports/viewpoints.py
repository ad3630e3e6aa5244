"""Novel viewpoints: Table 3 on smallNORB, and the same on generated toys, from the records of runs.

A table is of one data set: published numbers stand beside those of the photographs only.
"""

import statistics
from collections.abc import Sequence
from typing import Literal

from picaset.lab.data.views import Split
from picaset.lab.experiments.viewpoints import ROWS, SPLITS
from picaset.lab.reports.comparison import comparison
from picaset.lab.reports.published import TABLE_3
from picaset.lab.reports.records import Record
from picaset.lab.reports.table import Cell, Table, mean_and_spread
from picaset.lab.tasks.viewpoints import Viewpoints
from picaset.lab.training.experiment import Training

Source = Literal["small-norb", "toys"]
SOURCES: tuple[Source, ...] = ("small-norb", "toys")
NAMES = {
    "deepset-mean": "DeepSet, mean",
    "deepset-max": "DeepSet, maximum",
    "set-transformer": "Set Transformer",
    "pb1": "AE + PB1",
    "pb2": "AE + PB2",
    "pb3": "AE + PB3",
    "capsules": "EM capsules",
    "ours": "ours, one camera",
    "ours-stereo": "ours, both cameras",
}
COLUMNS = {
    "novel": "novel",
    "familiar": "familiar",
    "novel_moved": "novel, moved",
    "familiar_moved": "familiar, moved",
}
"""What was tested: viewpoints of training or others, crops in the middle or moved."""
CLAIMS = [("pb3", "set-transformer"), ("pb3", "pb1"), ("pb3", "deepset-max"), ("ours", "pb3")]
"""Rows to compare: the first of a pair is claimed to be above the second."""
NOTHING = "-"
"""Where there is no run."""


def task_of(record: Record) -> Viewpoints:
    task = record.experiment.task
    assert isinstance(task, Viewpoints)
    return task


def rows_of(records: Sequence[Record], source: Source, split: Split, name: str) -> list[Record]:
    """The runs of one row and split, one for each seed."""
    wanted = f"viewpoints-{split}-{name}{'-toys' if source == 'toys' else ''}"
    real = source == "small-norb"
    return [
        record
        for record in records
        if record.experiment.name == wanted and (task_of(record).data == "small-norb") == real
    ]


def found_rows(records: Sequence[Record], source: Source) -> dict[str, dict[Split, list[Record]]]:
    """The rows that there are runs of, in the order of the table, and their runs by split."""
    found: dict[str, dict[Split, list[Record]]] = {
        name: {split: rows_of(records, source, split, name) for split in SPLITS} for name in ROWS
    }
    return {name: runs for name, runs in found.items() if any(runs.values())}


def percents(runs: Sequence[Record], column: str) -> list[float]:
    """Right answers of each seed."""
    return [100 * record.result["accuracy"][column] for record in runs]


def table_3(records: Sequence[Record], source: Source) -> Table | None:
    """Every row of the paper's table that there are runs of, then those beyond it; one block of columns for a split."""
    found = found_rows(records, source)
    if not found:
        return None
    runs = [record for by_split in found.values() for some in by_split.values() for record in some]
    beside_paper = all(as_published(record) for record in runs)
    rows = list[list[Cell]]()
    for name, by_split in found.items():
        both = [record for some in by_split.values() for record in some]
        cells = [
            cell(by_split[split], column, best(found, split, column), published(name, split, column, beside_paper))
            for split in SPLITS
            for column in COLUMNS
        ]
        parameters = f"{both[0].result['parameters'] / 1e3:.0f}k"
        rows.append([Cell(NAMES[name]), Cell(parameters), Cell(seeds(by_split)), *cells, Cell(budget(both))])
    title = "accuracy in percent, at viewpoints that training had and at others"
    return Table(
        f"Table 3: {title}" if source == "small-norb" else f"Table 3 on the stand-in: {title}",
        [
            "architecture",
            "parameters",
            "",
            *(
                f"{split}: {words}" if column == "novel" else words
                for split in SPLITS
                for column, words in COLUMNS.items()
            ),
            "trained",
        ],
        rows,
        [*notes(runs, beside_paper=beside_paper), *answers(found)],
    )


def answers(found: dict[str, dict[Split, list[Record]]]) -> list[str]:
    """Whether more steps of the cascade, and what came after the paper, are worth anything at novel viewpoints."""
    told = list[str]()
    for first, second in CLAIMS:
        ours, theirs = ({split: found.get(name, {}).get(split, []) for split in SPLITS} for name in (first, second))
        splits = [split for split in SPLITS if ours[split] and theirs[split]]
        if splits:
            measured = (
                {f"novel {split}s": percents(runs[split], "novel") for split in splits} for runs in (ours, theirs)
            )
            told.append(comparison(NAMES[first], NAMES[second], *measured, digits=1))
    return told


def as_published(record: Record) -> bool:
    """Whether it was tested on all photographs, so that numbers may stand side by side."""
    return task_of(record).data == "small-norb" and task_of(record).num_tested == 0


def best(found: dict[str, dict[Split, list[Record]]], split: Split, column: str) -> float:
    return max((statistics.fmean(percents(runs[split], column)) for runs in found.values() if runs[split]), default=0.0)


def published(name: str, split: Split, column: str, beside_paper: bool) -> float | None:
    """The paper has novel viewpoints only."""
    if not beside_paper or column != "novel" or name not in TABLE_3:
        return None
    return TABLE_3[name][SPLITS.index(split)]


def cell(runs: Sequence[Record], column: str, highest: float, theirs: float | None) -> Cell:
    if not runs:
        return Cell(NOTHING, "" if theirs is None else f"paper {theirs:g}")
    found = percents(runs, column)
    mean = statistics.fmean(found)
    beside = "" if theirs is None else f"paper {theirs:g} ({mean - theirs:+.1f})"
    return Cell(mean_and_spread(found, digits=1), beside, best=mean >= highest - 1e-9)


def seeds(by_split: dict[Split, list[Record]]) -> str:
    """How many runs there are, of each split where they differ."""
    counts = [len(runs) for runs in by_split.values() if runs]
    if len(set(counts)) > 1:
        return " and ".join(map(str, counts)) + " seeds"
    return "one seed" if counts[0] == 1 else f"{counts[0]} seeds"


def budget(runs: Sequence[Record]) -> str:
    """Steps, their size, their precision where it is not the usual, and the time that they took."""
    kinds = dict.fromkeys(trained_for(record.experiment.training) for record in runs)
    minutes = statistics.fmean(record.result["seconds"] / 60 for record in runs)
    return f"{' and '.join(kinds)}, {minutes:.0f} min"


def trained_for(training: Training) -> str:
    steps = f"{training.steps:,}".replace(",", " ")
    return f"{steps} x {training.batch_size}" + f" ({training.precision})" * (training.precision != "32-true")


def data_of(runs: Sequence[Record]) -> str:
    """What the numbers were measured on, without what the columns and rows say already."""
    kinds = {record.environment["data"].split(", novel ")[0] for record in runs}
    tested = {task_of(record).num_tested for record in runs} - {0}
    part = f", {' or '.join(map(str, sorted(tested)))} test images of each kind" if tested else ""
    return " or ".join(sorted(kinds)) + part


def notes(runs: Sequence[Record], *, beside_paper: bool) -> list[str]:
    hardware = " or ".join(sorted({record.environment["hardware"] for record in runs}))
    examples = runs[0].result["examples"]
    moved = examples.get("moved", 0)
    sample = f", on {moved} of them" if 0 < moved < examples["novel"] + examples["familiar"] else ""
    made = (
        f"Profile {runs[0].experiment.profile}, on {data_of(runs)}; objects that training never had, "
        f"{examples['novel']} images from novel and {examples['familiar']} from familiar viewpoints "
        f"({task_of(runs[0]).split}). Moved: the crop is moved at random by up to 8 pixels{sample}. Trained: steps x "
        f"images of a step, and the minutes of training, the mean over a row's runs, by the clock of a shared machine, "
        f"{hardware}."
    )
    spread = "Bold: the highest here. ± is the standard deviation over seeds."
    if beside_paper:
        return [
            made,
            f"Below each number the paper's, and ours minus theirs; for capsules, those of Hinton 2018. {spread}",
        ]
    if all(task_of(record).data == "small-norb" for record in runs):
        return [made, spread]
    return [made, f"Generated pictures: these numbers compare rows with each other, not with the paper's. {spread}"]
