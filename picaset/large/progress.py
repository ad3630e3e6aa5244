"""What is seen of a long read: a bar for each pass, or nothing."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn


@runtime_checkable
class Watcher(Protocol):
    """What a pass tells."""

    def begin(self, kind: str, count: int | None) -> None: ...

    def advance(self, count: int) -> None: ...


class Silent:
    """Nothing."""

    def begin(self, kind: str, count: int | None) -> None: ...

    def advance(self, count: int) -> None: ...


class Bars:
    """A bar for each pass."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.passes = 0
        self.seen = 0
        self.task: TaskID | None = None

    def begin(self, kind: str, count: int | None) -> None:
        if self.task is not None:
            self.progress.update(self.task, total=self.seen)
        self.passes, self.seen = self.passes + 1, 0
        self.task = self.progress.add_task(f"pass {self.passes}, {kind}", total=count, seen="0")

    def advance(self, count: int) -> None:
        assert self.task is not None
        self.seen += count
        self.progress.update(self.task, advance=count, seen=f"{self.seen:,}")


@contextmanager
def watching(wanted: bool) -> Generator[Watcher]:
    """Bars on the terminal's error stream, if they are wanted."""
    if not wanted:
        yield Silent()
        return
    columns = [
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[seen]} elements"),
        TimeRemainingColumn(),
    ]
    with Progress(*columns, console=Console(stderr=True)) as progress:
        yield Bars(progress)
