"""Short runs for the tests of reports, and the import of scripts in examples/."""

import importlib
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from picaset.lab.experiments import experiment
from picaset.lab.training.loop import start
from picaset.lab.training.run_directory import run_name

EXAMPLES = Path(__file__).parent.parent / "examples"


def train_shortly(runs: Iterable[tuple[str, int]], folder: Path) -> Path:
    """Train each experiment and seed for two steps, in a run directory below the folder; return the folder."""
    for name, seed in runs:
        short = experiment(name, profile="smoke", seed=seed)
        short = replace(short, training=replace(short.training, steps=2, score_every=1))
        start(short, folder / run_name(name, "smoke", seed), silent=True, accelerator="cpu")
    return folder


def import_example(name: str) -> ModuleType:
    """Import a script of examples/, whose folder is on the path as when it is run."""
    if str(EXAMPLES) not in sys.path:
        sys.path.insert(0, str(EXAMPLES))
    return importlib.import_module(name)
