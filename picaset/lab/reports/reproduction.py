"""From runs to a report: choose the runs, build every table and figure that they allow, and write the page.

Runs of different profiles differ in budget and data, so each profile has tables and figures of its own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from picaset.figures import draw_learning_curves
from picaset.files import atomic_write, read_value
from picaset.lab.reports.clustering import CLUSTERING
from picaset.lab.reports.odd_one_out import ODD_ONE_OUT
from picaset.lab.reports.page import (
    Cell,
    Figures,
    Reporter,
    Section,
    Table,
    escape_markdown,
    format_mean,
    highest_mean,
    row_heading,
    score_cell,
    write_page,
)
from picaset.lab.reports.records import (
    OnSkip,
    Record,
    alternatives,
    committed_records,
    find_records,
    mean_minutes,
    profiles_of,
    reason_of,
    runs_named,
)
from picaset.lab.reports.scenes import SCENES
from picaset.lab.reports.study import (
    claims_table,
    count_verdicts,
    draw_cascade_costs,
    draw_gains,
    read_step_costs,
    study_tables,
)
from picaset.lab.reports.viewpoints import VIEWPOINTS

REPORTERS: dict[str, Reporter] = {
    "clustering": CLUSTERING,
    "viewpoints": VIEWPOINTS,
    "odd-one-out": ODD_ONE_OUT,
    "scenes": SCENES,
}
"""By task, in the order of the paper's tables."""

OTHERS = "others"
"""Key of these tables in a written report."""
COMMON = {"name", "profile", "seed", "steps", "parameters", "seconds", "best_score"}
"""Entries of a result that have a column of their own, or none."""

DAMAGED = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError)
"""Errors that a result with values of the right types, and the wrong number or magnitude, causes."""


@dataclass(frozen=True)
class WrittenReport:
    """A report on disk."""

    page: Path
    tables: dict[str, list[Table]]
    """Tables by the table of the paper that they belong to; those of other packages under ``OTHERS``."""
    figures: Sequence[Path]
    """SVG files; each has a PNG beside it."""


def find_reportable(folders: Sequence[Path], *, on_skip: OnSkip = lambda line: None) -> list[Record]:
    """Read the finished runs in the folders; skip those that no table can be built from."""
    records = list[Record]()
    for record in find_records(folders, on_skip=on_skip):
        try:
            check_reportable(record)
            records.append(record)
        except DAMAGED as error:
            on_skip(f"skipped {record.path}: {reason_of(error, record.path)}")
    return records


def check_reportable(record: Record) -> None:
    """Raise one of the errors in ``DAMAGED`` if no table can be built from a run."""
    reporter = REPORTERS.get(record.experiment.kind)
    if reporter is not None:
        read_value(record.result, reporter.result, where="result.json", name="")
        reporter.build_tables([record], ())


def choose_records(
    runs: Path, *, committed: bool = False, profile: str | None = None, on_skip: OnSkip = lambda line: None
) -> list[Record]:
    """Read the finished runs to report: those in ``runs``, or the committed records if there are none.

    Args:
        runs: Folder of run directories.
        committed: Read the committed records instead.
        profile: Keep only the runs of this profile.
        on_skip: Receives a line for each run that is skipped.
    """
    folders = dict.fromkeys([committed_records()] if committed else [runs, committed_records()])
    for folder in folders:
        records = find_reportable([folder], on_skip=on_skip)
        if matches := [record for record in records if profile in (None, record.experiment.profile)]:
            return matches
        if folder is runs:
            for config in sorted(runs.glob("*/config.json")):
                run = config.parent
                if not (run / "result.json").exists():
                    on_skip(f"skipped {run}: it is not finished; continue it with picaset train --resume {run}")
    kind = "finished run" if profile is None else f"finished run of profile {profile}"
    raise ValueError(
        f"There is no {kind} in {' or '.join(map(str, folders))}; train one with: "
        f"picaset train clustering-ours --profile {profile if profile in ('quick', 'paper') else 'smoke'}"
    )


def write_report(
    records: Sequence[Record], folders: Sequence[Path], out: Path, *, origin: str, on_skip: OnSkip = lambda line: None
) -> WrittenReport:
    """Draw the figures and write ``index.html`` and ``tables.md``.

    Args:
        records: Runs to show, at least one.
        folders: Folders that may hold the scores of scikit-learn on the same data.
        out: Folder to write to.
        origin: Sentence that says which runs are shown.
        on_skip: Receives a line if the figures of a section cannot be drawn.
    """
    sections = build_claims(records, out / "figures")
    tables: dict[str, list[Table]] = {reporter.table: [] for reporter in REPORTERS.values()} | {OTHERS: []}
    several_profiles = len(profiles_of(records)) > 1
    for number, (reporter, runs) in enumerate(runs_by_reporter(records)):
        section = build_section(
            reporter, runs, folders, anchor=f"{reporter.table}-{number}", several_profiles=several_profiles
        )
        folder = out / "figures"
        if several_profiles:
            folder /= f"profile-{runs[0].experiment.profile}"
        try:
            figures: Figures = reporter.draw_figures(runs, folder) if section.tables else {}
        except DAMAGED as error:
            on_skip(f"skipped the figures of {section.title}: {reason_of(error, out)}")
            figures = {}
        sections.append(replace(section, figures=figures))
        tables[reporter.table] += section.tables
    page = out / "index.html"
    write_page(page, origin=origin, sections=sections, records=records)
    with atomic_write(out / "tables.md") as unfinished:
        unfinished.write_text(
            tables_to_markdown([table for section in sections for table in section.tables]), encoding="utf-8"
        )
    return WrittenReport(page, tables, [paths[0] for section in sections for paths in section.figures.values()])


