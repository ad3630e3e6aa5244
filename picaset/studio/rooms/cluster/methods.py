"""Who looks at the points, and how shipped networks do; those that fit are in ``fit_process.py``.

Fits by expectation-maximization, each method in a process of its own.

They take from milliseconds to seconds, as the points please: so they hold up nobody, and can be ended.
"""

import contextlib
import math
import multiprocessing
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from picaset.estimators.amortized_mixture import AmortizedMixture
from picaset.estimators.validation import from_scikit_learn
from picaset.lab.networks.mixture_network import MixtureNetwork, mixture_steps
from picaset.operators.mixture import Mixture, joint_log_density
from picaset.sets import SetBatch
from picaset.studio.lane import or_error
from picaset.studio.rooms.cluster.schemas import Component, Method, MethodName, Step, as_point, short

WEIGHTS = Path(str(resources.files("picaset"))) / "studio" / "weights"
NETWORKS = {
    MethodName.PICASO: "mixture_picaso",
    MethodName.PICASO_CANONICAL: "mixture_picaso_canonical",
    MethodName.SET_TRANSFORMER: "mixture_set_transformer",
    MethodName.DEEP_SETS: "mixture_deep_sets",
}
MODEL_DESCRIPTIONS = {
    MethodName.PICASO: ("PICASO", "A cascade: each answer of the set becomes the next question."),
    MethodName.PICASO_CANONICAL: (
        "PICASO, canonicalized",
        "The same, shown every set at the origin: its answer moves with the points.",
    ),
    MethodName.SET_TRANSFORMER: ("Set Transformer", "Learned questions, asked once."),
    MethodName.DEEP_SETS: ("DeepSets", "Every point by itself, then their mean."),
    MethodName.CLUSTERER: (
        "picaset cluster",
        "A network proposes, expectation-maximization finishes: AmortizedMixture.",
    ),
    MethodName.SCIKIT_LEARN: ("scikit-learn", "GaussianMixture, round components, ten starts."),
}


@dataclass(frozen=True)
class Question:
    """Points, and how many components are asked for."""

    points: NDArray[np.float64]
    components: int


@dataclass(frozen=True)
class Answer:
    """A mixture of the points, judged by them."""

    components: list[Component]
    labels: list[int]
    log_likelihood: float
    milliseconds: float


@cache
def network(name: MethodName) -> MixtureNetwork:
    """A shipped network, read once."""
    return MixtureNetwork.from_pretrained(WEIGHTS / NETWORKS[name]).float()


def weights_are_there() -> bool:
    return all((WEIGHTS / folder / "model.safetensors").is_file() for folder in NETWORKS.values())


def methods() -> list[Method]:
    """All of them, as they are told on their cards."""
    return [
        Method(
            name=name,
            title=title,
            about=about,
            fixed_components=network(name).config["num_components"] if name in NETWORKS else None,
            num_steps=network(name).config["num_steps"] if is_cascade(name) else 0,
        )
        for name, (title, about) in MODEL_DESCRIPTIONS.items()
    ]


def is_cascade(name: MethodName) -> bool:
    return name in NETWORKS and network(name).config["pool"] == "picaso"


def steps_kind(name: str) -> str:
    """The kind of work in a lane that is a cascade's steps."""
    return f"{name} steps"


def work(kind: str, questions: list[Question]) -> list[Any]:
    """Everything that waits of one kind; an answer or an error for each."""
    if kind.endswith(" steps"):
        cascade = network(MethodName(kind.removesuffix(" steps")))
        return [or_error(steps_of, cascade, question) for question in questions]
    return by_network(network(MethodName(kind)), questions)


@torch.no_grad()
def by_network(chosen: MixtureNetwork, questions: list[Question]) -> list[Any]:
    """All sets in one pass, packed."""
    began = time.perf_counter()
    sets = [torch.as_tensor(question.points).float() for question in questions]
    found = chosen(sets[0][None]) if len(sets) == 1 else chosen(SetBatch.from_list(sets))
    milliseconds = 1e3 * (time.perf_counter() - began)
    return [
        or_error(judged, Mixture(*(part[index : index + 1].double() for part in found)), question, milliseconds)
        for index, question in enumerate(questions)
    ]


@torch.no_grad()
def judged(mixture: Mixture, question: Question, milliseconds: float) -> Answer:
    """The likelihood of the points, and to which component each belongs."""
    joint = joint_log_density(mixture, torch.as_tensor(question.points)[None])[0]  # (K, N)
    likelihood = float(joint.logsumexp(dim=0).mean())
    if not math.isfinite(likelihood):
        raise ValueError("No finite mixture was found for these points; they lie too far apart, or too far away.")
    return Answer(components_of(mixture), as_lists(joint.argmax(dim=0)), short(likelihood), round(milliseconds, 2))


def components_of(mixture: Mixture) -> list[Component]:
    means, variances, log_weights = (part[0] for part in mixture)
    return [
        Component(weight=short(weight), mean=as_point(mean), deviation=short(deviation))
        for weight, mean, deviation in zip(
            as_lists(log_weights.exp()), as_lists(means), as_lists(variances[:, 0].sqrt()), strict=True
        )
    ]


@torch.no_grad()
def steps_of(chosen: MixtureNetwork, question: Question) -> list[Step]:
    found = mixture_steps(chosen, torch.as_tensor(question.points).float()[None])
    attention = found.attention[:, 0].mean(dim=1)  # (L, K, N), averaged over heads
    looks = [[], *(brightness(step) for step in attention)]
    exact = [Mixture(*(part.double() for part in mixture)) for mixture in found.mixtures]
    return [
        Step(
            components=components_of(mixture),
            log_likelihood=judged(mixture, question, 0.0).log_likelihood,
            attention=look,
        )
        for mixture, look in zip(exact, looks, strict=True)
    ]


def brightness(attention: Tensor) -> list[list[int]]:
    """For each template, its most looked-at point is 255."""
    relative = attention / attention.amax(dim=1, keepdim=True).clamp(min=1e-12)
    return as_lists((255 * relative).round().int())


def as_lists(values: Tensor) -> Any:
    return values.numpy().tolist()


def mixture_of(fitted: Any) -> Mixture:
    """What an estimator with scikit-learn's face found, round components."""
    return Mixture(
        torch.as_tensor(fitted.means_)[None],
        torch.as_tensor(fitted.covariances_)[None, :, None],
        torch.as_tensor(fitted.weights_).clamp(min=1e-300).log()[None],
    )


def check_enough(question: Question) -> None:
    if len(question.points) < question.components:
        raise ValueError(
            f"{question.components} components need at least as many points; there are {len(question.points)}. "
            "Add some, or ask for fewer components."
        )


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
