"""One self-contained HTML page with tables and figures; it loads nothing from anywhere else."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from picaset.extras import require
from picaset.files import atomic_write, create_folder
from picaset.lab.reports.records import Record
from picaset.lab.reports.table import Table
from picaset.terminal import printable

Figures = dict[str, list[Path]]
"""The SVG and the PNG file of each figure, by its caption."""


@dataclass(frozen=True)
class Reporter:
    """Builds the tables and figures of one task from its runs."""

    table: str
    """Table of the paper, as it is named on the command line: ``table2`` to ``table5``."""
    title: str
    text: str
    """Description of the task, in a sentence or two."""
    result: Any
    """Schema of the part of a run's result that tables and figures use."""
    build_tables: Callable[[Sequence[Record], Sequence[Path]], list[Table]]
    """Builds the tables from the runs of one profile and the folders that they were read from."""
    draw_figures: Callable[[Sequence[Record], Path], Figures]
    """Draws the figures of the runs of one profile into a folder."""


@dataclass(frozen=True)
class Section:
    """One task on the page, in one profile."""

    anchor: str
    title: str
    text: str
    summary: str
    tables: Sequence[Table]
    figures: Figures = field(default_factory=dict[str, list[Path]])


def write_page(path: Path, *, origin: str, sections: Sequence[Section], records: Sequence[Record]) -> None:
    """Write the page atomically.

    Args:
        path: File to write.
        origin: Sentence that says which runs are shown.
        sections: Tables and figures, in order.
        records: Runs that are listed at the end.
    """
    jinja2: Any = require("jinja2", extra="experiments", purpose="the report page")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, finalize=without_control)
    template = environment.from_string(Path(__file__).with_name("page.html.jinja").read_text(encoding="utf-8"))
    text = template.render(
        title="picaset: results of the PICASO experiments",
        origin=origin,
        minutes=sum(record.result["seconds"] for record in records) / 60,
        sections=sections,
        records=sorted(records, key=lambda record: record.key),
        read_svg=read_svg,
    )
    create_folder(path.parent)
    with atomic_write(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")


def without_control(value: Any) -> Any:
    """Return a value of the page with control characters written as escapes; markup, such as a figure, is unchanged."""
    return printable(value) if type(value) is str else value


def read_svg(paths: Sequence[Path]) -> Any:
    """Return the SVG element of a figure, to be embedded in the page."""
    from markupsafe import Markup

    text = paths[0].read_text(encoding="utf-8")
    return Markup(text[text.index("<svg") :])
