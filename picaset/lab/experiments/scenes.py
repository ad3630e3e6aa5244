"""Scenes: the rows of Table 5 and ours, on generated scenes and on CLEVR, each with three training losses.

``scenes-pb3`` has the published loss, ``scenes-pb3-reweighted`` and ``scenes-pb3-likelihood`` another; see
``tasks/scene_loss.py``. ``scenes-clevr-...`` are the same on CLEVR.
"""

from dataclasses import replace
from typing import get_args

from picaset.lab.networks.image_stems import PIXELS_PER_PLACE
from picaset.lab.networks.scene_decoders import AttentionDecoder, CascadeDecoder, DescentDecoder, SlotDecoder
from picaset.lab.tasks.scene_loss import Objective
from picaset.lab.tasks.scenes import NETWORK, SceneObjects
from picaset.lab.training.experiment import Training, builders
from picaset.pretrained import ModuleConfig

DIM = 64
DESCENT = ModuleConfig.of(DescentDecoder, dim=DIM, num_places=(64 // PIXELS_PER_PLACE) ** 2, num_steps=10)
CASCADE = ModuleConfig.of(CascadeDecoder, dim=DIM)
SLOTS = ModuleConfig.of(SlotDecoder, dim=DIM)


def with_decoder(decoder: ModuleConfig, *, positions: str = "linear") -> SceneObjects:
    return SceneObjects(network=NETWORK.replace(decoder=decoder, positions=positions))


ROWS = {
    "dspn10": with_decoder(DESCENT),
    "dspn30": replace(with_decoder(DESCENT), num_test_steps=30),
    "idspn": with_decoder(DESCENT.replace(implicit=True, num_steps=20)),
    "slot-attention": with_decoder(SLOTS),
    "set-transformer": with_decoder(ModuleConfig.of(AttentionDecoder, dim=DIM)),
    "pb3": with_decoder(CASCADE),
    "ours": replace(with_decoder(CASCADE, positions="waves"), every_step=True),
}
"""Table 5, in its order, with iDSPN and ours. As published, DSPN30 is DSPN10 with more steps at test time."""

SEEDED = ("slot-attention", "pb3")
"""Rows that are trained with several seeds for every loss."""

VARIANTS = {
    name: replace(task, objective="likelihood")
    for name, task in {
        "pb3-every-step": replace(with_decoder(CASCADE), every_step=True),
        "pb3-waves": with_decoder(CASCADE, positions="waves"),
        "pb3-paper-form": with_decoder(CASCADE.replace(form="paper")),
        "slot-attention-learned": with_decoder(SLOTS.replace(initial="learned")),
        "slot-attention-waves": with_decoder(SLOTS, positions="waves"),
    }.items()
}
"""PB3 and Slot Attention with one thing changed, trained by likelihood."""

RATE = 2e-3
RATES = {"SlotDecoder": 4e-4, "implicit": 1e-3}
"""Peak learning rates of the quick profile that differ from ``RATE``; see docs/reproduction.md."""

OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
WEIGHTINGS: tuple[Objective, ...] = ("published", "reweighted")
"""Losses that differ in the weight of the coordinates."""


def row_name(row: str, objective: Objective) -> str:
    return row if objective == "published" else f"{row}-{objective}"


def by_objective(tasks: dict[str, SceneObjects]) -> dict[str, SceneObjects]:
    """Return every task with every loss."""
    return {
        row_name(row, objective): replace(task, objective=objective)
        for objective in OBJECTIVES
        for row, task in tasks.items()
    }


def learning_rate(decoder: ModuleConfig) -> float:
    kind = "implicit" if decoder.name == "DescentDecoder" and decoder["implicit"] else decoder.name
    return RATES.get(kind, RATE)


def resized(task: SceneObjects, *, image_size: int, stem: str, dim: int, **decoder: int) -> SceneObjects:
    """Return a task whose network has other sizes."""
    changes = {"dim": dim} | {name: value for name, value in decoder.items() if name in task.network["decoder"]}
    if "num_places" in task.network["decoder"]:
        changes["num_places"] = (image_size // PIXELS_PER_PLACE) ** 2
    network = task.network.replace(
        image_size=image_size, stem=stem, dim=dim, decoder=task.network["decoder"].replace(**changes)
    )
    return replace(task, network=network)


def quick(task: SceneObjects, seed: int) -> tuple[SceneObjects, Training]:
    """At most 25 minutes of one thread, the same number of steps for every row."""
    training = Training(
        steps=8000, batch_size=32, learning_rate=learning_rate(task.network["decoder"]), clip=1.0, average=0.998,
        score_every=1000, checkpoint_every=250, seed=seed,
    )  # fmt: skip
    return task, training


def smoke(task: SceneObjects, seed: int) -> tuple[SceneObjects, Training]:
    """The same code path in seconds."""
    decoder = task.network["decoder"]
    steps = {"num_steps": min(decoder["num_steps"], 4)} if "num_steps" in decoder else {}
    task = replace(
        resized(task, image_size=32, stem="strided", dim=16, num_heads=2, **steps),
        num_scenes=16, num_test_scenes=12, num_scored_scenes=10, num_test_steps=min(task.num_test_steps, 6),
    )  # fmt: skip
    return task, Training(steps=6, batch_size=4, clip=1.0, average=0.9, score_every=3, checkpoint_every=2, seed=seed)


def paper(task: SceneObjects, seed: int) -> tuple[SceneObjects, Training]:
    """The published setting: 128 pixels, Adam at 4e-4 after 1000 warm-up steps, halved every 50 000, batches of 512."""
    training = Training(
        steps=150_000, batch_size=512, learning_rate=4e-4, schedule="halving", warmup_steps=1000, seed=seed
    )
    task = resized(task, image_size=128, stem="full", dim=task.network["dim"])
    return replace(task, num_scenes=70_000, num_test_scenes=15_000), training


PROFILES = {"smoke": smoke, "quick": quick, "paper": paper}
SCENES = builders("scenes", by_objective(ROWS) | VARIANTS, PROFILES) | builders(
    "scenes-clevr", {name: replace(task, data="clevr") for name, task in by_objective(ROWS).items()}, PROFILES
)
