"""How often is the element found that does not belong to its set, compared with outlier detectors for rows?

Two kinds of sets, each with one element from another set:

    around points    every set lies around its own centre: the odd element is far from the centre of its set
    along lines      every set lies along its own line: the odd element is as far from the centre as the others

Expected: detectors of rows find neither, because every row is normal among all rows; the distance to the mean of the
set finds the first kind only; a detector within each set finds isolated elements if the set is large enough;
SetAnomalyDetector finds both kinds, also in sets of other sizes than in training. All learn from the same sets, each
with one odd element and without labels. Reported: the fraction of sets in which the odd element has the highest score
(top 1) and the area under the ROC curve over all elements (AUROC), for 500 sets of each size.

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
from picaset.tables.example_shelves import draw_sets_along_lines

TRAINING_SIZES, TEST_SIZES = (6, 10, 14), (4, 8, 12, 24, 48)
"""Sizes of the training sets, and of the test sets."""

Sets = list[np.ndarray]
Scores = Callable[[Sets], Sets]


def around_points(num_sets: int, size: int, *, generator: np.random.Generator) -> tuple[Sets, np.ndarray]:
    """Draw sets around random centres, with one element around another centre; return the sets and its indices."""
    centres = 3 * generator.normal(size=(num_sets, 2, 3))
    points = np.repeat(centres[:, :1], size, axis=1)
    odd = generator.integers(size, size=num_sets)
    points[np.arange(num_sets), odd] = centres[:, 1]
    return list(points + generator.normal(size=points.shape)), odd


def by_row(detector: object, training: Sets) -> Scores:
    """Fit a scikit-learn detector to the rows of all sets together."""
    fitted = detector.fit(np.concatenate(training))  # type: ignore[attr-defined]

    def scores(sets: Sets) -> Sets:
        ends = np.cumsum([len(elements) for elements in sets])[:-1]
        return np.split(-fitted.score_samples(np.concatenate(sets)), ends)

    return scores


def by_distance(sets: Sets) -> Sets:
    """Return the distance of each element to the mean of its set."""
    return [np.linalg.norm(elements - elements.mean(axis=0), axis=1) for elements in sets]


def by_neighbours(sets: Sets) -> Sets:
    """Return the local outlier factor of each element within its set."""
    return [-LocalOutlierFactor(min(5, len(elements) // 2)).fit(elements).negative_outlier_factor_ for elements in sets]


def candidates(training: Sets, steps: int) -> dict[str, Callable[[], Scores]]:
    """Return the methods by name; each is trained when it is called."""
    methods: dict[str, Callable[[], Scores]] = {
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
        return methods
    return methods | {"PyOD's ECOD, rows": lambda: by_row(WithScores(ECOD()), training)}


class WithScores:
    """A PyOD detector with the scikit-learn API, in which a lower score is more abnormal."""

    def __init__(self, detector: object) -> None:
        self.detector = detector

    def fit(self, rows: np.ndarray) -> "WithScores":
        self.detector.fit(rows)  # type: ignore[attr-defined]
        return self

    def score_samples(self, rows: np.ndarray) -> np.ndarray:
        return -self.detector.decision_function(rows)  # type: ignore[attr-defined]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000, help="training steps of SetAnomalyDetector")
    parser.add_argument("--sets", type=int, default=200, help="training sets of each size")
    parser.add_argument("--only", default="", help="measure only methods whose name contains this")
    arguments = parser.parse_args()
    rows = list[dict[str, object]]()
    for kind, draw in (("around points", around_points), ("along lines", draw_sets_along_lines)):
        generator = np.random.default_rng(0)
        training = [
            elements for size in TRAINING_SIZES for elements in draw(arguments.sets, size, generator=generator)[0]
        ]
        print(
            f"\n{kind}: top 1 / AUROC by elements of a set; learned from sets of {', '.join(map(str, TRAINING_SIZES))}"
        )
        print(f"{'':36}" + "".join(f"{size:>15}" for size in TEST_SIZES) + "     seconds")
        for name, learn in candidates(training, arguments.steps).items():
            if arguments.only not in name:
                continue
            began = time.perf_counter()
            scores_of = learn()
            seconds = time.perf_counter() - began
            line = list[str]()
            for size in TEST_SIZES:
                sets, odd = draw(500, size, generator=np.random.default_rng([1, size]))
                scores = scores_of(sets)
                top1 = float(np.mean([score.argmax() == index for score, index in zip(scores, odd, strict=True)]))
                truth = np.concatenate([np.arange(size) == index for index in odd])
                auroc = float(roc_auc_score(truth, np.concatenate(scores)))
                line.append(f"{top1:7.3f} / {auroc:.3f}")
                rows.append(dict(kind=kind, name=name, set_size=size, top1=top1, auroc=auroc, seconds=seconds))
            print(f"{name:36}" + "".join(line) + f"  {seconds:10.1f}")
    record("odd_one_out", rows, machine_limits())
