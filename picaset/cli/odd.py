"""``picaset odd``"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.table import Table

from picaset.extras import require
from picaset.files import check_output_folder, check_outputs, check_source
from picaset.tables.table import read_table
from picaset.terminal import Terminal, say

MAX_PRINTED = 20
"""Largest number of sets that are printed."""


@dataclass(frozen=True, kw_only=True)
class Odd:
    """Find the rows of a file that do not fit the other rows of their set.

    Reads CSV (with or without a header), Parquet and NPY. Several detectors are tried, and the one that best finds rows
    that were moved from one set to another is used: a statistic, which takes seconds, or a network, which is trained
    for a minute or two if the statistics find too few.

    Examples:
        picaset odd --example --scores scores.csv --save detector
        picaset odd --example --detector detector --json
    """

    file: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")] = None
    """File with one element per row: .csv, .tsv, .txt, .parquet or .npy."""
    example: bool = False
    """Use generated example data instead of a file: books, most of which belong to their shelf."""
    set: str | None = None
    """Column that names the set of a row."""
    columns: tuple[str, ...] = ()
    """Columns of the features; all numeric columns by default."""
    method: Literal["auto", "mahalanobis", "density", "lof", "forest", "network"] = "auto"
    """Detector; auto chooses."""
    contamination: float | Literal["auto"] = "auto"
    """Share of the rows that are odd, between 0 and 1; auto estimates it."""
    drop_missing: bool = False
    """Drop rows with missing values instead of raising an error."""
    detector: Path | None = None
    """Score with a detector written by --save instead of fitting one."""
    save: Path | None = None
    """Save the detector to this folder."""
    scores: Path | None = None
    """Write the rows and their scores to this CSV file."""
    steps: int = 1000
    """Number of training steps of the network."""
    device: str = "cpu"
    """Device of the network, such as cuda."""
    seed: int = 0
    """Random seed."""
    json: bool = False
    """Print the most suspicious row of every set as one JSON line, and nothing else."""

    def run(self) -> int:
        check_source(self.file, example=self.example)
        check_outputs(self.file, scores=(self.scores, (".csv",)))
        check_output_folder("save", self.save)
        require("sklearn", extra="estimators", purpose="picaset odd")
        from picaset.estimators.set_anomaly_detector import SetAnomalyDetector
        from picaset.estimators.suspicious_rows import find_suspicious_rows
        from picaset.tables.examples import example_shelves

        table = example_shelves() if self.file is None else read_table(self.file)
        set_column = self.set or ("shelf" if self.example else None)
        if set_column is None:
            raise ValueError(f"--set must name the column with the set of each row: one of {', '.join(table.columns)}.")
        if set_column in self.columns:
            raise ValueError(f"--columns must not include {set_column}, which is the column of --set.")
        if self.detector is None:
            detector = SetAnomalyDetector(
                method=self.method, contamination=self.contamination, max_iter=self.steps, device=self.device,
                random_state=self.seed, verbose=not self.json,
            )  # fmt: skip
        else:
            detector = SetAnomalyDetector.load(self.detector)
        result = find_suspicious_rows(
            table,
            detector,
            set_column=set_column,
            columns=self.columns,
            drop_missing=self.drop_missing,
            fitted=self.detector is not None,
        )
        if self.save is not None:
            detector.save(self.save)
        if self.scores is not None:
            result.write(self.scores)
        if self.json:
            summary = {"detector": detector.members_, "planted": detector.report_, "threshold": detector.threshold_}
            say(json.dumps(summary | {"sets": result.most_suspicious()}))
        else:
            self.print_result(result, detector)
        return 0

    def print_result(self, result: Any, detector: Any) -> None:
        console = Terminal()
        entries: list[dict[str, Any]] = result.most_suspicious()
        num_odd, num_sets = sum(entry["all_odd"] for entry in entries), sum(entry["all_odd"] > 0 for entry in entries)
        console.print(
            f"{len(entries)} sets, {sum(entry['rows'] for entry in entries)} rows, features "
            f"{', '.join(result.groups.columns)}; detector: {' + '.join(detector.members_)}\n"
            f"{num_odd} rows are odd, in {num_sets} sets; their score is above {detector.threshold_:.3g}"
        )
        for note in result.notes():
            console.print(f"note: {note}")
        table = Table()
        for name in ("set", "rows", "odd", "most suspicious", "score", "unusual value"):
            table.add_column(name, justify="right" if name in ("rows", "odd", "score") else "left")
        for entry in entries[:MAX_PRINTED]:
            low, high = entry["usual"]
            unusual = f"{entry['feature']} {entry['value']:.3g}, others {low:.3g} to {high:.3g}"
            cells = (str(entry["rows"]), str(entry["all_odd"]), entry["place"], f"{entry['score']:.2f}", unusual)
            table.add_row(entry["set"], *cells)
        console.print(table)
        if len(entries) > MAX_PRINTED:
            console.print(
                f"and {len(entries) - MAX_PRINTED} more sets; --scores writes every row, --json prints all sets"
            )
        for path in (self.scores, self.save):
            if path is not None:
                console.print(f"written: {path}")
