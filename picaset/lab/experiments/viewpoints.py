"""Novel viewpoints: the rows of Table 3, EM capsules, and ours, for novel azimuths and novel elevations.

``viewpoints-azimuth-pb3`` is trained on smallNORB if it is available, otherwise on generated toys, and is then named
``viewpoints-azimuth-pb3-toys``; that name always means generated toys.
"""

from dataclasses import replace
from functools import partial
from typing import get_args

from picaset.lab.data.crops import Augmentation
from picaset.lab.data.folders import data_root
from picaset.lab.data.small_norb import has_small_norb
from picaset.lab.data.views import Split
from picaset.lab.networks.bag_classifier import BagClassifier
from picaset.lab.networks.capsules import SMALL_SIZES, CapsuleNetwork
from picaset.lab.networks.view_classifier import ViewClassifier
from picaset.lab.tasks.viewpoints import BAG, CLASSES, PB3, Data, Viewpoints
from picaset.lab.training.experiment import Builder, Experiment, Training, build
from picaset.networks.set_networks import DeepSets, SetTransformer
from picaset.pretrained import ModuleConfig

VIEW_CLASSIFIER = ModuleConfig.of(ViewClassifier, num_classes=CLASSES, num_templates=4, patch_dropout=0.3, dropout=0.2)
OURS = Viewpoints(
    network=VIEW_CLASSIFIER,
    augmentation=Augmentation(turn=10.0, scale=0.15, mirror=True, contrast=0.5, noise=0.1, erase=0.25),
    label_smoothing=0.1,
    num_test_crops=5,
)
"""Convolutions and positions before the cascade, with augmentation and dropout against overfitting to five toys."""

ELEVATION_AUGMENTATION = replace(OURS.augmentation, turn=30.0, stretch=0.8)
"""Augmentation of our row for novel elevations: a higher camera stretches what lies on the table and compresses what
stands on it. Chosen by training toys that were left out."""

CAPSULES = ModuleConfig.of(CapsuleNetwork, num_classes=CLASSES, sizes=SMALL_SIZES)

ROWS = {
    "deepset-mean": Viewpoints(network=ModuleConfig.of(DeepSets, **BAG, pool="mean")),
    "deepset-max": Viewpoints(network=ModuleConfig.of(DeepSets, **BAG, pool="max")),
    "set-transformer": Viewpoints(network=ModuleConfig.of(SetTransformer, **BAG, form="authors")),
    "pb1": Viewpoints(network=PB3.replace(num_steps=1)),
    "pb2": Viewpoints(network=PB3.replace(num_steps=2)),
    "pb3": Viewpoints(network=PB3),
    "capsules": Viewpoints(network=CAPSULES),
    "ours": OURS,
    "ours-stereo": replace(OURS, network=VIEW_CLASSIFIER.replace(channels_in=2), stereo=True),
}
"""Table 3, in its order, the paper's comparison, and ours."""

SEEDED = ("set-transformer", "pb3")
"""Rows of the paper's main claim, which are trained with several seeds."""

SPLITS: tuple[Split, ...] = get_args(Split)


def quick(task: Viewpoints, seed: int) -> tuple[Viewpoints, Training]:
    """At most 45 minutes of one thread, minutes for toys; bags have a higher learning rate than published."""
    training = Training(
        steps=3000, batch_size=128, learning_rate=5e-4, clip=1.0, score_every=500, checkpoint_every=250, seed=seed
    )
    if task.network.name == "ViewClassifier":
        training = replace(training, learning_rate=1e-3, weight_decay=0.05, average=0.998)
        if task.split == "elevation" and task.data == "small-norb":
            # Stronger augmentation needs more steps; half precision halves their time.
            training = replace(training, steps=5000, precision="bf16-mixed")
    if task.data == "toys":
        task, training = replace(task, data="toys-small"), replace(training, steps=1200, batch_size=64)
    if task.network.name == "CapsuleNetwork":  # a quarter of the images, in smaller batches
        task, images = with_network(task, inverse_temperature=0.05), training.steps * training.batch_size
        training = replace(training, steps=images // 32, batch_size=8, learning_rate=3e-3, score_every=1500)
    return task, training


def smoke(task: Viewpoints, seed: int) -> tuple[Viewpoints, Training]:
    """The same code path in seconds, always on generated toys."""
    small = {"dim": 16, "num_heads": 2, "num_inducing": 4, "num_stem_blocks": 0, "sizes": (4, 2, 2, 2)}
    task = with_network(task, **{name: value for name, value in small.items() if name in task.network})
    task = replace(task, data="toys-tiny", num_test_crops=1, num_scored=20, num_tested=30)
    return task, Training(steps=6, batch_size=8, clip=1.0, score_every=3, checkpoint_every=2, seed=seed)


def paper(task: Viewpoints, seed: int) -> tuple[Viewpoints, Training]:
    """The setting of the paper and of the authors' program: 501 epochs of batches of 128, Adam at 1e-4, divided by ten
    half-way, dropout, centre crops. Capsules have their published sizes; ours has no published setting."""
    training = Training(steps=63_126, batch_size=128, learning_rate=1e-4, schedule="tenth-half-way", seed=seed)
    if task.network.name == "CapsuleNetwork":
        training = replace(training, steps=25_000, batch_size=64, learning_rate=3e-3, schedule="constant")
        return with_network(task, sizes=(32, 32, 32, 32)), training
    if task.network.name == "ViewClassifier":
        training = replace(
            training, steps=25_000, learning_rate=1e-3, schedule="one-cycle", weight_decay=0.05, average=0.999
        )
        return replace(with_network(task, num_stem_blocks=2, num_encoder_blocks=2), num_test_crops=9), training
    network = task.network.replace(dim=256)
    if task.network.name != "DeepSets":
        steps = {
            "num_steps": task.network.get("num_steps", 1),
            "num_decoder_blocks": task.network["num_decoder_blocks"],
        }
        network = ModuleConfig.of(BagClassifier, **BAG, **steps)
    return replace(task, network=network, crops="centre-mirrored", normalization="fixed"), training


def with_network(task: Viewpoints, **changes: object) -> Viewpoints:
    return replace(task, network=task.network.replace(**changes))


PROFILES = {"smoke": smoke, "quick": quick, "paper": paper}


def build_viewpoints(name: str, task: Viewpoints, toys: bool, profile: str, seed: int) -> Experiment:
    """Build an experiment on smallNORB if it is available and not ``toys``, otherwise on generated toys."""
    available = has_photographs()  # also for toys, so that a wrong PICASET_DATA is reported
    toys = toys or profile == "smoke" or not available
    data: Data = "toys" if toys else "small-norb"
    return build(f"{name}-toys" if toys else name, replace(task, data=data), PROFILES, profile, seed)


def has_photographs() -> bool:
    """Whether smallNORB is available."""
    root = data_root()
    return root is not None and has_small_norb(root)


def for_split(task: Viewpoints, split: Split) -> Viewpoints:
    """Return a row for a split; only the augmentation of our row depends on it."""
    if task.network.name == "ViewClassifier" and split == "elevation":
        task = replace(task, augmentation=ELEVATION_AUGMENTATION)
    return replace(task, split=split)


VIEWPOINTS: dict[str, Builder] = {
    f"viewpoints-{split}-{row}{'-toys' * toys}": partial(
        build_viewpoints, f"viewpoints-{split}-{row}", for_split(task, split), toys
    )
    for split in SPLITS
    for row, task in ROWS.items()
    for toys in (False, True)
}
