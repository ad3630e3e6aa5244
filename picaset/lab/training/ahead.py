"""Data made ahead of the step that uses it, in a thread of its own."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Made = TypeVar("Made")


def made_ahead(make: Callable[[int], Made], first: int, last: int, *, depth: int = 2) -> Iterator[tuple[int, Made]]:
    """``(step, make(step))`` for every step from first to below last, up to ``depth`` of them made ahead.

    Example:
        >>> list(made_ahead(lambda step: step * step, 3, 6))
        [(3, 9), (4, 16), (5, 25)]
    """
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="data") as workers:
        waiting = deque[Future[Made]]()
        for step in range(first, last):
            while len(waiting) <= depth and step + len(waiting) < last:
                waiting.append(workers.submit(make, step + len(waiting)))
            yield step, waiting.popleft().result()
