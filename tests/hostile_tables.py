"""Mutated table and array files, and the readers that must accept or refuse each of them.

    python -m tests.hostile_tables 10000          # that many inputs for every reader
    python -m tests.hostile_tables 10000 npy      # for the readers of one format

A reader refuses by a ``ValueError`` or an ``OSError``. Anything else, or more than 5 seconds, is a failure; the input
is kept as ``hostile.FORMAT`` in the current folder.
"""

import gzip
import io
import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save

from picaset.large.sources import open_source
from picaset.tables.table import choose_columns, group_rows, open_large_table, read_table

MAX_SECONDS = 5.0
TOKENS = [
    b"", b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b'"', b"'", b",", b";", b"\n", b"\r", b"\t", b"[/x]", b"\x1b[31m", b"nan",
    b"inf", b"-1", b"1e999", b"9" * 30, b"True", b"None", b"(", b"[", b"{", b"}", b"PAR1", b"PK\x03\x04",
    b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\xff\xff\xff\xff", b"\x80\x00\x00\x00", b"2021-01-01", b"1,234",
    "é".encode(), "é".encode("cp1252"),
]  # fmt: skip


def seeds() -> dict[str, list[bytes]]:
    """Return valid files of every format."""
    import pyarrow
    from pyarrow import parquet

    random = np.random.default_rng(0)
    points = random.normal(size=(20, 3))
    rows = [
        f"{index},{x:.3f},{y:.4f},name {index % 3},2021-01-0{1 + index % 9}" for index, (x, y, _) in enumerate(points)
    ]
    text = ("id,x,y,who,when\n" + "\n".join(rows) + "\n").encode()
    records = [{"x": x, "y": y, "who": "a", "n": index} for index, (x, y, _) in enumerate(points.tolist())]
    return {
        "csv": [
            text,
            text.replace(b",", b";").replace(b".", b","),
            b"1 2\n3   4\n 5 6\n",
            b'x,"y, z"\n"1,234",NA\n\n7,8\n',
            text.decode().replace("name", "né").encode("cp1252"),
            text.decode().encode("utf-16"),
        ],
        "csv.gz": [gzip.compress(text)],
        "jsonl": ["\n".join(map(json.dumps, records)).encode(), json.dumps(records).encode()],
        "npy": [
            npy(points), npy(points.astype("f4")), npy(np.asfortranarray(points)), npy((100 * points).astype("i2")),
            npy(points.astype(">f8")), npy(points > 0), npy(points.astype("O")), npy(np.zeros((0, 3))),
            npy(points[:, 0]),
        ],
        "parquet": [
            parquet_bytes(parquet, pyarrow.table(columns), **options)
            for columns in (
                {"x": points[:, 0], "y": points[:, 1]},
                {"x": points[:, 0], "who": ["a", None] * 10, "n": list(range(20)), "ok": [True, None] * 10},
            )
            for options in ({}, {"compression": "none", "use_dictionary": False}, {"row_group_size": 7})
        ],
        "safetensors": [
            save({"points": torch.tensor(points)}),
            save({"a": torch.zeros(2, 3), "b": torch.zeros(3, dtype=torch.int64)}, metadata={"format": "pt"}),
        ],
    }  # fmt: skip


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def parquet_bytes(parquet, table, **options) -> bytes:
    file = io.BytesIO()
    parquet.write_table(table, file, **options)
    return file.getvalue()


def mutated(data: bytes, random: np.random.Generator) -> bytes:
    """Return a file with a few bytes changed, inserted, removed, repeated or cut off."""
    keeps_length = random.random() < 0.5  # so that offsets stay valid and the mutation reaches the data
    for _ in range(int(random.integers(1, 5))):
        start = int(random.integers(len(data) + 1))
        if random.random() < 0.3:  # headers and footers
            start = int(random.choice([min(start, 150), max(len(data) - start % 200, 0)]))
        stop = min(start + int(random.choice([0, 1, 2, 4, 8, 40])), len(data))
        token = TOKENS[int(random.integers(len(TOKENS)))]
        action = random.choice([0, 4]) if keeps_length else random.integers(6)
        if action == 0:
            data = data[:start] + random.bytes(stop - start) + data[stop:]
        elif action == 1:
            data = data[:start] + token + data[stop:]
        elif action == 2:
            data = data[:start] + data[start:stop] * int(random.choice([2, 3, 50])) + data[stop:]
        elif action == 3:
            data = data[:start] + data[stop:]
        elif action == 4 and start < len(data):
            data = data[:start] + bytes([data[start] ^ 1 << int(random.integers(8))]) + data[start + 1 :]
        elif random.random() < 0.2:
            data = data[:start]
    return data


def read_whole(path: Path) -> None:
    table = read_table(path)
    choose_columns(table)
    group_rows(table, set_column=list(table.columns)[-1], drop_missing=True, hint="")
    table.write_csv(path.with_name("copy.csv"), {"label": [0] * table.num_rows})


def read_in_chunks(path: Path) -> None:
    for chunk in open_large_table(path, drop_missing=True).chunks():
        chunk.sum()


def read_source(path: Path) -> None:
    for chunk in open_source(path).chunks(7):
        chunk.elements.sum()


READERS: dict[str, list[Callable[[Path], None]]] = {
    "csv": [read_whole, read_in_chunks],
    "csv.gz": [read_whole, read_in_chunks],
    "jsonl": [read_whole, read_in_chunks],
    "npy": [read_whole, read_in_chunks, read_source],
    "parquet": [read_whole, read_in_chunks, read_source],
    "safetensors": [read_source],
}


def run(format: str, num_inputs: int, *, seed: int = 0) -> Counter[str]:
    """Give mutated files to the readers of a format; return how many were accepted and refused, or raise."""
    random, outcomes = np.random.default_rng(seed), Counter[str]()
    files = seeds()[format]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"hostile.{format}"
        for _ in range(num_inputs):
            data = mutated(files[int(random.integers(len(files)))], random)
            reader = READERS[format][int(random.integers(len(READERS[format])))]
            path.write_bytes(data)
            start = time.perf_counter()
            try:
                reader(path)
                outcomes["accepted"] += 1
            except (ValueError, OSError):
                outcomes["refused"] += 1
            except BaseException:
                shutil.copy(path, path.name)
                raise
            seconds = time.perf_counter() - start
            if seconds > MAX_SECONDS:
                shutil.copy(path, path.name)
                raise TimeoutError(f"{reader.__name__} took {seconds:.1f} s for {path.name}.")
    return outcomes


if __name__ == "__main__":
    for name in sys.argv[2:] or READERS:
        start = time.perf_counter()
        outcomes = run(name, int(sys.argv[1]))
        print(f"{name:12} {dict(outcomes)} {time.perf_counter() - start:.0f} s", flush=True)
