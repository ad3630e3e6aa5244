"""Differences between two groups of runs, and verdicts on claims about them.

The rule, fixed before the runs: a claim *holds* if Welch's 95 % interval of the difference of the means lies above a
third of the published gain, *does not hold* if it lies below, and is *undecided* otherwise or with fewer than three
runs in a group.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from picaset.extras import require

MIN_RUNS = 3
CONFIDENCE = 0.95
SHARE = 1 / 3
"""Part of the published gain that a measured gain has to exceed."""

Verdict = Literal["holds", "does not hold", "undecided"]


@dataclass(frozen=True)
class Difference:
    """The difference of two means, with Welch's interval; the interval is infinite if a group has a single run."""

    mean: float
    low: float
    high: float
    runs: tuple[int, int]
    spread: float
    """Root of the mean of both variances; NaN if a group has a single run."""

    @classmethod
    def between(cls, first: Sequence[float], second: Sequence[float]) -> "Difference":
        """Compare two groups of values, each with at least one.

        Example:
            >>> difference = Difference.between([3.0, 3.2, 3.1], [1.0, 1.1, 0.9])
            >>> f"{difference.mean:.2f} from {difference.low:.2f} to {difference.high:.2f}"
            '2.10 from 1.87 to 2.33'
        """
        mean = statistics.fmean(first) - statistics.fmean(second)
        runs = (len(first), len(second))
        if min(runs) < 2:
            return cls(mean, -math.inf, math.inf, runs, math.nan)
        spread = math.sqrt((statistics.variance(first) + statistics.variance(second)) / 2)
        if spread == 0:
            return cls(mean, mean, mean, runs, 0.0)
        stats: Any = require("scipy.stats", extra="experiments", purpose="Welch's interval")
        interval = stats.ttest_ind(first, second, equal_var=False).confidence_interval(CONFIDENCE)
        return cls(mean, float(interval.low), float(interval.high), runs, spread)

    def verdict(self, published: float) -> Verdict:
        """Decide a claim whose published gain is ``published``; 0 asks whether there is any gain.

        Example:
            >>> Difference.between([3.0, 3.2, 3.1], [1.0, 1.1, 0.9]).verdict(published=5.0)
            'holds'
            >>> Difference.between([3.0, 3.2, 3.1], [1.0, 1.1, 0.9]).verdict(published=9.0)
            'does not hold'
            >>> Difference.between([3.0], [1.0]).verdict(published=1.0)
            'undecided'
        """
        if min(self.runs) < MIN_RUNS:
            return "undecided"
        threshold = SHARE * published
        return "holds" if self.low > threshold else "does not hold" if self.high < threshold else "undecided"

    def runs_needed(self, published: float) -> int | None:
        """Return the number of runs in each group with which the interval would exclude the threshold.

        It assumes that mean and spread stay as they are; None if the spread is unknown or the mean is at the threshold.
        """
        distance = abs(self.mean - SHARE * published)
        if math.isnan(self.spread) or distance == 0:
            return None
        stats: Any = require("scipy.stats", extra="experiments", purpose="Welch's interval")
        for runs in range(MIN_RUNS, 1000):
            if stats.t.ppf((1 + CONFIDENCE) / 2, 2 * runs - 2) * self.spread * math.sqrt(2 / runs) < distance:
                return runs
        return None

    def format(self, digits: int) -> str:
        """Format the difference with its interval.

        Example:
            >>> Difference.between([3.0, 3.2, 3.1], [1.0, 1.1, 0.9]).format(1)
            '+2.1 [+1.9, +2.3]'
        """
        interval = f" [{self.low:+.{digits}f}, {self.high:+.{digits}f}]" if math.isfinite(self.low) else ""
        return f"{self.mean:+.{digits}f}{interval}"


Measured = Mapping[str, Sequence[float]]
"""One value per seed, by the name of the metric."""


def compare_rows(first: str, second: str, first_values: Measured, second_values: Measured, *, digits: int = 3) -> str:
    """Compare two rows in a sentence, metric by metric, with Welch's 95 % interval of the difference.

    With a single seed of either, only the difference is reported.

    Example:
        >>> compare_rows("PB", "PMA", {"AUROC": [0.8, 0.9]}, {"AUROC": [0.2, 0.3]}, digits=2)
        'PB minus PMA: AUROC +0.60 [+0.30, +0.90].'
        >>> compare_rows("PB", "PMA", {"AUROC": [0.8]}, {"AUROC": [0.5, 0.6]}, digits=2)
        'PB minus PMA (a single seed, spread unknown): AUROC +0.25.'
    """
    differences = {name: Difference.between(first_values[name], second_values[name]) for name in first_values}
    single = any(min(difference.runs) < 2 for difference in differences.values())
    values = ", ".join(f"{name} {difference.format(digits)}" for name, difference in differences.items())
    return f"{first} minus {second}{' (a single seed, spread unknown)' * single}: {values}."
