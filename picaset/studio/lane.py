"""One thread that works through what is asked of it: the most urgent kind first, several of a kind in one call.

A newer gesture replaces an older one of the same page: what waits is never begun, what runs is not waited for.
"""

import asyncio
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any

from picaset.studio.schemas import Refused

CLOSING = "The studio is closing."
MOST_WAITING = 4000
MOST_GESTURES = 1000
"""Pages, each with a kind of work, whose newest gesture is remembered."""


def or_error(call: Callable[..., Any], *arguments: Any) -> Any:
    """What it gives, or the error that whoever asked is told."""
    try:
        return call(*arguments)
    except (Refused, ValueError, OSError) as error:
        return error


class Lane:
    """A thread with a queue for each kind of work.

    Args:
        run: Called in the thread with a kind and what waits of it; returns as many results, of which those that are
            exceptions are raised where the work was asked for.
        kinds: Of work, the most urgent first.
        seconds: Longer than this nobody waits.
        advice: What to do if it took longer.
        together: Given to ``run`` at once, at most; more than one where it has a way to do them in one.
    """

    def __init__(
        self,
        run: Callable[[str, list[Any]], Sequence[Any]],
        kinds: Sequence[str],
        *,
        seconds: int | float = 20,
        advice: str = "Use fewer points.",
        together: int = 1,
    ) -> None:
        self.run = run
        self.seconds = seconds
        self.advice = advice
        self.together = together
        self.waiting: dict[str, deque[tuple[Any, Future[Any]]]] = {kind: deque() for kind in kinds}
        self.running: list[Future[Any]] = []
        self.gestures: OrderedDict[tuple[str, str], tuple[int, asyncio.Future[Any]]] = OrderedDict()
        self.changed = threading.Condition()
        self.thread: threading.Thread | None = None
        self.closed = False

    async def ask(self, kind: str, item: Any, *, page: str = "", gesture: int = 0) -> Any:
        """Have it done. Raises :class:`Refused` if it cannot be, or if a newer gesture of its page has replaced it."""
        promised = asyncio.wrap_future(self.enqueue(kind, item))
        if page:
            self.replace((page, kind), gesture, promised)
        try:
            return await asyncio.wait_for(promised, self.seconds)
        except TimeoutError:
            raise Refused(422, f"This took longer than {self.seconds:g} s and was given up. {self.advice}") from None
        except (ValueError, OSError) as error:
            raise Refused(422, str(error)) from None
        except asyncio.CancelledError:
            current = self.gestures.get((page, kind))
            if current is not None and current[1] is not promised:
                raise Refused(409, "A newer gesture replaced this one.") from None
            raise

    def warm(self, item: Any) -> None:
        """Have every kind done once, so that the first gesture is as fast as the next."""
        with suppress(Refused):  # it may be closing already
            for kind in self.waiting:
                self.enqueue(kind, item)

    def enqueue(self, kind: str, item: Any) -> "Future[Any]":
        future = Future[Any]()
        with self.changed:
            if self.closed:
                raise Refused(503, CLOSING)
            if sum(map(len, self.waiting.values())) >= MOST_WAITING:
                raise Refused(429, f"More than {MOST_WAITING} requests wait; try again in a moment.")
            if self.thread is None:
                self.thread = threading.Thread(target=self.work, daemon=True, name="studio-lane")
                self.thread.start()
            self.waiting[kind].append((item, future))
            self.changed.notify()
        return future

    def replace(self, key: tuple[str, str], gesture: int, promised: "asyncio.Future[Any]") -> None:
        newest, older = self.gestures.get(key, (-1, None))
        if gesture < newest:
            promised.cancel()
            raise Refused(409, "A newer gesture replaced this one.")
        self.gestures[key] = (gesture, promised)
        self.gestures.move_to_end(key)
        if older is not None and not older.done():
            older.cancel()
        if len(self.gestures) > MOST_GESTURES:
            self.gestures.popitem(last=False)

    def work(self) -> None:
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.closed or any(self.waiting.values()))
                if self.closed:
                    return
                kind = next(kind for kind, queue in self.waiting.items() if queue)
                queue = self.waiting[kind]
                taken = [queue.popleft() for _ in range(min(len(queue), self.together))]
                wanted = [(item, future) for item, future in taken if future.set_running_or_notify_cancel()]
                self.running = [future for _, future in wanted]
            if wanted:
                self.answer(kind, wanted)

    def answer(self, kind: str, wanted: list[tuple[Any, "Future[Any]"]]) -> None:
        try:
            results = self.run(kind, [item for item, _ in wanted])
        except Exception as error:  # the thread goes on; whoever asked is told
            results = [error] * len(wanted)
        for (_, future), result in zip(wanted, results, strict=True):
            with suppress(InvalidStateError):  # it was refused meanwhile, because the studio closes
                if isinstance(result, BaseException):
                    future.set_exception(result)
                else:
                    future.set_result(result)

    def close(self) -> None:
        """Refuse at once whatever waits or runs; what runs is not waited for."""
        with self.changed:
            self.closed = True
            for future in [*self.running, *(future for queue in self.waiting.values() for _, future in queue)]:
                with suppress(InvalidStateError):  # it is answered already
                    future.set_exception(Refused(503, CLOSING))
            for queue in self.waiting.values():
                queue.clear()
            self.changed.notify()
