"""``picaset faces``"""

import json
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from picaset.lab.networks.odd_one_out import odd_faces_network
from picaset.lab.reports.odd_faces import draw_odd_faces, sample_scored_sets


@dataclass(frozen=True, kw_only=True)
class Faces:
    """See a set network find the odd face: all faces of a set but one share two attributes, one has neither.

    Draws faces that training never had, makes sets of them, scores every face with the network that comes with picaset,
    and draws the sets with their scores.

    Examples:
        picaset faces
        picaset faces --size 12 --sets 20 --seed 3 --out figures --json
    """

    size: int = 8
    """Faces of a set, from 3 to 64; the network was trained on sets of 8."""
    sets: int = 24
    """How many sets."""
    seed: int = 0
    """Chooses the faces and the sets."""
    out: Path = Path("faces")
    """Folder that the figure is written to."""
    json: bool = False
    """Print what was found as one JSON line, and nothing else."""

    def run(self) -> int:
        shown = sample_scored_sets(odd_faces_network(), num_sets=self.sets, set_size=self.size, seed=self.seed)
        paths = draw_odd_faces(shown, self.out)
        found = sum(one.was_found for one in shown)
        if self.json:
            print(json.dumps({"sets": len(shown), "found": found, "figures": [str(path) for path in paths]}))
            return 0
        console = Console(highlight=False)
        table = Table()
        for name in ("all but one have", "the odd one", "taken for it", "with probability"):
            table.add_column(name, justify="left" if name == "all but one have" else "right")
        for one in shown:
            pair = " and ".join(name.replace("_", " ").lower() for name in one.attributes)
            table.add_row(pair, f"{one.odd + 1}", f"{one.chosen + 1}", f"{one.scores.max():.2f}")
        console.print(table)
        console.print(
            f"[bold]{found} of {len(shown)}[/] odd faces found in sets of {self.size}; guessing finds 1 in {self.size}"
        )
        for path in paths:
            console.print(f"[bold]Figure[/]  {path}")
        return 0
