"""Data, read or drawn in a thread of its own when it is first needed, and once, however many need it.

Reading may take minutes. A page waits for it (:meth:`ReadOnce.ready`); a lane, which others wait for, does not.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

from picaset.studio.schemas import Refused

Read = TypeVar("Read")


class ReadOnce(Generic[Read]):
    """What is read; where reading fails, it is tried again when it is next waited for.

    Args:
        title: As a person knows it: "CLEVR".
        read: Reads it.
    """

    def __init__(self, title: str, read: Callable[[], Read]) -> None:
        self.title = title
        self.read = read
        self.starting = threading.Lock()
        self.future: Future[Read] | None = None

    def start(self) -> "Future[Read]":
        """It, promised."""
        with self.starting:
            if self.future is None or (self.future.done() and self.future.exception() is not None):
                self.future = Future[Read]()
                threading.Thread(target=self.work, args=(self.future,), daemon=True, name=f"read-{self.title}").start()
            return self.future

    def work(self, future: "Future[Read]") -> None:
        try:
            future.set_result(self.read())
        except (ValueError, OSError) as error:
            future.set_exception(Refused(422, f"{self.title} cannot be read: {error}"))
        except BaseException as error:  # whoever waits is told, whatever it is
            future.set_exception(error)

    async def ready(self) -> None:
        """Wait until it is read, without holding a thread."""
        await asyncio.shield(asyncio.wrap_future(self.start()))  # whoever waits may leave; reading goes on

    def wait(self) -> Read:
        """It, however long that takes."""
        return self.start().result()

    def now(self) -> Read:
        """It, or a refusal that says to come back."""
        future = self.future or self.start()
        if not future.done():
            raise Refused(422, f"{self.title} is being read, once; try again in a moment.")
        return future.result()
