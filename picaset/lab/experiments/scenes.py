"""Scenes: the rows of Table 5 and ours, on generated scenes and on CLEVR, each with three things to minimise.

``scenes-pb3`` minimises what was published, ``scenes-pb3-reweighted`` and ``scenes-pb3-likelihood`` something else; see
``lab/tasks/scene_loss.py``. ``scenes-clevr-...`` are the same on CLEVR.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import get_args

from picaset.lab.networks.scene_network import SceneDecoder
from picaset.lab.tasks.scene_loss import Objective
from picaset.lab.tasks.scenes import SceneObjects
from picaset.lab.training.experiment import Experiment, Training

ROWS = {
    "dspn10": SceneObjects(decoder="descent", num_steps=10),
    "dspn30": SceneObjects(decoder="descent", num_steps=10, num_test_steps=30),
    "idspn": SceneObjects(decoder="implicit-descent", num_steps=20),
    "slot-attention": SceneObjects(decoder="slots"),
    "set-transformer": SceneObjects(decoder="attention"),
    "pb3": SceneObjects(),
    "ours": SceneObjects(decoder="competing", compete="elements", located=False, positions="waves", every_step=True),
}
"""Table 5, in its order, with iDSPN and ours. As published, DSPN30 is DSPN10 with more steps in testing."""

SEEDED = ("slot-attention", "pb3")
"""Rows that are trained from several seeds, whatever is minimised; ours is by likelihood alone."""

PLAIN = SceneObjects(decoder="competing", compete="elements", located=False, objective="likelihood")
VARIANTS = {
    "pb3-every-step": replace(PLAIN, every_step=True),
    "pb3-waves": replace(PLAIN, positions="waves"),
    "pb3-compete": replace(PLAIN, compete="templates"),
    "pb3-compete-both": replace(PLAIN, compete="both"),
    "pb3-located": replace(PLAIN, located=True),
    "pb3-peaks": replace(PLAIN, initial="peaks"),
    "pb3-mixed": replace(PLAIN, mixed=True),
    "pb3-paper-form": replace(ROWS["pb3"], form="paper", objective="likelihood"),
    "slot-attention-learned": replace(ROWS["slot-attention"], decoder="learned-slots", objective="likelihood"),
    "slot-attention-waves": replace(ROWS["slot-attention"], positions="waves", objective="likelihood"),
}
"""By likelihood: PB3 with one thing changed, most of them a part of ours, and Slot Attention with such a part."""

RATE = 2e-3
RATES: dict[SceneDecoder, float] = {"slots": 4e-4, "learned-slots": 4e-4, "implicit-descent": 1e-3}
"""Of Adam in ``quick``, at most, where it is not that of the other rows; see docs/reproduction.md."""

OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
WEIGHTINGS: tuple[Objective, ...] = ("published", "reweighted")
"""Of Huber's loss."""


def row_name(row: str, objective: Objective) -> str:
    return row if objective == "published" else f"{row}-{objective}"


def by_objective(tasks: dict[str, SceneObjects]) -> dict[str, SceneObjects]:
    """Each of them with each of the things to minimise."""
    return {
        row_name(row, objective): replace(task, objective=objective)
        for objective in OBJECTIVES
        for row, task in tasks.items()
    }


def quick(task: SceneObjects, seed: int) -> tuple[SceneObjects, Training]:
    """At most 25 minutes of one thread, the same steps for every row."""
    training = Training(
        steps=8000, batch_size=32, learning_rate=RATES.get(task.decoder, RATE), clip=1.0, average=0.998,
        score_every=1000, checkpoint_every=250, seed=seed,
    )  # fmt: skip
    return task, training


def smoke(task: SceneObjects, seed: int) -> tuple[SceneObjects, Training]:
    """The same path in seconds."""
    task = replace(
        task, image_size=32, num_scenes=16, num_test_scenes=12, num_scored_scenes=10, dim=16,
        num_heads=2, num_steps=min(task.num_steps, 4), num_test_steps=min(task.num_test_steps, 6),
    )  # fmt: skip
    return task, Training(steps=6, batch_size=4, clip=1.0, average=0.9, score_every=3, checkpoint_every=2, seed=seed)


def paper(task: SceneObjects, seed: int) -> tuple[SceneObjects, Training]:
    """As published: 128 pixels, Adam at 4e-4 after 1000 steps of warming up, halved every 50 000, batches of 512."""
    training = Training(
        steps=150_000, batch_size=512, learning_rate=4e-4, schedule="halving", warmup_steps=1000, seed=seed
    )
    return replace(task, stem="full", image_size=128, num_scenes=70_000, num_test_scenes=15_000), training


PROFILES = {"smoke": smoke, "quick": quick, "paper": paper}


def build(name: str, task: SceneObjects, profile: str, seed: int) -> Experiment:
    sized, training = PROFILES[profile](task, seed)
    return Experiment(name=name, profile=profile, task=sized, training=training)


def named(prefix: str, tasks: dict[str, SceneObjects]) -> dict[str, Callable[[str, int], Experiment]]:
    return {f"{prefix}-{name}": partial(build, f"{prefix}-{name}", task) for name, task in tasks.items()}


SCENES = named("scenes", by_objective(ROWS) | VARIANTS) | named(
    "scenes-clevr", {name: replace(task, data="clevr") for name, task in by_objective(ROWS).items()}
)
