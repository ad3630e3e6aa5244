"""Odd one out: Table 4 on real faces, the same on the stand-in, and what it says, from the records of runs.

A table is of one data set: published numbers stand beside those of real faces only.
"""

import math
import statistics
from collections.abc import Sequence
from typing import Literal

from picaset.lab.experiments.odd_one_out import ROWS, VARIANTS
from picaset.lab.reports.comparison import comparison
from picaset.lab.reports.published import TABLE_4, TABLE_4_GUESSING
from picaset.lab.reports.records import Record
from picaset.lab.reports.table import Cell, Table, mean_and_spread
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
