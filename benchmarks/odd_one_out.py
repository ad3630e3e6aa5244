"""How well are the elements found that do not belong to their set, compared with what people do otherwise?

Small sets, each with one element from another set; learned from 600 sets of 6, 10 and 14 elements, without labels, and
tested on 500 other sets of each size:

    around points    every set lies around its own centre
    along lines      every set lies along its own line: the odd element is as far from the centre as the others

Large groups, as a table of 50 machines with 40 to 200 rows each has them, two of which are swapped with rows of other
machines; scored where they were fitted, as `picaset odd` does:

    ellipses     every group has its own mean and covariance
    heavy tails  the same, with a Student t distribution of four degrees of freedom
    skewed       the same, with log-normal factors
    clusters     every group has three clusters of its own
    rings        every group lies around a ring of its own
    curves       300 groups of 8 to 14 points, every group on its own curve through the same region; one swapped row

and the bags of four real data sets (where PICASET_DATA has them) with one row in every bag of six or more swapped.

Expected: detectors of rows find nothing, because every row is normal among all rows; a robust Mahalanobis distance
within each set finds what is odd in large ellipses, the local outlier factor and the isolation forest in clusters;
nothing within one set is enough for small sets, which need what sets have in common; SetAnomalyDetector has the highest
mean average precision, and its default threshold is usable. Reported: average precision over all elements, top 1 (the
share of sets in which the odd element has the highest score), precision and recall at the default threshold, and
seconds of processor time, one thread, to fit and to score.

    OMP_NUM_THREADS=1 python -m benchmarks.odd_one_out
    python -m benchmarks.odd_one_out --only within --tasks ellipses clusters

Prints a table, then one JSON line; commit it under ``results/``.
"""

import argparse
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.stats import chi2
from sklearn.covariance import EmpiricalCovariance, MinCovDet
from sklearn.ensemble import IsolationForest
from sklearn.metrics import average_precision_score, precision_recall_fscore_support, roc_auc_score
from sklearn.neighbors import LocalOutlierFactor
from sklearn.svm import OneClassSVM

from benchmarks.measure import machine_limits, record
from picaset import SetAnomalyDetector
from picaset.tables.examples import draw_sets_along_lines

TRAINING_SIZES, TEST_SIZES = (6, 10, 14), (4, 8, 12, 24, 48)
"""Sizes of the training sets, and of the test sets."""
MAX_SLOW = 100
"""Number of test sets of each size for the methods that fit a model to every set."""
REAL = ("elephant", "mutagenesis1", "protein", "birds_brown_creeper")

Sets = list[np.ndarray]


class Task(NamedTuple):
    """Sets to learn from, and sets to score with the truth about each of their elements."""

    name: str
    set_size: int
    training: Sets
    sets: Sets
    odd: Sets


Result = tuple[Sets, Sets | None]
"""Scores, and what the default threshold makes of them."""


def around_points(num_sets: int, size: int, *, generator: np.random.Generator) -> tuple[Sets, np.ndarray]:
    """Draw sets around random centres, with one element around another centre; return the sets and its indices."""
    centres = 3 * generator.normal(size=(num_sets, 2, 3))
    points = np.repeat(centres[:, :1], size, axis=1)
    odd = generator.integers(size, size=num_sets)
    points[np.arange(num_sets), odd] = centres[:, 1]
    return list(points + generator.normal(size=points.shape)), odd


def draw_group(kind: str, generator: np.random.Generator) -> np.ndarray:
    """Draw one group of rows."""
    if kind == "curves":
        time_, (bend, wave) = generator.normal(size=int(generator.integers(8, 15))), generator.normal(size=2)
        rows = np.stack([time_, bend * time_**2 + wave * np.sin(2 * time_)], axis=1)
        return rows + 0.1 * generator.normal(size=rows.shape)
    size, shape, centre = int(generator.integers(40, 201)), generator.normal(size=(4, 4)) / 2, generator.normal(size=4)
    if kind == "clusters":
        centres = 2 * generator.normal(size=(3, 4))
        return centre + centres[generator.integers(3, size=size)] + 0.3 * generator.normal(size=(size, 4))
    if kind == "rings":
        angle, radius = generator.uniform(0, 2 * np.pi, size), generator.uniform(0.7, 2)
        circle = radius * np.stack([np.cos(angle), np.sin(angle)], axis=1) @ np.linalg.qr(shape[:, :2])[0].T
        return centre + circle + 0.1 * generator.normal(size=(size, 4))
    factors = {
        "ellipses": lambda: generator.normal(size=(size, 4)),
        "heavy tails": lambda: generator.standard_t(4, size=(size, 4)),
        "skewed": lambda: np.exp(0.6 * generator.normal(size=(size, 4))),
    }
    return 1.5 * centre + factors[kind]() @ shape


