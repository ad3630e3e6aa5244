"""Prefetching: compute the items of an iterator in a background thread, so that reading and arithmetic overlap."""

import queue
import threading
from collections.abc import Callable, Generator, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def prefetch(items: Callable[[], Iterator[Item]], *, depth: int = 2) -> Generator[Item]:
    """Yield the items of ``items()``, computing up to ``depth`` of them ahead in a thread.

    An exception in the thread is raised here. The thread ends with the last item, or when this generator is closed.

    Args:
        items: Returns the iterator; called in the thread.
        depth: Number of items ahead; with 0 there is no thread.

    Example:
        >>> list(prefetch(lambda: iter("abc")))
        ['a', 'b', 'c']
    """
    if depth == 0:
        yield from items()
        return
    ready: queue.Queue[tuple[bool, Item | BaseException | None]] = queue.Queue(maxsize=depth)
    closed = threading.Event()

    def put(has_item: bool, value: Item | BaseException | None) -> bool:
        while not closed.is_set():
            try:
                ready.put((has_item, value), timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def produce() -> None:
        try:
            iterator = items()
            for item in iterator:
                if not put(True, item):
                    break
            if isinstance(iterator, Generator):
                iterator.close()
            put(False, None)
        except BaseException as error:  # raised again in the consuming thread
            put(False, error)

    thread = threading.Thread(target=produce, name="prefetch", daemon=True)
    thread.start()
    try:
        while True:
            has_item, value = ready.get()
            if has_item:
                yield value  # pyright: ignore[reportReturnType]
            elif isinstance(value, BaseException):
                raise value
            else:
                return
    finally:
        closed.set()
        thread.join()
