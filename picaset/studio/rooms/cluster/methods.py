"""The methods that the cluster room compares: trained networks, and fits by expectation-maximization.

Networks predict a mixture in one pass and run together in one worker thread. Expectation-maximization takes from
milliseconds to seconds, depending on the points; each of its methods runs in a process of its own, so that a slow fit
delays nothing else and can be stopped.
"""

import contextlib
import math
import multiprocessing
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
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
from picaset.studio.background import result_or_error
from picaset.studio.pictures import attention_brightness
from picaset.studio.rooms.cluster.schemas import (
    Component,
    Covariance,
    Fit,
    Method,
    MethodName,
    Step,
    round_number,
    round_point,
)
from picaset.studio.schemas import read_config

STEPS = " steps"
"""Suffix of the kind of job that computes the attention steps of a network."""
NUM_STARTS = 10
"""Random starts of scikit-learn's expectation-maximization."""


@dataclass(frozen=True)
class FitProblem:
    """Points, and the mixture to fit."""

    points: NDArray[np.float64]
    components: int
    covariance: Covariance = "auto"
    noise: bool = False


class MixtureNetworks:
    """The networks of the room, each loaded on first use.

    Args:
        folders: Folder of each available network.
    """

    def __init__(self, folders: Mapping[MethodName, Path]) -> None:
        self.folders = folders
        self.loaded: dict[MethodName, MixtureNetwork] = {}

    def network(self, name: MethodName) -> MixtureNetwork:
        if name not in self.loaded:
            self.loaded[name] = MixtureNetwork.from_pretrained(self.folders[name]).float()
        return self.loaded[name]

    def num_steps(self, name: MethodName) -> int:
        """Return the number of attention steps that can be shown."""
        config = read_config(self.folders[name])
        return config["num_steps"] if config.get("pool") == "picaso" else 0

    def kinds(self) -> list[str]:
        """Return the kinds of job, the most urgent first."""
        return [*self.folders, *(f"{name}{STEPS}" for name in self.folders if self.num_steps(name))]

    def run(self, kind: str, problems: list[FitProblem]) -> list[Any]:
        """Run jobs of one kind; returns a result or an error for each."""
        network = self.network(MethodName(kind.removesuffix(STEPS)))
        if kind.endswith(STEPS):
            return [result_or_error(predict_steps, network, problem) for problem in problems]
        return predict_mixtures(network, problems)

    def list_methods(self) -> list[Method]:
        """List the available networks and the methods that need none."""
        networks = [
            Method.of(name, fixed_components=read_config(folder).get("num_components"), num_steps=self.num_steps(name))
            for name, folder in self.folders.items()
        ]
        return [*networks, *(Method.of(name, fixed_components=None, num_steps=0) for name in FITS)]


@torch.no_grad()
def predict_mixtures(network: MixtureNetwork, problems: list[FitProblem]) -> list[Any]:
    """Predict the mixtures of all sets in one pass."""
    began = time.perf_counter()
    sets = [torch.as_tensor(problem.points).float() for problem in problems]
    mixtures = network(sets[0][None]) if len(sets) == 1 else network(SetBatch.from_list(sets))
    milliseconds = 1e3 * (time.perf_counter() - began)
    return [
        result_or_error(
            evaluate, Mixture(*(part[index : index + 1].double() for part in mixtures)), problem, milliseconds
        )
        for index, problem in enumerate(problems)
    ]


@torch.no_grad()
def evaluate(mixture: Mixture, problem: FitProblem, milliseconds: float) -> Fit:
    """Compute the log-likelihood of the points and the most likely component of each."""
    joint = joint_log_density(mixture, torch.as_tensor(problem.points)[None])[0]  # (K, N)
    log_likelihood = float(joint.logsumexp(dim=0).mean())
    if not math.isfinite(log_likelihood):
        raise ValueError("No finite mixture fits these points: they are too far apart. Move them closer together.")
    return Fit(
        components=list_components(mixture),
        labels=to_list(joint.argmax(dim=0)),
        log_likelihood=round_number(log_likelihood),
        milliseconds=round(milliseconds, 2),
    )


def list_components(mixture: Mixture) -> list[Component]:
    means, variances, log_weights = (part[0] for part in mixture)
    return [
        component(weight, mean, [variance, 0.0, variance])
        for weight, mean, variance in zip(
            to_list(log_weights.exp()), to_list(means), to_list(variances[:, 0]), strict=True
        )
    ]


def component(weight: float, mean: Any, covariance: list[float]) -> Component:
    return Component(
        weight=round_number(weight), mean=round_point(mean), covariance=[round_number(value) for value in covariance]
    )


def to_list(values: Tensor) -> Any:
    return values.numpy().tolist()


@torch.no_grad()
def predict_steps(network: MixtureNetwork, problem: FitProblem) -> list[Step]:
    """Return the mixture and the attention after each step; the first entry is the state before any."""
    trace = mixture_steps(network, torch.as_tensor(problem.points).float()[None])
    attention = trace.attention[:, 0].mean(dim=1)  # (L, K, N), averaged over heads
    maps = [[], *(attention_brightness(step) for step in attention)]
    mixtures = [Mixture(*(part.double() for part in mixture)) for mixture in trace.mixtures]
    return [
        Step(
            components=list_components(mixture),
            log_likelihood=evaluate(mixture, problem, 0.0).log_likelihood,
            attention=step,
        )
        for mixture, step in zip(mixtures, maps, strict=True)
    ]


