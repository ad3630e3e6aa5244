"""From records to the page: every table and figure that they allow."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from picaset.files import replacing
from picaset.lab.reports import clustering
from picaset.lab.reports.odd_one_out import odd_one_out_section, odd_one_out_tables
from picaset.lab.reports.page import Section, drawing, write_page
from picaset.lab.reports.records import Record
from picaset.lab.reports.scenes import scenes_section, scenes_tables
from picaset.lab.reports.table import Table
from picaset.lab.reports.viewpoints import viewpoints_section, viewpoints_tables

TASK_OF_TABLE = {"table2": "clustering", "table3": "viewpoints", "table4": "odd-one-out", "table5": "scenes"}
"""By the paper's table: the task of its runs."""


def baselines_file(profile: str) -> str:
    """Where scikit-learn's numbers are, in a folder of runs; each profile has sets of its own."""
    return f"clustering-scikit-learn-{profile}.json"


@dataclass(frozen=True)
class Report:
    """What was written, and the tables that are in it, by the paper's table that they belong to."""

    page: Path
    tables: dict[str, Sequence[Table]]
    figures: Sequence[Path]


def write_report(records: Sequence[Record], folders: Sequence[Path], out: Path, *, profile: str) -> Report:
    """Draw the figures, write ``index.html`` and a Markdown file with the tables."""
    used = [record for record in records if record.experiment.profile == profile]
    if not used:
        raise ValueError(
            f"There is no finished run of profile {profile} in {', '.join(map(str, dict.fromkeys(folders)))}; "
            f"make some with: picaset reproduce --profile {profile}{' --train' * (profile != 'smoke')}"
        )
    sections = {kind: build(runs, folders, out) for kind, build in SECTIONS.items() if (runs := of_kind(used, kind))}
    page = out / "index.html"
    write_page(page, lead=lead(used, profile), sections=list(sections.values()), records=used)
    report = Report(
        page,
        {table: sections[kind].tables if kind in sections else [] for table, kind in TASK_OF_TABLE.items()},
        [figure.path for section in sections.values() for figure in section.figures],
    )
    with replacing(out / "tables.md") as unfinished:
        unfinished.write_text(in_markdown([table for tables in report.tables.values() for table in tables]))
    return report


def in_markdown(tables: Sequence[Table]) -> str:
    parts = [f"## {table.title}\n\n{table.markdown()}\n" + "\n".join(table.notes) + "\n" for table in tables]
    return "# Tables\n\nMade from finished runs by `picaset report`.\n\n" + "\n".join(parts)


def tables_of(records: Sequence[Record], folders: Sequence[Path]) -> list[Table]:
    """Every table that the records allow."""
    return [
        table for kind, tables in TABLES.items() if (runs := of_kind(records, kind)) for table in tables(runs, folders)
    ]


def lead(records: Sequence[Record], profile: str) -> str:
    minutes = sum(record.result["seconds"] for record in records) / 60
    return (
        f"PICASO (Zare and Nguyen, ICCV 2021) and what it is compared with, trained here in the profile {profile!r}: "
        f"{len(records)} runs, {minutes:.0f} minutes of training in all."
    )


def clustering_section(runs: Sequence[Record], folders: Sequence[Path], out: Path) -> Section:
    figures = clustering.draw_all(runs, out / "figures")
    return Section(
        anchor="clustering",
        title="Clustering under shift",
        text="A network reads a set of points and predicts the mixture of four Gaussians that they come from, in one "
        "pass. At test time the points are moved to where training never was.",
        tables=clustering_tables(runs, folders),
        figures=[drawing(paths[0], caption) for caption, paths in figures.items()],
    )


def clustering_tables(runs: Sequence[Record], folders: Sequence[Path]) -> list[Table]:
    tables = [
        clustering.table_2(runs),
        clustering.refinement(runs, baselines(folders, runs[0].experiment.profile)),
        clustering.other_moves(runs),
        clustering.ablations(runs),
    ]
    return [table for table in tables if table is not None]


def of_kind(records: Sequence[Record], kind: str) -> list[Record]:
    """The runs of one task."""
    return [record for record in records if record.experiment.kind == kind]


def baselines(folders: Sequence[Path], profile: str) -> list[dict[str, Any]]:
    """scikit-learn on the same sets, where it was measured."""
    for folder in folders:
        if (path := folder / baselines_file(profile)).is_file():
            return json.loads(path.read_text())["rows"]
    return []


SECTIONS = {
    "clustering": clustering_section,
    "viewpoints": viewpoints_section,
    "odd-one-out": odd_one_out_section,
    "scenes": scenes_section,
}
"""By the task of its runs: what an experiment has on the page, given its runs alone."""
TABLES = {
    "clustering": clustering_tables,
    "viewpoints": viewpoints_tables,
    "odd-one-out": odd_one_out_tables,
    "scenes": scenes_tables,
}