def swap_rows(groups: Sets, count: int, generator: np.random.Generator) -> tuple[Sets, Sets]:
    """Replace rows of every group by rows of other groups; return the groups and the truth."""
    swapped, odd = [rows.copy() for rows in groups], [np.zeros(len(rows), dtype=bool) for rows in groups]
    for index, rows in enumerate(swapped):
        for row in generator.choice(len(rows), count if len(rows) >= 6 else 0, replace=False):
            other = groups[(index + int(generator.integers(1, len(groups)))) % len(groups)]
            rows[row], odd[index][row] = other[generator.integers(len(other))], True
    return swapped, odd


def small_tasks(name: str, num_training: int, seed: int) -> list[Task]:
    draw = {"around points": around_points, "along lines": draw_sets_along_lines}[name]
    generator = np.random.default_rng(seed)
    training = [elements for size in TRAINING_SIZES for elements in draw(num_training, size, generator=generator)[0]]
    tasks = list[Task]()
    for size in TEST_SIZES:
        sets, odd = draw(500, size, generator=np.random.default_rng([seed + 1, size]))
        tasks.append(Task(name, size, training, sets, [np.arange(size) == index for index in odd]))
    return tasks


def group_tasks(kind: str, seed: int) -> list[Task]:
    generator = np.random.default_rng([seed, 2])
    groups = [draw_group(kind, generator) for _ in range(300 if kind == "curves" else 50)]
    sets, odd = swap_rows(groups, 1 if kind == "curves" else 2, generator)
    return [Task(kind, 0, sets, sets, odd)]


def real_tasks(name: str, folder: Path, seed: int) -> list[Task]:
    saved = np.load(folder / f"{name}.npz")
    bags = np.split(saved["elements"].astype(float), np.cumsum(saved["sizes"])[:-1])
    sets, odd = swap_rows(bags, 1, np.random.default_rng([seed, 3]))
    return [Task(name, 0, sets, sets, odd)]


def by_row(detector: object) -> Callable[[list[Task]], list[Result]]:
    """Fit a scikit-learn detector to the rows of all sets together."""

    def run(tasks: list[Task]) -> list[Result]:
        fitted = detector.fit(np.concatenate(tasks[0].training))  # type: ignore[attr-defined]
        results = list[Result]()
        for task in tasks:
            ends = np.cumsum([len(elements) for elements in task.sets])[:-1]
            rows = np.concatenate(task.sets)
            results.append((np.split(-fitted.score_samples(rows), ends), np.split(fitted.predict(rows) < 0, ends)))
        return results

    return run


def within(score: Callable[[np.ndarray], np.ndarray], threshold: Callable[[int], float] | None, *, slow: bool = False):
    """Score each set by itself; the threshold is a function of the number of features."""

    def run(tasks: list[Task]) -> list[Result]:
        results = list[Result]()
        for task in tasks:
            sets = task.sets[:MAX_SLOW] if slow and task.set_size else task.sets
            scores = [score(elements) for elements in sets]
            cut = None if threshold is None else threshold(sets[0].shape[1])
            results.append((scores, None if cut is None else [values > cut for values in scores]))
        return results

    return run


def mahalanobis(elements: np.ndarray) -> np.ndarray:
    """Return robust squared Mahalanobis distances; not robust ones where a set is too small for them."""
    robust = len(elements) > 2 * elements.shape[1] and elements.shape[1] < 30
    estimate = MinCovDet(random_state=0) if robust else EmpiricalCovariance()
    return estimate.fit(elements).mahalanobis(elements)


