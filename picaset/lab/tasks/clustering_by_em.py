"""What a user would take instead of a network: scikit-learn's mixtures on the same sets, from one start or more."""

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from torch import Tensor

from picaset.extras import require
from picaset.lab.data.gaussian_mixtures import Move, benchmark
from picaset.lab.tasks.clustering import SHIFTS
from picaset.operators.mixture import Mixture, log_likelihood


def evaluate_scikit_learn(*, num_starts: int, num_sets: int, sizes: tuple[int, int]) -> dict[str, Any]:
    """The log-likelihood of a spherical ``GaussianMixture`` under every shift, and its time per set."""
    rows, times = list[dict[str, Any]](), list[float]()
    for move in (Move(shift=shift) for shift in SHIFTS):
        fits = [fit(move, points, truth, num_starts) for points, truth in one_by_one(num_sets, sizes)]
        times += [seconds for _, _, seconds in fits]
        rows.append(
            dict(
                shift=move.shift,
                oracle=float(np.mean([oracle for _, oracle, _ in fits])),
                log_likelihood=float(np.mean([found for found, _, _ in fits])),
            )
        )
    return {"num_starts": num_starts, "moves": rows, "milliseconds_per_set": 1e3 * float(np.mean(times))}


def one_by_one(num_sets: int, sizes: tuple[int, int]) -> Iterator[tuple[Tensor, Mixture]]:
    for points, truth in benchmark(num_sets, sizes=sizes):
        for index in range(len(points)):
            yield points[index : index + 1], Mixture(*(part[index : index + 1] for part in truth))


def fit(move: Move, points: Tensor, truth: Mixture, num_starts: int) -> tuple[float, float, float]:
    """The log-likelihood of the fitted mixture, that of the true one, and the seconds that fitting took."""
    require("sklearn", extra="estimators", purpose="the comparison with scikit-learn")
    from sklearn.mixture import GaussianMixture  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType]

    moved = move.points(points)
    mixture: Any = GaussianMixture(truth.means.shape[1], covariance_type="spherical", n_init=num_starts, random_state=0)
    array = moved[0].double().numpy()
    began = time.perf_counter()
    mixture.fit(array)
    seconds = time.perf_counter() - began
    return float(mixture.score(array)), float(log_likelihood(move.mixture(truth), moved)), seconds
