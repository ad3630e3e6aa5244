"""Ctrl-C and SIGTERM, asked politely."""

import signal
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any


class Stopping:
    """Whether the run was asked to stop."""

    now: bool = False


@contextmanager
def stop_signals() -> Generator[Stopping]:
    """Ctrl-C and SIGTERM let the step finish; asked twice, they end it at once."""
    stopping = Stopping()
    before: dict[int, Any] = {}

    def ask(number: int, frame: object) -> None:
        stopping.now = True
        for name, handler in before.items():
            signal.signal(name, handler)

    try:
        for name in (signal.SIGINT, signal.SIGTERM):
            before[name] = signal.signal(name, ask)
    except ValueError:  # not the main thread, which alone may listen
        pass
    try:
        yield stopping
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
