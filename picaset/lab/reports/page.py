"""A report: its tables, its sections, and the self-contained HTML page that shows them.

Tables also print to a terminal and convert to Markdown. The page loads nothing from anywhere else.
"""

import html
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from picaset.extras import require
from picaset.files import atomic_write, create_folder
from picaset.lab.reports.records import Record
from picaset.terminal import printable


@dataclass(frozen=True)
class Cell:
    """One entry of a table: the measured value, and the published one if there is any."""

    measured: str
    published: str = ""
    best: bool = False


@dataclass(frozen=True)
class Table:
    """Rows of cells under column headings, with notes that explain them."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = field(default_factory=tuple)

    def print(self, console: Console) -> None:
        """Print as a grid, or row by row if the grid is wider than the console."""
        grid = RichTable(title=self.title, title_justify="left")
        for index, column in enumerate(self.columns):
            grid.add_column(column, justify="right" if index else "left")
        for row in self.rows:
            grid.add_row(*(styled(cell, before="\n") for cell in row))
        if console.measure(grid, options=console.options.update(max_width=10_000)).maximum > console.width:
            self.print_row_by_row(console)
        else:
            console.print(grid)
        for note in self.notes:
            console.print(Text(note, style="dim"))

    def print_row_by_row(self, console: Console) -> None:
        console.print(Text(self.title, style="italic"))
        for name, *cells in self.rows:
            entries = [
                Text.assemble(f"{column}: " if column else "", styled(cell, before=" (", after=")"))
                for column, cell in zip(self.columns[1:], cells, strict=True)
                if cell.measured
            ]
            line = Text.assemble((name.measured, "underline"), " ", Text("; ").join(entries))
            console.print(Padding(line, (0, 0, 0, 2)))

    def markdown(self) -> str:
        lines = [
            "| " + " | ".join(map(escape_markdown, self.columns)) + " |",
            "|" + "---|" * len(self.columns),
            *("| " + " | ".join(to_markdown(cell) for cell in row) + " |" for row in self.rows),
        ]
        return "\n".join(lines) + "\n"

    def winners(self) -> str:
        """Say which rows have the highest mean in how many columns; empty if fewer than two rows are compared.

        Example:
            >>> rows = [[Cell("a"), Cell("1", best=True), Cell("5")], [Cell("b"), Cell("0"), Cell("6", best=True)]]
            >>> Table("Title", ["name", "first", "second"], rows).winners()
            'Highest mean: a in 1 of 2 columns, b in 1.'
        """
        marked = [[column for column, cell in enumerate(row) if cell.best] for row in self.rows]
        compared = len({column for columns in marked for column in columns})
        if not compared or len(self.rows) < 2:
            return ""
        ranked = sorted(zip(self.rows, marked, strict=True), key=lambda pair: -len(pair[1]))
        counts = [f"{row[0].measured} in {len(columns)}" for row, columns in ranked if columns]
        counts[0] += f" of {compared} column{'s' * (compared > 1)}"
        return f"Highest mean: {', '.join(counts)}."


def styled(cell: Cell, *, before: str, after: str = "") -> Text:
    """Format a cell for the terminal; the published value stands between two texts."""
    measured = Text(cell.measured, style="bold" if cell.best else "")
    return Text.assemble(measured, (before + cell.published + after, "dim")) if cell.published else measured


def to_markdown(cell: Cell) -> str:
    measured = escape_markdown(cell.measured)
    text = f"**{measured}**" if cell.best else measured
    return f"{text}<br>{escape_markdown(cell.published)}" if cell.published else text


def escape_markdown(text: str) -> str:
    """Return a text as it is shown in Markdown: no HTML, no cell separator, no line break.

    Example:
        >>> escape_markdown("a|b <img src=x>")
        'a\\\\|b &lt;img src=x&gt;'
    """
    return html.escape(printable(" ".join(text.split("\n"))), quote=False).replace("|", "\\|")


def format_mean(values: Sequence[float], *, digits: int = 3) -> str:
    """Format the mean, with the standard deviation if there are several values.

    Example:
        >>> format_mean([-1.5, -1.6, -1.7]), format_mean([-1.5])
        ('-1.600 ± 0.100', '-1.500')
    """
    mean = f"{statistics.fmean(values):.{digits}f}"
    return f"{mean} ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else mean


def highest_mean(rows: Iterable[Sequence[float]]) -> float:
    """Return the highest mean over seeds among the rows of a column."""
    return max(map(statistics.fmean, rows))


def score_cell(
    values: Sequence[float],
    *,
    highest: float = math.inf,
    published: float | None = None,
    digits: int = 3,
    published_format: str = ".3f",
) -> Cell:
    """Make a cell of one value per seed; it is marked as best if its mean reaches ``highest``.

    Example:
        >>> score_cell([0.5], published=0.45)
        Cell(measured='0.500', published='paper 0.450 (+0.050)', best=False)
    """
    mean = statistics.fmean(values)
    paper = ""
    if published is not None:
        paper = f"paper {published:{published_format}} ({mean - published:+.{digits}f})"
    return Cell(format_mean(values, digits=digits), paper, best=mean >= highest - 1e-9)


def row_heading(label: str, runs: Sequence[Record]) -> list[Cell]:
    """Make the first cells of a row: its label, the number of parameters and the number of seeds."""
    return [Cell(label), Cell(f"{runs[0].result['parameters'] / 1e3:.0f}k"), Cell(count_seeds(len(runs)))]


def count_seeds(count: int) -> str:
    return "one seed" if count == 1 else f"{count} seeds"


def group_digits(number: int) -> str:
    """Format a whole number with a space between groups of three digits.

    Example:
        >>> group_digits(50000)
        '50 000'
    """
    return f"{number:,}".replace(",", " ")


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
