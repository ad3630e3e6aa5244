"""Fits by expectation-maximization, each method in a process of its own.

They take from milliseconds to seconds, as the points please: so they hold up nobody, and can be ended.
"""

import multiprocessing
import signal
import threading
import time
import warnings
from collections.abc import Callable
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
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the studio, which then closes the connection
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # about convergence
    fit = FITS[method]
    fit(Question(np.eye(3, 2), 1))  # everything is loaded
    connection.send("ready")
    while True:
        try:
            question = connection.recv()
        except EOFError:
            return
        connection.send(or_error(fit, question))


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
