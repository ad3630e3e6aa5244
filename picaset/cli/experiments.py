"""``picaset experiments``"""

import json
from dataclasses import dataclass

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from picaset.lab.experiments import EXPERIMENTS, Profile, experiment


@dataclass(frozen=True, kw_only=True)
class Experiments:
    """List the named experiments.

    Examples:
        picaset experiments
        picaset experiments --profile paper --json
    """

    profile: Profile = "quick"
    """The size whose settings are shown."""
    json: bool = False
    """Print all settings as one JSON line."""

    def run(self) -> int:
        # Where real data is not found, two names are one experiment, on the stand-in.
        found = (experiment(name, profile=self.profile) for name in EXPERIMENTS)
        chosen = list({one.name: one for one in found}.values())
        if self.json:
            print(json.dumps([one.to_json() for one in chosen]))
            return 0
        table = Table(title=f"profile {self.profile}", box=SIMPLE, padding=(0, 1, 0, 0))
        table.add_column("name", no_wrap=True, min_width=max(len(one.name) for one in chosen))
        for column in ("steps", "batch", "parameters"):
            table.add_column(column, justify="right")
        for one in chosen:
            parameters = sum(parameter.numel() for parameter in one.task.build_network().parameters())
            table.add_row(one.name, str(one.training.steps), str(one.training.batch_size), f"{parameters:,}")
        Console().print(table)
        return 0
