"""Work outside the event loop: a worker thread with job queues, and data that is loaded once, on first use.

A :class:`Worker` runs the jobs of the most urgent kind first, several of a kind in one call. A newer request of a page
replaces an older one: a waiting job is dropped, a running one is no longer waited for.

Loading :class:`LazyData` may take minutes. A page waits for it (:meth:`LazyData.ready`); a worker, for which other
requests wait, does not (:meth:`LazyData.now`).
"""

import asyncio
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any, Generic, TypeVar

from picaset.studio.schemas import RequestError

Data = TypeVar("Data")
CLOSING = "The studio is closing."
REPLACED = "A newer request replaced this one."
MAX_WAITING = 4000
"""Jobs that may wait in one worker."""
MAX_PAGES = 1000
"""Number of (page, kind of job) pairs whose latest request a worker remembers."""
THREAD_PREFIX = "studio-"


def start_thread(target: Callable[..., object], *arguments: Any, name: str) -> threading.Thread:
    thread = threading.Thread(target=target, args=arguments, daemon=True, name=f"{THREAD_PREFIX}{name}")
    thread.start()
    return thread


def join_threads(seconds: int | float) -> bool:
    """Wait for threads of :func:`start_thread`, at most ``seconds`` in all; returns whether all have ended.

    A thread that still computes in C++ when the interpreter exits would abort the process.
    """
    deadline = time.monotonic() + seconds
    threads = [thread for thread in threading.enumerate() if thread.name.startswith(THREAD_PREFIX)]
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)


