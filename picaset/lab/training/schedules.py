"""The learning rate at each step, a function of the step alone, so that resuming is exact."""

import math

from picaset.lab.training.experiment import Training

RISE = 0.3
"""Of a one-cycle schedule, the share of the steps in which the rate rises."""
START = 0.04
"""Of a one-cycle schedule, what the rate rises from."""

HALF_LIFE = 50_000
"""Of a halving schedule, the steps in which the rate falls to a half."""


def learning_rate(step: int, training: Training) -> float:
    """The learning rate of a step, counted from 0.

    Example:
        >>> training = Training(steps=100, learning_rate=1.0, schedule="cosine", warmup_steps=10)
        >>> [round(learning_rate(step, training), 2) for step in (0, 9, 55, 99)]
        [0.1, 1.0, 0.5, 0.0]
    """
    return training.learning_rate * share(step, training)


def share(step: int, training: Training) -> float:
    if training.schedule == "one-cycle":
        rise = max(round(RISE * training.steps), 1)
        if step < rise:
            return START + (1 - START) * (1 - cosine(step / rise))
        return cosine((step - rise) / max(training.steps - rise, 1))
    if step < training.warmup_steps:
        return (step + 1) / training.warmup_steps
    if training.schedule == "cosine":
        return cosine((step - training.warmup_steps) / max(training.steps - training.warmup_steps, 1))
    if training.schedule == "tenth-half-way":
        return 0.1 if step >= training.steps / 2 else 1.0
    if training.schedule == "halving":
        return 0.5 ** (step / HALF_LIFE)
    return 1.0


def cosine(progress: float) -> float:
    """From 1 to 0."""
    return 0.5 * (1 + math.cos(math.pi * progress))
