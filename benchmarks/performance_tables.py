"""Which tables do the records of speed give?

    python -m benchmarks.performance_tables    # writes them into docs/performance.md and README.md

``python -m benchmarks.speed`` makes the records. A test checks that the documents have their tables.
"""

import argparse
import json
import re
from pathlib import Path
from typing import Any

from benchmarks.clusterer_tables import table

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
DOCUMENT, README = ROOT / "docs/performance.md", ROOT / "README.md"
MARKED = re.compile(r"(<!-- speed ([\w-]+) -->\n\n).*?(?=\n\n<!-- end -->)", re.DOTALL)
LINK = re.compile(r"results/(pooling(?:_\w+?)?|packed|network)__[\w-]+\.json")
OTHERS = ("textbook", "careful", "careful, compiled")
OURS = {"eager": "ours", "compiled": "ours, compiled"}
Row = dict[str, Any]


def find_record(name: str) -> Path | None:
    """Return the record of a benchmark, or None if there is none."""
    return next(RESULTS.glob(f"{name}__*.json"), None)


def read_record(name: str) -> dict[str, Any]:
    path = find_record(name)
    if path is None:
        raise FileNotFoundError(f"results/ must have a record {name}__*.json; make it by python -m benchmarks.speed.")
    return json.loads(path.read_text())


def size(value: float) -> str:
    return f"{value:,}".replace(",", " ")


def sizes_of(row: Row) -> str:
    return ", ".join(map(size, row["sizes"]))


def milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.3g}" if seconds < 0.1 else size(round(1e3 * seconds))


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def joined(texts: list[str]) -> str:
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


def hardware(record: dict[str, Any]) -> str:
    limits = record["limits"]
    return (
        f"{record['hardware'].replace(',', ' with')}, {limits['flops'] / 1e9:.0f} GFLOP/s in large matrix products, "
        f"{limits['bytes_per_second'] / 1e9:.0f} GB/s in reading memory"
    )


def machines() -> str:
    """Return the machine of each record."""
    names = {"pooling": "Pooling", "packed": "Packed sets", "network": "A whole network"}
    return "\n".join(f"- {title}: {hardware(read_record(name))}." for name, title in names.items())


def pooling() -> str:
    rows = [row for row in read_record("pooling")["rows"] if row["kind"] != "memory"]
    head = ["B, N, D, H, K", "ours, ms", "compiled, ms", "careful, ms", "careful, compiled, ms", "textbook, ms"]
    head += ["limit, ms", "ratio", "ratio, compiled", "goal"]
    columns = ("ours", "ours, compiled", "careful", "careful, compiled", "textbook")
    texts = list[str]()
    for kind, title in (("forward", "Forward"), ("forward+backward", "Forward and backward")):
        cells = [
            [
                sizes_of(row), *(milliseconds(row[name]) for name in columns),
                "" if row["limit"] is None else milliseconds(row["limit"]),
                f"{row['eager']:.2f}", f"{row['compiled']:.2f}", f"{row['goal']:g}",
            ]
            for row in rows if row["kind"] == kind
        ]  # fmt: skip
        texts += [f"{title}:", table(head, cells)]
    return "\n\n".join([*texts, below_goals(rows), compiled_cost(rows)])


def below_goals(rows: list[Row]) -> str:
    """Return which ratios are below their goals."""
    missed = [
        f"- {sizes_of(row)}, {row['kind'].replace('+', ' and ')}: "
        + joined([f"{row[way]:.2f} {way}" for way in OURS if row[way] < row["goal"]])
        + f"; the goal is {row['goal']:g}."
        for row in rows
        if min(row[way] for way in OURS) < row["goal"]
    ]
    if not missed:
        return "All ratios reach their goals."
    return "\n".join(["Below the goal; the other ratios reach theirs:", "", *missed])


def compiled_cost(rows: list[Row]) -> str:
    worst = max(rows, key=lambda row: row["ours, compiled"] / row["ours"])
    over = worst["ours, compiled"] / worst["ours"] - 1
    return f"Compiled code takes at most {percent(max(over, 0))} longer than eager code."


def memory() -> str:
    rows = {row["form"]: row for row in read_record("pooling")["rows"] if row["kind"] == "memory"}
    names = [*OTHERS, *OURS.values()]
    return table(names, [[f"{rows[name]['times_input']:.2f}" for name in names]])


def orders() -> str:
    rows = read_record("pooling_orders")["rows"]
    worst = max(rows, key=lambda row: row["over"])
    near, steps, templates = sum(row["over"] <= 0.1 for row in rows), worst["steps"], worst["templates"]
    return (
        f"On a grid of {len(rows)} sizes, the chosen order is the fastest, or within 10 % of it, {near} times. At "
        f"worst it takes {percent(worst['over'])} longer, for B, N, D, H = {sizes_of(worst)}, K = {templates} and "
        f"{steps} step{'s' * (steps > 1)}."
    )


