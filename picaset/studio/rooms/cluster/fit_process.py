"""Fits by expectation-maximization, each method in a process of its own.

They take from milliseconds to seconds, as the points please: so they hold up nobody, and can be ended.
"""

import contextlib
import multiprocessing
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Generator
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch

from picaset.estimators.amortized_mixture import AmortizedMixture
from picaset.estimators.scikit_learn import from_scikit_learn
from picaset.studio.lane import or_error
from picaset.studio.rooms.cluster.methods import Answer, Question, check_enough, judged, mixture_of
from picaset.studio.rooms.cluster.schemas import MethodName

STARTS = 10


class FitProcess:
    """A process that fits; it is started when it is first needed, and again after it was ended.

    Args:
        method: Who fits.
        seconds: A fit that takes longer is given up, and its process ended.
    """

    def __init__(self, method: MethodName, *, seconds: int | float = 20) -> None:
        self.method = method
        self.seconds = seconds
        self.process: Any = None
        self.connection: Connection | None = None
        self.changing = threading.Lock()  # whoever closes the studio ends it too

    def start(self) -> Connection:
        with self.changing:
            if self.connection is not None and self.process.is_alive():
                return self.connection
            context = multiprocessing.get_context("spawn")
            connection, theirs = context.Pipe()
            self.connection = connection
            self.process = context.Process(
                target=serve_fits, args=(theirs, self.method), daemon=True, name=f"studio-{self.method}"
            )
            with deaf_to_ctrl_c():
                self.process.start()
        theirs.close()
        connection.recv()  # it says when it is ready
        return connection

    def work(self, kind: str, questions: list[Question]) -> list[Any]:
        """One after the other; an answer or an error for each."""
        return [or_error(self.ask, question) for question in questions]

    def ask(self, question: Question) -> Answer:
        check_enough(question)
        try:
            connection = self.start()
            connection.send(question)
            if connection.poll(self.seconds):
                found = connection.recv()
                if isinstance(found, ValueError):
                    raise found
                return found
        except (OSError, EOFError):
            self.end()
            raise ValueError(f"{self.method} ended without an answer; it will be started again.") from None
        self.end()
        raise ValueError(f"{self.method} took longer than {self.seconds:g} s and was given up. Use fewer points.")

    def end(self) -> None:
        with self.changing:
            process, connection = self.process, self.connection
            self.process = self.connection = None
        if process is not None:
            process.kill()
            process.join()
        if connection is not None:
            connection.close()


def serve_fits(connection: Connection, method: MethodName) -> None:
    """In the process: answer until the studio is gone."""
    threading.Thread(target=end_with_the_studio, daemon=True).start()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # about convergence
    fit = FITS[method]
    fit(Question(np.eye(3, 2), 1))  # everything is loaded
    with contextlib.suppress(EOFError, OSError):  # the studio is gone
        connection.send("ready")
        while True:
            connection.send(or_error(fit, connection.recv()))


def end_with_the_studio() -> None:
    """In the process: whatever it does, it does not outlive a studio that was killed."""
    studio = multiprocessing.parent_process()
    if studio is not None:
        studio.join()
        os._exit(0)


@contextlib.contextmanager
def deaf_to_ctrl_c() -> Generator[None]:
    """A process that is started here never gets the terminal's Ctrl-C, which is for the studio alone.

    It inherits what its starter blocks, and so has it blocked from its first instruction, while it imports too.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # starting it would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def by_scikit_learn(question: Question) -> Answer:
    gaussian_mixture = from_scikit_learn("sklearn.mixture", "GaussianMixture")
    began = time.perf_counter()
    found = gaussian_mixture(question.components, covariance_type="spherical", n_init=STARTS, random_state=0).fit(
        question.points
    )
    milliseconds = 1e3 * (time.perf_counter() - began)
    return judged(mixture_of(found), question, milliseconds)


def by_clusterer(question: Question) -> Answer:
    began = time.perf_counter()
    fitted = AmortizedMixture(question.components, random_state=0).fit(question.points)
    milliseconds = 1e3 * (time.perf_counter() - began)
    return judged(mixture_of(fitted), question, milliseconds)


FITS: dict[MethodName, Callable[[Question], Answer]] = {
    MethodName.CLUSTERER: by_clusterer,
    MethodName.SCIKIT_LEARN: by_scikit_learn,
}
