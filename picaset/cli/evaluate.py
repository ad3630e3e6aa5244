"""``picaset evaluate``"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import tyro

from picaset.lab.data.folders import use_data_root
from picaset.lab.training.run_directory import RunDirectory
from picaset.terminal import say


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Evaluate the network of a run again, and print its scores.

    Examples:
        picaset evaluate runs/clustering-ours-smoke-seed3
        picaset evaluate runs/clustering-ours-smoke-seed3 --which best --json
    """

    run_directory: tyro.conf.Positional[Path]
    """Run directory."""
    which: Literal["final", "best"] = "final"
    """The network of the last step, or the one with the best score."""
    data_root: Path | None = None
    """Folder of the real data sets; PICASET_DATA by default."""
    json: bool = False
    """Print all results as one JSON line, and nothing else."""

    def run(self) -> int:
        use_data_root(self.data_root)
        directory = RunDirectory.open(self.run_directory)
        task = directory.experiment.task
        result = task.evaluate(task.read_network(directory.network(self.which)))
        say(json.dumps(result) if self.json else "\n".join(summary(result)))
        return 0


def summary(result: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each number and each row of numbers; the last line names the fields that are omitted.

    Example:
        >>> for line in summary({"score": 0.51234, "moves": [{"shift": 0, "gap": 0.5}], "shown": [[1, 2], [3, 4]]}):
        ...     print(line)
        score: 0.5123
        moves: shift 0, gap 0.5
        Omitted: shown; --json prints everything.
    """
    omitted = list[str]()
    for name, value in result.items():
        rows = cast(list[Any], value if isinstance(value, list) else [value])
        lines = [format_values(row) for row in rows]
        if not all(lines) or (isinstance(value, list) and not any(isinstance(row, dict) for row in rows)):
            omitted.append(name)
            continue
        yield from (f"{name}: {line}" for line in lines)
    if omitted:
        yield f"Omitted: {', '.join(omitted)}; --json prints everything."


def format_values(value: Any) -> str:
    """Format a number, a text or a dictionary of them as one line; return an empty line for anything else."""
    if isinstance(value, dict):
        parts = {name: format_values(part) for name, part in cast(dict[str, Any], value).items()}
        flat = all(parts.values())
        return ", ".join(f"{name} {part}" for name, part in parts.items()) if flat else ""
    return f"{value:.4g}" if isinstance(value, float) else str(value) if isinstance(value, str | int) else ""