def local_outliers(neighbours: int) -> Callable[[np.ndarray], np.ndarray]:
    def score(elements: np.ndarray) -> np.ndarray:
        if len(elements) < 3:
            return np.ones(len(elements))
        return -LocalOutlierFactor(min(neighbours, len(elements) // 2)).fit(elements).negative_outlier_factor_

    return score


def ours(**options: object) -> Callable[[list[Task]], list[Result]]:
    def run(tasks: list[Task]) -> list[Result]:
        detector = SetAnomalyDetector(random_state=0, **options).fit(tasks[0].training)
        print("   ", {name: round(value, 3) for name, value in detector.report_.items()}, detector.members_, flush=True)
        return [(detector.score_elements(task.sets), detector.predict(task.sets)) for task in tasks]

    return run


METHODS = {
    "isolation forest, rows": by_row(IsolationForest(random_state=0)),
    "local outlier factor, rows": by_row(LocalOutlierFactor(novelty=True)),
    "one-class SVM, rows": by_row(OneClassSVM()),
    "distance to the mean of the set": within(lambda x: np.linalg.norm(x - x.mean(axis=0), axis=1), None),
    "Mahalanobis (MCD) within the set": within(mahalanobis, lambda dim: float(chi2.ppf(0.975, dim)), slow=True),
    "local outlier factor within the set": within(local_outliers(5), lambda dim: 1.5),
    "the same, 20 neighbours": within(local_outliers(20), lambda dim: 1.5),
    "isolation forest within the set": within(
        lambda x: -IsolationForest(random_state=0).fit(x).score_samples(x), lambda dim: 0.5, slow=True
    ),
    "SetAnomalyDetector": ours(),
    "SetAnomalyDetector, network only": ours(method="network"),
}
"""The methods by name: each learns from the training sets of the first task and scores the sets of all."""


def measure(name: str, task: Task, result: Result, seconds: float) -> dict[str, object]:
    scores, flagged = result
    truth = np.concatenate(task.odd[: len(scores)])
    values = np.concatenate(scores)
    top1 = np.mean(
        [odd[value.argmax()] for value, odd in zip(scores, task.odd[: len(scores)], strict=True) if odd.any()]
    )
    row = dict(kind=task.name, name=name, set_size=task.set_size, seconds=seconds, top1=float(top1))
    row |= dict(
        auroc=float(roc_auc_score(truth, values)), average_precision=float(average_precision_score(truth, values))
    )
    if flagged is not None:
        precision, recall, _, _ = precision_recall_fscore_support(
            truth, np.concatenate(flagged), average="binary", zero_division=0
        )
        row |= dict(precision=float(precision), recall=float(recall))
    return row


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=200, help="training sets of each size")
    parser.add_argument("--only", default="", help="measure only methods whose name contains this")
    parser.add_argument("--without", default=" ", help="leave out methods whose name contains this")
    parser.add_argument("--tasks", nargs="+", default=[], help="measure only these tasks")
    parser.add_argument("--seed", type=int, default=0, help="seed of the sets")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # MinCovDet warns about small sets
    everything: dict[str, Callable[[], list[Task]]] = {
        name: lambda name=name: small_tasks(name, arguments.sets, arguments.seed)
        for name in ("around points", "along lines")
    }
    for kind in ("ellipses", "heavy tails", "skewed", "clusters", "rings", "curves"):
        everything[kind] = lambda kind=kind: group_tasks(kind, arguments.seed)
    folder = Path(os.environ.get("PICASET_DATA", "")) / "bags"
    for name in REAL if folder.is_dir() else ():
        everything[name] = lambda name=name: real_tasks(name, folder, arguments.seed)
    rows = list[dict[str, object]]()
    for kind, tasks_of in everything.items():
        if arguments.tasks and kind not in arguments.tasks:
            continue
        tasks = tasks_of()
        print(f"\n{kind}: average precision / top 1 / precision and recall at the default threshold")
        for name, run in METHODS.items():
            if arguments.only not in name or arguments.without in name:
                continue
            began = time.process_time()
            results = run(tasks)
            seconds = time.process_time() - began
            line = list[str]()
            for task, result in zip(tasks, results, strict=True):
                row = measure(name, task, result, seconds)
                rows.append(row)
                at_threshold = f"{row['precision']:.2f} {row['recall']:.2f}" if "precision" in row else "         "
                size = f"{task.set_size:3}: " if task.set_size else ""
                line.append(f"{size}{row['average_precision']:.3f} / {row['top1']:.3f} / {at_threshold}")
            print(f"{name:36}{'   '.join(line)}  {seconds:8.1f} s", flush=True)
    print("\nmean average precision over all tasks and sizes")
    for name in METHODS:
        values = [float(str(row["average_precision"])) for row in rows if row["name"] == name]
        if values:
            print(f"{name:36}{np.mean(values):.3f}   {len(values)} tasks")
    record("odd_one_out", rows, machine_limits())
