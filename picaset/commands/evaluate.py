"""``picaset evaluate``"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from picaset.models.mixture_network import MixtureNetwork
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

    def run(self) -> int:
        directory = RunDirectory.open(self.run_directory)
        network = MixtureNetwork.from_pretrained(directory.network(self.which))
        print(json.dumps(directory.experiment.task.evaluate(network)))
        return 0
