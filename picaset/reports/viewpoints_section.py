"""Novel viewpoints on the page: its tables and its figures."""

from collections.abc import Sequence
from pathlib import Path

from picaset.experiments.viewpoints import SPLITS
from picaset.reports.look import look
from picaset.reports.page import Drawing, Section, drawing
from picaset.reports.records import Record
from picaset.reports.table import Table
from picaset.reports.viewpoints import SOURCES, data_of, found_rows, table_3
from picaset.reports.viewpoints_figures import draw_accuracy_by_distance
from picaset.training.run_directory import RunDirectory

LOOKED_AT = [f"viewpoints-{split}-{name}-toys" for name in ("pb3", "ours") for split in SPLITS]
"""Runs whose attention is shown, the first that has its network; pictures on the page are of generated toys alone."""


def viewpoints_tables(runs: Sequence[Record], folders: Sequence[Path]) -> list[Table]:
    """Photographs first, the stand-in in a table of its own."""
    return [table for source in SOURCES if (table := table_3(runs, source)) is not None]


def viewpoints_section(runs: Sequence[Record], folders: Sequence[Path], out: Path) -> Section:
    return Section(
        anchor="viewpoints",
        title="Novel viewpoints",
        text="A network sees a toy as a set of 64 patches and names its category. Training shows a third of the "
        "azimuths, or of the elevations; tested are other toys, from the other viewpoints and from those of training.",
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
    looked_at = next((record for name in LOOKED_AT for record in runs if with_network(record, name)), None)
    if looked_at is not None:
        figures = look(looked_at.path, folder)
        drawings += [drawing(paths[0], f"Like Figure 3. {caption}") for caption, paths in figures.items()]
    return drawings


def with_network(record: Record, name: str) -> bool:
    """Whether this is a run of that name that has kept its network."""
    return record.experiment.name == name and RunDirectory(record.path).network("final").is_dir()
