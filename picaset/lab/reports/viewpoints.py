"""Novel viewpoints: Table 3 on smallNORB, and the same on generated toys, from the records of runs.

A table is of one data set: published numbers stand beside those of the photographs only.

Figures of the experiment on novel viewpoints, from the records of runs: accuracy far from where training was.

Novel viewpoints on the page: its tables and its figures.
"""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from picaset.figures import COLOURS, new_figure, write_figure
from picaset.lab.data.toys import Grid, render_toys
from picaset.lab.data.views import TEST_INSTANCES, Split
from picaset.lab.experiments import experiment
from picaset.lab.experiments.viewpoints import ROWS, SPLITS
from picaset.lab.networks.odd_one_out import WEIGHTS
from picaset.lab.networks.view_classifier import ViewClassifier
from picaset.lab.reports.look import draw_looked_at, look
from picaset.lab.reports.page import Drawing, Section, drawing
from picaset.lab.reports.published import TABLE_3
from picaset.lab.reports.records import Record
from picaset.lab.reports.table import Cell, Table, comparison, mean_and_spread
from picaset.lab.tasks.viewpoints import Viewpoints
from picaset.lab.training.experiment import Training
from picaset.lab.training.run_directory import RunDirectory

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


def by_distance(runs: Sequence[Record]) -> dict[int, float]:
    """Percent right at each distance in degrees from the nearest viewpoint of training, over all seeds."""
    right, tested = dict[int, float](), dict[int, int]()
    for record in runs:
        for row in record.result["by_viewpoint"]:
            degrees = row["degrees"]
            right[degrees] = right.get(degrees, 0.0) + row["accuracy"] * row["examples"]
            tested[degrees] = tested.get(degrees, 0) + row["examples"]
    return {degrees: 100 * right[degrees] / tested[degrees] for degrees in sorted(tested)}


def draw_accuracy_by_distance(records: Sequence[Record], source: Source, folder: Path) -> list[Path]:
    """All rows, azimuth on the left and elevation on the right; at zero degrees are the viewpoints of training."""
    names = list(found_rows(records, source))
    shown: list[Split] = [split for split in SPLITS if any(rows_of(records, source, split, name) for name in names)]
    figure = new_figure(6 * len(shown), 4.6)
    for axis, split in zip(figure.subplots(1, len(shown), sharey=True, squeeze=False)[0], shown, strict=True):
        ticks = set[int]()
        for number, name in enumerate(names):
            if runs := rows_of(records, source, split, name):
                found = by_distance(runs)
                ticks |= found.keys()
                axis.plot(
                    list(found), list(found.values()), "-" if number < len(COLOURS) else "--", marker="o", markersize=4,
                    color=COLOURS[number % len(COLOURS)], label=NAMES[name],
                )  # fmt: skip
        axis.axhline(20, color="#555555", linestyle=":", linewidth=1.2, label="guessing")
        axis.set(title=f"novel {split}s", xlabel=f"degrees of {split} from the nearest of training")
        axis.set_xticks(sorted(ticks))
        axis.grid(color="#eeeeee")
    figure.axes[0].set_ylabel("right, percent")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, fontsize=8, frameon=False, handlelength=4)
    return write_figure(figure, folder, f"accuracy_by_distance{'_toys' if source == 'toys' else ''}")


LOOKED_AT = [f"viewpoints-{split}-{name}-toys" for name in ("pb3", "ours") for split in SPLITS]
"""Runs whose attention is shown, the first that has its network; pictures on the page are of generated toys alone."""
SHIPPED = "viewpoints-azimuth-ours-toys"
"""The run whose network comes with picaset, and is shown where no other is there."""
TOY = Grid(elevations=(4,), azimuths=(0, 6, 12, 18, 24, 30), lightings=(0,))
"""As which the shipped network is shown an airplane."""


def viewpoints_tables(runs: Sequence[Record], folders: Sequence[Path]) -> list[Table]:
    """Photographs first, the stand-in in a table of its own."""
    return [table for source in SOURCES if (table := table_3(runs, source)) is not None]


def viewpoints_section(runs: Sequence[Record], folders: Sequence[Path], out: Path) -> Section:
    return Section(
        anchor="viewpoints",
        title="Novel viewpoints",
        text="A network sees a toy as a set of 64 patches, capsules and ours as a picture, and names its category. "
        "Training shows a third of the azimuths, or of the elevations; tested are other toys, from the other "
        "viewpoints and from those of training.",
        tables=viewpoints_tables(runs, folders),
        figures=viewpoints_figures(runs, out / "figures"),
    )


def viewpoints_figures(runs: Sequence[Record], folder: Path) -> list[Drawing]:
    """Every figure that the runs allow."""
    drawings = list[Drawing]()
    for source in SOURCES:
        if found := found_rows(runs, source):
            data = data_of([record for by_split in found.values() for some in by_split.values() for record in some])
            caption = f"Accuracy against the distance from the viewpoints of training, means over seeds; {data}."
            drawings.append(drawing(draw_accuracy_by_distance(runs, source, folder)[0], caption))
    figures = looked_at(runs, folder) if found_rows(runs, "toys") else {}
    return drawings + [drawing(paths[0], f"Like Figure 3. {caption}") for caption, paths in figures.items()]


def looked_at(runs: Sequence[Record], folder: Path) -> dict[str, list[Path]]:
    """What a network attends to on a generated toy: that of a run, or the shipped one."""
    run = next((record for name in LOOKED_AT for record in runs if with_network(record, name)), None)
    if run is not None:
        return look(run.path, folder)
    task = experiment(SHIPPED, profile="quick").task
    assert isinstance(task, Viewpoints)
    network = ViewClassifier.from_pretrained(WEIGHTS / "viewpoints_ours").float().eval()
    return draw_looked_at(task, network, render_toys(TOY, TEST_INSTANCES[:1], categories=("airplane",)), folder)


def with_network(record: Record, name: str) -> bool:
    """Whether this is a run of that name that has kept its network."""
    return record.experiment.name == name and RunDirectory(record.path).network("final").is_dir()
