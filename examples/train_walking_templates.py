"""Train the small cascade of `picaset tour`, whose templates move to the clusters of a set.

A linear map decodes the templates of every step to cluster centres, so that each step can be drawn. The loss is the
negative log-likelihood of the points under spherical Gaussians at these centres, plus a penalty on moving. Sets are
canonicalized, so that the result does not depend on the position and scale of the points.

    python examples/train_walking_templates.py --steps 4500 --out picaset/weights/walking_templates
    python examples/train_walking_templates.py --evaluate

Takes about five minutes on two cores. Prints the mean distance from a true centre to the nearest template at every
step. With --evaluate, prints for the shipped network and for soft K-means from the same templates in how many of 200
sets every centre has a template nearby.
"""

import argparse
import math
from pathlib import Path

import torch
from torch import Tensor

from picaset import Picaso
from picaset.lab.data.gaussian_mixtures import draw_mixtures
from picaset.lab.reports.template_walk import walk_through_mixture
from picaset.operators.canonicalize import shift_and_scale

DEVIATIONS = (1.0, 0.6, 0.35, 0.2)
"""Standard deviation of the Gaussians at each step, in units of the spread of the set: coarse to fine."""
MOVE_WEIGHT = 0.5
"""Weight of the penalty on moving."""


def build() -> Picaso:
    return Picaso(
        2,
        2,
        dim=64,
        num_heads=4,
        num_inducing=16,
        num_encoder_blocks=1,
        num_outputs=4,
        num_steps=len(DEVIATIONS),
        num_decoder_blocks=0,
    )


def centres_by_step(network: Picaso, points: Tensor) -> Tensor:
    """Return the decoded templates before the first step and after each step: (L + 1, B, K, 2)."""
    return network.decoder(network.trace(points).templates)


def log_likelihood(points: Tensor, centres: Tensor, deviation: float) -> Tensor:
    """Return the mean log-likelihood of points (B, N, 2) under Gaussians at centres (B, K, 2), up to a constant."""
    squares = (points[:, :, None] - centres[:, None]).square().sum(dim=-1)
    return (-squares / (2 * deviation**2)).logsumexp(dim=-1).mean() - 2 * math.log(deviation)


def nearest_distance(true: Tensor, centres: Tensor) -> Tensor:
    return torch.cdist(true, centres).amin(dim=-1)


def train(steps: int, seed: int) -> Picaso:
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    network = build()
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps, pct_start=0.1)
    for step in range(steps):
        points, truth = draw_mixtures(32, 80, generator=generator)
        shift, scale = shift_and_scale(points, None)
        points = (points - shift) / scale
        _, *centres_of_steps = centres_by_step(network, points)
        likelihoods = [log_likelihood(points, *step) for step in zip(centres_of_steps, DEVIATIONS, strict=True)]
        moves = (
            torch.stack(centres_of_steps).diff(dim=0).square().mean()
        )  # a template that keeps its cluster moves little
        loss = -torch.stack(likelihoods).mean() + MOVE_WEIGHT * moves
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 500 == 0 or step == steps - 1:
            true = (truth.means - shift) / scale
            distances = [nearest_distance(true, centres) * scale[:, 0] for centres in centres_of_steps]
            means = "  ".join(f"{distance.mean().item():.2f}" for distance in distances)
            print(f"step {step:5d}   loss {loss.item():6.3f}   distance by step {means}", flush=True)
    return network


def evaluate(num_sets: int = 200, near: float = 1.0) -> None:
    """Count the sets in which every cluster is found, for each operator that ``picaset tour`` draws."""
    num_found: dict[str, int] = {}
    for seed in range(num_sets):
        _, truth = draw_mixtures(1, 300, generator=torch.Generator().manual_seed(seed))
        for walk in walk_through_mixture(seed=seed):
            all_near = nearest_distance(truth.means[0], walk.templates[-1]).max().item() < near
            num_found[walk.title] = num_found.get(walk.title, 0) + all_near
    for title, count in num_found.items():
        print(f"{title}: every cluster found in {count} of {num_sets} sets")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=4500, help="optimizer steps")
    parser.add_argument("--seed", type=int, default=0, help="random seed of weights and data")
    parser.add_argument("--out", type=Path, default=Path("walking_templates"), help="folder to write the network to")
    parser.add_argument("--evaluate", action="store_true", help="evaluate the shipped network instead of training")
    arguments = parser.parse_args()
    if arguments.evaluate:
        evaluate()
    else:
        train(arguments.steps, arguments.seed).save_pretrained(arguments.out)
