"""Does learning from sets find what a detector of odd rows cannot?

Two kinds of sets, each with one element that belongs to another set:

    around points    every set lies around a point of its own: the odd one is far from the middle of its set
    along lines      every set lies along a line of its own: the odd one is as far from the middle as the others

Expected: detectors of rows find neither, since every row is ordinary among all rows; the distance to the middle of the
set finds the first and not the second; a detector within each set finds elements that are alone, if there are others
enough; ours finds both kinds, in sets of other sizes than it was trained on. All learn from the same sets, in which one
element of each is odd and nothing says which. Reported: how often the odd element has the
highest score of its set (top 1) and the area under the curve of operating points over all elements (AUROC), of 500 sets
each, by size.

    python -m benchmarks.odd_one_out --steps 1000
    python -m benchmarks.odd_one_out --only within

Prints a table, then one JSON line; commit it under ``results/``. PyOD is measured where it is installed.
"""

import argparse
import time
from collections.abc import Callable

import numpy as np
from sklearn.ensemble import IsolationForest
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import LocalOutlierFactor
from sklearn.svm import OneClassSVM

from benchmarks.measure import machine_limits, record
from picaset import SetAnomalyDetector
from picaset.tables.example_shelves import along_lines

TRAINED, TESTED = (6, 10, 14), (4, 8, 12, 24, 48)
"""Elements of the sets that are learned from, and of those that are scored."""

Sets = list[np.ndarray]
Scores = Callable[[Sets], Sets]


def around_points(num_sets: int, size: int, *, generator: np.random.Generator) -> tuple[Sets, np.ndarray]:
    centres = 3 * generator.normal(size=(num_sets, 2, 3))
    points = np.repeat(centres[:, :1], size, axis=1)
    odd = generator.integers(size, size=num_sets)
    points[np.arange(num_sets), odd] = centres[:, 1]
    return list(points + generator.normal(size=points.shape)), odd


def by_row(detector: object, training: Sets) -> Scores:
    """A scikit-learn detector on all rows together."""
    fitted = detector.fit(np.concatenate(training))  # type: ignore[attr-defined]

    def scores(sets: Sets) -> Sets:
        ends = np.cumsum([len(one) for one in sets])[:-1]
        return np.split(-fitted.score_samples(np.concatenate(sets)), ends)

    return scores


def by_distance(sets: Sets) -> Sets:
    return [np.linalg.norm(one - one.mean(axis=0), axis=1) for one in sets]


def by_neighbours(sets: Sets) -> Sets:
    """The local outlier factor within each set by itself."""
    return [-LocalOutlierFactor(min(5, len(one) // 2)).fit(one).negative_outlier_factor_ for one in sets]


def candidates(training: Sets, steps: int) -> dict[str, Callable[[], Scores]]:
    found: dict[str, Callable[[], Scores]] = {
        "isolation forest, rows": lambda: by_row(IsolationForest(random_state=0), training),
        "local outlier factor, rows": lambda: by_row(LocalOutlierFactor(novelty=True), training),
        "one-class SVM, rows": lambda: by_row(OneClassSVM(), training),
        "distance to the mean of the set": lambda: by_distance,
        "local outlier factor within the set": lambda: by_neighbours,
        "SetAnomalyDetector": lambda: SetAnomalyDetector(max_iter=steps, random_state=0).fit(training).score_elements,
    }
    try:
        from pyod.models.ecod import ECOD  # pyright: ignore[reportMissingImports]
    except ImportError:
        return found
    return found | {"PyOD's ECOD, rows": lambda: by_row(WithScores(ECOD()), training)}


class WithScores:
    """A PyOD detector with scikit-learn's sign."""

    def __init__(self, detector: object) -> None:
        self.detector = detector

    def fit(self, rows: np.ndarray) -> "WithScores":
        self.detector.fit(rows)  # type: ignore[attr-defined]
        return self

    def score_samples(self, rows: np.ndarray) -> np.ndarray:
        return -self.detector.decision_function(rows)  # type: ignore[attr-defined]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000, help="training steps of ours")
    parser.add_argument("--sets", type=int, default=200, help="sets of each size that are learned from")
    parser.add_argument("--only", default="", help="methods with this in their name; all without it")
    arguments = parser.parse_args()
    rows = list[dict[str, object]]()
    for kind, draw in (("around points", around_points), ("along lines", along_lines)):
        generator = np.random.default_rng(0)
        training = [one for size in TRAINED for one in draw(arguments.sets, size, generator=generator)[0]]
        print(f"\n{kind}: top 1 / AUROC by elements of a set; learned from sets of {', '.join(map(str, TRAINED))}")
        print(f"{'':36}" + "".join(f"{size:>15}" for size in TESTED) + "     seconds")
        for name, learn in candidates(training, arguments.steps).items():
            if arguments.only not in name:
                continue
            began = time.perf_counter()
            scores_of = learn()
            seconds = time.perf_counter() - began
            line = list[str]()
            for size in TESTED:
                sets, odd = draw(500, size, generator=np.random.default_rng([1, size]))
                scores = scores_of(sets)
                top1 = float(np.mean([one.argmax() == place for one, place in zip(scores, odd, strict=True)]))
                truth = np.concatenate([np.arange(size) == place for place in odd])
                auroc = float(roc_auc_score(truth, np.concatenate(scores)))
                line.append(f"{top1:7.3f} / {auroc:.3f}")
                rows.append(dict(kind=kind, name=name, set_size=size, top1=top1, auroc=auroc, seconds=seconds))
            print(f"{name:36}" + "".join(line) + f"  {seconds:10.1f}")
    record("odd_one_out", rows, machine_limits())
