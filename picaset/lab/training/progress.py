"""What is seen of a training: a live bar in a terminal, plain lines elsewhere, nothing when silent."""

import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@runtime_checkable
class Watcher(Protocol):
    """What the loop tells: where it is, and what it measured."""

    def step(self, step: int, loss: float) -> None: ...

    def say(self, line: str) -> None: ...


class Bar:
    """A live bar with rate, loss and time left."""

    def __init__(self, progress: Progress, first: int, steps: int, title: str) -> None:
        self.progress = progress
        self.task = progress.add_task(title, total=steps, completed=first, loss="", rate="")
        self.first = first
        self.began = time.monotonic()

    def step(self, step: int, loss: float) -> None:
        rate = (step - self.first) / max(time.monotonic() - self.began, 1e-9)
        self.progress.update(self.task, completed=step, loss=f"loss {loss:.4f}", rate=f"{rate:.1f} steps/s")

    def say(self, line: str) -> None:
        self.progress.console.print(line, highlight=False)


class Lines:
    """A plain line every so many seconds."""

    def __init__(self, first: int, steps: int, title: str, *, seconds: float = 30.0) -> None:
        self.first, self.steps, self.title, self.seconds = first, steps, title, seconds
        self.began = self.last = time.monotonic()

    def step(self, step: int, loss: float) -> None:
        now = time.monotonic()
        if now - self.last < self.seconds and step < self.steps:
            return
        self.last = now
        rate = (step - self.first) / max(now - self.began, 1e-9)
        left = (self.steps - step) / max(rate, 1e-9)
        self.say(f"{self.title}: step {step} of {self.steps}, loss {loss:.4f}, {rate:.1f} steps/s, {left:.0f} s left")

    def say(self, line: str) -> None:
        print(line, flush=True)


class Silence:
    """Nothing."""

    def step(self, step: int, loss: float) -> None: ...

    def say(self, line: str) -> None: ...


@contextmanager
def watching(title: str, *, first: int, steps: int, silent: bool) -> Generator[Watcher]:
    """What fits where the output goes."""
    console = Console()
    if silent:
        yield Silence()
    elif not console.is_terminal:
        yield Lines(first, steps, title)
    else:
        columns = [
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TextColumn("{task.fields[loss]}"),
            TimeRemainingColumn(),
        ]
        with Progress(*columns, console=console) as progress:
            yield Bar(progress, first, steps, title)
