"""Tables that are printed, written as Markdown, and put into a page, from one value.

One row of a table against another, in a sentence that says whether seeds tell them apart.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.padding import Padding
from rich.table import Table as RichTable

Measured = Mapping[str, Sequence[float]]
"""What was measured, by its name: one number for each seed."""


def comparison(first: str, second: str, ours: Measured, theirs: Measured, *, digits: int = 3) -> str:
    """The first row against the second, measure by measure; more is better.

    Several seeds are told apart if their means differ by more than one seed of each would by chance: the root of the
    sum of both variances. One seed of either says nothing about that.

    Example:
        >>> comparison("PB", "PMA", {"AUROC": [0.8, 0.9]}, {"AUROC": [0.5, 0.6]}, digits=2)
        'PB against PMA: AUROC above (+0.30, spread 0.10).'
        >>> comparison("PB", "PMA", {"AUROC": [0.8]}, {"AUROC": [0.5, 0.6]}, digits=2)
        'PB minus PMA, not from several seeds each: AUROC +0.25.'
    """
    gaps = {name: statistics.fmean(ours[name]) - statistics.fmean(theirs[name]) for name in ours}
    if min(len(found) for measured in (ours, theirs) for found in measured.values()) < 2:
        told = ", ".join(f"{name} {gap:+.{digits}f}" for name, gap in gaps.items())
        return f"{first} minus {second}, not from several seeds each: {told}."
    parts = list[str]()
    for name, gap in gaps.items():
        spread = math.hypot(statistics.stdev(ours[name]), statistics.stdev(theirs[name]))
        verdict = "above" if gap > spread else "below" if gap < -spread else "not told apart"
        parts.append(f"{name} {verdict} ({gap:+.{digits}f}, spread {spread:.{digits}f})")
    return f"{first} against {second}: {', '.join(parts)}."


@dataclass(frozen=True)
class Cell:
    """What was found, and beside it what was published."""

    found: str
    published: str = ""
    best: bool = False


@dataclass(frozen=True)
class Table:
    """Rows of cells under headings, with what one has to know to read them."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = field(default_factory=tuple)

    def print(self, console: Console) -> None:
        shown = RichTable(title=self.title, title_justify="left")
        for index, column in enumerate(self.columns):
            shown.add_column(column, justify="right" if index else "left")
        for row in self.rows:
            shown.add_row(
                *(f"{on_screen(cell)}\n[dim]{cell.published}[/]" if cell.published else on_screen(cell) for cell in row)
            )
        if console.measure(shown, options=console.options.update(max_width=10_000)).maximum > console.width:
            self.print_row_by_row(console)
        else:
            console.print(shown, highlight=False)
        for note in self.notes:
            console.print(f"[dim]{note}[/]", highlight=False)

    def print_row_by_row(self, console: Console) -> None:
        """Where columns do not fit side by side, so that no number is cut."""
        console.print(f"[italic]{self.title}[/]", highlight=False)
        for name, *cells in self.rows:
            told = [
                (f"{column}: " if column else "")
                + on_screen(cell)
                + (f" [dim]({cell.published})[/]" if cell.published else "")
                for column, cell in zip(self.columns[1:], cells, strict=True)
                if cell.found
            ]
            console.print(Padding(f"[underline]{name.found}[/] {'; '.join(told)}", (0, 0, 0, 2)), highlight=False)

    def markdown(self) -> str:
        lines = [
            "| " + " | ".join(self.columns) + " |",
            "|" + "---|" * len(self.columns),
            *("| " + " | ".join(in_markdown(cell) for cell in row) + " |" for row in self.rows),
        ]
        return "\n".join(lines) + "\n"


def on_screen(cell: Cell) -> str:
    return f"[bold]{cell.found}[/]" if cell.best else cell.found


def in_markdown(cell: Cell) -> str:
    found = f"**{cell.found}**" if cell.best else cell.found
    return f"{found} ({cell.published})" if cell.published else found


def mean_and_spread(values: Sequence[float], *, digits: int = 3) -> str:
    """The mean, and the standard deviation where there are several.

    Example:
        >>> mean_and_spread([-1.5, -1.6, -1.7]), mean_and_spread([-1.5])
        ('-1.600 ± 0.100', '-1.500')
    """
    mean = f"{statistics.fmean(values):.{digits}f}"
    return f"{mean} ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else mean
