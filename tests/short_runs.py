"""Runs of two steps, for what is told of runs."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from picaset.lab.experiments import experiment
from picaset.lab.training.loop import start
from picaset.lab.training.run_directory import run_name


def train_shortly(runs: Iterable[tuple[str, int]], folder: Path) -> Path:
    """Each experiment from its seed, into a directory of its own below the folder, which is returned."""
    for name, seed in runs:
        short = experiment(name, profile="smoke", seed=seed)
        short = replace(short, training=replace(short.training, steps=2, score_every=1))
        start(short, folder / run_name(name, "smoke", seed), silent=True, accelerator="cpu")
    return folder