class FitProcess:
    """A process that fits by one method; started on first use, and again after it was stopped.

    Args:
        method: The method.
        seconds: Time limit of a fit; the process is stopped when it is exceeded.
    """

    def __init__(self, method: MethodName, *, seconds: int | float = 20) -> None:
        self.method = method
        self.seconds = seconds
        self.process: Any = None
        self.connection: Connection | None = None
        self.changing = threading.Lock()  # the worker and the thread that closes the studio both stop it

    def start(self) -> Connection:
        with self.changing:
            if self.connection is not None and self.process.is_alive():
                return self.connection
            context = multiprocessing.get_context("spawn")
            connection, remote = context.Pipe()
            self.connection = connection
            self.process = context.Process(
                target=serve_fits, args=(remote, self.method), daemon=True, name=f"studio-{self.method}"
            )
            with ignored_ctrl_c():
                self.process.start()
        remote.close()
        connection.recv()  # the process reports that it is ready
        return connection

    def run(self, kind: str, problems: list[FitProblem]) -> list[Any]:
        """Fit one problem after the other; returns a result or an error for each."""
        return [result_or_error(self.fit, problem) for problem in problems]

    def fit(self, problem: FitProblem) -> Fit:
        if len(problem.points) < problem.components:
            raise ValueError(
                f"{problem.components} components need at least {problem.components} points; got "
                f"{len(problem.points)}. Add points, or choose fewer components."
            )
        try:
            connection = self.start()
            connection.send(problem)
            if connection.poll(self.seconds):
                result = connection.recv()
                if isinstance(result, ValueError):
                    raise result
                return result
        except (OSError, EOFError):
            self.stop()
            raise ValueError(f"The process of {self.method} stopped without a result; try again.") from None
        self.stop()
        raise ValueError(f"{self.method} took longer than {self.seconds:g} s and was stopped. Use fewer points.")

    def stop(self) -> None:
        with self.changing:
            process, connection = self.process, self.connection
            self.process = self.connection = None
        if process is not None:
            process.kill()
            process.join()
        if connection is not None:
            connection.close()


def serve_fits(connection: Connection, method: MethodName) -> None:
    """Fit what the studio sends until it exits; the target of the process."""
    threading.Thread(target=exit_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # about convergence
    fit = FITS[method]
    fit(FitProblem(np.eye(3, 2), 1))  # imports and loads everything
    with contextlib.suppress(EOFError, OSError):  # the studio has exited
        connection.send("ready")
        while True:
            connection.send(result_or_error(fit, connection.recv()))


def exit_with_parent() -> None:
    """End this process when the studio's process ends, even during a fit."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(0)


@contextlib.contextmanager
def ignored_ctrl_c() -> Generator[None]:
    """Start processes that never receive the terminal's Ctrl-C, which is meant for the studio alone.

    A process inherits the blocked signals of its parent, so that SIGINT is blocked even while it imports.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # starting it later would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def fit_estimator(estimator: Any, matrices: Callable[[Any], Any], problem: FitProblem) -> Fit:
    """Fit an estimator with the methods of scikit-learn's GaussianMixture; ``matrices`` returns its covariances."""
    began = time.perf_counter()
    fitted = estimator.fit(problem.points)
    milliseconds = 1e3 * (time.perf_counter() - began)
    rows = zip(fitted.weights_.tolist(), fitted.means_.tolist(), matrices(fitted).tolist(), strict=True)
    return Fit(
        components=[component(weight, mean, [xx, xy, yy]) for weight, mean, ((xx, xy), (_, yy)) in rows],
        labels=fitted.predict(problem.points).tolist(),
        log_likelihood=round_number(fitted.score(problem.points)),
        milliseconds=round(milliseconds, 2),
    )


def fit_amortized_mixture(problem: FitProblem) -> Fit:
    estimator = AmortizedMixture(
        problem.components, covariance_type=problem.covariance, noise=problem.noise, random_state=0
    )
    fit = fit_estimator(estimator, AmortizedMixture.covariance_matrices, problem)
    reference = AmortizedMixture(random_state=0).fit(problem.points).lower_bound_
    return fit.model_copy(update={"reference": round_number(reference)})


def fit_scikit_learn(problem: FitProblem) -> Fit:
    gaussian_mixture = from_scikit_learn("sklearn.mixture", "GaussianMixture")
    covariance = "full" if problem.covariance == "auto" else problem.covariance
    estimator = gaussian_mixture(problem.components, covariance_type=covariance, n_init=NUM_STARTS, random_state=0)
    return fit_estimator(estimator, covariance_matrices, problem)


def covariance_matrices(mixture: Any) -> Any:
    """Return the covariances of scikit-learn's GaussianMixture as matrices, (K, D, D)."""
    shapes = {"spherical": (-1, 1, 1), "diag": (len(mixture.means_), 1, -1), "tied": (1, 2, 2), "full": (-1, 2, 2)}
    values = mixture.covariances_.reshape(shapes[mixture.covariance_type])
    is_axis_aligned = mixture.covariance_type in ("spherical", "diag")
    return np.broadcast_to(values * np.eye(2) if is_axis_aligned else values, (len(mixture.means_), 2, 2))


FITS: dict[MethodName, Callable[[FitProblem], Fit]] = {
    MethodName.CLUSTERER: fit_amortized_mixture,
    MethodName.SCIKIT_LEARN: fit_scikit_learn,
}
"""Methods that run in a process of their own."""
