"""Fuzz everything that reads files.

    python -m tests.fuzz                                     # 10 000 inputs for each target
    python -m tests.fuzz --target "saved networks" --inputs 500 --seed 3
    python -m tests.fuzz --target "saved networks" --first 17 --inputs 1    # one input again

Prints a row of a table for each target, and one traceback for each kind of failure. The exit code is 1 after a failure.
"""

import argparse
import os
import sys
import time

os.environ["OMP_NUM_THREADS"] = "1"  # read by torch when it is imported; a process that forks must have no threads
from tests.fuzz.runner import OUTCOMES, Failure, count, run_in_workers
from tests.fuzz.targets import TARGETS

parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
parser.add_argument("--target", choices=[target.name for target in TARGETS])
parser.add_argument("--inputs", type=int, default=10_000)
parser.add_argument("--first", type=int, default=0)
parser.add_argument("--seed", type=int, default=0)
options = parser.parse_args()
chosen = [target for target in TARGETS if options.target in (None, target.name)]

failed = False
print("| target | inputs |", " | ".join(OUTCOMES), "| minutes |")
print("|---|" + "---|" * (len(OUTCOMES) + 2), flush=True)
for target in chosen:
    kinds = dict[str, str]()

    def keep(number: int, failure: Failure, kinds: dict[str, str] = kinds) -> None:
        lines = failure.details.strip().splitlines() or [""]
        where = [line for line in lines if "/picaset/" in line][-1:] or lines[:1]
        kinds.setdefault(
            f"{failure.outcome}: {lines[-1][:120]} {where[0].strip()[:160]}", f"{number}: {failure.details}"
        )

    start = time.monotonic()
    results = run_in_workers(target, options.inputs, seed=options.seed, first=options.first)
    outcomes = count(results, keep)
    cells = [f"{outcomes[outcome]}" for outcome in OUTCOMES]
    print(
        f"| {target.name} | {outcomes.total()} |",
        " | ".join(cells),
        f"| {(time.monotonic() - start) / 60:.0f} |",
        flush=True,
    )
    for details in kinds.values():
        failed = True
        print(f"{target.name}, input {details}\n", file=sys.stderr)
sys.exit(failed)
