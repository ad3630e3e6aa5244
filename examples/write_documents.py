"""Fill the marked tables of README.md and docs/ from the committed records.

    python examples/write_documents.py            # rewrite what has changed
    python examples/write_documents.py --check    # change nothing; exit with 1 if something would change

A marked table stands between ``<!-- table NAME -->`` and ``<!-- end -->``.
"""

import argparse
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from picaset.lab.experiments.viewpoints import SPLITS
from picaset.lab.reports import clustering, viewpoints
from picaset.lab.reports.page import Cell, Table, count_seeds, format_mean, highest_mean, score_cell
from picaset.lab.reports.published import TABLE_3
from picaset.lab.reports.records import Record, find_records, runs_named
from picaset.lab.reports.study import claims_table
from picaset.lab.tasks.clustering import SHIFTS

ROOT = Path(__file__).parent.parent
MARKED = re.compile(r"(<!-- table ([\w-]+) -->\n).*?(?=<!-- end -->)", re.DOTALL)


def quick(records: Sequence[Record]) -> list[Record]:
    return [record for record in records if record.experiment.profile == "quick"]


def claims(records: Sequence[Record]) -> str:
    table = claims_table(records)
    assert table is not None
    return "\n".join([table.markdown(), *(f"{note}\n" for note in table.notes)])


def clustering_seeds(records: Sequence[Record]) -> str:
    """Rows of Table 2 that have several seeds."""
    rows = clustering.find_rows(quick(records), ("set-transformer", "ae32-pb", "ae32-pb-sa"))
    cells = [
        [
            Cell(clustering.row_label(name)),
            *(score_cell(clustering.likelihoods(runs, move=move)) for move in range(len(SHIFTS))),
        ]
        for name, runs in rows.items()
    ]
    return Table("", ["three seeds each", *clustering.SHIFT_COLUMNS], cells).markdown()


def toys(records: Sequence[Record]) -> str:
    """Novel viewpoints at small budgets, as published and here."""
    rows = viewpoints.find_rows(quick(records), "small-norb")
    cells = list[list[Cell]]()
    for name, row in rows.items():
        measured = [score_cell(viewpoints.accuracies(row[split], "novel"), digits=1) for split in SPLITS]
        published = [Cell(f"{value:.1f}") for value in TABLE_3.get(name, ())] or [Cell(""), Cell("")]
        cells.append([Cell(viewpoints.NAMES[name]), Cell(count_seeds(len(row["azimuth"]))), *measured, *published])
    columns = ["", "", "azimuth", "elevation", "azimuth, published", "elevation, published"]
    return Table("", columns, cells).markdown()


SCENES = {
    "dspn10-likelihood": "latent descent, 10 steps (after DSPN)",
    "dspn30-likelihood": "latent descent, 30 steps in testing",
    "idspn-likelihood": "implicit latent descent (after iDSPN)",
    "slot-attention-likelihood": "Slot Attention",
    "slot-attention-learned": "Slot Attention, learned slots",
    "set-transformer-likelihood": "Set Transformer",
    "pb3-likelihood": "PB3",
    "pb3-every-step": "PB3, every step trained",
    "pb3-waves": "PB3, positions as waves",
    "ours-likelihood": "ours (both)",
}


def scenes(records: Sequence[Record]) -> str:
    rows = {label: runs_named(quick(records), f"scenes-{name}") for name, label in SCENES.items()}
    values = {
        label: [[100 * run.result["average_precision"][key] for run in runs] for key in ("0.5", "inf")]
        for label, runs in rows.items()
    }
    highest = [highest_mean(columns[index] for columns in values.values()) for index in range(2)]
    cells = [
        [Cell(label), Cell(count_seeds(len(rows[label]))),
         *(Cell(format_mean(column, digits=1), best=sum(column) / len(column) >= highest[index])
           for index, column in enumerate(columns))]
        for label, columns in values.items()
    ]  # fmt: skip
    return Table("", ["", "", "within 0.5", "any distance"], cells).markdown()


TABLES: Mapping[str, Callable[[Sequence[Record]], str]] = {
    "claims": claims,
    "clustering-seeds": clustering_seeds,
    "toys": toys,
    "scenes": scenes,
}


def fill(text: str, records: Sequence[Record]) -> str:
    """Return a document with its marked tables made anew."""
    return MARKED.sub(lambda match: match[1] + TABLES[match[2]](records), text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 if something would change")
    check = parser.parse_args().check
    records = find_records([ROOT / "results/runs"])
    stale = list[Path]()
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        text = path.read_text()
        if (filled := fill(text, records)) != text:
            stale.append(path)
            if not check:
                path.write_text(filled)
    for path in stale:
        print(f"{'stale' if check else 'wrote'} {path.relative_to(ROOT)}")
    sys.exit(bool(stale) and check)


if __name__ == "__main__":
    main()
