"""Novel viewpoints: Table 3 of the paper on smallNORB, the same on generated toys, and figures.

Published numbers stand beside those of the photographs only; each data set has a table of its own.
"""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from picaset.figures import REFERENCE, draw_curves, new_figure, write_figure
from picaset.lab.data.toys import Grid, render_toys
from picaset.lab.data.views import TEST_INSTANCES, Split
from picaset.lab.experiments import experiment
from picaset.lab.experiments.viewpoints import ROWS, SPLITS
from picaset.lab.networks.odd_one_out import WEIGHTS
from picaset.lab.networks.view_classifier import ViewClassifier
from picaset.lab.reports.look import draw_toy_attention, look
from picaset.lab.reports.page import Cell, Figures, Reporter, Table, count_seeds, group_digits, row_heading, score_cell
from picaset.lab.reports.published import TABLE_3
from picaset.lab.reports.records import Record, alternatives, hardware_of, mean_minutes, runs_named
from picaset.lab.reports.schemas import ViewpointsResult
from picaset.lab.reports.verdicts import compare_rows
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
"""Labels of the rows."""
COLUMNS = {"novel": "novel", "familiar": "familiar", "novel_moved": "novel, moved", "familiar_moved": "familiar, moved"}
"""Accuracies at viewpoints of training and at others, with crops in the middle and moved."""
CLAIMS = [("pb3", "set-transformer"), ("pb3", "pb1"), ("pb3", "deepset-max"), ("ours", "pb3")]
"""Pairs of rows to compare; the first of a pair is claimed to be better."""
NO_RUN = "-"

Row = dict[Split, list[Record]]
"""Runs of a row by split, one for each seed."""


def find_runs(records: Sequence[Record], source: Source, split: Split, name: str) -> list[Record]:
    """Return the runs of one row and split on one data set, one for each seed."""
    runs = runs_named(records, f"viewpoints-{split}-{name}{'-toys' if source == 'toys' else ''}")
    return [record for record in runs if (record.task_as(Viewpoints).data == "small-norb") == (source == "small-norb")]


def find_rows(records: Sequence[Record], source: Source) -> dict[str, Row]:
    """Return the runs of each row that has any, in the order of the table."""
    rows: dict[str, Row] = {name: {split: find_runs(records, source, split, name) for split in SPLITS} for name in ROWS}
    return {name: row for name, row in rows.items() if any(row.values())}


def runs_of(row: Row) -> list[Record]:
    """Return the runs of a row over all splits."""
    return [record for runs in row.values() for record in runs]


def accuracies(runs: Sequence[Record], column: str) -> list[float]:
    """Return the accuracy of each seed in percent."""
    return [100 * record.result["accuracy"][column] for record in runs]


def table_3(records: Sequence[Record], source: Source) -> Table | None:
    """Build the paper's table from the rows that have runs, with a block of columns for each split."""
    rows = find_rows(records, source)
    if not rows:
        return None
    runs = [record for row in rows.values() for record in runs_of(row)]
    beside_paper = all(is_comparable(record) for record in runs)
    cells = list[list[Cell]]()
    for name, row in rows.items():
        scores = [
            accuracy_cell(
                row[split],
                column,
                highest_accuracy(rows, split, column),
                published_accuracy(name, split, column) if beside_paper else None,
            )
            for split in SPLITS
            for column in COLUMNS
        ]
        label, parameters, _ = row_heading(NAMES[name], runs_of(row))
        cells.append([label, parameters, Cell(seeds_by_split(row)), *scores, Cell(budget_of(runs_of(row)))])
    headings = [
        f"{split}: {words}" if column == "novel" else words for split in SPLITS for column, words in COLUMNS.items()
    ]
    return Table(
        f"Table 3{' on the stand-in' * (source == 'toys')}: accuracy in percent at novel and at familiar viewpoints",
        ["architecture", "parameters", "", *headings, "training"],
        cells,
        [*build_notes(runs, beside_paper=beside_paper), *compare_claims(rows)],
    )


