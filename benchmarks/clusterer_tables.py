"""Which tables does the record of benchmarks.clusterer give?

    python -m benchmarks.clusterer_tables    # writes them into docs/clustering.md, between the markers

A test checks that the document has the tables of the record.
"""

import json
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

ROOT = Path(__file__).parent.parent
RECORD = ROOT / "results/clusterer_shapes__epyc-1-thread__2026-11.json"
DOCUMENT = ROOT / "docs/clustering.md"
BEGIN, END = "<!-- clusterer {} -->", "<!-- end -->"
METHODS = ("ours", "scikit-learn, full", "scikit-learn, all types", "HDBSCAN", "BayesianGaussianMixture")
KINDS = ("round", "axis-aligned", "elongated", "overlapping", "unequal", "noisy")
DIMENSIONS = (1, 2, 5, 10, 30)
Row = dict[str, Any]
Column = dict[str, Row]
"""Rows of one kind of clusters in some dimensions, by method."""


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def quality_columns(parts: dict[str, list[Row]]) -> dict[tuple[str, int], Column]:
    """Return the measured columns in the order of the tables."""
    columns = dict[tuple[str, int], Column]()
    for kind in KINDS:
        for dim in DIMENSIONS:
            names = [f"{kind} {dim}, {part}" for part in ("ours", "others")]
            columns[kind, dim] = {row["method"]: row for name in names for row in parts.get(name, [])}
    return columns


def share_error(row: Row) -> float:
    return math.sqrt(row["right_number"] * (1 - row["right_number"]) / row["groups"])


def comparison(columns: dict[tuple[str, int], Column], key: str, error: Callable[[Row], float]) -> str:
    """Return where ours is below the best other method, clearly or within two standard errors of the difference."""
    clearly, slightly = list[str](), list[str]()
    for (kind, dim), column in columns.items():
        ours, best = column["ours"], max((column[name] for name in METHODS[1:]), key=lambda row: row[key])
        below = best[key] - ours[key]
        if round(below, 3) > 0:
            text = f"{kind} in {dim} ({ours[key]:.3f}, {best['method']} {best[key]:.3f})"
            (clearly if below > 2 * math.hypot(error(ours), error(best)) else slightly).append(text)
    return "\n".join(
        [
            f"- Below the best other method by more than two standard errors: {'; '.join(clearly) or 'nowhere'}.",
            f"- Below it by less: {'; '.join(slightly) or 'nowhere'}.",
        ]
    )


def faster(columns: dict[tuple[str, int], Column]) -> str:
    """Return which methods are faster than ours, and in how many columns."""
    counts = {
        name: sum(column[name]["milliseconds"] < column["ours"]["milliseconds"] for column in columns.values())
        for name in METHODS[1:]
    }
    texts = [f"{name} in {count} of {len(columns)} rows" for name, count in counts.items() if count]
    return f"- Faster than ours: {'; '.join(texts) or 'none'}."


def quality_tables(parts: dict[str, list[Row]]) -> str:
    columns = quality_columns(parts)
    complete = {case: column for case, column in columns.items() if all(name in column for name in METHODS)}
    measures: list[tuple[str, str, int, Callable[[Row], float] | None]] = [
        ("Adjusted Rand index (ARI), mean", "ari", 3, lambda row: row["ari_error"]),
        ("Share of groups with the right number of clusters", "right_number", 2, share_error),
        ("Milliseconds of processor time per group", "milliseconds", 1, None),
    ]
    texts = list[str]()
    for title, key, digits, error in measures:
        rows = [
            [kind, dim, *(f"{column[name][key]:.{digits}f}" if name in column else "" for name in METHODS)]
            for (kind, dim), column in columns.items()
            if column
        ]
        texts += [f"{title}:", table(["clusters", "columns", *METHODS], rows)]
        texts.append(faster(complete) if error is None else comparison(complete, key, error))
    missing = [f"{kind} in {dim}" for kind, dim in columns if (kind, dim) not in complete]
    if missing:
        texts.append(f"Not all methods are in the record yet: {', '.join(missing)}.")
    return "\n\n".join(texts)


def speed_table(parts: dict[str, list[Row]]) -> str:
    methods = ["ours, one call", "ours, one by one", "scikit-learn, full", "scikit-learn, all types"]
    rows = [row for part in ("speed 2", "speed 10") for row in parts.get(part, [])]
    times = {(row["dimensions"], row["groups"], row["method"]): f"{row['milliseconds']:.1f}" for row in rows}
    cases = sorted({case[:2] for case in times})
    missing = [part for part in ("speed 2", "speed 10") if part not in parts]
    text = table(
        ["columns", "groups", *methods],
        [[dim, groups, *(times.get((dim, groups, name), "") for name in methods)] for dim, groups in cases],
    )
    return f"{text}\n\nNot in the record yet: {', '.join(missing)}." if missing else text


def real_table(parts: dict[str, list[Row]]) -> str:
    names = ["ours", "scikit-learn, full", "scikit-learn, all types", "scikit-learn, full, standardized"]
    by_data = dict[str, dict[str, Row]]()
    for row in parts["tables"]:
        by_data.setdefault(row["data"], {})[row["method"]] = row
    measures: list[tuple[str, str, Callable[[list[float]], float], str]] = [
        ("ARI, mean", "aris", fmean, ".2f"), ("ARI, lowest", "aris", min, ".2f"),
        ("components, mean", "numbers", fmean, ".1f"),
    ]  # fmt: skip
    rows = [
        [data, title, *(f"{statistic(rows[name][key]):{form}}" for name in names)]
        for data, rows in by_data.items()
        for title, key, statistic, form in measures
    ]
    return table(["", "", *names], rows)


def optima_table(parts: dict[str, list[Row]]) -> str:
    methods = ["ours", "scikit-learn, 1 start", "scikit-learn, 20 random starts"]
    by_number = dict[int, dict[str, Row]]()
    for row in parts["optima"]:
        by_number.setdefault(row["number"], {})[row["method"]] = row
    rows = [
        [number, measure, *(f"{rows[name][key]:{form}}" for name in methods)]
        for number, rows in by_number.items()
        for measure, key, form in (("BIC", "bic", ".0f"), ("ARI", "ari", ".2f"))
    ]
    return table(["components", "", *methods], rows)


def starts_table(parts: dict[str, list[Row]]) -> str:
    rows = [
        [*row["method"].rsplit(", ", 1), f"{row['log_likelihood']:.3f}", f"{row['milliseconds']:.1f}"]
        for row in [*parts["starts"], *parts.get("starts, torchgmm", [])]
    ]
    return table(["initialization", "starts", "log-likelihood", "ms"], rows)


def build_tables() -> dict[str, str]:
    """Return the text between the markers of each name."""
    parts = json.loads(RECORD.read_text())["parts"]
    builders = {
        "quality": quality_tables, "speed": speed_table, "real": real_table, "optima": optima_table,
        "starts": starts_table,
    }  # fmt: skip
    return {name: build(parts) for name, build in builders.items()}


def insert_tables(text: str) -> str:
    """Return a document with the tables of the record between its markers."""
    for name, content in build_tables().items():
        before, marker, rest = text.partition(BEGIN.format(name))
        if not marker:
            raise ValueError(f"the document must have the marker {BEGIN.format(name)}.")
        text = f"{before}{marker}\n\n{content}\n\n{END}{rest.partition(END)[2]}"
    return text


if __name__ == "__main__":
    DOCUMENT.write_text(insert_tables(DOCUMENT.read_text()))
