"""Odd one out on the page: its tables and its figures."""

from collections.abc import Sequence
from pathlib import Path

from picaset.lab.reports.odd_faces import draw_odd_faces, shown_sets
from picaset.lab.reports.odd_one_out import Source, data_of, found_rows, rows_of, table_4, variants
from picaset.lab.reports.odd_one_out_figures import draw_by_size, draw_learning_curves
from picaset.lab.reports.page import Drawing, Section, drawing
from picaset.lab.reports.records import Record
from picaset.lab.reports.table import Table

SOURCES: tuple[Source, ...] = ("celeba", "drawn")


def odd_one_out_tables(runs: Sequence[Record], folders: Sequence[Path]) -> list[Table]:
    """Real faces first, the stand-in in tables of its own."""
    made = [table for source in SOURCES for table in (table_4(runs, source), variants(runs, source))]
    return [table for table in made if table is not None]


def odd_one_out_section(runs: Sequence[Record], folders: Sequence[Path], out: Path) -> Section:
    text = (
        "All images of a set but one share two attributes; that one has neither. A network reads the set and gives "
        "every image a score. AUROC and AUPR are over the images of all sets together, top 1 is how often the odd one "
        "has the highest score of its set."
    )
    return Section(
        anchor="odd-one-out",
        title="Odd one out",
        text=text,
        tables=odd_one_out_tables(runs, folders),
        figures=odd_one_out_figures(runs, out / "figures"),
    )


def odd_one_out_figures(runs: Sequence[Record], folder: Path) -> list[Drawing]:
    """Every figure that the runs allow; pictures of faces from the stand-in alone."""
    drawings = list[Drawing]()
    for source in SOURCES:
        found = found_rows(runs, source)
        if not found:
            continue
        data = data_of([record for some in found.values() for record in some])
        size = "Sets of other sizes than in training (grey line), means over seeds"
        drawings.append(drawing(draw_by_size(runs, source, folder)[0], f"{size}; {data}."))
        curves = "AUROC on sets of the validation part while training, one seed of each row"
        drawings.append(drawing(draw_learning_curves(runs, source, folder)[0], f"{curves}; {data}."))
    best = next((some for name in ("sa-gpb", "sa-pb", "sa-pma") if (some := rows_of(runs, "drawn", name))), None)
    if best is not None:
        paths = draw_odd_faces(shown_sets(best[0]), folder, "odd_one_out_faces")
        drawings.append(drawing(paths[0], faces_caption(best[0])))
    return drawings


def faces_caption(record: Record) -> str:
    kept = len(record.result["shown"]["odd"])
    return (
        f"Like Figures 1 and 5, on drawn faces: the first of {kept} test sets that were found and that were missed by "
        f"{record.experiment.name}. A set is a row, the odd one has a solid frame, a face that was wrongly taken for "
        "it a dashed one; below each is the probability that it is the odd one."
    )
