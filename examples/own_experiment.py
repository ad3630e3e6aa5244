"""An experiment of one's own: is the largest pair of coordinates in a set above a threshold?

cd examples
picaset train own_experiment:experiment --profile smoke
picaset train own_experiment:experiment --resume runs/extremes-picaso-smoke-seed0
picaset report
"""

from dataclasses import dataclass

import torch

from picaset import Picaso
from picaset.lab.tasks.task import Task
from picaset.lab.training.experiment import Experiment, Training
from picaset.pretrained import ModuleConfig

NETWORK = ModuleConfig.of(Picaso, dim_in=2, dim_out=1, dim=32, num_inducing=8)


@dataclass(frozen=True, kw_only=True, slots=True)
class Extremes(Task):
    network: ModuleConfig = NETWORK
    num_points: int = 30

    def draw(self, seed, count):  # your data: examples along the first dimension
        points = torch.randn(count, self.num_points, 2, generator=torch.Generator().manual_seed(seed))
        return points, (points.sum(dim=2).amax(dim=1) > 3).float()

    def batch(self, step, *, seed, num_examples, progress):
        return self.draw(1_000_000 * (seed + 1) + step, num_examples)

    def loss(self, network, batch):
        return torch.nn.functional.binary_cross_entropy_with_logits(network(batch[0])[:, 0, 0], batch[1])

    @torch.no_grad()
    def accuracy(self, network, seed):
        points, labels = self.draw(seed, 500)
        return float(((network(points)[:, 0, 0] > 0) == (labels > 0.5)).float().mean())

    def score(self, network):
        return {"score": self.accuracy(network, seed=1)}  # validation, during training

    def evaluate(self, network):
        return {"accuracy": self.accuracy(network, seed=2)}  # test, at the end

    def describe_data(self):
        return f"generated: sets of {self.num_points} points"


def experiment(profile, seed):
    steps = {"smoke": 20, "quick": 300}.get(profile, 3000)
    training = Training(steps=steps, batch_size=32, score_every=steps // 4, checkpoint_every=steps // 2, seed=seed)
    return Experiment(name="extremes-picaso", profile=profile, task=Extremes(), training=training)
