"""Fuzz everything that reads files.

    python -m tests.fuzz                                     # 10 000 inputs for each target
    python -m tests.fuzz --target "saved networks" --inputs 500 --seed 3
    python -m tests.fuzz --target "saved networks" --first 17 --inputs 1    # one input again, without a record

Prints a row of a table for each target, and one traceback for each kind of failure. The exit code is 1 after a failure.
Every minute the counts are written to ``results/fuzz__<hardware>__<year-month>.json``, and the tables of that record to
``docs/reliability.md``. A row that was interrupted goes on where it stopped, and a complete one is not repeated, unless
the package or the fuzzer was changed since, or the seed is another.
"""

import argparse
import os
import sys
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # read by torch when it is imported; a process that forks must have no threads
from tests.fuzz.record import (
    DOCUMENT,
    add_results,
    is_of_this_source,
    new_row,
    outcomes_table,
    read_rows,
    record_path,
    row_cells,
    with_tables,
    write_rows,
)
from tests.fuzz.runner import FAILURES, Result, run_in_workers
from tests.fuzz.targets import TARGETS

parser = argparse.ArgumentParser(
    prog="python -m tests.fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
)
parser.add_argument("--target", action="append", choices=[target.name for target in TARGETS], help="may be repeated")
parser.add_argument("--inputs", type=int, default=10_000)
parser.add_argument("--first", type=int, help="number of the first input; nothing is recorded then")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--record", type=Path, default=record_path())
options = parser.parse_args()

records = options.first is None
rows = read_rows(options.record) if records else {}


def save() -> None:
    if records:
        order = [target.name for target in TARGETS if target.name in rows]
        write_rows(options.record, {name: rows[name] for name in order})
        if options.record.parent == DOCUMENT.parent.parent / "results":
            DOCUMENT.write_text(with_tables(DOCUMENT.read_text(), options.record))


failed = False
print("\n".join(outcomes_table({}).splitlines()), flush=True)
by_name = {target.name: target for target in TARGETS}
for target in [by_name[name] for name in options.target or by_name]:
    kinds = dict[str, str]()

    def keep(number: int, result: Result, kinds: dict[str, str] = kinds) -> None:
        lines = result.details.strip().splitlines() or [""]
        where = [line for line in lines if "/picaset/" in line][-1:] or lines[:1]
        kinds.setdefault(f"{result.outcome}: {lines[-1][:120]} {where[0].strip()[:160]}", f"{number}: {result.details}")

    row = rows.get(target.name)
    if row is None or row["seed"] != options.seed or not is_of_this_source(row):
        row = rows[target.name] = new_row(target.name, seed=options.seed)
    first = options.first or row["inputs"]
    results = run_in_workers(target, max(options.inputs - row["inputs"], 0), seed=options.seed, first=first)
    try:
        add_results(row, results, on_failure=keep, save=save)
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        print("| " + " | ".join(row_cells(row)) + " |", flush=True)
        for details in kinds.values():
            print(f"{target.name}, input {details}\n", file=sys.stderr)
    failed |= any(row[outcome] for outcome in FAILURES)
sys.exit(failed)
