"""Reading in a thread of its own, so that the disk and the arithmetic overlap."""

import queue
import threading
from collections.abc import Callable, Generator, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def read_ahead(items: Callable[[], Iterator[Item]], *, depth: int) -> Generator[Item]:
    """The items of an iterator, up to ``depth`` of them made ahead; an error there is raised here.

    The thread ends when the last item was taken, or when nobody wants more.

    Example:
        >>> list(read_ahead(lambda: iter("abc"), depth=2))
        ['a', 'b', 'c']
    """
    if depth == 0:
        yield from items()
        return
    ready: queue.Queue[tuple[bool, Item | BaseException | None]] = queue.Queue(maxsize=depth)
    stopped = threading.Event()

    def put(entry: tuple[bool, Item | BaseException | None]) -> bool:
        while not stopped.is_set():
            try:
                ready.put(entry, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def work() -> None:
        try:
            iterator = items()
            for item in iterator:
                if not put((True, item)):
                    break
            if isinstance(iterator, Generator):
                iterator.close()
            put((False, None))
        except BaseException as error:  # it belongs to whoever is reading
            put((False, error))

    thread = threading.Thread(target=work, name="read-ahead", daemon=True)
    thread.start()
    try:
        while True:
            more, entry = ready.get()
            if more:
                yield entry  # pyright: ignore[reportReturnType]
            elif isinstance(entry, BaseException):
                raise entry
            else:
                return
    finally:
        stopped.set()
        thread.join()
