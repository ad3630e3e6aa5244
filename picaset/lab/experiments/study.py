"""A controlled study of set pooling: networks that differ in the pool alone, with the profile ``study``.

    clustering-pool-ROW            what the pool adds to our clustering network
    clustering-cascade-...         networks without an encoder: steps, training of every step, mixing of templates
    viewpoints-azimuth-pool-ROW    what the pool adds to our image classifier
    odd-one-out-celeba-pool-ROW    what the pool adds on faces, with three ways to compare an element with the set
    viewpoints-SPLIT-fair-ROW      Table 3 with the recipe of each row that was best on held-out training toys
    viewpoints-azimuth-centre-ROW  the same, trained on centre crops: its accuracy on moved crops tests translation

The rules of the comparison are in docs/reproduction.md. The ``smoke`` profile trains the same in seconds.
"""

from dataclasses import replace
from functools import partial
from typing import Any

from picaset.lab.experiments import clustering, odd_one_out, viewpoints
from picaset.lab.tasks.clustering import NETWORK, Clustering
from picaset.lab.tasks.odd_one_out import OddOneOut
from picaset.lab.tasks.viewpoints import Viewpoints
from picaset.lab.training.experiment import Builder, Experiment, Sizing, Training, build, builders

CLUSTERING_POOLS = {
    name: Clustering(network=clustering.OURS.replace(**arguments))
    for name, arguments in {"pma": {"pool": "attention"}, "pb2": {"num_steps": 2}, "pb3": {"num_steps": 3}}.items()
}
"""Our clustering network, canonicalized with moments, with another pool."""

CASCADE = NETWORK.replace(dim=64, encoder="elementwise", num_encoder_blocks=1, num_decoder_blocks=1, canonicalize=True)
"""An elementwise map, a cascade and one self-attention block: no encoder lets the points attend to each other."""
CASCADES = {
    f"steps{steps}{'-every' * every}{'-mixing' * mixing}": Clustering(
        network=CASCADE.replace(num_steps=steps, pool="mixing-picaso" if mixing else "picaso"), every_step=every
    )
    for steps in range(1, 7)
    for every in (False, True)
    for mixing in (False, True)
    if steps > 1 or not every
} | {
    "induced-steps1": Clustering(network=CASCADE.replace(encoder="induced", num_inducing=16, num_steps=1)),
    "induced-steps3": Clustering(network=CASCADE.replace(encoder="induced", num_inducing=16, num_steps=3)),
}
"""Numbers of steps, training of every step, self-attention of the templates; and one induced encoder to compare."""

VIEWPOINT_POOLS = {
    pool: replace(viewpoints.OURS, network=viewpoints.VIEW_CLASSIFIER.replace(pool=pool))
    for pool in ("mean", "attention", "picaso")
}

FACE_NETWORK = odd_one_out.ROWS["sa-gpb"]
FACES = {
    "none": FACE_NETWORK.replace(pool="none"),
    "mean": FACE_NETWORK.replace(pool="mean"),
    "pma": FACE_NETWORK.replace(pool="attention"),
    "pb": FACE_NETWORK.replace(pool="picaso"),
    "gpb": FACE_NETWORK,
    "mean-concatenated": FACE_NETWORK.replace(pool="mean", comparison="concatenation"),
    "pma-concatenated": FACE_NETWORK.replace(pool="attention", comparison="concatenation"),
    "pb-concatenated": FACE_NETWORK.replace(pool="picaso", comparison="concatenation"),
    "gpb-concatenated": FACE_NETWORK.replace(comparison="concatenation"),
    "gpb-mapped": FACE_NETWORK.replace(comparison="mapped-difference"),
}
"""SA with another pool or comparison; ``gpb-mapped`` is the form of the authors' program."""


def study_pools(task: Clustering, seed: int) -> tuple[Clustering, Training]:
    """6000 steps of 16 sets, small sets for three quarters of them."""
    training = Training(
        steps=6000, batch_size=16, learning_rate=5e-4, clip=1.0, average=0.995, score_every=1000, checkpoint_every=250,
        seed=seed,
    )  # fmt: skip
    return replace(task, small_share=0.75), training


