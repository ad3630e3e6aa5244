"""Odd one out: the rows of Table 4 on drawn faces and on CelebA, variants, and narrow networks for the studio."""

from dataclasses import replace

from picaset.lab.tasks.odd_one_out import NETWORK, OddOneOut
from picaset.lab.training.experiment import Training, builders

ROWS = {
    "set-transformer": NETWORK.replace(pool="attention", num_templates=4, num_decoder_blocks=1),
    "rff-pma": NETWORK.replace(encoder="elementwise", pool="attention"),
    "rff-sa-pma": NETWORK.replace(encoder="elementwise+self", pool="attention"),
    "sa-pma": NETWORK.replace(pool="attention"),
    "rff-pb": NETWORK.replace(encoder="elementwise", pool="picaso"),
    "rff-sa-pb": NETWORK.replace(encoder="elementwise+self", pool="picaso"),
    "sa-pb": NETWORK.replace(pool="picaso"),
    "sa-gpb": NETWORK,
}
"""Networks of Table 4, in its order; every run also measures random guessing. All encoders have two blocks."""

SEEDED = ("sa-pma", "sa-pb", "sa-gpb")
"""Rows that are trained with several seeds."""

TASKS = {name: OddOneOut(network=network) for name, network in ROWS.items()}
VARIANTS = {
    "authors-loss": replace(TASKS["sa-gpb"], objective="authors"),
    "paper-form": OddOneOut(network=NETWORK.replace(form="paper")),
}
"""SA + GPB with one thing changed."""

NARROW = {
    f"narrow-{name}": OddOneOut(network=ROWS[name].replace(stem="narrow", dim=96, num_heads=4)) for name in SEEDED
}
"""The seeded rows with a quarter of the parameters, which come with the studio."""

STEPS = {"celeba": 3000, "drawn": 1500}
"""Training steps of the quick profile; a narrow stem, which is faster, is trained for four times as many."""


def quick(task: OddOneOut, seed: int) -> tuple[OddOneOut, Training]:
    """The light stem, and new sets at every step, many of them from the images of one album."""
    task = replace(task, num_fixed_sets=0, drawn_per_album=8, sets_per_album=32, shake=True)
    narrow = task.network["stem"] == "narrow"
    training = Training(
        steps=STEPS[task.data] * (4 if narrow else 1), batch_size=2, learning_rate=5e-4, clip=1.0, average=0.995,
        score_every=500 if narrow else 250, checkpoint_every=250, seed=seed,
    )  # fmt: skip
    return task, training


def smoke(task: OddOneOut, seed: int) -> tuple[OddOneOut, Training]:
    """The same code path in seconds."""
    task = replace(
        task, network=task.network.replace(dim=16, num_heads=2), num_faces=320, num_fixed_sets=0, drawn_per_album=2,
        sets_per_album=4, shake=True, num_test_sets=20, num_scored_sets=10,
    )  # fmt: skip
    return task, Training(steps=10, batch_size=2, clip=1.0, average=0.9, score_every=5, checkpoint_every=5, seed=seed)


def paper(task: OddOneOut, seed: int) -> tuple[OddOneOut, Training]:
    """The published setting: nine convolutions, 800 fixed sets, Adam at 1e-5, batches of eight."""
    training = Training(steps=50_000, batch_size=8, learning_rate=1e-5, schedule="constant", seed=seed)
    return replace(task, network=task.network.replace(stem="nine")), training


PROFILES = {"smoke": smoke, "quick": quick, "paper": paper}
ODD_ONE_OUT = builders("odd-one-out", TASKS | VARIANTS | NARROW, PROFILES) | builders(
    "odd-one-out-celeba", {name: replace(task, data="celeba") for name, task in (TASKS | VARIANTS).items()}, PROFILES
)
