"""Mixture proposals for a clusterer: predict mixtures of two or more components, in any number of dimensions.

Trained on simulated mixtures. The loss is the mean of the negative log-likelihoods of the best and of the average
proposal: the first lets proposals differ, the second keeps each of them useful.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from picaset.lab.data.gaussian_mixtures import draw_mixtures, seeded_generator
from picaset.lab.tasks.task import Task, network_settings
from picaset.networks.mixture_proposer import MixtureProposer
from picaset.operators.mixture import Mixture, em_step, log_likelihood
from picaset.pretrained import ModuleConfig

EM_STEPS = (0, 1, 5, 20)
EARLIER = 0.5
"""Weight of the loss of the proposals after every step of the cascade, beside that of the last."""
NETWORK = ModuleConfig.of(MixtureProposer, form="authors")


@dataclass(frozen=True, kw_only=True, slots=True)
class MixtureProposals(Task):
    """Predict Gaussian mixtures of two components up to a maximum."""

    network: ModuleConfig = NETWORK
    sizes: tuple[int, int] = (40, 256)
    """Smallest and largest number of points of a set."""
    deviations: tuple[float, float] = (0.15, 0.6)
    """Smallest and largest standard deviation of the components, whose means lie in [-4, 4]."""
    num_scored_sets: int = 64
    """Number of validation sets for each number of components."""

    def __post_init__(self) -> None:
        self.check_network("MixtureProposer")
        self.check_at_least_one("num_scored_sets")
        if self.max_components < 2:
            raise ValueError(f"max_components must be at least 2; got {self.max_components}.")
        for name in ("sizes", "deviations"):
            smallest, largest = getattr(self, name)
            if not 0 < smallest <= largest:
                raise ValueError(
                    f"{name} must be (smallest, largest) with 0 < smallest <= largest; got {smallest, largest}."
                )

    @classmethod
    def upgrade(cls, settings: dict[str, Any]) -> dict[str, Any]:
        return network_settings(cls, settings, NETWORK)

    @property
    def max_components(self) -> int:
        return self.network["max_components"]

    @property
    def num_proposals(self) -> int:
        return self.network["num_proposals"]

    def batch(self, step: int, *, seed: int, num_examples: int, progress: float) -> tuple[Tensor, ...]:
        generator = seeded_generator(seed, step)
        num_components = int(torch.randint(2, self.max_components + 1, (), generator=generator))
        points, _ = self.draw(num_examples, num_components, generator)
        return points, torch.full((num_examples,), num_components)

    def loss(self, network: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        points, num_components = batch
        mixtures = network(points, num_components=int(num_components[0]), every_step=True)
        repeated = points.repeat_interleave(self.num_proposals, dim=0)
        after = em_step(Mixture(*(part[-len(repeated) :] for part in mixtures)), repeated)
        every = Mixture(*(torch.cat(parts) for parts in zip(mixtures, after, strict=True)))
        num_steps = self.network["num_steps"] + 1  # those of the cascade, and one of EM
        values = log_likelihood(every, repeated.repeat(num_steps, 1, 1)).view(num_steps, -1, self.num_proposals)
        steps = (values.amax(dim=2) + values.mean(dim=2)).mean(dim=1) / 2
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
            f"generated: sets of {self.sizes[0]} to {self.sizes[1]} points in {self.network['dim_in']} dimensions "
            f"from 2 to {self.max_components} Gaussians"
        )

    @torch.no_grad()
    def below_oracle(self, network: nn.Module, num_components: int, *, em_steps: tuple[int, ...]) -> dict[str, float]:
        """Return the gap of the best proposal to the true mixture in log-likelihood, after each number of EM steps."""
        points, truth = self.draw(self.num_scored_sets, num_components, seeded_generator(2021, num_components))
        weight = next(network.parameters())
        points, truth = points.to(weight), Mixture(*(part.to(weight) for part in truth))
        oracle = log_likelihood(truth, points)
        mixtures, repeated = (
            network(points, num_components=num_components), points.repeat_interleave(self.num_proposals, dim=0)
        )  # fmt: skip
        gaps = dict[str, float]()
        for steps in range(max(em_steps) + 1):
            if steps in em_steps:
                best = log_likelihood(mixtures, repeated).view(-1, self.num_proposals).amax(dim=1)
                gaps[str(steps)] = float((oracle - best).double().mean())
            mixtures = em_step(mixtures, repeated)
        return gaps

    def draw(self, num_sets: int, num_components: int, generator: torch.Generator) -> tuple[Tensor, Mixture]:
        """Draw sets of one size; in half of them all components have one standard deviation."""
        num_points = int(torch.randint(self.sizes[0], self.sizes[1] + 1, (), generator=generator))
        low, high = (torch.tensor(bound).log() for bound in self.deviations)
        individual = torch.rand(num_sets, num_components, 1, generator=generator)
        equal = torch.rand(num_sets, 1, 1, generator=generator) < 0.5
        deviation = (low + (high - low) * torch.where(equal, individual[:, :1], individual)).exp()
        return draw_mixtures(
            num_sets,
            num_points,
            generator=generator,
            num_components=num_components,
            dim=self.network["dim_in"],
            deviation=deviation,
        )
