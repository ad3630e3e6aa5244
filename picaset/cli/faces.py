"""``picaset faces``"""

import json
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table
from rich.text import Text

from picaset.lab.networks.odd_one_out import odd_faces_network
from picaset.lab.reports.odd_faces import draw_odd_faces, sample_scored_sets
from picaset.terminal import Terminal, say


@dataclass(frozen=True, kw_only=True)
class Faces:
    """Find the odd face in sets of faces: all but one share two attributes, and that one has neither.

    Draws new faces, samples sets of them, scores every face with a shipped network, and writes a figure of the sets
    with their scores.

    Examples:
        picaset faces
        picaset faces --size 12 --sets 20 --seed 3 --out figures --json
    """

    size: int = 8
    """Number of faces per set, from 3 to 64; the network was trained on sets of 8."""
    sets: int = 24
    """Number of sets."""
    seed: int = 0
    """Random seed of the faces and the sets."""
    out: Path = Path("faces")
    """Folder to write the figure to."""
    json: bool = False
    """Print the number of found odd faces as one JSON line, and nothing else."""

    def run(self) -> int:
        sets = sample_scored_sets(odd_faces_network(), num_sets=self.sets, set_size=self.size, seed=self.seed)
        paths = draw_odd_faces(sets, self.out)
        num_found = sum(scored.was_found for scored in sets)
        if self.json:
            say(json.dumps({"sets": len(sets), "found": num_found, "figures": [str(path) for path in paths]}))
            return 0
        console = Terminal()
        table = Table()
        for name in ("all but one have", "odd face", "predicted", "probability"):
            table.add_column(name, justify="left" if name == "all but one have" else "right")
        for scored in sets:
            pair = " and ".join(name.replace("_", " ").lower() for name in scored.attributes)
            table.add_row(pair, f"{scored.odd + 1}", f"{scored.chosen + 1}", f"{scored.scores.max():.2f}")
        console.print(table)
        console.print(
            Text.assemble(
                (f"{num_found} of {len(sets)}", "bold"),
                f" odd faces found in sets of {self.size}; guessing finds 1 in {self.size}",
            )
        )
        for path in paths:
            console.print(Text.assemble(("Figure", "bold"), f"  {path}"))
        return 0