def compare_claims(rows: dict[str, Row]) -> list[str]:
    """Compare the pairs of ``CLAIMS`` at novel viewpoints, where both rows have runs."""
    sentences = list[str]()
    for first, second in CLAIMS:
        pair: list[Row] = [rows.get(name, {}) for name in (first, second)]
        splits: list[Split] = [split for split in SPLITS if all(row.get(split) for row in pair)]
        if splits:
            measured = ({f"novel {split}s": accuracies(row[split], "novel") for split in splits} for row in pair)
            sentences.append(compare_rows(NAMES[first], NAMES[second], *measured, digits=1))
    return sentences


def is_comparable(record: Record) -> bool:
    """Whether the run was tested on all photographs, as in the paper."""
    task = record.task_as(Viewpoints)
    return task.data == "small-norb" and task.num_tested == 0


def highest_accuracy(rows: dict[str, Row], split: Split, column: str) -> float:
    return max((statistics.fmean(accuracies(row[split], column)) for row in rows.values() if row[split]), default=0.0)


def published_accuracy(name: str, split: Split, column: str) -> float | None:
    """Return the published accuracy; the paper reports novel viewpoints only."""
    return TABLE_3[name][SPLITS.index(split)] if column == "novel" and name in TABLE_3 else None


def accuracy_cell(runs: Sequence[Record], column: str, highest: float, published: float | None) -> Cell:
    if not runs:
        return Cell(NO_RUN, "" if published is None else f"paper {published:g}")
    return score_cell(accuracies(runs, column), highest=highest, published=published, digits=1, published_format="g")


def seeds_by_split(row: Row) -> str:
    """Return the number of seeds, of each split if they differ."""
    counts = [len(runs) for runs in row.values() if runs]
    return " and ".join(map(str, counts)) + " seeds" if len(set(counts)) > 1 else count_seeds(counts[0])


def budget_of(runs: Sequence[Record]) -> str:
    """Return steps, batch size, precision if it is not single, and the mean training time."""
    budgets = dict.fromkeys(format_budget(record.experiment.training) for record in runs)
    return f"{' and '.join(budgets)}, {mean_minutes(runs):.0f} min"


def format_budget(training: Training) -> str:
    precision = f" ({training.precision})" * (training.precision != "32-true")
    return f"{group_digits(training.steps)} x {training.batch_size}{precision}"


def data_of(runs: Sequence[Record]) -> str:
    """Describe the data, without the split, which the columns name."""
    data = alternatives(record.environment["data"].split(", novel ")[0] for record in runs)
    tested = sorted({record.task_as(Viewpoints).num_tested for record in runs} - {0})
    return data + (f", {' or '.join(map(str, tested))} test images of each kind" if tested else "")


def build_notes(runs: Sequence[Record], *, beside_paper: bool) -> list[str]:
    """Describe how the runs were trained and tested."""
    examples = runs[0].result["examples"]
    moved = examples.get("moved", 0)
    sample = f", on {moved} of them" if 0 < moved < examples["novel"] + examples["familiar"] else ""
    setting = (
        f"Profile {runs[0].experiment.profile}, on {data_of(runs)}. Test objects are not in the training data: "
        f"{examples['novel']} images from novel and {examples['familiar']} from familiar viewpoints "
        f"({runs[0].task_as(Viewpoints).split}). Moved: the crop is moved at random by up to 8 pixels{sample}. "
        f"Training: steps x batch size, and the mean wall-clock time of a run on a shared machine, {hardware_of(runs)}."
    )
    spread = "Bold is the highest here. ± is the standard deviation over seeds."
    if beside_paper:
        spread = f"Below each number: the published one, and the difference; capsules are from Hinton 2018. {spread}"
    elif any(record.task_as(Viewpoints).data != "small-norb" for record in runs):
        spread = f"The pictures are generated: compare the rows with each other, not with the paper. {spread}"
    return [setting, spread]


def build_tables(runs: Sequence[Record], folders: Sequence[Path]) -> list[Table]:
    return [table for source in SOURCES if (table := table_3(runs, source)) is not None]