def study_cascades(task: Clustering, seed: int) -> tuple[Clustering, Training]:
    """10 000 steps of 16 sets of 60 to 150 points."""
    training = Training(
        steps=10_000, batch_size=16, clip=1.0, average=0.995, score_every=2500, checkpoint_every=1000, seed=seed
    )
    return replace(task, sizes=(60, 150)), training


def study_viewpoints(task: Viewpoints, seed: int) -> tuple[Viewpoints, Training]:
    """1800 steps of 128 images with the recipe of our classifier."""
    _, training = viewpoints.quick(task, seed)
    return task, replace(training, steps=1800, score_every=600)


def study_faces(task: OddOneOut, seed: int) -> tuple[OddOneOut, Training]:
    """800 fixed sets, as published; 2000 steps of 8 sets with moved and mirrored images."""
    training = Training(
        steps=2000, batch_size=8, learning_rate=5e-4, clip=1.0, average=0.995, score_every=500, checkpoint_every=250,
        seed=seed,
    )  # fmt: skip
    return replace(task, shake=True), training


FAIR_RECIPES: dict[str, tuple[float, bool]] = {
    "deepset-mean": (3e-3, False),
    "deepset-max": (1e-3, False),
    "set-transformer": (1e-3, False),
    "pb1": (3e-3, True),
    "pb2": (3e-3, False),
    "pb3": (3e-3, False),
}
"""Peak learning rate, and whether attention has layer norm: the best of each row of Table 3 on held-out training toys
of the azimuth split (``results/tried``), used for both splits."""
CENTRE_ROWS = ("deepset-max", "set-transformer", "pb3")


def study_fair(task: Viewpoints, seed: int, *, learning_rate: float) -> tuple[Viewpoints, Training]:
    """9000 steps of 32 images."""
    training = Training(
        steps=9000, batch_size=32, learning_rate=learning_rate, clip=1.0, score_every=3000, checkpoint_every=1000,
        seed=seed,
    )  # fmt: skip
    return task, training


def build_split(name: str, task: Viewpoints, sizing: Sizing[Viewpoints], profile: str, seed: int) -> Experiment:
    """Return an experiment on smallNORB, also where smallNORB is not present."""
    return build(name, replace(task, data="small-norb"), {"smoke": viewpoints.smoke, "study": sizing}, profile, seed)


def fair(name: str, row: str, **changes: Any) -> Builder:
    """Return a row of Table 3 with its recipe in ``FAIR_RECIPES``; ``changes`` are other fields of the task."""
    learning_rate, norm = FAIR_RECIPES[row]
    task = replace(viewpoints.with_network(viewpoints.ROWS[row], **({"norm": True} if norm else {})), **changes)
    return partial(build_split, name, task, partial(study_fair, learning_rate=learning_rate))


VIEWPOINTS: dict[str, Builder] = (
    {
        f"viewpoints-azimuth-pool-{pool}": partial(
            build_split, f"viewpoints-azimuth-pool-{pool}", task, study_viewpoints
        )
        for pool, task in VIEWPOINT_POOLS.items()
    }
    | {
        f"viewpoints-{split}-fair-{row}": fair(f"viewpoints-{split}-fair-{row}", row, split=split)
        for split in viewpoints.SPLITS
        for row in FAIR_RECIPES
    }
    | {
        f"viewpoints-azimuth-centre-{row}": fair(f"viewpoints-azimuth-centre-{row}", row, crops="centre")
        for row in CENTRE_ROWS
    }
)

STUDY: dict[str, Builder] = {
    **builders("clustering-pool", CLUSTERING_POOLS, {"smoke": clustering.smoke, "study": study_pools}),
    **builders("clustering-cascade", CASCADES, {"smoke": clustering.smoke, "study": study_cascades}),
    **builders(
        "odd-one-out-celeba-pool",
        {name: OddOneOut(network=network, data="celeba") for name, network in FACES.items()},
        {"smoke": odd_one_out.smoke, "study": study_faces},
    ),
    **VIEWPOINTS,
}
