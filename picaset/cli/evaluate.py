"""``picaset evaluate``"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import tyro

from picaset.lab.data.folders import use_data_root
from picaset.lab.training.run_directory import RunDirectory


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Evaluate the network of a run again, and print what was found.

    Examples:
        picaset evaluate runs/clustering-ours-smoke-seed3
        picaset evaluate runs/clustering-ours-smoke-seed3 --which best --json
    """

    run_directory: tyro.conf.Positional[Path]
    """The run."""
    which: Literal["final", "best"] = "final"
    """The network at the end, or the best one on the way."""
    data_root: Path | None = None
    """Folder of the real data sets, instead of PICASET_DATA."""
    json: bool = False
    """Print everything that was found as one JSON line, and nothing else."""

    def run(self) -> int:
        use_data_root(self.data_root)
        directory = RunDirectory.open(self.run_directory)
        task = directory.experiment.task
        found = task.evaluate(task.read_network(directory.network(self.which)))
        print(json.dumps(found) if self.json else "\n".join(summary(found)))
        return 0


def summary(found: dict[str, Any]) -> Iterator[str]:
    """What a person reads: numbers, and rows of numbers; what is left out is named.

    Example:
        >>> for line in summary({"score": 0.51234, "moves": [{"shift": 0, "found": 0.5}], "shown": [[1, 2], [3, 4]]}):
        ...     print(line)
        score: 0.5123
        moves: shift 0, found 0.5
        Left out: shown; --json has everything.
    """
    left_out = list[str]()
    for name, value in found.items():
        rows = cast(list[Any], value if isinstance(value, list) else [value])
        lines = [in_words(row) for row in rows]
        if not all(lines) or (isinstance(value, list) and not any(isinstance(row, dict) for row in rows)):
            left_out.append(name)
            continue
        yield from (f"{name}: {line}" for line in lines)
    if left_out:
        yield f"Left out: {', '.join(left_out)}; --json has everything."


def in_words(value: Any) -> str:
    """Numbers and words as one line; empty for what does not fit in one."""
    if isinstance(value, dict):
        parts = {name: in_words(part) for name, part in cast(dict[str, Any], value).items()}
        flat = all(parts.values())
        return ", ".join(f"{name} {part}" for name, part in parts.items()) if flat else ""
    return f"{value:.4g}" if isinstance(value, float) else str(value) if isinstance(value, str | int) else ""