def result_or_error(call: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result, or the error if it is one whose message is meant for the user."""
    try:
        return call(*arguments)
    except (RequestError, ValueError, OSError) as error:
        return error


class Worker:
    """A thread with one queue per kind of job.

    Args:
        run: Called in the thread with a kind and a list of jobs; returns one result per job. Results that are
            exceptions are raised where the job was submitted.
        kinds: Kinds of job, the most urgent first.
        seconds: Time limit of a job, waiting included.
        advice: Added to the error message when the limit is exceeded.
        batch_size: Largest number of jobs passed to ``run`` at once.
    """

    def __init__(
        self,
        run: Callable[[str, list[Any]], Sequence[Any]],
        kinds: Sequence[str],
        *,
        seconds: int | float = 20,
        advice: str = "Use fewer points.",
        batch_size: int = 1,
    ) -> None:
        self.run = run
        self.seconds = seconds
        self.advice = advice
        self.batch_size = batch_size
        self.queues: dict[str, deque[tuple[Any, Future[Any]]]] = {kind: deque() for kind in kinds}
        self.running: list[Future[Any]] = []
        self.newest: OrderedDict[tuple[str, str], tuple[int, asyncio.Future[Any]]] = OrderedDict()
        self.changed = threading.Condition()
        self.thread: threading.Thread | None = None
        self.closed = False

    async def submit(self, kind: str, job: Any, *, page: str = "", gesture: int = 0) -> Any:
        """Run a job and return its result.

        Raises :class:`RequestError` if it fails, or if a newer request of its page replaced it.
        """
        future = asyncio.wrap_future(self.enqueue(kind, job))
        if page:
            self.replace((page, kind), gesture, future)
        try:
            return await asyncio.wait_for(future, self.seconds)
        except TimeoutError:
            raise RequestError(
                422, f"This took longer than {self.seconds:g} s and was stopped. {self.advice}"
            ) from None
        except (ValueError, OSError) as error:
            raise RequestError(422, str(error)) from None
        except asyncio.CancelledError:
            current = self.newest.get((page, kind))
            if current is not None and current[1] is not future:
                raise RequestError(409, REPLACED) from None
            raise

    def warm(self, job: Any) -> None:
        """Run a job of every kind, so that the first request is as fast as later ones."""
        with suppress(RequestError):  # it may be closing already
            for kind in self.queues:
                self.enqueue(kind, job)

    def enqueue(self, kind: str, job: Any) -> "Future[Any]":
        future = Future[Any]()
        with self.changed:
            if self.closed:
                raise RequestError(503, CLOSING)
            if sum(map(len, self.queues.values())) >= MAX_WAITING:
                raise RequestError(429, f"More than {MAX_WAITING} requests are waiting; try again in a moment.")
            if self.thread is None or not self.thread.is_alive():
                self.thread = start_thread(self.work, name="worker")
            self.queues[kind].append((job, future))
            self.changed.notify()
        return future

    def replace(self, key: tuple[str, str], gesture: int, future: "asyncio.Future[Any]") -> None:
        latest, older = self.newest.get(key, (-1, None))
        if gesture < latest:
            future.cancel()
            raise RequestError(409, REPLACED)
        self.newest[key] = (gesture, future)
        self.newest.move_to_end(key)
        if older is not None and not older.done():
            older.cancel()
        if len(self.newest) > MAX_PAGES:
            self.newest.popitem(last=False)

    def work(self) -> None:
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.closed or any(self.queues.values()))
                if self.closed:
                    return
                kind = next(kind for kind, queue in self.queues.items() if queue)
                queue = self.queues[kind]
                batch = [queue.popleft() for _ in range(min(len(queue), self.batch_size))]
                batch = [(job, future) for job, future in batch if future.set_running_or_notify_cancel()]
                self.running = [future for _, future in batch]
            if batch:
                self.run_batch(kind, batch)

    def run_batch(self, kind: str, batch: list[tuple[Any, "Future[Any]"]]) -> None:
        try:
            results: list[Any] = list(self.run(kind, [job for job, _ in batch]))
            if len(results) != len(batch):
                raise RuntimeError(f"{len(batch)} jobs of {kind} gave {len(results)} results")
        except BaseException as error:  # it belongs to the requests; the thread goes on
            results = [error if isinstance(error, Exception) else RuntimeError(repr(error))] * len(batch)
        for (_, future), result in zip(batch, results, strict=True):
            with suppress(InvalidStateError):  # the studio is closing and the request was refused meanwhile
                if isinstance(result, BaseException):
                    future.set_exception(result)
                else:
                    future.set_result(result)

    def close(self) -> None:
        """Refuse all waiting and running jobs at once, without waiting for the running ones."""
        with self.changed:
            self.closed = True
            for future in [*self.running, *(future for queue in self.queues.values() for _, future in queue)]:
                with suppress(InvalidStateError):  # it has its result already
                    future.set_exception(RequestError(503, CLOSING))
            for queue in self.queues.values():
                queue.clear()
            self.changed.notify()


class LazyData(Generic[Data]):
    """Data that is loaded in a thread on first use, once; after a failure the next wait tries again.

    Args:
        title: Name of the data in messages: "CLEVR".
        load: Returns the data.
    """

    def __init__(self, title: str, load: Callable[[], Data]) -> None:
        self.title = title
        self.load = load
        self.starting = threading.Lock()
        self.future: Future[Data] | None = None

    def start(self) -> "Future[Data]":
        """Start loading if necessary, and return a future for the data."""
        with self.starting:
            if self.future is None or (self.future.done() and self.future.exception() is not None):
                self.future = Future[Data]()
                start_thread(self.work, self.future, name=f"load-{self.title}")
            return self.future

    def work(self, future: "Future[Data]") -> None:
        try:
            future.set_result(self.load())
        except (ValueError, OSError) as error:
            future.set_exception(RequestError(422, f"{self.title} cannot be read: {error}"))
        except BaseException as error:  # requests that wait must get it, whatever it is
            future.set_exception(error)

    async def ready(self) -> None:
        """Wait until the data is loaded, without blocking a thread."""
        await asyncio.shield(asyncio.wrap_future(self.start()))  # a request may be cancelled; loading goes on

    def wait(self) -> Data:
        """Return the data, however long loading takes."""
        return self.start().result()

    def get_if_ready(self) -> Data:
        """Return the data, or raise an error that asks to try again later."""
        future = self.future or self.start()
        if not future.done():
            raise RequestError(422, f"{self.title} is being loaded; try again in a moment.")
        return future.result()
