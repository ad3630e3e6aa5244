"""``picaset evaluate``"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from picaset.data.folders import use_data_root
from picaset.training.run_directory import RunDirectory


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Evaluate the network of a run again, and print what was found as one JSON line.

    Examples:
        picaset evaluate runs/clustering-ours-smoke-seed3
        picaset evaluate runs/clustering-ours-smoke-seed3 --which best
    """

    run_directory: tyro.conf.Positional[Path]
    """The run."""
    which: Literal["final", "best"] = "final"
    """The network at the end, or the best one on the way."""

    data_root: Path | None = None
    """Folder of the real data sets, instead of PICASET_DATA."""

    def run(self) -> int:
        use_data_root(self.data_root)
        directory = RunDirectory.open(self.run_directory)
        task = directory.experiment.task
        print(json.dumps(task.evaluate(task.read_network(directory.network(self.which)))))
        return 0
