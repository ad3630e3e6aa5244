"""Odd one out: the rows of Table 4, on the stand-in and on CelebA, and the authors' loss."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from picaset.lab.tasks.odd_one_out import OddOneOut
from picaset.lab.training.experiment import Experiment, Training

ROWS = {
    "set-transformer": OddOneOut(pool="attention", num_templates=4, num_decoder_blocks=1),
    "rff-pma": OddOneOut(encoder="elementwise", pool="attention"),
    "rff-sa-pma": OddOneOut(encoder="elementwise+self", pool="attention"),
    "sa-pma": OddOneOut(pool="attention"),
    "rff-pb": OddOneOut(encoder="elementwise", pool="picaso"),
    "rff-sa-pb": OddOneOut(encoder="elementwise+self", pool="picaso"),
    "sa-pb": OddOneOut(pool="picaso"),
    "sa-gpb": OddOneOut(),
}
"""Table 4, in its order, without random guessing, which every run measures. All encoders are two blocks deep."""

SEEDED = ("sa-pma", "sa-pb", "sa-gpb")
"""Rows that are trained from several seeds."""

VARIANTS = {
    "authors-loss": replace(ROWS["sa-gpb"], objective="authors"),
    "paper-form": replace(ROWS["sa-gpb"], form="paper"),
}
"""What SA + GPB is with one thing changed."""


STEPS = {"celeba": 3000, "drawn": 1500}
"""Of the quick profile; drawn faces, which are there to show that it runs, get half of what real ones do."""


def quick(task: OddOneOut, seed: int) -> tuple[OddOneOut, Training]:
    """The light stem, fresh sets at every step, and many of them from the images that a step looks at."""
    task = replace(task, num_fixed_sets=0, drawn_per_album=8, sets_per_album=32, shake=True)
    training = Training(
        steps=STEPS[task.data], batch_size=2, learning_rate=5e-4, clip=1.0, average=0.995, score_every=250,
        checkpoint_every=250, seed=seed,
    )  # fmt: skip
    return task, training


def smoke(task: OddOneOut, seed: int) -> tuple[OddOneOut, Training]:
    """The same path in seconds."""
    task = replace(
        task, num_faces=320, dim=16, num_heads=2, num_fixed_sets=0, drawn_per_album=2, sets_per_album=4, shake=True,
        num_test_sets=20, num_scored_sets=10,
    )  # fmt: skip
    return task, Training(steps=10, batch_size=2, clip=1.0, average=0.9, score_every=5, checkpoint_every=5, seed=seed)


def paper(task: OddOneOut, seed: int) -> tuple[OddOneOut, Training]:
    """As published: nine convolutions, 800 fixed sets, Adam at 1e-5, batches of eight; how long is not said."""
    training = Training(steps=50_000, batch_size=8, learning_rate=1e-5, schedule="constant", seed=seed)
    return replace(task, stem="nine"), training


PROFILES = {"smoke": smoke, "quick": quick, "paper": paper}


def build(name: str, task: OddOneOut, profile: str, seed: int) -> Experiment:
    sized, training = PROFILES[profile](task, seed)
    return Experiment(name=name, profile=profile, task=sized, training=training)


def named(prefix: str, tasks: dict[str, OddOneOut]) -> dict[str, Callable[[str, int], Experiment]]:
    return {f"{prefix}-{name}": partial(build, f"{prefix}-{name}", task) for name, task in tasks.items()}


ODD_ONE_OUT = named("odd-one-out", ROWS | VARIANTS) | named(
    "odd-one-out-celeba", {name: replace(task, data="celeba") for name, task in (ROWS | VARIANTS).items()}
)
