"""One row of a table against another, in a sentence that says whether seeds tell them apart."""

import math
import statistics
from collections.abc import Mapping, Sequence

Measured = Mapping[str, Sequence[float]]
"""What was measured, by its name: one number for each seed."""


def comparison(first: str, second: str, ours: Measured, theirs: Measured, *, digits: int = 3) -> str:
    """The first row against the second, measure by measure; more is better.

    Several seeds are told apart if their means differ by more than one seed of each would by chance: the root of the
    sum of both variances. One seed of either says nothing about that.

    Example:
        >>> comparison("PB", "PMA", {"AUROC": [0.8, 0.9]}, {"AUROC": [0.5, 0.6]}, digits=2)
        'PB against PMA: AUROC above (+0.30, spread 0.10).'
        >>> comparison("PB", "PMA", {"AUROC": [0.8]}, {"AUROC": [0.5, 0.6]}, digits=2)
        'PB minus PMA, not from several seeds each: AUROC +0.25.'
    """
    gaps = {name: statistics.fmean(ours[name]) - statistics.fmean(theirs[name]) for name in ours}
    if min(len(found) for measured in (ours, theirs) for found in measured.values()) < 2:
        told = ", ".join(f"{name} {gap:+.{digits}f}" for name, gap in gaps.items())
        return f"{first} minus {second}, not from several seeds each: {told}."
    parts = list[str]()
    for name, gap in gaps.items():
        spread = math.hypot(statistics.stdev(ours[name]), statistics.stdev(theirs[name]))
        verdict = "above" if gap > spread else "below" if gap < -spread else "not told apart"
        parts.append(f"{name} {verdict} ({gap:+.{digits}f}, spread {spread:.{digits}f})")
    return f"{first} against {second}: {', '.join(parts)}."
