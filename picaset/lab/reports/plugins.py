"""Tables and figures of experiments that are defined outside the package: everything that their results have."""

from collections.abc import Sequence
from pathlib import Path

from picaset.lab.reports.curves import draw_learning_curves
from picaset.lab.reports.page import Figures, Section
from picaset.lab.reports.records import OnSkip, Record, mean_minutes, profiles_of, reason_of, runs_named
from picaset.lab.reports.table import Cell, Table, format_mean, highest_mean, row_heading, score_cell

OTHERS = "others"
"""Key of these tables in a written report."""
COMMON = {"name", "profile", "seed", "steps", "parameters", "seconds", "best_score"}
"""Entries of a result that have a column of their own, or none."""


def plugin_sections(
    records: Sequence[Record], folder: Path, *, several_profiles: bool, on_skip: OnSkip
) -> list[Section]:
    """Return a section for each task and profile that is not one of the package, with figures in ``folder``."""
    sections = list[Section]()
    for kind in sorted({record.experiment.kind for record in records if ":" in record.experiment.kind}):
        for profile in profiles_of(records):
            runs = [r for r in records if (r.experiment.kind, r.experiment.profile) == (kind, profile)]
            if not runs:
                continue
            rows = {name: runs_named(runs, name) for name in sorted({run.experiment.name for run in runs})}
            module, _, name = kind.partition(":")
            title = name + f" (profile {profile})" * several_profiles
            table = build_table(title, rows)
            anchor = f"{OTHERS}-{len(sections)}"
            try:
                figures = draw(rows, folder, anchor)
            except (ValueError, LookupError, TypeError) as error:
                on_skip(f"skipped the figures of {title}: {reason_of(error, folder)}")
                figures = {}
            sections.append(Section(anchor, title, f"A task defined in {module}.", table.winners(), [table], figures))
    return sections


def build_table(title: str, rows: dict[str, list[Record]]) -> Table:
    """Return a row for each experiment: the best validation score, and every number of the result."""
    runs = [run for row in rows.values() for run in row]
    numbers = sorted(
        {key for run in runs for key, value in run.result.items() if key not in COMMON and is_number(value)}
    )
    scores = {name: [run.result["best_score"] for run in row] for name, row in rows.items()}
    highest = highest_mean(values for values in scores.values() if all(map(is_number, values)))
    cells = list[list[Cell]]()
    for name, row in rows.items():
        measured = all(map(is_number, scores[name]))
        cells.append([
            *row_heading(name, row),
            Cell(f"{mean_minutes(row):.1f}"),
            score_cell(scores[name], highest=highest) if measured else Cell(""),
            *(number_cell(row, key) for key in numbers),
        ])  # fmt: skip
    columns = ["experiment", "parameters", "seeds", "minutes", "best validation score", *numbers]
    data = " or ".join(sorted({run.environment["data"] for run in runs}))
    return Table(title, columns, cells, [f"Data: {data}. The highest validation score is marked."])


def number_cell(runs: Sequence[Record], key: str) -> Cell:
    values = [float(run.result[key]) for run in runs if is_number(run.result.get(key))]
    return Cell(format_mean(values) if values else "")


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def draw(rows: dict[str, list[Record]], folder: Path, name: str) -> Figures:
    """Draw the validation score of the first seed of each experiment against the training step."""
    if not any("score" in entry for row in rows.values() for entry in row[0].metrics):
        return {}
    paths = draw_learning_curves(rows, folder, name, metric="score", label="validation score")
    return {"Validation score during training, first seed of each experiment.": paths}
