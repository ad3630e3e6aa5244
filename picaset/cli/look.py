"""``picaset look``"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from picaset.lab.data.folders import use_data_root
from picaset.lab.reports.look import look
from picaset.terminal import say


@dataclass(frozen=True, kw_only=True)
class Look:
    """Draw the attention of the network of a run: each head at the last step, and step by step.

    For a viewpoints run, draws one test toy from several viewpoints, with attention as heat over the picture. For a
    scenes run, draws the predicted objects of test scenes and the attention of each template. Networks without
    attention (DeepSets, capsules) cannot be drawn.

    Examples:
        picaset look runs/viewpoints-azimuth-pb3-toys-smoke-seed0
        picaset look runs/viewpoints-azimuth-pb3-toys-smoke-seed0 --category truck --seed 3 --out figures --json
    """

    run_directory: tyro.conf.Positional[Path]
    """Run directory, with its network."""
    category: str | None = None
    """Category of the toy: animal, human, airplane, truck or car; chosen by the seed by default."""
    seed: int = 0
    """Chooses the toy, its lighting and the fixed angle; scenes are always the first test scenes."""
    which: Literal["final", "best"] = "final"
    """The network of the last step, or the one with the best score."""
    out: Path | None = None
    """Folder to write the figures to; look/ and the name of the run by default."""
    data_root: Path | None = None
    """Folder of the real data sets; PICASET_DATA by default."""
    json: bool = False
    """Print the paths of the figures as one JSON line, and nothing else."""

    def run(self) -> int:
        use_data_root(self.data_root)
        out = self.out or Path("look") / self.run_directory.resolve().name
        figures = look(self.run_directory, out, which=self.which, category=self.category, seed=self.seed)
        if self.json:
            say(json.dumps({"figures": [str(path) for paths in figures.values() for path in paths]}))
            return 0
        for caption, paths in figures.items():
            say(f"{', '.join(map(str, paths))}\n  {caption}")
        return 0
