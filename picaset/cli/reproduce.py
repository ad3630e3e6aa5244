"""``picaset reproduce``"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
import tyro

from picaset.cli.report import RUNS, warn, write_and_print
from picaset.extras import require
from picaset.files import atomic_write, create_folder
from picaset.lab.data.folders import MissingDataError, use_data_root
from picaset.lab.experiments import TABLES, Profile, experiment, tables_named
from picaset.lab.reports.clustering import baselines_file
from picaset.lab.reports.records import HERE, committed_records, find_records
from picaset.lab.reports.reproduction import find_reportable
from picaset.lab.tasks.clustering import evaluate_scikit_learn
from picaset.lab.training.loop import resume, start
from picaset.lab.training.run_directory import describe_environment, run_name
from picaset.terminal import say


@dataclass(frozen=True, kw_only=True)
class Reproduce:
    """Reproduce the tables and figures of the paper, and write a page that shows them.

    Takes each row from your own finished run or from the committed record, and prints which. Rows without either are
    trained with --train, or in the profile smoke, where they take seconds; otherwise they are left out.

    Examples:
        picaset reproduce
        picaset reproduce table2 --profile smoke --fresh --runs runs --out report
    """

    tables: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="TABLE")] = ()
    """Tables to train and print, from table2 to table5; all by default. The page shows every finished run."""
    profile: Profile = "quick"
    """smoke takes seconds per row and trains one seed; quick takes minutes; paper is the published number of steps."""
    runs: Path = RUNS
    """Folder of your runs."""
    records: Path = HERE
    """Folder of the committed records, which a clone has."""
    out: Path = Path("report")
    """Folder to write the page to."""
    train: bool = False
    """Train the rows that have no finished run, one after the other."""
    fresh: bool = False
    """Ignore the committed records."""
    data_root: Path | None = None
    """Folder of the real data sets; PICASET_DATA by default. Without either, generated data is used."""
    threads: int | None = None
    """Number of threads to train with."""
    json: bool = False
    """Print the paths of the page and the figures as one JSON line, and nothing else."""

    def run(self) -> int:
        use_data_root(self.data_root)
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        names = tables_named(self.tables)
        may_train = self.train or self.profile == "smoke"
        needs_baselines = may_train and "table2" in names
        if needs_baselines:  # checked before hours of training
            require("sklearn", extra="estimators", purpose="the comparison with scikit-learn")
        committed = committed_records() if self.records == HERE else self.records
        folders = (self.runs,) if self.fresh else (self.runs, committed)
        finished = {record.key: record for record in find_records(folders)}
        for name, seed in (run for table in names for run in TABLES[table]):
            if seed and self.profile == "smoke":
                continue
            record = finished.get((name, self.profile, seed))
            if record is not None:
                minutes = record.result["seconds"] / 60
                self.say(f"{name}, seed {seed}: from {record.path}, trained in {minutes:.1f} minutes")
            elif may_train:
                self.train_row(name, seed)
            else:
                self.say(f"{name}, seed {seed}: left out, it has no finished run; add --train to train it")
        if needs_baselines:
            self.evaluate_baselines(folders)
        records = find_reportable(folders, on_skip=warn)
        shown = (self.profile,) if self.profile == "smoke" else (self.profile, "study")
        records = [record for record in records if record.experiment.profile in shown]
        if not any(record.experiment.profile == self.profile for record in records):
            raise ValueError(
                f"There is no finished run of profile {self.profile} in {' or '.join(map(str, folders))}; train with: "
                f"picaset reproduce --profile {self.profile} --train"
            )
        write_and_print(records, folders, self.out, names, committed=committed, as_json=self.json)
        return 0

    def say(self, line: str) -> None:
        if not self.json:
            say(line)

    def train_row(self, name: str, seed: int) -> None:
        path = self.runs / run_name(name, self.profile, seed)
        try:
            chosen = experiment(name, profile=self.profile, seed=seed)
            if chosen.name != name:  # without its data, or in the profile smoke, generated data would be used
                self.say(f"{name}, seed {seed}: left out, its data is not used here; {chosen.name} uses generated data")
            elif (path / "config.json").is_file():
                resume(path, silent=self.json)
            else:
                start(chosen, path, silent=self.json)
        except MissingDataError as error:
            self.say(f"{name}, seed {seed}: left out. {error}")

    def evaluate_baselines(self, folders: tuple[Path, ...]) -> None:
        """Evaluate scikit-learn on the same sets, unless a folder has its scores."""
        name = baselines_file(self.profile)
        if any((folder / name).is_file() for folder in folders):
            return
        num_sets, sizes = (20, (30, 60)) if self.profile == "smoke" else (1000, (300, 600))
        rows = [evaluate_scikit_learn(num_starts=starts, num_sets=num_sets, sizes=sizes) for starts in (1, 10)]
        environment = describe_environment(data=f"generated: {num_sets} sets", devices=1)
        create_folder(self.runs)
        with atomic_write(self.runs / name) as unfinished:
            unfinished.write_text(json.dumps({"environment": environment, "rows": rows}) + "\n")
