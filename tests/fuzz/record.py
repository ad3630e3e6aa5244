"""The record of ``make fuzz`` in ``results/``, and its tables in ``docs/reliability.md``."""

import json
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from picaset.files import atomic_write
from tests.fuzz.runner import OUTCOMES, Result

ROOT = Path(__file__).parent.parent.parent
DOCUMENT = ROOT / "docs/reliability.md"
SAVE_EVERY = 60.0
"""Seconds between two writes of an unfinished row."""


def record_path(folder: Path = ROOT / "results") -> Path:
    """Return the file of the record, which is new if there is none for this processor."""
    kind = next((kind for kind in ("epyc", "xeon") if kind in processor().lower()), platform.machine())
    paths = sorted(folder.glob(f"fuzz__{kind}-1-thread__*.json"))
    return paths[-1] if paths else folder / f"fuzz__{kind}-1-thread__{time.strftime('%Y-%m')}.json"


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").is_file() else []
    return next((line.split(":")[1].strip() for line in lines if "model name" in line), platform.processor())


def commit() -> str:
    """Return the last commit that changed the package or the fuzzer, with a plus sign after uncommitted changes."""
    what = ["--", "picaset", "tests/fuzz"]
    said = subprocess.run(["git", "log", "-1", "--format=%h", *what], cwd=ROOT, capture_output=True, text=True)
    changed = subprocess.run(["git", "diff", "--quiet", "HEAD", *what], cwd=ROOT, capture_output=True).returncode
    return (said.stdout.strip() or "unknown") + "+" * bool(changed)


def read_rows(path: Path) -> dict[str, dict[str, Any]]:
    """Return the rows of a record by target."""
    return {row["target"]: row for row in json.loads(path.read_text())["rows"]} if path.is_file() else {}


def write_rows(path: Path, rows: dict[str, dict[str, Any]]) -> None:
    described = {
        "benchmark": "fuzz",
        "command": "python -m tests.fuzz",
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "hardware": f"{processor()}, 1 threads",
        "rows": list(rows.values()),
    }
    with atomic_write(path) as unfinished:
        unfinished.write_text(json.dumps(described, indent=1) + "\n")


def new_row(target: str, *, seed: int) -> dict[str, Any]:
    counts = dict.fromkeys(OUTCOMES, 0)
    return {"target": target, "commit": commit(), "seed": seed, "inputs": 0, **counts, "seconds": 0.0, "ways": {}}


def is_of_this_source(row: dict[str, Any]) -> bool:
    """Whether a row counts what the source as it is now makes of its inputs."""
    return row["commit"] == commit() and not row["commit"].endswith("+")


def add_results(
    row: dict[str, Any],
    results: Iterator[tuple[int, Result]],
    *,
    on_failure: Callable[[int, Result], None],
    save: Callable[[], None],
) -> None:
    """Count results in a row, and save it from time to time; an interruption keeps what was counted, and is raised."""
    start, before, saved = time.monotonic(), row["seconds"], time.monotonic()
    try:
        for number, result in results:
            row["inputs"] += 1
            row[result.outcome] += 1
            if result.way:
                ways = row["ways"].setdefault(result.way, {"accepted": 0, "refused": 0})
                ways[result.outcome] = ways.get(result.outcome, 0) + 1
            if result.is_failure:
                row.setdefault("failures", []).append(number)
                on_failure(number, result)
            row["seconds"] = round(before + time.monotonic() - start, 1)
            if time.monotonic() - saved > SAVE_EVERY:
                saved = time.monotonic()
                save()
    finally:
        save()


def outcomes_table(rows: dict[str, dict[str, Any]]) -> str:
    lines = [["target", "inputs", *OUTCOMES, "minutes"], ["---"] * (3 + len(OUTCOMES))]
    lines += [row_cells(row) for row in rows.values()]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def row_cells(row: dict[str, Any]) -> list[str]:
    counts = [str(row[name]) for name in ("inputs", *OUTCOMES)]
    return [row["target"], *counts, f"{row['seconds'] / 60:.0f}"]


def ways_table(rows: dict[str, dict[str, Any]]) -> str:
    """Return how many inputs each command and each reader got."""
    lines = [["target", "used by", "inputs", "accepted", "refused"], ["---"] * 5]
    for row in rows.values():
        for way, counts in sorted(row["ways"].items()):
            numbers = (sum(counts.values()), counts["accepted"], counts["refused"])
            lines.append([row["target"], way, *map(str, numbers)])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def with_tables(text: str, record: Path) -> str:
    """Return a document with its tables replaced by those of a record, to which it links."""
    rows = read_rows(record)
    outcomes = f"{outcomes_table(rows)}\n\nThe counts are those of [the record](../results/{record.name})."
    for name, table in (("fuzz", outcomes), ("fuzz ways", ways_table(rows))):
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        assert len(pattern.findall(text)) == 1, f"there must be one table {name}"
        text = pattern.sub(lambda match, table=table: f"{match[1]}\n{table}\n\n{match[2]}", text)
    return text


if __name__ == "__main__":
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else record_path()
    DOCUMENT.write_text(with_tables(DOCUMENT.read_text(), path))
