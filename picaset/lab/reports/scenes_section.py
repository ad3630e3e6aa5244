"""Scenes on the page: their tables and their figures."""

from collections.abc import Sequence
from pathlib import Path

from picaset.lab.reports.page import Section, drawing
from picaset.lab.reports.records import Record
from picaset.lab.reports.scene_figures import draw_all
from picaset.lab.reports.scenes import by_steps, on_clevr, parts, table_5
from picaset.lab.reports.table import Table


def scenes_section(runs: Sequence[Record], folders: Sequence[Path], out: Path) -> Section:
    figures = draw_all(runs, out / "figures")
    return Section(
        anchor="scenes",
        title="Objects in scenes",
        text="A network sees one image and predicts the set of its three to ten objects: where each is, its shape, "
        "material, colour and size.",
        tables=scenes_tables(runs, folders),
        figures=[drawing(paths[0], caption) for caption, paths in figures.items()],
    )


def scenes_tables(runs: Sequence[Record], folders: Sequence[Path]) -> list[Table]:
    """Every table that the runs allow."""
    tables = [table_5(runs), parts(runs), by_steps(runs), on_clevr(runs)]
    return [table for table in tables if table is not None]
