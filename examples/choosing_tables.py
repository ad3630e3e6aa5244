"""Write the tables of docs/choosing.md from the records in results/.

    python examples/choosing_tables.py

Every table stands between two comments that name it. The test compares the document with what this writes.
"""

import argparse
import json
import re
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
DOCUMENT = ROOT / "docs/choosing.md"


def rows_of(benchmark: str) -> list[dict[str, Any]]:
    (path,) = (ROOT / "results").glob(f"{benchmark}__*.json")
    return json.loads(path.read_text())["rows"]


def results_of(run: str) -> list[dict[str, Any]]:
    """Return the results of all seeds of a run, of the profile quick."""
    paths = sorted((ROOT / "results/runs").glob(f"{run}-quick-seed?/result.json"))
    assert paths, f"there is no record of {run}"
    return [json.loads(path.read_text()) for path in paths]


def mean(values: Sequence[float], digits: int = 3) -> str:
    text = f"{statistics.fmean(values):.{digits}f}"
    return f"{text} ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else text


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def pools() -> str:
    records = rows_of("pools")
    questions = list(dict.fromkeys(record["question"] for record in records))
    sizes = sorted({record["sets"] for record in records})
    value = {(record["row"], record["sets"], record["question"]): record["auroc"] for record in records}
    best = {
        key: max(statistics.fmean(values) for (_, *column), values in value.items() if tuple(column) == key)
        for key in {column for _, *parts in value for column in [tuple(parts)]}
    }

    def cell(row: str, size: int, question: str) -> str:
        values = value[row, size, question]
        bold = "**" * (statistics.fmean(values) == best[size, question])
        return f"{bold}{mean(values)}{bold}"

    columns = ["pool", *(f"{question}, {size} sets" for question in questions for size in sizes)]
    names = list(dict.fromkeys(record["row"] for record in records))
    return table(columns, [[name, *(cell(name, size, q) for q in questions for size in sizes)] for name in names])


def steps() -> str:
    def accuracy(name: str, split: str) -> str:
        return mean([100 * result["accuracy"]["novel"] for result in results_of(f"viewpoints-{split}-{name}")], 1)

    def likelihood(name: str, shift: int) -> str:
        moves = [result["moves"] for result in results_of(f"clustering-{name}")]
        return mean([move["log_likelihood"]["0"] for of_run in moves for move in of_run
                     if (move["shift"], move["scale"], move["degrees"]) == (shift, 1.0, 0.0)])  # fmt: skip

    def faces(name: str) -> str:
        return mean([result["test"]["auroc"] for result in results_of(f"odd-one-out-celeba-{name}")])

    pictures = {
        "mean": "deepset-mean",
        "maximum": "deepset-max",
        "one step of attention": "set-transformer",
        "PICASO": "pb3",
    }
    points = {
        "mean": "deepset-mean",
        "maximum": "deepset-max",
        "one step of attention": "set-transformer",
        "PICASO": "ae32-pb-sa",
    }
    odd = {"one step of attention": "sa-pma", "PICASO": "sa-pb", "generalized PICASO": "sa-gpb"}
    rows = [
        [
            name,
            likelihood(points[name], 0) if name in points else "",
            likelihood(points[name], -12) if name in points else "",
            accuracy(pictures[name], "azimuth") if name in pictures else "",
            accuracy(pictures[name], "elevation") if name in pictures else "",
            faces(odd[name]) if name in odd else "",
        ]
        for name in (*pictures, "generalized PICASO")
    ]
    return table(
        [
            "pool", "clustering: log-likelihood", "the same, shifted", "novel azimuth: accuracy in %",
            "novel elevation: accuracy in %", "odd face: AUROC",
        ],
        rows,
    )  # fmt: skip


def blocks() -> str:
    names = {
        "as it is": "ae32-pb-sa",
        "with layer norm": "ablation-norm",
        "without residual": "ablation-no-residual",
        "without feed-forward": "ablation-no-feed-forward",
        "separate weights for each step": "ablation-separate-weights",
        "inside Canonicalize": "ae32-pb-sa-canonical",
    }
    rows = []
    for label, name in names.items():
        cells = [label]
        for shift in (0, 12, -12):
            moves = [result["moves"] for result in results_of(f"clustering-{name}")]
            cells.append(mean([move["log_likelihood"]["0"] for of_run in moves for move in of_run
                               if (move["shift"], move["scale"], move["degrees"]) == (shift, 1.0, 0.0)]))  # fmt: skip
        rows.append(cells)
    return table(["network", "as in training", "shifted up", "shifted down"], rows)


def clustering() -> str:
    records = {row["method"]: row for row in rows_of("clusterer") if row["table"] == "time"}
    names = {
        "AmortizedMixture, also with proposals of the network": "ours",
        "AmortizedMixture, sixteen starts by k-means++": "k-means++ alone, 16 starts",
        "scikit-learn, one start": "scikit-learn, 1 start",
        "scikit-learn, ten starts": "scikit-learn, 10 starts",
    }
    rows = [
        [label, *(f"{records[name][key]:.{digits}f}" for key, digits in KEYS.items())] for label, name in names.items()
    ]
    columns = ["method", "log-likelihood", "ms per set, many sets", "ms, one set alone"]
    return f"{table(columns, rows)}\n\nMeasured on: {hardware_of('clusterer')}."


def hardware_of(benchmark: str) -> str:
    (path,) = (ROOT / "results").glob(f"{benchmark}__*.json")
    return json.loads(path.read_text())["hardware"].replace(" 1 threads", " one thread")


KEYS = {"log_likelihood": 4, "milliseconds": 1, "milliseconds_alone": 1}


def odd() -> str:
    records = {(row["kind"], row["name"], row["set_size"]): row["top1"] for row in rows_of("odd_one_out")}
    names = (
        "SetAnomalyDetector",
        "Mahalanobis (MCD) within the set",
        "local outlier factor within the set",
        "distance to the mean of the set",
    )
    cells = [(kind, size) for kind in ("around points", "along lines") for size in (4, 8, 48)]
    columns = ["method", *(f"{kind}, sets of {size}" for kind, size in cells)]
    return table(columns, [[name, *(f"{records[kind, name, size]:.2f}" for kind, size in cells)] for name in names])


def packed() -> str:
    records = {row["name"]: row for row in rows_of("packed") if row.get("steps") == 1}
    names = {
        "a SetBatch": "ours, packed",
        "padded, picaset": "ours, padded",
        "padded, textbook form": "textbook, padded",
        "torch-geometric": "torch-geometric",
    }
    rows = [
        [label, *(f"{1e3 * records[name][key]:.0f}" for key in ("forward", "forward+backward"))]
        for label, name in names.items()
    ]
    columns = ["attention pool", "forward, ms", "forward and backward, ms"]
    return f"{table(columns, rows)}\n\nMeasured on: {hardware_of('packed')}."


TABLES: dict[str, Callable[[], str]] = {
    build.__name__: build for build in (pools, steps, blocks, clustering, odd, packed)
}


def with_tables(text: str) -> str:
    """Return the document with the content between each pair of comments replaced by the table of that name."""
    for name, build in TABLES.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        assert len(pattern.findall(text)) == 1, f"there must be one table {name}"
        text = pattern.sub(lambda match, build=build: f"{match[1]}\n{build()}\n\n{match[2]}", text)
    return text


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    DOCUMENT.write_text(with_tables(DOCUMENT.read_text()))
