"""Clustering under shift: predict the mixture that a set of points was drawn from (Table 2, Figure 4).

The score is the average log-likelihood per point, of the network alone and after a few EM steps from its prediction,
on test sets that are shifted out of the range of the training data.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from picaset.extras import require
from picaset.lab.data.gaussian_mixtures import Move, benchmark_sets, training_batch
from picaset.lab.networks.mixture_network import MixtureNetwork
from picaset.lab.tasks.task import Task, network_settings
from picaset.operators.mixture import Mixture, em_step, log_likelihood
from picaset.pretrained import ModuleConfig

SHIFTS = (0, 8, -8, 10, -10, 12, -12)
"""Shifts of the paper's Table 2, in its order."""
MOVES = (*(Move(shift=shift) for shift in SHIFTS), Move(scale=0.5), Move(scale=2), Move(degrees=45), Move(degrees=90))
EM_STEPS = (0, 1, 5)
COARSE = 0.5
"""Weight of the coarse estimate in the loss of a network that has one."""
VALIDATION_SEED = 2020
"""Seed of the validation sets; that of the test sets is the default of :func:`benchmark_sets`."""
NUM_SHOWN = 3
"""Number of test sets whose predictions are recorded for the figures."""
NETWORK = ModuleConfig.of(MixtureNetwork, num_decoder_blocks=0, form="authors")
"""AE32 + PB of Table 2."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Clustering(Task):
    """Amortized clustering of two-dimensional Gaussian mixtures."""

    network: ModuleConfig = NETWORK
    every_step: bool = False
    """Whether the predictions after every step of the cascade are trained, or only the last."""
    sizes: tuple[int, int] = (300, 600)
    """Smallest and largest number of points of a set."""
    small_sizes: tuple[int, int] = (75, 150)
    """The same in the first part of training."""
    small_share: float = 0.0
    """Fraction of the training steps that use ``small_sizes``."""
    num_benchmark_sets: int = 1000
    """Number of test sets."""
    num_scored_sets: int = 100
    """Number of validation sets."""

    def __post_init__(self) -> None:
        self.check_network("MixtureNetwork")
        self.check_at_least_one("num_benchmark_sets", "num_scored_sets")
        if self.every_step and (self.network["readout"] != "linear" or "picaso" not in self.network["pool"]):
            raise ValueError("every_step needs a network with readout 'linear' and pool 'picaso' or 'mixing-picaso'.")
        for name in ("sizes", "small_sizes"):
            smallest, largest = getattr(self, name)
            if not 1 <= smallest <= largest:
                raise ValueError(
                    f"{name} must be (smallest, largest) with 1 <= smallest <= largest; got {smallest, largest}."
                )
        if not 0 <= self.small_share <= 1:
            raise ValueError(f"small_share must be from 0 to 1; got {self.small_share}.")

    @classmethod
    def upgrade(cls, settings: dict[str, Any]) -> dict[str, Any]:
        return network_settings(cls, settings, NETWORK)

    @property
    def num_steps(self) -> int:
        return self.network["num_steps"]

    def batch(self, step: int, *, seed: int, num_examples: int, progress: float) -> tuple[Tensor, ...]:
        sizes = self.small_sizes if progress < self.small_share else self.sizes
        return (training_batch(step, seed=seed, num_sets=num_examples, sizes=sizes),)

    def loss(self, network: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        (points,) = batch
        if self.every_step:
            return -log_likelihood(network(points, every_step=True), points.repeat(self.num_steps, 1, 1)).mean()
        if self.network["readout"] == "linear":
            return -log_likelihood(network(points), points).mean()
        fine, coarse = log_likelihood(network(points, coarse=True), torch.cat([points, points])).chunk(2)
        return -(fine + COARSE * coarse).mean()

    def score(self, network: nn.Module) -> dict[str, float]:
        sets = self.sets(self.num_scored_sets, next(network.parameters()), seed=VALIDATION_SEED)
        values = likelihoods(network, Move(), sets, em_steps=(0,))
        return {"score": values[0], "below_oracle": values["oracle"] - values[0]}

    def evaluate(self, network: nn.Module) -> dict[str, Any]:
        like = next(network.parameters())
        rows = list[dict[str, Any]]()
        for move in MOVES:
            values = likelihoods(network, move, self.sets(self.num_benchmark_sets, like), em_steps=EM_STEPS)
            rows.append(
                dict(
                    shift=move.shift,
                    scale=move.scale,
                    degrees=move.degrees,
                    oracle=values.pop("oracle"),
                    log_likelihood={str(steps): value for steps, value in values.items()},
                )
            )
        timed = self.sets(min(self.num_benchmark_sets, 100), like)
        return {
            "moves": rows,
            "milliseconds_per_set": milliseconds_per_set(network, timed),
            "shown": self.figure_data(network, like),
        }

    def describe_data(self) -> str:
        return (
            f"generated: {self.num_benchmark_sets} sets of {self.sizes[0]} to {self.sizes[1]} points from 4 Gaussians"
        )

    def sets(self, count: int, like: Tensor, *, seed: int = 2021) -> Iterator[tuple[Tensor, Mixture]]:
        """Yield batches of fixed sets and their true mixtures, with the dtype and device of ``like``."""
        for points, truth in benchmark_sets(count, sizes=self.sizes, seed=seed):
            yield points.to(like), Mixture(*(part.to(like) for part in truth))

    @torch.no_grad()
    def figure_data(self, network: nn.Module, like: Tensor) -> dict[str, Any]:
        """Return predictions for a few test sets under every shift, and the attention of the cascade on the first."""
        points, _ = next(self.sets(NUM_SHOWN, like))
        predictions = {f"{shift:+d}": as_lists(network(Move(shift=shift).points(points))) for shift in SHIFTS}
        data: dict[str, Any] = {"predictions": predictions}
        if isinstance(network, MixtureNetwork) and "picaso" in self.network["pool"]:
            attention = network.trace(points[:1]).attention[:, 0].mean(dim=1)  # (L, K, N), averaged over heads
            data["attention"] = rounded(attention * points.shape[1], 2)
        return data


@torch.no_grad()
def likelihoods(
    network: nn.Module, move: Move, sets: Iterator[tuple[Tensor, Mixture]], *, em_steps: Sequence[int]
) -> dict[Any, float]:
    """Return the average log-likelihood after each number of EM steps, and that of the true mixtures (``"oracle"``)."""
    values: dict[Any, list[Tensor]] = {steps: [] for steps in em_steps} | {"oracle": []}
    for points, truth in sets:
        moved = move.points(points)
        values["oracle"].append(log_likelihood(move.mixture(truth), moved))
        mixture = network(moved)
        for steps in range(max(em_steps) + 1):
            if steps in values:
                values[steps].append(log_likelihood(mixture, moved))
            if steps < max(em_steps):
                mixture = em_step(mixture, moved)
    return {steps: float(torch.cat(parts).double().mean()) for steps, parts in values.items()}


@torch.no_grad()
def milliseconds_per_set(network: nn.Module, sets: Iterator[tuple[Tensor, Mixture]]) -> float:
    """Return the time of a forward pass per set, after one warm-up batch."""
    batches = [points for points, _ in sets]
    network(batches[0])
    start = time.perf_counter()
    for points in batches:
        network(points)
    return 1e3 * (time.perf_counter() - start) / sum(len(points) for points in batches)


def as_lists(mixture: Mixture) -> dict[str, Any]:
    return {name: rounded(part) for name, part in mixture._asdict().items()}


def rounded(values: Tensor, digits: int = 4) -> Any:
    """Return a tensor as nested lists of rounded numbers."""
    return values.double().cpu().numpy().round(digits).tolist()


def evaluate_scikit_learn(*, num_starts: int, num_sets: int, sizes: tuple[int, int]) -> dict[str, Any]:
    """Return the log-likelihood of scikit-learn's spherical ``GaussianMixture`` under every shift, and its time."""
    rows, times = list[dict[str, Any]](), list[float]()
    for move in (Move(shift=shift) for shift in SHIFTS):
        fits = [
            fit_scikit_learn(
                move, points[index : index + 1], Mixture(*(part[index : index + 1] for part in truth)), num_starts
            )
            for points, truth in benchmark_sets(num_sets, sizes=sizes)
            for index in range(len(points))
        ]
        log_likelihoods, oracles, seconds = map(list[float], zip(*fits, strict=True))
        times += seconds
        rows.append(
            dict(shift=move.shift, oracle=float(np.mean(oracles)), log_likelihood=float(np.mean(log_likelihoods)))
        )
    return {"num_starts": num_starts, "moves": rows, "milliseconds_per_set": 1e3 * float(np.mean(times))}


def fit_scikit_learn(move: Move, points: Tensor, truth: Mixture, num_starts: int) -> tuple[float, float, float]:
    """Return the log-likelihood of a fitted mixture, that of the true one, and the seconds of the fit."""
    require("sklearn", extra="estimators", purpose="the comparison with scikit-learn")
    from sklearn.mixture import GaussianMixture  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType]

    moved = move.points(points)
    mixture: Any = GaussianMixture(truth.means.shape[1], covariance_type="spherical", n_init=num_starts, random_state=0)
    array = moved[0].double().numpy()
    start = time.perf_counter()
    mixture.fit(array)
    seconds = time.perf_counter() - start
    return float(mixture.score(array)), float(log_likelihood(move.mixture(truth), moved)), seconds
