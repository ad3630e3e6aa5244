"""The network behind ``AmortizedMixture``: proposals for a number of coordinates and of components."""

from collections.abc import Callable
from dataclasses import replace

from picaset.lab.tasks.mixture_proposals import MixtureProposals
from picaset.lab.training.experiment import Experiment, Training

TRAININGS = {
    "smoke": Training(steps=20, batch_size=4, score_every=10, checkpoint_every=10),
    "quick": Training(steps=20_000, batch_size=16, score_every=1000, checkpoint_every=500),
    "paper": Training(steps=100_000, batch_size=32, score_every=5000, checkpoint_every=1000),
}
"""The paper has no such network; its place holds the longest training that we offer."""


def clusterer(profile: str, seed: int, *, dim_in: int = 2, max_components: int = 8) -> Experiment:
    """Points of another number of coordinates, or more components, are another experiment."""
    task = MixtureProposals(dim_in=dim_in, max_components=max_components)
    if profile == "smoke":
        task = replace(task, dim=16, sizes=(20, 40), num_scored_sets=4)
    training = replace(TRAININGS[profile], learning_rate=1e-3, clip=1.0, average=0.995, seed=seed)
    return Experiment(name=name_of(dim_in, max_components), profile=profile, task=task, training=training)


def name_of(dim_in: int, max_components: int) -> str:
    return f"clusterer-{dim_in}d-{max_components}"


CLUSTERERS: dict[str, Callable[[str, int], Experiment]] = {name_of(2, 8): clusterer}
