"""``picaset look``"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from picaset.lab.data.folders import use_data_root
from picaset.lab.reports.look import look


@dataclass(frozen=True, kw_only=True)
class Look:
    """Draw what the network of a run attends to: each head at the last step, and step by step.

    Of a viewpoints run: one toy that training never had, seen from several viewpoints, with attention as heat over the
    picture. Of a scenes run: the objects that are predicted for test scenes, and what each template looks at. Networks
    without attention (DeepSets, capsules) have nothing to look at.

    Examples:
        picaset look runs/viewpoints-azimuth-pb3-toys-smoke-seed0
        picaset look runs/viewpoints-azimuth-pb3-toys-smoke-seed0 --category truck --seed 3 --out figures --json
    """

    run_directory: tyro.conf.Positional[Path]
    """The run, with its network."""
    category: str | None = None
    """Of a toy: animal, human, airplane, truck or car; chosen by the seed if not given."""
    seed: int = 0
    """Chooses the toy, its lighting, and the angle that stays; scenes are always the first of the test."""
    which: Literal["final", "best"] = "final"
    """The network at the end, or the best one on the way."""
    out: Path | None = None
    """Folder that the figures are written to; look/, and in it one named like the run, if not given."""
    data_root: Path | None = None
    """Folder of the real data sets, instead of PICASET_DATA."""
    json: bool = False
    """Print where the figures are as one JSON line, and nothing else."""

    def run(self) -> int:
        use_data_root(self.data_root)
        out = self.out or Path("look") / self.run_directory.resolve().name
        figures = look(self.run_directory, out, which=self.which, category=self.category, seed=self.seed)
        if self.json:
            print(json.dumps({"figures": [str(path) for paths in figures.values() for path in paths]}))
            return 0
        for caption, paths in figures.items():
            print(f"{', '.join(map(str, paths))}\n  {caption}")
        return 0
