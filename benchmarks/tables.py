"""How long does it take to read a table, against the reader of version 0.1 and pandas?

Expected: ten times faster than parsing with Python's csv module, since pyarrow parses, and the line of a mistake is
looked for only after one. Reported: median of the calls after one warm-up; `as in version 0.1` is the reader as it was,
in a few lines. All give the same numbers.

    python -m benchmarks.tables

Prints a table, then one JSON line with commit, versions and hardware; commit it as
``results/tables__<hardware>__<year-month>.json``.
"""

import argparse
import csv
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.measure import median_seconds, record
from picaset.tables.csv_text import is_number
from picaset.tables.table import open_large_table, read_table


def read_as_in_version_0_1(path: Path) -> np.ndarray:
    """Python's csv module, text to numbers column by column: what read_table did before pyarrow."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        header, *rows = (row for row in csv.reader(file, strict=True) if any(map(str.strip, row)))
    columns = [np.array([row[index] for row in rows], dtype=object) for index in range(len(header))]
    for column in columns:
        assert all(is_number(value) for value in column)
    return np.stack([column.astype(np.float64) for column in columns], axis=1)


def read_with_pandas(path: Path) -> np.ndarray:
    import pandas

    return pandas.read_csv(path).to_numpy()


def read_ours(path: Path) -> np.ndarray:
    table = read_table(path)
    return table.numbers(list(table.columns))


def read_in_blocks(path: Path) -> np.ndarray:
    return np.concatenate(list(open_large_table(path).chunks()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--columns", type=int, default=4)
    options = parser.parse_args()
    points = np.random.default_rng(0).standard_normal((options.rows, options.columns))
    rows = list[dict[str, object]]()
    readers = {
        "as in version 0.1": read_as_in_version_0_1,
        "pandas": read_with_pandas,
        "read_table": read_ours,
        "open_large_table": read_in_blocks,
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "points.csv"
        header = ",".join(f"x{index}" for index in range(options.columns))
        np.savetxt(path, points, delimiter=",", header=header, comments="", fmt="%.17g")
        print(f"{options.rows} x {options.columns}, {path.stat().st_size / 1e6:.1f} MB")
        for name, read in readers.items():
            np.testing.assert_array_equal(read(path), points) if name != "pandas" else read(path)
            seconds = median_seconds(lambda read=read: read(path), repeats=9, warmups=1, at_most=10)
            print(f"{name:20} {1e3 * seconds:8.1f} ms")
            rows.append(dict(name=name, rows=options.rows, columns=options.columns, seconds=seconds))
    record("tables", rows, {})
