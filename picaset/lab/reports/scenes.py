"""Objects in scenes: Table 5 on the stand-in and on CLEVR, what the parts of ours are worth, more steps in testing."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace

from picaset.lab.experiments.scenes import ROWS, VARIANTS, by_objective
from picaset.lab.reports.published import TABLE_5
from picaset.lab.reports.records import Record, time_taken
from picaset.lab.reports.table import Cell, Table, mean_and_spread
from picaset.lab.tasks.scenes import SceneObjects
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


def in_words(name: str) -> str:
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
        rows.append([Cell(in_words(name)), Cell(f"{runs[0].result['parameters'] / 1e3:.0f}k"), Cell(count), *cells])
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
            Cell(in_words(name)),
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
