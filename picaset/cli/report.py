"""``picaset report``"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from picaset.lab.experiments import Profile
from picaset.lab.experiments.tables import tables_named
from picaset.lab.reports.records import find_records
from picaset.lab.reports.reproduction import write_report


@dataclass(frozen=True, kw_only=True)
class Report:
    """Make the page, tables and figures from finished runs; trains nothing.

    Examples:
        picaset report
        picaset report --records results/runs --out report --json
    """

    tables: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="TABLE")] = ()
    """Which of table2 to table5 to print, with all that belongs to it; all if none is named. The page has all."""
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
        asked = tables_named(self.tables)
        written = write_report(find_records(folders), folders, self.out, profile=self.profile)
        if self.json:
            print(json.dumps({"page": str(written.page), "figures": [str(path) for path in written.figures]}))
            return 0
        console = Console()
        if not console.is_terminal:
            console = Console(width=1000)  # lines that nothing has to fit
        for name in asked:
            if not written.tables[name]:
                console.print(f"{name}: there is no finished run of it", highlight=False)
            for table in written.tables[name]:
                table.print(console)
        console.print(f"[bold]Page[/]  {written.page}")
        return 0
