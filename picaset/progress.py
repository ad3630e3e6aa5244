"""Progress of long computations: live bars in a terminal, plain lines elsewhere, or nothing.

    watch_passes    the passes over a large set: a bar for each, on the error stream
    watch_steps     the steps of a training: one bar in a terminal, otherwise a line every 30 seconds

Both are context managers that return a ``Watcher``.
"""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from picaset.terminal import Terminal, say


@runtime_checkable
class Watcher(Protocol):
    """Receives the progress of a computation."""

    def begin(self, title: str, total: int | None, completed: int = 0) -> None:
        """Start a task of ``total`` units, or of an unknown number, of which some are completed already."""
        ...

    def advance(self, count: int, note: str = "") -> None:
        """Report ``count`` more completed units, and a short text such as the current loss."""
        ...

    def say(self, line: str) -> None:
        """Print a line of its own."""
        ...


class Silent:
    """A watcher that shows nothing."""

    def begin(self, title: str, total: int | None, completed: int = 0) -> None: ...

    def advance(self, count: int, note: str = "") -> None: ...

    def say(self, line: str) -> None: ...


class Counter:
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
        yield Silent()
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
        yield Silent()
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
