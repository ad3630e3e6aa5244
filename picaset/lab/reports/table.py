"""Tables that print to a terminal, convert to Markdown and render as HTML, and the formatting of their cells."""

import html
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from picaset.lab.reports.records import Record
from picaset.lab.reports.verdicts import Difference
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


Measured = Mapping[str, Sequence[float]]
"""One value per seed, by the name of the metric."""


def compare_rows(first: str, second: str, ours: Measured, theirs: Measured, *, digits: int = 3) -> str:
    """Compare two rows in a sentence, metric by metric, with Welch's 95 % interval of the difference.

    With a single seed of either, only the difference is reported.

    Example:
        >>> compare_rows("PB", "PMA", {"AUROC": [0.8, 0.9]}, {"AUROC": [0.2, 0.3]}, digits=2)
        'PB minus PMA: AUROC +0.60 [+0.30, +0.90].'
        >>> compare_rows("PB", "PMA", {"AUROC": [0.8]}, {"AUROC": [0.5, 0.6]}, digits=2)
        'PB minus PMA (a single seed, spread unknown): AUROC +0.25.'
    """
    differences = {name: Difference.between(ours[name], theirs[name]) for name in ours}
    single = any(min(difference.runs) < 2 for difference in differences.values())
    values = ", ".join(f"{name} {difference.format(digits)}" for name, difference in differences.items())
    return f"{first} minus {second}{' (a single seed, spread unknown)' * single}: {values}."
