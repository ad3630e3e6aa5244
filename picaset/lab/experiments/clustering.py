"""Clustering under shift: the rows of Table 2, plain and canonicalized, the paper's ablations, and a row of ours.

The network behind ``AmortizedMixture``: proposals for a number of coordinates and of components.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from picaset.lab.tasks.clustering import Clustering
from picaset.lab.tasks.mixture_proposals import MixtureProposals
from picaset.lab.training.experiment import Experiment, Training

ROWS = {
    "deepset-mean": Clustering(encoder="elementwise", pool="mean"),
    "deepset-max": Clustering(encoder="elementwise", pool="max"),
    "set-transformer": Clustering(pool="attention", num_decoder_blocks=1),
    "ae16-pma": Clustering(num_inducing=16, pool="attention"),
    "ae32-pma": Clustering(pool="attention"),
    "ae16-pb": Clustering(num_inducing=16),
    "sa-pb": Clustering(encoder="self"),
    "ae32-pb": Clustering(),
    "ae32-pb-sa": Clustering(num_decoder_blocks=1),
}
"""Table 2, in its order. All encoders are two blocks deep, as in Set Transformer."""

FULL = ROWS["ae32-pb-sa"]

ABLATIONS = {
    "no-residual": replace(FULL, residual=False),
    "no-feed-forward": replace(FULL, feed_forward=False),
    "steps1": replace(FULL, num_steps=1),
    "steps3": replace(FULL, num_steps=3),
    "steps4": replace(FULL, num_steps=4),
    "separate-weights": replace(FULL, share=False),
    "paper-form": replace(FULL, form="paper"),
    "norm": replace(FULL, norm=True),
}
"""What AE32 + PB + SA is without each of its parts."""

CANONICAL = ("set-transformer", "ae32-pb", "ae32-pb-sa")
"""Rows that are also trained canonicalized."""

TABLE_ROWS = (*ROWS, *(f"{name}-canonical" for name in CANONICAL), "ours")
"""Every row of our table, in its order."""

OURS = replace(FULL, canonicalize=True, readout="moments", num_steps=3)
"""Templates claim points, and a component is the moments of what its template claims."""


def quick(task: Clustering, seed: int) -> tuple[Clustering, Training]:
    """About eight minutes of one thread: small sets first, large ones last. Ours learns more slowly, for longer."""
    training = Training(
        steps=6000, batch_size=16, clip=1.0, average=0.995, score_every=500, checkpoint_every=250, seed=seed
    )
    if task.readout == "moments":
        training = replace(training, steps=12_000, learning_rate=5e-4)
    return replace(task, small_share=0.75), training


def smoke(task: Clustering, seed: int) -> tuple[Clustering, Training]:
    """The same path in seconds."""
    task = replace(
        task, dim=16, num_inducing=4, sizes=(30, 60), small_sizes=(10, 20), small_share=0.5, num_benchmark_sets=20,
        num_scored_sets=10,
    )  # fmt: skip
    return task, Training(steps=20, batch_size=4, clip=1.0, average=0.9, score_every=10, checkpoint_every=5, seed=seed)


def paper(task: Clustering, seed: int) -> tuple[Clustering, Training]:
    """As published: batches of ten, 50 000 steps, the learning rate divided by ten half-way."""
    return task, Training(steps=50_000, batch_size=10, schedule="tenth-half-way", seed=seed)


PROFILES = {"smoke": smoke, "quick": quick, "paper": paper}


def build(name: str, task: Clustering, profile: str, seed: int) -> Experiment:
    sized, training = PROFILES[profile](task, seed)
    return Experiment(name=name, profile=profile, task=sized, training=training)


def named(tasks: dict[str, Clustering]) -> dict[str, Callable[[str, int], Experiment]]:
    return {f"clustering-{name}": partial(build, f"clustering-{name}", task) for name, task in tasks.items()}


CLUSTERING = named(
    ROWS
    | {f"{name}-canonical": replace(ROWS[name], canonicalize=True) for name in CANONICAL}
    | {f"ablation-{name}": task for name, task in ABLATIONS.items()}
    | {"ours": OURS}
)


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