def accuracy_by_distance(runs: Sequence[Record]) -> dict[int, float]:
    """Return the accuracy in percent by the distance in degrees to the nearest training viewpoint, over all seeds."""
    correct, tested = dict[int, float](), dict[int, int]()
    for record in runs:
        for row in record.result["by_viewpoint"]:
            degrees = row["degrees"]
            correct[degrees] = correct.get(degrees, 0.0) + row["accuracy"] * row["examples"]
            tested[degrees] = tested.get(degrees, 0) + row["examples"]
    return {degrees: 100 * correct[degrees] / tested[degrees] for degrees in sorted(tested)}


def draw_accuracy_by_distance(rows: dict[str, Row], source: Source, folder: Path) -> list[Path]:
    """Draw all rows, a panel for each split; zero degrees are the viewpoints of training."""
    splits: list[Split] = [split for split in SPLITS if any(row[split] for row in rows.values())]
    figure = new_figure(6 * len(splits), 4.6)
    for axis, split in zip(figure.subplots(1, len(splits), sharey=True, squeeze=False)[0], splits, strict=True):
        curves = {NAMES[name]: accuracy_by_distance(row[split]) for name, row in rows.items()}
        draw_curves(axis, curves, marker="o", markersize=4)
        axis.axhline(20, color=REFERENCE, linestyle=":", linewidth=1.2, label="guessing")
        axis.set(title=f"novel {split}s", xlabel=f"degrees of {split} from the nearest training viewpoint")
        axis.set_xticks(sorted({degrees for curve in curves.values() for degrees in curve}))
    figure.axes[0].set_ylabel("accuracy, percent")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, fontsize=8, frameon=False, handlelength=4)
    return write_figure(figure, folder, f"accuracy_by_distance{'_toys' if source == 'toys' else ''}")


ATTENTION_RUNS = [f"viewpoints-{split}-{name}-toys" for name in ("pb3", "ours") for split in SPLITS]
"""Experiments whose attention is drawn: the first that has a network. The page shows generated toys only."""
SHIPPED = "viewpoints-azimuth-ours-toys"
"""Experiment of the network that is shipped with picaset; it is drawn if no run has a network."""
SHIPPED_VIEWS = Grid(elevations=(4,), azimuths=(0, 6, 12, 18, 24, 30), lightings=(0,))
"""Views of an airplane that the shipped network is drawn with."""


def draw_figures(runs: Sequence[Record], folder: Path) -> Figures:
    figures: Figures = {}
    for source in SOURCES:
        if rows := find_rows(runs, source):
            data = data_of([record for row in rows.values() for record in runs_of(row)])
            caption = f"Accuracy against the distance to the training viewpoints, means over seeds; {data}."
            figures[caption] = draw_accuracy_by_distance(rows, source, folder)
            if source == "toys":
                attention = draw_attention(runs, folder)
                figures |= {f"Like Figure 3. {caption}": paths for caption, paths in attention.items()}
    return figures


def draw_attention(runs: Sequence[Record], folder: Path) -> Figures:
    """Draw the attention to a generated toy: of the network of a run, or of the shipped one."""
    for name in ATTENTION_RUNS:
        for record in runs_named(runs, name):
            if RunDirectory(record.path).network("final").is_dir():
                return look(record.path, folder)
    task = experiment(SHIPPED, profile="quick").task
    assert isinstance(task, Viewpoints)
    network = ViewClassifier.from_pretrained(WEIGHTS / "viewpoints_ours").float().eval()
    views = render_toys(SHIPPED_VIEWS, TEST_INSTANCES[:1], categories=("airplane",))
    return draw_toy_attention(task, network, views, folder)


VIEWPOINTS = Reporter(
    table="table3",
    title="Novel viewpoints",
    text="A network sees a toy, as a set of 64 patches or (capsules and ours) as an image, and predicts its category. "
    "Training covers a third of the azimuths or of the elevations; the test has other toys, from the remaining "
    "viewpoints and from those of training.",
    result=ViewpointsResult,
    build_tables=build_tables,
    draw_figures=draw_figures,
)
