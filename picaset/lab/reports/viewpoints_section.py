"""Novel viewpoints on the page: its tables and its figures."""

from collections.abc import Sequence
from pathlib import Path

from picaset.lab.data.toys import Grid, render_toys
from picaset.lab.data.views import TEST_INSTANCES
from picaset.lab.experiments import experiment
from picaset.lab.experiments.viewpoints import SPLITS
from picaset.lab.networks.shipped import WEIGHTS
from picaset.lab.networks.view_classifier import ViewClassifier
from picaset.lab.reports.look import look
from picaset.lab.reports.page import Drawing, Section, drawing
from picaset.lab.reports.records import Record
from picaset.lab.reports.table import Table
from picaset.lab.reports.viewpoint_look import draw_looked_at
from picaset.lab.reports.viewpoints import SOURCES, data_of, found_rows, table_3
from picaset.lab.reports.viewpoints_figures import draw_accuracy_by_distance
from picaset.lab.tasks.viewpoints import Viewpoints
from picaset.lab.training.run_directory import RunDirectory

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
