"""Which regularisation helps the networks of SetClassifier, everything else equal?

Six generated tasks (those of ``benchmarks.bags``, drawn with another seed): 200 bags to train on, of which every
network holds out a part for early stopping, and 400 further bags to measure. Each row changes one thing of
``SetClassifier(method="network")``. Nothing of ``benchmarks.bags`` is seen, so what wins here may be the default there.

Expected: several networks together gain most; the learning rate matters where bags are few; layer norm, dropout and
weight decay matter little.

    python -m benchmarks.set_network
    python -m benchmarks.set_network --rows default "one network"

Prints a table of AUROC and processor seconds, one thread, then one JSON line; commit it under ``results/``.
"""

import argparse
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from sklearn.metrics import roc_auc_score
from threadpoolctl import threadpool_limits
from torch import nn

from benchmarks.bags import GENERATED, generate
from benchmarks.measure import machine_limits, record
from picaset import SetClassifier
from picaset.estimators import set_training
from picaset.networks import set_predictor
from picaset.operators.encoders import Elementwise

NUM_TRAINING, NUM_TEST = 200, 400


def without_layer_norm() -> AbstractContextManager[Any]:
    """Build attention pools without layer norm."""

    def build(kind: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
        return lambda dim, **options: kind(dim, **{**options, "norm": False})

    return patch.object(set_predictor, "PicasoPool", build(set_predictor.PicasoPool))


def with_encoder_norm() -> AbstractContextManager[Any]:
    """Normalize the encoded elements, too."""

    def build(module: nn.Module, dim_in: int) -> Elementwise:
        return Elementwise(nn.Sequential(*module, nn.LayerNorm(module[0].out_features)), dim_in)  # type: ignore

    return patch.object(set_predictor, "Elementwise", build)


def leaving_out(share: float) -> AbstractContextManager[Any]:
    """Leave out a random share of the elements of every set in every training step."""
    apply_all = set_training.apply_all

    def apply(module: nn.Module, parameters: Any, elements: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        kept = mask & (torch.rand(mask.shape) >= share)
        return apply_all(module, parameters, elements, torch.where(kept.any(dim=1, keepdim=True), kept, mask))

    return patch.object(set_training, "apply_all", apply)


ROWS: dict[str, tuple[dict[str, Any], Callable[[], AbstractContextManager[Any]]]] = {
    "default": ({}, nullcontext),
    "one network": ({"num_networks": 1}, nullcontext),
    "ten networks": ({"num_networks": 10}, nullcontext),
    "without layer norm": ({}, without_layer_norm),
    "layer norm of the encoder, too": ({}, with_encoder_norm),
    "without dropout": ({"dropout": 0.0}, nullcontext),
    "dropout 0.3": ({"dropout": 0.3}, nullcontext),
    "without weight decay": ({"weight_decay": 0.0}, nullcontext),
    "weight decay 0.1": ({"weight_decay": 0.1}, nullcontext),
    "learning rate 1e-3": ({"learning_rate": 1e-3}, nullcontext),
    "learning rate 1e-2": ({"learning_rate": 1e-2}, nullcontext),
    "10 % of elements left out": ({}, lambda: leaving_out(0.1)),
    "30 % of elements left out": ({}, lambda: leaving_out(0.3)),
}
"""Options and changes of each row."""


def measure(row: str, task: str, seed: int) -> dict[str, object]:
    bags, labels = generate(task, seed=seed, num_bags=NUM_TRAINING + NUM_TEST)
    options, change = ROWS[row]
    began = time.process_time()
    with change():
        classifier = SetClassifier(method="network", random_state=0, **options)
        classifier.fit(bags[:NUM_TRAINING], labels[:NUM_TRAINING])
    seconds = time.process_time() - began
    scores = classifier.decision_function(bags[NUM_TRAINING:])
    auroc = float(roc_auc_score(labels[NUM_TRAINING:], scores))
    return dict(row=row, task=task, auroc=auroc, seconds=seconds, epochs=classifier.n_iter_)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", default=list(ROWS))
    parser.add_argument("--tasks", nargs="+", default=list(GENERATED))
    parser.add_argument("--seed", type=int, default=100, help="seed of the tasks; 0 is that of benchmarks.bags")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = list[dict[str, object]]()
    print(f"AUROC\n{'':34}" + "".join(f"{task[:12]:>14}" for task in arguments.tasks) + f"{'mean':>8}{'seconds':>9}")
    with threadpool_limits(1):
        for row in arguments.rows:
            measured = [measure(row, task, arguments.seed) for task in arguments.tasks]
            rows += measured
            values, seconds = ([float(str(one[key])) for one in measured] for key in ("auroc", "seconds"))
            cells = "".join(f"{value:14.3f}" for value in values)
            print(f"{row:34}{cells}{np.mean(values):8.3f}{np.mean(seconds):9.1f}", flush=True)
    record("set_network", rows, machine_limits())
