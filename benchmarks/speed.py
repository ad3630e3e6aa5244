"""Make all records of speed anew, one benchmark after the other, and fill the tables of the documents from them.

    OMP_NUM_THREADS=2 python -m benchmarks.speed                  # all, about half an hour on an idle machine
    OMP_NUM_THREADS=2 python -m benchmarks.speed network packed   # some of them
    python -m benchmarks.performance_tables                       # only fill the tables
    make documents                                                # all tables of the documents, also other records'

A record replaces the one of the same name in ``results/``. Commit records and documents together.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from benchmarks import performance_tables
from benchmarks.measure import processor_name

RUNS = {
    "network": ["network"],
    "packed": ["packed"],
    "pooling": ["pooling"],
    "pooling_bfloat16": ["pooling", "--dtype", "bfloat16"],
    "pooling_native": ["pooling", "--native"],
    "pooling_orders": ["pooling", "--orders"],
    "pooling_growth": ["pooling", "--growth"],
}
"""Module and arguments of each record."""


def make_record(name: str) -> Path:
    """Run a benchmark, and write the last line that it prints to ``results/``."""
    module, *arguments = RUNS[name]
    command = [sys.executable, "-m", f"benchmarks.{module}", *arguments]
    process = subprocess.Popen(command, cwd=performance_tables.ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = ""
    for line in process.stdout:
        if not line.startswith("{"):
            print(line, end="", flush=True)
    if process.wait():
        raise SystemExit(f"{' '.join(command)} ended with exit code {process.returncode}; its record is unchanged.")
    threads = int(json.loads(line)["hardware"].rpartition(", ")[2].split()[0])
    hardware = f"{processor_name().split()[-1].lower()}-{threads}-thread{'s' * (threads > 1)}"
    path = performance_tables.RESULTS / f"{name}__{hardware}__{time.strftime('%Y-%m')}.json"
    for previous in performance_tables.RESULTS.glob(f"{name}__*.json"):
        previous.unlink()
    path.write_text(line)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"records to make, all if none is given: {', '.join(RUNS)}")
    names = parser.parse_args().names or list(RUNS)
    if unknown := set(names) - set(RUNS):
        parser.error(f"there is no record {', '.join(sorted(unknown))}; there are {', '.join(RUNS)}")
    for name in names:
        began = time.perf_counter()
        path = make_record(name)
        print(f"{path.name}: {time.perf_counter() - began:.0f} seconds\n", flush=True)
    performance_tables.fill_documents()


if __name__ == "__main__":
    main()
