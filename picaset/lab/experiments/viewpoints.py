"""Novel viewpoints: the rows of Table 3, EM capsules, and a row of ours, for novel azimuths and novel elevations.

``viewpoints-azimuth-pb3`` is trained on smallNORB where it is found, else on generated toys, and then called
``viewpoints-azimuth-pb3-toys``; by that name toys are meant in any case.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import get_args

from picaset.lab.data.folders import data_root
from picaset.lab.data.small_norb import has_small_norb
from picaset.lab.data.views import Split
from picaset.lab.tasks.viewpoints import Data, Viewpoints
from picaset.lab.training.experiment import Experiment, Training

OURS = Viewpoints(
    network="view-classifier", num_encoder_blocks=1, num_templates=4, turn=10.0, scale=0.15, mirror=True, contrast=0.5,
    noise=0.1, erase=0.25, patch_dropout=0.3, dropout=0.2, label_smoothing=0.1, num_test_crops=5,
)  # fmt: skip
"""Convolutions and positions before the cascade, and all that keeps five toys of a category from being memorised."""

FOR_ELEVATIONS = dict(turn=30.0, stretch=0.8)
"""How far ours turns and stretches images where elevations are novel: a camera that rises makes what lies on the table
higher, and what stands on it lower. Chosen by training toys that were left out."""

ROWS = {
    "deepset-mean": Viewpoints(network="deep-sets", pool="mean"),
    "deepset-max": Viewpoints(network="deep-sets", pool="max"),
    "set-transformer": Viewpoints(network="set-transformer"),
    "pb1": Viewpoints(num_steps=1),
    "pb2": Viewpoints(num_steps=2),
    "pb3": Viewpoints(num_steps=3),
    "capsules": Viewpoints(network="capsules"),
    "ours": OURS,
    "ours-stereo": replace(OURS, stereo=True),
}
"""Table 3, in its order, the paper's comparison, and ours."""

SEEDED = ("set-transformer", "pb3")
"""Rows that the paper's claim rests on; they are trained with more than one seed."""

SPLITS: tuple[Split, ...] = get_args(Split)


def quick(task: Viewpoints, seed: int) -> tuple[Viewpoints, Training]:
    """At most three quarters of an hour of one thread, minutes for toys. Bags learn faster than published, for less."""
    training = Training(
        steps=3000, batch_size=128, learning_rate=5e-4, clip=1.0, score_every=500, checkpoint_every=250, seed=seed
    )
    if task.network == "view-classifier":
        training = replace(training, learning_rate=1e-3, weight_decay=0.05, average=0.998)
        if task.split == "elevation" and task.data == "small-norb":
            # Images that vary more are learned more slowly; half the digits take half the time.
            training = replace(training, steps=5000, precision="bf16-mixed")
    if task.data == "toys":
        task, training = replace(task, data="toys-small"), replace(training, steps=1200, batch_size=64)
    if task.network == "capsules":  # a quarter of the images, in smaller batches; fewer parts agree less loudly
        task, images = replace(task, inverse_temperature=0.05), training.steps * training.batch_size
        training = replace(training, steps=images // 32, batch_size=8, learning_rate=3e-3, score_every=1500)
    return task, training


def smoke(task: Viewpoints, seed: int) -> tuple[Viewpoints, Training]:
    """The same path in seconds, always on generated toys."""
    task = replace(
        task, data="toys-tiny", dim=16, num_heads=2, num_inducing=4, num_stem_blocks=0, capsule_sizes=(4, 2, 2, 2),
        num_test_crops=1, num_scored=20, num_tested=30,
    )  # fmt: skip
    return task, Training(steps=6, batch_size=8, clip=1.0, score_every=3, checkpoint_every=2, seed=seed)


def paper(task: Viewpoints, seed: int) -> tuple[Viewpoints, Training]:
    """As published: Adam at 1e-4, batches of 128; the number of steps was not. Capsules have their published sizes."""
    training = Training(steps=25_000, batch_size=128, learning_rate=1e-4, schedule="constant", seed=seed)
    if task.network == "capsules":
        return replace(task, capsule_sizes=(32, 32, 32, 32)), replace(training, batch_size=64, learning_rate=3e-3)
    if task.network == "view-classifier":
        decayed = replace(training, learning_rate=1e-3, schedule="one-cycle", weight_decay=0.05, average=0.999)
        return replace(task, num_stem_blocks=2, num_encoder_blocks=2, num_test_crops=9), decayed
    return task, training


PROFILES = {"smoke": smoke, "quick": quick, "paper": paper}


def build(name: str, task: Viewpoints, toys: bool, profile: str, seed: int) -> Experiment:
    there = is_there()  # also where toys are asked for, so that a wrong PICASET_DATA is told
    toys = toys or profile == "smoke" or not there
    data: Data = "toys" if toys else "small-norb"
    sized, training = PROFILES[profile](replace(task, data=data), seed)
    return Experiment(name=f"{name}-toys" if toys else name, profile=profile, task=sized, training=training)


def is_there() -> bool:
    """Whether there is a folder of smallNORB."""
    root = data_root()
    return root is not None and has_small_norb(root)


def for_split(task: Viewpoints, split: Split) -> Viewpoints:
    """Every row is the same for both splits but ours, whose images are varied as the novel viewpoints vary them."""
    rising = task.network == "view-classifier" and split == "elevation"
    return replace(task, split=split, **FOR_ELEVATIONS) if rising else replace(task, split=split)


def named(tasks: dict[str, Viewpoints]) -> dict[str, Callable[[str, int], Experiment]]:
    return {
        f"viewpoints-{split}-{row}{'-toys' * toys}": partial(
            build, f"viewpoints-{split}-{row}", for_split(task, split), toys
        )
        for split in SPLITS
        for row, task in tasks.items()
        for toys in (False, True)
    }


VIEWPOINTS = named(ROWS)
