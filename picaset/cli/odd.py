"""``picaset odd``"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.table import Table

from picaset.extras import require
from picaset.tables.table import read_table
from picaset.terminal import Terminal, say

MAX_PRINTED = 20
"""Largest number of sets that are printed."""


@dataclass(frozen=True, kw_only=True)
class Odd:
    """Find the rows of a file that do not fit the other rows of their set.

    Reads CSV (with or without a header), Parquet and NPY. The detector learns from the sets themselves which rows occur
    together, so it needs many sets.

    Examples:
        picaset odd --example --set shelf --steps 60 --scores scores.csv --save detector
        picaset odd --example --set shelf --detector detector --json
    """

    file: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")] = None
    """File with one element per row: .csv, .tsv, .txt, .parquet or .npy."""
    example: bool = False
    """Use generated example data instead of a file."""
    set: str
    """Column that names the set of a row."""
    columns: tuple[str, ...] = ()
    """Columns of the features; all numeric columns by default."""
    detector: Path | None = None
    """Score with a detector written by --save instead of training one."""
    save: Path | None = None
    """Save the detector to this folder."""
    scores: Path | None = None
    """Write the rows and their scores to this CSV file."""
    steps: int = 1000
    """Number of training steps; a thousand take a minute or two."""
    seed: int = 0
    """Random seed of the training."""
    json: bool = False
    """Print the most suspicious row of every set as one JSON line, and nothing else."""

    def run(self) -> int:
        if (self.file is None) != self.example:
            raise ValueError("give either a file or --example.")
        if self.scores is not None and (self.scores.suffix != ".csv" or not self.scores.parent.is_dir()):
            raise ValueError(f"--scores must be a .csv file in a folder that exists; got {self.scores}.")
        require("sklearn", extra="estimators", purpose="picaset odd")
        from picaset.estimators.set_anomaly_detector import SetAnomalyDetector
        from picaset.estimators.suspicious_rows import find_suspicious_rows
        from picaset.tables.example_shelves import example_shelves

        table = example_shelves() if self.file is None else read_table(self.file)
        if self.detector is None:
            detector = SetAnomalyDetector(max_iter=self.steps, random_state=self.seed, verbose=not self.json)
        else:
            detector = SetAnomalyDetector.load(self.detector)
        result = find_suspicious_rows(
            table, detector, set_column=self.set, columns=self.columns, fitted=self.detector is not None
        )
        if self.save is not None:
            detector.save(self.save)
        if self.scores is not None:
            result.write(self.scores)
        entries = result.most_suspicious()
        if self.json:
            say(json.dumps({"sets": entries}))
        else:
            self.print_result(entries, result.columns)
        return 0

    def print_result(self, entries: list[dict[str, Any]], columns: Any) -> None:
        console = Terminal()
        console.print(
            f"{len(entries)} sets, features {', '.join(columns)}; a score above 0 means more likely odd than not"
        )
        table = Table()
        for name in ("set", "rows", "most suspicious", "score", "odd rows"):
            table.add_column(name, justify="left" if name in ("set", "most suspicious") else "right")
        for entry in entries[:MAX_PRINTED]:
            table.add_row(
                entry["set"], str(entry["rows"]), entry["place"], f"{entry['score']:.2f}", str(entry["all_odd"])
            )
        console.print(table)
        if len(entries) > MAX_PRINTED:
            console.print(
                f"and {len(entries) - MAX_PRINTED} more sets; --scores writes every row, --json prints all sets"
            )
        for path in (self.scores, self.save):
            if path is not None:
                console.print(f"written: {path}")
