"""``picaset report``"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.text import Text

from picaset.lab.experiments import tables_named
from picaset.lab.reports.records import Record, committed_records, describe_origin
from picaset.lab.reports.reproduction import OTHERS, choose_records, write_report
from picaset.terminal import Terminal, say

RUNS = Path("runs")
"""Default folder of a user's runs."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """Make tables, figures and a page from finished runs; nothing is trained.

    Shows the runs in runs/, whatever their profile, with separate tables for each profile; runs of your own experiments
    have a table each. If there is no finished run, the committed records in results/runs are shown instead, which an
    installed picaset has too. The output says which.

    Examples:
        picaset report
        picaset report table2 --records --out report --json
    """

    tables: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="TABLE")] = ()
    """Tables to print, from table2 to table5; all by default. The page always has all of them."""
    runs: Path = RUNS
    """Folder of the runs to show."""
    records: bool = False
    """Show the committed records in results/runs instead of your runs."""
    profile: str | None = None
    """Show only the runs of this profile."""
    out: Path = Path("report")
    """Folder to write the page to."""
    json: bool = False
    """Print the paths of the page and the figures as one JSON line, and nothing else."""

    def run(self) -> int:
        names = tables_named(self.tables)
        if self.runs != RUNS and not self.runs.is_dir():
            raise ValueError(f"--runs: there is no folder {self.runs}.")
        records = choose_records(self.runs, committed=self.records, profile=self.profile, on_skip=warn)
        write_and_print(records, [self.runs, committed_records()], self.out, names, as_json=self.json)
        return 0


def write_and_print(
    records: Sequence[Record],
    folders: Sequence[Path],
    out: Path,
    names: Sequence[str],
    *,
    committed: Path | None = None,
    as_json: bool,
) -> None:
    """Write the report, and print the named tables or one JSON line."""
    origin = describe_origin(records, committed=committed)
    report = write_report(records, folders, out, origin=origin, on_skip=warn)
    if as_json:
        figures = [str(path) for path in report.figures]
        say(json.dumps({"page": str(report.page), "figures": figures, "origin": origin}))
        return
    console = Terminal()
    if not console.is_terminal:
        console = Terminal(width=1000)  # a pipe has no width to fit into
    console.print(origin)
    for name in [*names, *([OTHERS] if report.tables[OTHERS] else [])]:
        if not report.tables[name] and len(names) == 1:  # asked for by name
            console.print(f"{name}: none of these runs belongs to it")
        for table in report.tables[name]:
            table.print(console)
    console.print(Text.assemble(("Page", "bold"), f"  {report.page}"))


def warn(line: str) -> None:
    say(f"picaset: {line}", error=True)