def packed() -> str:
    record = read_record("packed")
    times = {row["name"]: row for row in record["rows"] if row.get("steps") == 1}
    peaks = {row["name"]: row["peak_bytes"] for row in record["rows"] if row.get("kind") == "memory"}
    titles = {
        "ours, packed": "ours, packed",
        "ours, packed, compiled": "ours, packed, compiled",
        "ours, padded": "ours, padded",
        "textbook, padded": "textbook form, padded",
        "torch-geometric": "torch-geometric, `SetTransformerAggregation`",
        "our encoder, packed": "our encoder (AE32), packed",
        "our encoder, packed, compiled": "our encoder (AE32), packed, compiled",
        "textbook encoder, padded": "textbook encoder, padded",
        "our network, packed": "our network (AE32, AE32, PB3, SA), packed",
        "our network, packed, compiled": "our network, packed, compiled",
    }
    cells = [
        [title, milliseconds(times[name]["forward"]), milliseconds(times[name]["forward+backward"]),
         size(round(peaks[name] / 2**20))]
        for name, title in titles.items() if name in times
    ]  # fmt: skip
    limit = milliseconds(times["ours, packed"]["limit"])
    head = ["", "forward, ms", "forward and backward, ms", "peak memory, MB"]
    return f"{table(head, cells)}\n\nThe limit of the forward pass of a pool is {limit} ms."


def network() -> str:
    rows = read_record("network")["rows"]
    columns = ("ours", "ours, compiled", "ours, bfloat16", *OTHERS[1:], "textbook")
    head = ["input features", *(f"{name}, ms" for name in columns), "ratio", "ratio, compiled"]
    cells = [
        [row["dim_in"], *(milliseconds(row[name]) for name in columns), f"{row['eager']:.2f}", f"{row['compiled']:.2f}"]
        for row in rows
    ]
    lowest = min(row[way] for row in rows for way in OURS)
    reached = "is reached" if lowest >= 1.8 else "is not reached"
    return f"{table(head, cells)}\n\nThe goal of 1.8 {reached}. {compiled_cost(rows)}"


def bfloat16() -> str:
    rows = read_record("pooling_bfloat16")["rows"]
    head = ["B, N, D, H, K", "pass", "float32, ms", "bfloat16, ms", "ratio", "error"]
    cells = [
        [sizes_of(row), row["kind"].replace("+", " and "), milliseconds(row["float32"]), milliseconds(row["bfloat16"]),
         f"{row['ratio']:.2f}", f"{100 * row['error']:.1f} %"]
        for row in rows
    ]  # fmt: skip
    steps = [row["ours"] / row["ours, bfloat16"] for row in read_record("network")["rows"]]
    ratios = joined([f"{ratio:.2f}" for ratio in steps])
    return (
        f"{table(head, cells)}\n\nThe error is the largest one of the result, relative to the largest value. A "
        f"training step of the network above is {ratios} times as fast as in float32."
    )


def native() -> str:
    """Return the table of large sets with torch's kernel and with that in C."""
    head = ["B, N, D, H, K", "pass", "torch, ms", "C, ms", "ratio", "by default"]
    cells = [
        [sizes_of(row), row["kind"].replace("+", " and "), milliseconds(row["torch"]), milliseconds(row["native"]),
         f"{row['ratio']:.2f}", "C" if row["default"] else "torch"]
        for row in read_record("pooling_native")["rows"]
    ]  # fmt: skip
    return table(head, cells)


SECTIONS = {build.__name__: build for build in (machines, pooling, memory, orders, packed, network, bfloat16, native)}


def link_of(match: re.Match[str]) -> str:
    path = find_record(match[1])
    return match[0] if path is None else f"results/{path.name}"


def fill_document(text: str) -> str:
    """Return the page about performance with the tables of the records."""
    filled = MARKED.sub(lambda match: match[1] + SECTIONS[match[2]](), text)
    return LINK.sub(link_of, filled)


def fill_readme(text: str) -> str:
    """Return the README with the times and ratios of the records."""
    rows = [row for row in read_record("pooling")["rows"] if row["kind"] != "memory"]
    large = next(row for row in rows if row["sizes"][1] == 1_000_000 and row["kind"] == "forward+backward")
    best = min(large["careful"], large["careful, compiled"])
    times = {row["name"]: row["forward+backward"] for row in read_record("packed")["rows"] if row.get("steps") == 1}
    lowest, highest = (
        choose(((row[way], row) for row in rows for way in OURS), key=lambda pair: pair[0]) for choose in (min, max)
    )

    def described(pair: tuple[float, Row]) -> str:
        sets, count, *_ = pair[1]["sizes"]
        what = f"one set of {size(count)}" if sets == 1 else f"{sets} sets of {size(count)}"
        return f"{pair[0]:.1f} ({what})"

    replacements = {
        r"(?<=forward and backward, seconds \(5\) \| )[^|]*\|[^|]*": f"**{large['ours']:.2f}** | {best:.1f} ",
        r"(?<=elements, milliseconds \(6\) \| )[^|]*\|[^|]*": (
            f"**{1e3 * times['ours, packed']:.0f}** | {1e3 * times['textbook, padded']:.0f} "
        ),
        r"(?<=eager or compiled, is from )[^.]*\.\d \([^)]*\) to [^)]*\)": (
            f"{described(lowest)} to {described(highest)}"
        ),
    }
    for pattern, replacement in replacements.items():
        text, count = re.subn(pattern, lambda _, new=replacement: new, text)
        if count != 1:
            raise ValueError(f"README.md must have one place like {pattern!r}; got {count}.")
    return LINK.sub(link_of, text)


def fill_documents() -> None:
    DOCUMENT.write_text(fill_document(DOCUMENT.read_text()))
    README.write_text(fill_readme(README.read_text()))


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    fill_documents()
