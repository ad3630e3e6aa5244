"""The only way to the terminal: text, with control characters from files escaped, and the progress of computations.

printable             text without control characters, which could move the cursor, recolour or retitle a terminal
say                   print a line
Terminal              a rich console: no markup in strings, and control characters only where rich itself makes them
printable_warnings    the same for warnings of libraries, which Python prints by itself
watch_passes          the passes over a large set: a bar for each, on the error stream
watch_steps           the steps of a training: one bar in a terminal, otherwise a line every 30 seconds

The last two are context managers that return a ``Watcher``.
"""

import re
import sys
import time
import warnings
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.segment import Segment
from rich.text import Text

CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
"""Control characters other than the line feed, marks that reverse the direction of text, and lone surrogates."""


def printable(text: str) -> str:
    r"""Return a text with control characters written as escapes.

    Example:
        >>> printable("name\x1b[2J")
        'name\\x1b[2J'
    """
    return CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def say(text: object = "", *, error: bool = False) -> None:
    """Print a line to the output, or to the error stream."""
    print(printable(str(text)), file=sys.stderr if error else sys.stdout, flush=True)


@contextmanager
def printable_warnings() -> Generator[None]:
    """Write control characters in warnings as escapes: a library may quote text from a file in one."""
    original = warnings.formatwarning

    def format_printable(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
    ) -> str:
        return printable(original(message, category, filename, lineno, line))

    warnings.formatwarning = format_printable
    try:
        yield
    finally:
        warnings.formatwarning = original


class Terminal(Console):
    """A rich console for text of any origin; pass a ``rich.text.Text`` to style a part of it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text), **options)  # before the width of a column is measured

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))


class Watcher:
    """Receives the progress of a computation; this base class shows nothing."""

    def begin(self, title: str, total: int | None, completed: int = 0) -> None:
        """Start a task of ``total`` units, or of an unknown number, of which some are completed already."""

    def advance(self, count: int, note: str = "") -> None:
        """Report ``count`` more completed units, and a short text such as the current loss."""

    def say(self, line: str) -> None:
        """Print a line of its own."""


class Counter(Watcher):
    """Completed units of the current task, and their rate."""

    title: str
    total: int | None
    completed: int

    def begin(self, title: str, total: int | None, completed: int = 0) -> None:
        self.title, self.total, self.completed = title, total, completed
        self.first, self.began = completed, time.monotonic()

    def rate(self) -> float:
        return (self.completed - self.first) / max(time.monotonic() - self.began, 1e-9)


class Bars(Counter):
    """A live bar for each task.

    Args:
        progress: Rich's display; its columns may use the fields ``status`` and ``note``.
        status: Formats the status from the number of completed units and their rate.
        title: Format of the text before a bar, with the fields ``number`` and ``name`` of its task.
    """

    def __init__(self, progress: Progress, status: Callable[[int, float], str], title: str = "{name}") -> None:
        self.progress, self.status, self.title_format = progress, status, title
        self.tasks = list[TaskID]()

    def begin(self, title: str, total: int | None, completed: int = 0) -> None:
        if self.tasks:  # a task of unknown size ends when the next one begins
            self.progress.update(self.tasks[-1], total=self.completed)
        super().begin(title, total, completed)
        description = self.title_format.format(number=len(self.tasks) + 1, name=title)
        status = self.status(completed, 0.0)
        self.tasks.append(self.progress.add_task(description, total=total, completed=completed, status=status, note=""))

    def advance(self, count: int, note: str = "") -> None:
        self.completed += count
        status = self.status(self.completed, self.rate())
        self.progress.update(self.tasks[-1], completed=self.completed, status=status, note=note)

    def say(self, line: str) -> None:
        self.progress.console.print(line)


class Lines(Counter):
    """A plain line every ``seconds``, and one at the end of a task."""

    def __init__(self, *, seconds: float = 30.0) -> None:
        self.seconds = seconds
        self.printed = time.monotonic()

    def advance(self, count: int, note: str = "") -> None:
        self.completed += count
        total, now = self.total or 0, time.monotonic()
        if now - self.printed < self.seconds and self.completed < total:
            return
        self.printed, rate = now, self.rate()
        left = (total - self.completed) / max(rate, 1e-9)
        self.say(f"{self.title}: step {self.completed} of {total}, {note}, {rate:.1f} steps/s, {left:.0f} s left")

    def say(self, line: str) -> None:
        say(line)


@contextmanager
def watch_passes(enabled: bool) -> Generator[Watcher]:
    """Show a bar for each pass over a large set on the error stream, if enabled."""
    if not enabled:
        yield Watcher()
        return
    columns = [
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[status]}"),
        TimeRemainingColumn(),
    ]
    with Progress(*columns, console=Terminal(stderr=True)) as progress:
        yield Bars(progress, lambda completed, rate: f"{completed:,} elements", title="pass {number}, {name}")


@contextmanager
def watch_steps(title: str, *, first: int, steps: int, silent: bool) -> Generator[Watcher]:
    """Show the steps of a training from ``first`` on: a bar in a terminal, plain lines elsewhere."""
    console = Terminal()
    if silent:
        yield Watcher()
    elif not console.is_terminal:
        lines = Lines()
        lines.begin(title, steps, first)
        yield lines
    else:
        columns = [
            TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(),
            TextColumn("{task.fields[status]}"), TextColumn("{task.fields[note]}", markup=False), TimeRemainingColumn(),
        ]  # fmt: skip
        with Progress(*columns, console=console) as progress:
            bars = Bars(progress, lambda completed, rate: f"{rate:.1f} steps/s")
            bars.begin(title, steps, first)
            yield bars
