"""``picaset report``"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from picaset.experiments import Profile
from picaset.experiments.tables import tables_named
from picaset.reports.records import find_records
from picaset.reports.reproduction import write_report


@dataclass(frozen=True, kw_only=True)
class Report:
    """Make the page, tables and figures from finished runs; trains nothing.

    Examples:
        picaset report
        picaset report --records results/runs --out report --json
    """

    tables: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="TABLE")] = ()
    """Which of table2 to table5, with all that belongs to it; all of them if none is named."""
    profile: Profile = "quick"
    """The size of the runs that are shown."""
    runs: Path = Path("runs")
    """Your own runs; they come first."""
    records: Path = Path("results/runs")
    """Committed records, where you have none of your own."""
    out: Path = Path("report")
    """Where the page goes."""
    json: bool = False
    """Print where everything is as one JSON line."""

    def run(self) -> int:
        folders = (self.runs, self.records)
        records = find_records(folders)
        written = write_report(records, folders, self.out, profile=self.profile, tables=tables_named(self.tables))
        if self.json:
            print(json.dumps({"page": str(written.page), "figures": [str(path) for path in written.figures]}))
            return 0
        console = Console()
        if not console.is_terminal:
            console = Console(width=200)  # lines that nothing has to fit
        for table in written.tables:
            table.print(console)
        console.print(f"[bold]Page[/]  {written.page}")
        return 0