def runs_by_reporter(records: Sequence[Record]) -> Iterator[tuple[Reporter, list[Record]]]:
    """Yield the runs of each task in each profile: the tasks of the package, then those of other packages."""
    plugins = sorted({record.experiment.kind for record in records if ":" in record.experiment.kind})
    reporters = REPORTERS | {kind: plugin_reporter(kind, f"others-{n}") for n, kind in enumerate(plugins)}
    for kind, reporter in reporters.items():
        for profile in profiles_of(records):
            if runs := [r for r in records if (r.experiment.kind, r.experiment.profile) == (kind, profile)]:
                yield reporter, runs


def build_claims(records: Sequence[Record], folder: Path) -> list[Section]:
    """Build the section of the paper's claims, if any of them has runs."""
    table = claims_table(records)
    if table is None:
        return []
    text = (
        "What the paper claims, what these runs measured, and a verdict by a rule that was fixed before the runs: see "
        "docs/reproduction.md. Below: what each pool adds to the same network, everything else equal."
    )
    figures = draw_gains(records, folder) | draw_cascade_costs(records, read_step_costs(), folder)
    return [Section("claims", "The claims of the paper", text, count_verdicts(table), [table], figures)]


def build_section(
    reporter: Reporter, runs: Sequence[Record], folders: Sequence[Path], *, anchor: str = "", several_profiles: bool
) -> Section:
    """Build a section without its figures; its titles name the profile if the report has several."""
    profile = runs[0].experiment.profile
    suffix = f" (profile {profile})" * several_profiles
    tables = [
        replace(table, title=table.title + suffix)
        for table in (*reporter.build_tables(runs, folders), *study_tables(runs, runs[0].experiment.kind))
    ]
    if not tables:
        names = ", ".join(sorted({record.experiment.name for record in runs}))
        summary = f"no table of the paper has a row for {names}."
    elif profile.startswith("smoke"):  # also smoke-7-steps
        summary = "a few training steps each, to check that everything runs; the scores do not rank the methods."
    else:
        summary = tables[0].winners()
    return Section(anchor, reporter.title + suffix, reporter.text, summary, tables)


def plugin_reporter(kind: str, figure_name: str) -> Reporter:
    """Return the reporter of a task that another package defines, ``module:class``."""
    module, _, name = kind.partition(":")
    return Reporter(
        table=OTHERS,
        title=name,
        text=f"A task defined in {module}.",
        result=dict,
        build_tables=lambda runs, folders: [plugin_table(name, runs)],
        draw_figures=lambda runs, folder: draw_plugin_curves(runs, folder, figure_name),
    )


def rows_by_name(runs: Sequence[Record]) -> dict[str, list[Record]]:
    """Return the runs of each experiment, one for each seed."""
    return {name: runs_named(runs, name) for name in sorted({run.experiment.name for run in runs})}


def plugin_table(title: str, runs: Sequence[Record]) -> Table:
    """Return a row for each experiment: the best validation score, and every number of the result."""
    rows = rows_by_name(runs)
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
    data = alternatives(run.environment["data"] for run in runs)
    return Table(title, columns, cells, [f"Data: {data}. The highest validation score is marked."])


def number_cell(runs: Sequence[Record], key: str) -> Cell:
    values = [float(run.result[key]) for run in runs if is_number(run.result.get(key))]
    return Cell(format_mean(values) if values else "")


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def draw_plugin_curves(runs: Sequence[Record], folder: Path, name: str) -> Figures:
    """Draw the validation score of the first seed of each experiment against the training step."""
    curves = {label: row[0].curve("score") for label, row in rows_by_name(runs).items()}
    if not any(curves.values()):
        return {}
    paths = draw_learning_curves(curves, folder, name, label="validation score")
    return {"Validation score during training, first seed of each experiment.": paths}


def all_tables(records: Sequence[Record], folders: Sequence[Path]) -> list[Table]:
    """Build every table of the paper that the records allow: the claims, then one for each task and profile."""
    claims, several_profiles = claims_table(records), len(profiles_of(records)) > 1
    return [
        *([claims] if claims is not None else []),
        *(
            table
            for reporter, runs in runs_by_reporter(records)
            if reporter.table != OTHERS
            for table in build_section(reporter, runs, folders, several_profiles=several_profiles).tables
        ),
    ]


def tables_to_markdown(tables: Sequence[Table]) -> str:
    """Format the tables as a Markdown document."""
    parts = [
        f"## {escape_markdown(table.title)}\n\n{table.markdown()}\n"
        + "\n".join(map(escape_markdown, table.notes))
        + "\n"
        for table in tables
    ]
    return "# Tables\n\nMade from finished runs by `picaset report`.\n\n" + "\n".join(parts)
