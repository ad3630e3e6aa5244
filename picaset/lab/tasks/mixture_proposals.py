"""Proposals for a clusterer: guess mixtures of two components or more, in any number of dimensions.

Trained on simulated mixtures. The loss is the likelihood of the best proposal and of the average one, in equal parts:
the first lets proposals differ, the second lets none of them be useless.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from picaset.lab.data.gaussian_mixtures import draw_mixtures, generator_for
from picaset.networks.mixture_proposer import MixtureProposer
from picaset.operators.mixture import Mixture, em_step, log_likelihood

EM_STEPS = (0, 1, 5, 20)
EARLIER = 0.5
"""Weight of what is proposed after every step of the cascade, beside what is proposed after the last."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MixtureProposals:
    """Guess Gaussian mixtures of every number of components up to a largest."""

    dim_in: int = 2
    """Coordinates of a point."""
    max_components: int = 8
    """The most components that can be asked for; the fewest are 2."""
    num_proposals: int = 4
    """Mixtures guessed for each set."""
    dim: int = 64
    """Features inside the network."""
    num_heads: int = 4
    """Attention heads; divides the width."""
    num_steps: int = 2
    """Steps of the cascade."""
    share: bool = False
    """One pair of blocks for all steps, or one for each."""
    norm: bool = False
    """Layer norm after each sum of a block."""
    num_frequencies: int = 3
    """Sines and cosines of each coordinate shown to the network."""
    sizes: tuple[int, int] = (40, 256)
    """Points of a set, from and to."""
    deviations: tuple[float, float] = (0.15, 0.6)
    """Standard deviations of components whose means lie in [-4, 4], from and to."""
    num_scored_sets: int = 64
    """Sets that the network is scored on for each number of components."""

    def __post_init__(self) -> None:
        if self.max_components < 2:
            raise ValueError(f"max_components must be at least 2; got {self.max_components}.")
        for name in ("sizes", "deviations"):
            smallest, largest = getattr(self, name)
            if not 0 < smallest <= largest:
                raise ValueError(f"{name} must rise from above 0; got {smallest} to {largest}.")
        if self.num_scored_sets < 1:
            raise ValueError(f"num_scored_sets must be at least 1; got {self.num_scored_sets}.")

    def build_network(self) -> MixtureProposer:
        return MixtureProposer(
            dim_in=self.dim_in,
            max_components=self.max_components,
            num_proposals=self.num_proposals,
            dim=self.dim,
            num_heads=self.num_heads,
            num_steps=self.num_steps,
            share=self.share,
            num_frequencies=self.num_frequencies,
            form="authors",
            norm=self.norm,
        )

    def read_network(self, directory: Path) -> MixtureProposer:
        return MixtureProposer.from_pretrained(directory)

    def batch(self, step: int, *, seed: int, num_examples: int, progress: float) -> tuple[Tensor, ...]:
        generator = generator_for(seed, step)
        num_components = int(torch.randint(2, self.max_components + 1, (), generator=generator))
        points, _ = self.draw(num_examples, num_components, generator)
        return points, torch.full((num_examples,), num_components)

    def loss(self, network: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        points, num_components = batch
        mixtures = network(points, num_components=int(num_components[0]), every_step=True)
        repeated = points.repeat_interleave(self.num_proposals, dim=0)
        after = em_step(Mixture(*(part[-len(repeated) :] for part in mixtures)), repeated)
        every = Mixture(*(torch.cat(parts) for parts in zip(mixtures, after, strict=True)))
        found = log_likelihood(every, repeated.repeat(self.num_steps + 1, 1, 1))
        found = found.view(self.num_steps + 1, -1, self.num_proposals)  # after each step, and after an EM step
        steps = (found.amax(dim=2) + found.mean(dim=2)).mean(dim=1) / 2
        return -(steps[-1] + EARLIER * steps[:-1].mean())

    def score(self, network: nn.Module) -> dict[str, float]:
        rows = [
            self.below_oracle(network, num_components, em_steps=(0, 5))
            for num_components in range(2, self.max_components + 1)
        ]
        alone, refined = (sum(row[steps] for row in rows) / len(rows) for steps in ("0", "5"))
        return {"score": -refined, "below_oracle": refined, "below_oracle_alone": alone}

    def evaluate(self, network: nn.Module) -> dict[str, Any]:
        rows = [
            {"num_components": count, "below_oracle": self.below_oracle(network, count, em_steps=EM_STEPS)}
            for count in range(2, self.max_components + 1)
        ]
        return {"num_components": rows}

    def describe_data(self) -> str:
        return (
            f"generated: sets of {self.sizes[0]} to {self.sizes[1]} points in {self.dim_in} dimensions "
            f"from 2 to {self.max_components} Gaussians"
        )

    @torch.no_grad()
    def below_oracle(self, network: nn.Module, num_components: int, *, em_steps: tuple[int, ...]) -> dict[str, float]:
        """How far the best proposal is below the mixture the points come from, after each number of EM steps."""
        points, truth = self.draw(self.num_scored_sets, num_components, generator_for(2021, num_components))
        weight = next(network.parameters())
        points, truth = points.to(weight), Mixture(*(part.to(weight) for part in truth))
        oracle = log_likelihood(truth, points)
        mixtures, repeated = (
            network(points, num_components=num_components), points.repeat_interleave(self.num_proposals, dim=0)
        )  # fmt: skip
        found = dict[str, float]()
        for steps in range(max(em_steps) + 1):
            if steps in em_steps:
                best = log_likelihood(mixtures, repeated).view(-1, self.num_proposals).amax(dim=1)
                found[str(steps)] = float((oracle - best).double().mean())
            mixtures = em_step(mixtures, repeated)
        return found

    def draw(self, num_sets: int, num_components: int, generator: torch.Generator) -> tuple[Tensor, Mixture]:
        """Sets of one size; in half of them all components are equally wide."""
        num_points = int(torch.randint(self.sizes[0], self.sizes[1] + 1, (), generator=generator))
        low, high = (torch.tensor(bound).log() for bound in self.deviations)
        own = torch.rand(num_sets, num_components, 1, generator=generator)
        equal = torch.rand(num_sets, 1, 1, generator=generator) < 0.5
        deviation = (low + (high - low) * torch.where(equal, own[:, :1], own)).exp()
        return draw_mixtures(
            num_sets,
            num_points,
            generator=generator,
            num_components=num_components,
            dim=self.dim_in,
            deviation=deviation,
        )
