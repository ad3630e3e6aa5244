"""``picaset experiments``"""

import json
from dataclasses import dataclass

from rich.box import SIMPLE
from rich.table import Table

from picaset.lab.experiments import Profile, experiment, names_of
from picaset.terminal import Terminal, say


@dataclass(frozen=True, kw_only=True)
class Experiments:
    """List the named experiments.

    Examples:
        picaset experiments
        picaset experiments --profile paper --json
    """

    profile: Profile = "quick"
    """Profile whose settings are shown."""
    json: bool = False
    """Print all settings as one JSON line."""

    def run(self) -> int:
        # Without the real data, two names give the same experiment on generated data.
        experiments = (experiment(name, profile=self.profile) for name in names_of(self.profile))
        distinct = list({setting.name: setting for setting in experiments}.values())
        if self.json:
            say(json.dumps([setting.to_json() for setting in distinct]))
            return 0
        table = Table(title=f"profile {self.profile}", box=SIMPLE, padding=(0, 1, 0, 0))
        table.add_column("name", no_wrap=True, min_width=max(len(setting.name) for setting in distinct))
        for column in ("steps", "batch", "parameters"):
            table.add_column(column, justify="right")
        for setting in distinct:
            parameters = sum(parameter.numel() for parameter in setting.task.build_network().parameters())
            training = setting.training
            table.add_row(setting.name, str(training.steps), str(training.batch_size), f"{parameters:,}")
        Terminal().print(table)
        return 0
