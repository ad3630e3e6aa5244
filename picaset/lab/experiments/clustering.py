"""Clustering: the rows of Table 2, plain and canonicalized, the paper's ablations, our row, and mixture proposers."""

from dataclasses import replace
from functools import partial

from picaset.lab.tasks.clustering import NETWORK, Clustering
from picaset.lab.tasks.mixture_proposals import NETWORK as PROPOSER
from picaset.lab.tasks.mixture_proposals import MixtureProposals
from picaset.lab.training.experiment import Builder, Experiment, Training, build, builders

ROWS = {
    "deepset-mean": NETWORK.replace(encoder="elementwise", pool="mean"),
    "deepset-max": NETWORK.replace(encoder="elementwise", pool="max"),
    "set-transformer": NETWORK.replace(pool="attention", num_decoder_blocks=1),
    "ae16-pma": NETWORK.replace(num_inducing=16, pool="attention"),
    "ae32-pma": NETWORK.replace(pool="attention"),
    "ae16-pb": NETWORK.replace(num_inducing=16),
    "sa-pb": NETWORK.replace(encoder="self"),
    "ae32-pb": NETWORK,
    "ae32-pb-sa": NETWORK.replace(num_decoder_blocks=1),
}
"""Networks of Table 2, in its order. All encoders have two blocks, as in Set Transformer."""

FULL = ROWS["ae32-pb-sa"]

ABLATIONS = {
    "no-residual": FULL.replace(residual=False),
    "no-feed-forward": FULL.replace(feed_forward=False),
    "steps1": FULL.replace(num_steps=1),
    "steps3": FULL.replace(num_steps=3),
    "steps4": FULL.replace(num_steps=4),
    "separate-weights": FULL.replace(share=False),
    "paper-form": FULL.replace(form="paper"),
    "norm": FULL.replace(norm=True),
}
"""AE32 + PB + SA with one part changed."""

CANONICAL = ("set-transformer", "ae32-pb", "ae32-pb-sa")
"""Rows that are also trained canonicalized."""

TABLE_ROWS = (*ROWS, *(f"{name}-canonical" for name in CANONICAL), "ours")
"""Every row of our table, in its order."""

OURS = FULL.replace(canonicalize=True, readout="moments", num_steps=3)
"""Canonicalized, with components read as the moments of the points that each template claims."""


def quick(task: Clustering, seed: int) -> tuple[Clustering, Training]:
    """About eight minutes of one thread, on small sets first and large ones last; our row has more, smaller steps."""
    training = Training(
        steps=6000, batch_size=16, clip=1.0, average=0.995, score_every=500, checkpoint_every=250, seed=seed
    )
    if task.network["readout"] == "moments":
        training = replace(training, steps=12_000, learning_rate=5e-4)
    return replace(task, small_share=0.75), training


def smoke(task: Clustering, seed: int) -> tuple[Clustering, Training]:
    """The same code path in seconds."""
    task = replace(
        task, network=task.network.replace(dim=16, num_inducing=4), sizes=(30, 60), small_sizes=(10, 20),
        small_share=0.5, num_benchmark_sets=20, num_scored_sets=10,
    )  # fmt: skip
    return task, Training(steps=20, batch_size=4, clip=1.0, average=0.9, score_every=10, checkpoint_every=5, seed=seed)


def paper(task: Clustering, seed: int) -> tuple[Clustering, Training]:
    """The published setting: batches of ten, 50 000 steps, the learning rate divided by ten half-way."""
    return task, Training(steps=50_000, batch_size=10, schedule="tenth-half-way", seed=seed)


def study(task: Clustering, seed: int) -> tuple[Clustering, Training]:
    """The published number of steps and sets, with a recipe chosen on validation sets: one cycle up to 2e-3."""
    training = Training(
        steps=50_000, batch_size=10, learning_rate=2e-3, clip=1.0, average=0.995, score_every=2500,
        checkpoint_every=500, seed=seed,
    )  # fmt: skip
    return task, training


NETWORKS = (
    ROWS
    | {f"{name}-canonical": ROWS[name].replace(canonicalize=True) for name in CANONICAL}
    | {f"ablation-{name}": network for name, network in ABLATIONS.items()}
    | {"ours": OURS}
)
CLUSTERING = builders(
    "clustering",
    {name: Clustering(network=network) for name, network in NETWORKS.items()},
    {"smoke": smoke, "quick": quick, "paper": paper, "study": study},
)

PROPOSER_TRAININGS = {
    "smoke": Training(steps=20, batch_size=4, score_every=10, checkpoint_every=10),
    "quick": Training(steps=20_000, batch_size=16, score_every=1000, checkpoint_every=500),
    "paper": Training(steps=100_000, batch_size=32, score_every=5000, checkpoint_every=1000),
}
"""The paper has no mixture proposer; its profile is the longest training that we offer."""


def size_proposer(profile: str, task: MixtureProposals, seed: int) -> tuple[MixtureProposals, Training]:
    if profile == "smoke":
        task = replace(task, network=task.network.replace(dim=16), sizes=(20, 40), num_scored_sets=4)
    return task, replace(PROPOSER_TRAININGS[profile], learning_rate=1e-3, clip=1.0, average=0.995, seed=seed)


PROPOSER_PROFILES = {profile: partial(size_proposer, profile) for profile in PROPOSER_TRAININGS}


def clusterer(profile: str, seed: int, *, dim_in: int = 2, max_components: int = 8) -> Experiment:
    """Return the training of a mixture proposer for other numbers of coordinates or of components."""
    task = MixtureProposals(network=PROPOSER.replace(dim_in=dim_in, max_components=max_components))
    return build(name_of(dim_in, max_components), task, PROPOSER_PROFILES, profile, seed)


def name_of(dim_in: int, max_components: int) -> str:
    return f"clusterer-{dim_in}d-{max_components}"


CLUSTERERS: dict[str, Builder] = {name_of(2, 8): clusterer}
