"""What does a training step of each arm of the cascade sweep cost?

The runs of ``clustering-cascade-...`` are trained on a machine with other load, so their own times do not compare. Here
one step of every arm, forward, backward and optimizer, is timed in turns with the others, on the sets of the sweep.

    python -m benchmarks.cascade_cost

Prints a line for each arm, then one JSON line; commit it as
``results/cascade_cost__<hardware>__<year-month>.json``. The report draws quality against this cost.
"""

import argparse
from collections.abc import Callable

import torch

from benchmarks.measure import machine_limits, medians_together, record
from picaset.lab.experiments import experiment
from picaset.lab.experiments.study import CASCADES


def training_step(arm: str) -> Callable[[], object]:
    """Return a function that makes one step of Adam on the same sets."""
    chosen = experiment(f"clustering-cascade-{arm}", profile="study")
    torch.manual_seed(0)
    network = chosen.task.build_network()
    batch = chosen.task.batch(0, seed=0, num_examples=chosen.training.batch_size, progress=0.0)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-4, fused=True)

    def step() -> None:
        optimizer.zero_grad()
        chosen.task.loss(network, batch).backward()
        optimizer.step()

    return step


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    torch.set_num_threads(1)
    limits = machine_limits()
    times = medians_together([training_step(arm) for arm in CASCADES])
    rows = [dict(arm=arm, milliseconds=1e3 * seconds) for arm, seconds in zip(CASCADES, times, strict=True)]
    for row in rows:
        print(f"{row['arm']:28} {row['milliseconds']:7.2f} ms a step")
    record("cascade_cost", rows, limits)
