"""Learning-rate schedules; the rate is a function of the step, so that resuming is exact."""

import math

from picaset.lab.training.experiment import Training

RISE = 0.3
"""Share of the steps of a one-cycle schedule in which the rate rises."""
START = 0.04
"""Initial rate of a one-cycle schedule, relative to its peak."""
HALF_LIFE = 50_000
"""Number of steps in which the rate of a halving schedule falls to one half."""


def learning_rate(step: int, training: Training) -> float:
    """Return the learning rate of a step; steps are counted from 0.

    Example:
        >>> training = Training(steps=100, learning_rate=1.0, schedule="cosine", warmup_steps=10)
        >>> [round(learning_rate(step, training), 2) for step in (0, 9, 55, 99)]
        [0.1, 1.0, 0.5, 0.0]
    """
    return training.learning_rate * relative_rate(step, training)


def relative_rate(step: int, training: Training) -> float:
    """Return the learning rate of a step, relative to its peak."""
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
    """Return half a cosine wave that falls from 1 to 0 as ``progress`` goes from 0 to 1."""
    return 0.5 * (1 + math.cos(math.pi * progress))
