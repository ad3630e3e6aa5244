"""Clustering under shift: predict the mixture that a set of points was drawn from (Table 2, Figure 4).

Scored by the average log-likelihood per point, of the network alone and after a few EM steps from its prediction, on
the same sets moved out of the range of training.

What a user would take instead of a network: scikit-learn's mixtures on the same sets, from one start or more.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from picaset.extras import require
from picaset.lab.data.gaussian_mixtures import Move, batch_of_step, benchmark
from picaset.lab.networks.mixture_network import MixtureNetwork, Pool, Readout
from picaset.networks.set_networks import Encoder
from picaset.operators.block import Form
from picaset.operators.mixture import Mixture, em_step, log_likelihood

SHIFTS = (0, 8, -8, 10, -10, 12, -12)
"""Of the paper's Table 2, in its order."""
MOVES = (*(Move(shift=shift) for shift in SHIFTS), Move(scale=0.5), Move(scale=2), Move(degrees=45), Move(degrees=90))
EM_STEPS = (0, 1, 5)
COARSE = 0.5
"""Weight of the coarse estimate in the loss of a network that has one."""
NUM_SHOWN = 3
"""Sets of the benchmark whose predictions are kept for the figures."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Clustering:
    """Amortized clustering of two-dimensional Gaussian mixtures."""

    encoder: Encoder = "induced"
    """AE, SA, or the maps of every element by itself of DeepSets."""
    num_inducing: int = 32
    """Learned points of each induced encoder."""
    num_encoder_blocks: int = 2
    """Encoders, one after the other."""
    pool: Pool = "picaso"
    """PB, PMA, or DeepSets' mean or maximum."""
    num_steps: int = 2
    """Steps of the cascade."""
    share: bool = True
    """One block for all steps, or one for each."""
    num_decoder_blocks: int = 0
    """Self-attention blocks among the answers."""
    dim: int = 128
    """Features inside the network."""
    num_heads: int = 4
    """Attention heads; divides the width."""
    form: Form = "authors"
    """The block as the published programs have it, or as the paper's equation does."""
    norm: bool = False
    """Layer norm after each sum of a block."""
    residual: bool = True
    """The residuals of every block."""
    feed_forward: bool = True
    """The feed-forward layers of every block."""
    readout: Readout = "linear"
    """How a component is read from its template."""
    num_frequencies: int = 0
    """Sines and cosines of each coordinate shown to the network."""
    canonicalize: bool = False
    """Show the network every set at the origin with unit spread."""
    sizes: tuple[int, int] = (300, 600)
    """Points of a set, from and to."""
    small_sizes: tuple[int, int] = (75, 150)
    """Points of a set in the first part of training."""
    small_share: float = 0.0
    """The first part of training, as a share of its steps."""
    num_benchmark_sets: int = 1000
    """Sets that a trained network is scored on."""
    num_scored_sets: int = 100
    """Sets that it is scored on while training."""

    def __post_init__(self) -> None:
        for name in ("sizes", "small_sizes"):
            smallest, largest = getattr(self, name)
            if not 1 <= smallest <= largest:
                raise ValueError(f"{name} must go from at least 1 upwards; got {smallest} to {largest}.")
        for name in ("num_benchmark_sets", "num_scored_sets"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}.")
        if not 0 <= self.small_share <= 1:
            raise ValueError(f"small_share must be from 0 to 1; got {self.small_share}.")

    def build_network(self) -> MixtureNetwork:
        return MixtureNetwork(
            encoder=self.encoder,
            num_inducing=self.num_inducing,
            num_encoder_blocks=self.num_encoder_blocks,
            pool=self.pool,
            num_steps=self.num_steps,
            share=self.share,
            num_decoder_blocks=self.num_decoder_blocks,
            dim=self.dim,
            num_heads=self.num_heads,
            form=self.form,
            norm=self.norm,
            residual=self.residual,
            feed_forward=self.feed_forward,
            readout=self.readout,
            num_frequencies=self.num_frequencies,
            canonicalize=self.canonicalize,
        )

    def read_network(self, directory: Path) -> MixtureNetwork:
        return MixtureNetwork.from_pretrained(directory)

    def batch(self, step: int, *, seed: int, num_examples: int, progress: float) -> tuple[Tensor, ...]:
        sizes = self.small_sizes if progress < self.small_share else self.sizes
        return (batch_of_step(step, seed=seed, num_sets=num_examples, sizes=sizes),)

    def loss(self, network: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        (points,) = batch
        if self.readout == "linear":
            return -log_likelihood(network(points), points).mean()
        fine, coarse = log_likelihood(network(points, coarse=True), torch.cat([points, points])).chunk(2)
        return -(fine + COARSE * coarse).mean()

    def score(self, network: nn.Module) -> dict[str, float]:
        found = likelihoods(network, Move(), self.sets(self.num_scored_sets, next(network.parameters())), em_steps=(0,))
        return {"score": found[0], "below_oracle": found["oracle"] - found[0]}

    def evaluate(self, network: nn.Module) -> dict[str, Any]:
        like = next(network.parameters())
        rows = list[dict[str, Any]]()
        for move in MOVES:
            found = likelihoods(network, move, self.sets(self.num_benchmark_sets, like), em_steps=EM_STEPS)
            oracle = found.pop("oracle")
            rows.append(
                dict(
                    shift=move.shift,
                    scale=move.scale,
                    degrees=move.degrees,
                    oracle=oracle,
                    log_likelihood={str(steps): value for steps, value in found.items()},
                )
            )
        timed = self.sets(min(self.num_benchmark_sets, 100), like)
        return {
            "moves": rows,
            "milliseconds_per_set": milliseconds_per_set(network, timed),
            "shown": self.shown(network, like),
        }

    def describe_data(self) -> str:
        return (
            f"generated: {self.num_benchmark_sets} sets of {self.sizes[0]} to {self.sizes[1]} points from 4 Gaussians"
        )

    def sets(self, count: int, like: Tensor) -> Iterator[tuple[Tensor, Mixture]]:
        """Sets of the benchmark, where the weights of a network are."""
        for points, truth in benchmark(count, sizes=self.sizes):
            yield points.to(like), Mixture(*(part.to(like) for part in truth))

    @torch.no_grad()
    def shown(self, network: nn.Module, like: Tensor) -> dict[str, Any]:
        """Predictions for the first sets of the benchmark under every shift, and the cascade at work on the first."""
        points, _ = next(self.sets(NUM_SHOWN, like))
        predictions = {f"{shift:+d}": as_lists(network(Move(shift=shift).points(points))) for shift in SHIFTS}
        shown: dict[str, Any] = {"predictions": predictions}
        if isinstance(network, MixtureNetwork) and self.pool == "picaso":
            attention = network.trace(points[:1]).attention[:, 0].mean(dim=1)  # (L, K, N), averaged over heads
            shown["attention"] = rounded(attention * points.shape[1], 2)
        return shown


@torch.no_grad()
def likelihoods(
    network: nn.Module, move: Move, sets: Iterator[tuple[Tensor, Mixture]], *, em_steps: tuple[int, ...]
) -> dict[Any, float]:
    """The average log-likelihood after each number of EM steps, and that of the mixtures the points come from."""
    found: dict[Any, list[Tensor]] = {steps: [] for steps in em_steps} | {"oracle": []}
    for points, truth in sets:
        moved = move.points(points)
        found["oracle"].append(log_likelihood(move.mixture(truth), moved))
        mixture = network(moved)
        for steps in range(max(em_steps) + 1):
            if steps in found:
                found[steps].append(log_likelihood(mixture, moved))
            if steps < max(em_steps):
                mixture = em_step(mixture, moved)
    return {steps: float(torch.cat(values).double().mean()) for steps, values in found.items()}


@torch.no_grad()
def milliseconds_per_set(network: nn.Module, sets: Iterator[tuple[Tensor, Mixture]]) -> float:
    batches = [points for points, _ in sets]
    network(batches[0])
    began = time.perf_counter()
    for points in batches:
        network(points)
    return 1e3 * (time.perf_counter() - began) / sum(len(points) for points in batches)


def as_lists(mixture: Mixture) -> dict[str, Any]:
    return {name: rounded(part) for name, part in mixture._asdict().items()}


def rounded(values: Tensor, digits: int = 4) -> Any:
    """As nested lists, with as many digits as a figure needs."""
    return values.double().cpu().numpy().round(digits).tolist()


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
