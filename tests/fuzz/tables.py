"""Readers of tables and arrays, and the commands that take a table, with valid files to start from."""

import gzip
import io
import json
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from safetensors.torch import save

from picaset.estimators.classified_table import read_labelled_sets
from picaset.estimators.set_anomaly_detector import SetAnomalyDetector
from picaset.estimators.set_estimators import SetClassifier
from picaset.large.sources import open_source
from picaset.tables.table import choose_columns, group_rows, open_large_table, read_table
from tests.fuzz.mutations import Files
from tests.fuzz.runner import Target, choose_way, command

POINTS = np.random.default_rng(0).normal(size=(20, 3))
TEXT = "id,x,y,who,when\n" + "".join(
    f"{index},{x:.3f},{y:.4f},name {index % 3},2021-01-0{1 + index % 9}\n" for index, (x, y, _) in enumerate(POINTS)
)


def texts() -> list[Files]:
    records = [{"x": x, "y": y, "who": "a", "n": index} for index, (x, y, _) in enumerate(POINTS.tolist())]
    plain = {
        "csv": [
            TEXT.encode(),
            TEXT.replace(",", ";").replace(".", ",").encode(),
            b"1 2\n3   4\n 5 6\n",
            b'x,"y, z"\n"1,234",NA\n\n7,8\n',
            TEXT.replace("name", "né").encode("cp1252"),
            TEXT.encode("utf-16"),
        ],
        "csv.gz": [gzip.compress(TEXT.encode())],
        "jsonl": ["\n".join(map(json.dumps, records)).encode(), json.dumps(records).encode()],
    }
    return [{f"table.{suffix}": data} for suffix, contents in plain.items() for data in contents]


def arrays() -> list[Files]:
    kinds = [
        POINTS, POINTS.astype("f4"), np.asfortranarray(POINTS), (100 * POINTS).astype("i2"), POINTS.astype(">f8"),
        POINTS > 0, POINTS.astype("O"), np.zeros((0, 3)), POINTS[:, 0],
    ]  # fmt: skip
    return [{"table.npy": npy(array)} for array in kinds]


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def parquets() -> list[Files]:
    import pyarrow
    from pyarrow import parquet

    result = []
    for columns in (
        {"x": POINTS[:, 0], "y": POINTS[:, 1]},
        {"x": POINTS[:, 0], "who": ["a", None] * 10, "n": list(range(20)), "ok": [True, None] * 10},
    ):
        for options in ({}, {"compression": "none", "use_dictionary": False}, {"row_group_size": 7}):
            file = io.BytesIO()
            parquet.write_table(pyarrow.table(columns), file, **options)
            result.append({"table.parquet": file.getvalue()})
    return result


def tensors() -> list[Files]:
    contents = [
        save({"points": torch.tensor(POINTS)}),
        save({"a": torch.zeros(2, 3), "b": torch.zeros(3, dtype=torch.int64)}, metadata={"format": "pt"}),
    ]
    return [{"table.safetensors": content} for content in contents]


def table_in(folder: Path) -> Path:
    return next(folder.glob("table.*"), folder / "table.csv")


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


def use_table(folder: Path, random: Random) -> None:
    """Read a table whole or in chunks."""
    use_by_one_of([read_whole, read_in_chunks], folder, random)


def use_array(folder: Path, random: Random) -> None:
    """Read a table whole, in chunks, or as a source of ``stream``."""
    use_by_one_of([read_whole, read_in_chunks, read_source], folder, random)


def use_by_one_of(readers: list[Callable[[Path], None]], folder: Path, random: Random) -> None:
    reader = random.choice(readers)
    choose_way(WAYS[reader])
    reader(table_in(folder))


WAYS = {read_whole: "read_table", read_in_chunks: "open_large_table", read_source: "stream"}


def use_source(folder: Path, random: Random) -> None:
    read_source(table_in(folder))


def tables_of_sets() -> list[Files]:
    """Small tables of three sets; mutations of cells, columns and rows make hostile tables of them."""
    models()  # before time and writing are watched
    sets = [f"{name},{x:.2f},{y:.3f},{name == 'b'}" for name in "abc" for x, y, _ in POINTS[:8]]
    ids = [f"{index},{1000 + index},{row}" for index, row in enumerate(sets)]
    return [
        {"table.csv": ("set,x,y,label\n" + "\n".join(sets) + "\n").encode()},
        {"table.csv": ("index,id,set,x,y,label\n" + "\n".join(ids) + "\n").encode()},
        {"table.csv": ("x,y\n" + "\n".join(f"{x:.1f},{y:.1f}" for x, y, _ in POINTS) + "\n").encode()},
    ]


@cache
def models() -> Path:
    """A saved detector and a saved classifier of two columns."""
    folder = Path(tempfile.mkdtemp())
    sets = [POINTS[start : start + 8, :2] + start for start in (0, 1, 2, 3, 4, 5)]
    SetAnomalyDetector(method="mahalanobis", random_state=0).fit(sets).save(folder / "detector")
    options: dict[str, Any] = dict(method="network", dim=4, num_heads=1, max_iter=1, num_networks=1)
    SetClassifier(**options, early_stopping=False, random_state=0).fit(sets, list("ababab")).save(folder / "model")
    return folder


def use_command(folder: Path, random: Random) -> None:
    """Cluster a table, find its odd rows, classify its sets, or read it as ``classify`` does before it learns."""
    path, out = table_in(folder), folder / "out.csv"
    missing = random.choice([(), ("--drop-missing",)])
    columns = random.choice([(), (), ("--columns", "x", "y")])
    ways = ["cluster", "odd", "odd --detector", "classify --model", "classify, reading"]
    way = random.choice(ways if path.is_file() and b"set" in path.read_bytes() else ways[:1])
    choose_way(way)
    if way == "cluster":
        components = random.choice([("--components", 2), ("--components", 2), ("--components", 1, "--noise"), ()])
        sets = random.choice([(), ("--set", "set"), ("--in-chunks",)])
        command("cluster", path, *components, *sets, *missing, *columns, "--labels", out)
    elif way == "odd":
        method = random.choice(["mahalanobis", "density", "lof"])
        command("odd", path, "--set", "set", "--method", method, *missing, *columns, "--scores", out)
    elif way == "odd --detector":
        command("odd", path, "--set", "set", "--detector", models() / "detector", *missing, *columns)
    elif way == "classify --model":
        command("classify", path, "--set", "set", "--model", models() / "model", *missing, *columns, "--rows", out)
    else:  # learning takes longer than the time limit
        read_labelled_sets(
            read_table(path), set_column="set", target="label", columns=columns[1:], drop_missing=bool(missing)
        )


TABLES = [
    Target("CSV, all readers", texts, use_table),
    Target("NPY (three readers)", arrays, use_array),
    Target("Parquet (three readers)", parquets, use_array),
    Target("safetensors as a source", tensors, use_source),
    Target("tables through cluster, odd, classify", tables_of_sets, use_command),
]
