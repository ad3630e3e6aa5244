"""``picaset reproduce``"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
import tyro

from picaset.cli.report import Report
from picaset.extras import require
from picaset.files import made_folder, replacing
from picaset.lab.data.folders import MissingDataError, use_data_root
from picaset.lab.experiments import Profile, experiment
from picaset.lab.experiments.tables import TABLES, tables_named
from picaset.lab.reports.records import find_records
from picaset.lab.reports.reproduction import baselines_file
from picaset.lab.tasks.clustering import evaluate_scikit_learn
from picaset.lab.training.environment import describe_environment
from picaset.lab.training.loop import resume, start
from picaset.lab.training.run_directory import run_name


@dataclass(frozen=True, kw_only=True)
class Reproduce:
    """Make the paper's tables and figures, and a page that shows them.

    Rows come from your own finished runs and from the records that came with the source; which is said for each.
    Rows that are in neither are trained where that takes seconds (smoke) or where you say --train, else left out.

    Examples:
        picaset reproduce
        picaset reproduce table2 --profile smoke --fresh --runs runs --out report
    """

    tables: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="TABLE")] = ()
    """Which of table2 to table5 to train and print; all of them if none is named. The page has all that there is."""
    profile: Profile = "quick"
    """smoke takes seconds a row, one seed of each; quick minutes; paper the published number of steps."""
    runs: Path = Path("runs")
    """Where runs are kept."""
    records: Path = Path("results/runs")
    """Records that came with the source."""
    out: Path = Path("report")
    """Where the page goes."""
    train: bool = False
    """Train the rows that there is no record of, one after the other."""
    fresh: bool = False
    """Leave the records that came with the source aside."""
    data_root: Path | None = None
    """Folder of the real data sets, instead of PICASET_DATA; without either, generated data stands in."""
    threads: int | None = None
    """Threads to train with."""
    json: bool = False
    """Print where everything is as one JSON line, and nothing else."""

    def run(self) -> int:
        use_data_root(self.data_root)
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        compared = "table2" in tables_named(self.tables) and (self.train or self.profile == "smoke")
        if compared:  # before hours of training
            require("sklearn", extra="estimators", purpose="the comparison with scikit-learn")
        folders = (self.runs,) if self.fresh else (self.runs, self.records)
        finished = {record.key: record for record in find_records(folders)}
        for table in tables_named(self.tables):
            for name, seed in TABLES[table]:
                if seed and self.profile == "smoke":
                    continue
                record = finished.get((name, self.profile, seed))
                if record is not None:
                    minutes = record.result["seconds"] / 60
                    self.say(f"{name}, seed {seed}: from {record.path}, trained there in {minutes:.1f} minutes")
                elif self.train or self.profile == "smoke":
                    self.train_row(name, seed)
                else:
                    self.say(f"{name}, seed {seed}: left out, there is no record of it; --train trains it")
        if compared:
            self.compare_with_scikit_learn(folders)
        records = self.records if not self.fresh else self.runs
        return Report(
            tables=self.tables, profile=self.profile, runs=self.runs, records=records, out=self.out, json=self.json
        ).run()

    def say(self, line: str) -> None:
        if not self.json:
            print(line)

    def train_row(self, name: str, seed: int) -> None:
        path = self.runs / run_name(name, self.profile, seed)
        try:
            chosen = experiment(name, profile=self.profile, seed=seed)
            if chosen.name != name:  # without its data, or in seconds, a stand-in would be trained
                self.say(f"{name}, seed {seed}: left out, its data is not used here; {chosen.name} stands in")
            elif (path / "config.json").is_file():
                resume(path, silent=self.json)
            else:
                start(chosen, path, silent=self.json)
        except MissingDataError as error:
            self.say(f"{name}, seed {seed}: left out. {error}")

    def compare_with_scikit_learn(self, folders: tuple[Path, ...]) -> None:
        name = baselines_file(self.profile)
        if any((folder / name).is_file() for folder in folders):
            return
        num_sets, sizes = (20, (30, 60)) if self.profile == "smoke" else (1000, (300, 600))
        rows = [evaluate_scikit_learn(num_starts=starts, num_sets=num_sets, sizes=sizes) for starts in (1, 10)]
        environment = describe_environment(data=f"generated: {num_sets} sets", devices=1)
        made_folder(self.runs)
        with replacing(self.runs / name) as unfinished:
            unfinished.write_text(json.dumps({"environment": environment, "rows": rows}) + "\n")
