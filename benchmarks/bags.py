"""How well are bags of vectors classified, compared with what people do otherwise?

Classification: seven multiple-instance data sets (``PICASET_DATA/bags``) and six generated tasks, each of which needs
something else: one witness among many elements, a correlation, an exclusive or of two kinds of elements, a count, a
shift of the mean, a digit among digits. Regression: three generated tasks. Rows:

    statistics + SVM                 mean, minimum and maximum of each feature, RBF support vector machine
    statistics + random forest       the same statistics
    set kernel + SVM                 exact normalized set kernel (Gaertner et al. 2002)
    mean embedding + SVM             the same kernel by random features, SetMeanEmbedding
    torchmil ABMIL                   attention-based multiple-instance learning (Ilse et al. 2018), from PyPI
    SetClassifier, one network       the default of version 0.1
    SetClassifier, network           method="network"
    SetClassifier                    the default

Expected: SetClassifier has the highest mean AUROC, and is within 0.02 or one paired standard error of the best row on
every task. Every row chooses what it chooses (epoch, member weights) by inner validation on the training folds.

    python -m benchmarks.bags --record bags.jsonl --repeats 5 --folds 10
    python -m benchmarks.bags --record bags.jsonl --repeats 1 --folds 5 --tasks witness digits --rows SetClassifier
    python -m benchmarks.bags --record results/bags__epyc-1-thread__2026-11.jsonl --table

Every fit appends one line to the record, with the commit of the estimators; fits that are in the record are skipped, so
the command may be stopped and started again, also on another machine. A record of another commit is neither continued
nor summarized without ``--mix-commits``. Uses one thread. Prints the tables, then one JSON line.
"""

import argparse
import json
import os
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import load_digits
from sklearn.ensemble import GradientBoostingRegressor, RandomForestClassifier, RandomForestRegressor
from sklearn.metrics import accuracy_score, r2_score, roc_auc_score
from sklearn.model_selection import KFold, StratifiedKFold, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

from benchmarks.measure import machine_limits, record, use_cpu_time
from picaset import SetClassifier, SetMeanEmbedding, SetRegressor, SetStatistics
from picaset.sets import SetBatch

GIVEN = ("elephant", "fox", "mutagenesis1", "protein", "alt_atheism", "corel_dogs", "birds_brown_creeper")
GENERATED = ("witness", "correlation", "xor", "counting", "mean shift", "digits")
REGRESSION = ("largest", "spread", "digit mean")
NUM_BAGS = 200
PUBLISHED = {
    "mi-SVM": {"elephant": 0.822, "fox": 0.582},
    "MI-Kernel": {"elephant": 0.843, "fox": 0.603},
    "miFV": {"elephant": 0.852, "fox": 0.621},
    "MI-Net with deep supervision": {"elephant": 0.872, "fox": 0.630},
    "attention MIL": {"elephant": 0.868, "fox": 0.615},
    "DSMIL (epoch chosen by the test fold)": {"elephant": 0.925, "fox": 0.729},
}
"""Published accuracies, for comparison of accuracy only; several choose the epoch or the threshold by the test fold."""

CODE = ("picaset/estimators", "picaset/networks", "picaset/operators")
"""What the fits depend on: the record names the last commit that changed it."""

Bags = list[np.ndarray]


def read_given(name: str) -> tuple[Bags, np.ndarray]:
    """Read one of the multiple-instance data sets."""
    root = os.environ.get("PICASET_DATA")
    if root is None:
        raise SystemExit(f"{name} needs PICASET_DATA, a folder with bags/{name}.npz; or choose --tasks.")
    with np.load(Path(root) / "bags" / f"{name}.npz") as file:
        return np.split(file["elements"].astype(float), np.cumsum(file["sizes"])[:-1]), file["labels"].astype(int)


def generate(name: str, *, seed: int = 0, num_bags: int = NUM_BAGS) -> tuple[Bags, np.ndarray]:
    """Draw the bags and labels of a generated classification task."""
    generator = np.random.default_rng([seed, sum(map(ord, name))])
    labels = np.arange(num_bags) % 2

    def draw(dim: int, smallest: int, largest: int) -> Bags:
        return [generator.normal(size=(generator.integers(smallest, largest), dim)) for _ in labels]

    def direction(dim: int, length: float) -> np.ndarray:
        vector = generator.normal(size=dim)
        return vector * length / np.linalg.norm(vector)

    if name == "witness":  # one element of a positive bag is shifted
        shift, bags = direction(30, 4.0), draw(30, 5, 20)
        for bag in bags[1::2]:
            bag[0] += shift
    elif name == "correlation":  # two features are correlated, positively or negatively
        bags = draw(5, 8, 24)
        for bag, label in zip(bags, labels, strict=True):
            bag[:, 1] = (0.8 if label else -0.8) * bag[:, 0] + 0.6 * bag[:, 1]
    elif name == "xor":  # two elements are of the same kind, or of two kinds
        kinds, bags = 6 * np.eye(6)[:2], draw(6, 4, 12)
        for bag, label in zip(bags, labels, strict=True):
            first = generator.integers(2)
            bag[0] += kinds[first]
            bag[1] += kinds[first ^ label]
    elif name == "counting":  # at least four elements are shifted, or fewer
        shift, bags = direction(8, 4.0), draw(8, 12, 24)
        for bag, label in zip(bags, labels, strict=True):
            bag[: generator.integers(4, 8) if label else generator.integers(0, 4)] += shift
    elif name == "mean shift":  # all elements are shifted a little
        shift, bags = direction(20, 0.6), draw(20, 5, 20)
        for bag, label in zip(bags, labels, strict=True):
            bag += label * shift
    else:  # digits: a nine is among them
        images, digits = load_digits(return_X_y=True)
        nines, others = np.flatnonzero(digits == 9), np.flatnonzero(digits != 9)
        bags = list[np.ndarray]()
        for label in labels:
            rows = generator.choice(others, generator.integers(6, 14), replace=False)
            rows[0] = generator.choice(nines) if label else rows[0]
            bags.append(images[rows])
    return [generator.permutation(bag) for bag in bags], labels


def generate_regression(name: str, *, seed: int = 1, num_bags: int = NUM_BAGS) -> tuple[Bags, np.ndarray]:
    """Draw the bags and targets of a regression task."""
    generator = np.random.default_rng([seed, sum(map(ord, name))])
    sizes = generator.integers(5, 20, size=num_bags)
    if name == "digit mean":
        images, digits = load_digits(return_X_y=True)
        rows = [generator.choice(len(digits), size, replace=False) for size in sizes]
        return [images[chosen] for chosen in rows], np.array([digits[chosen].mean() for chosen in rows])
    vector = generator.normal(size=6) / np.sqrt(6)
    bags = [generator.normal(size=(size, 6)) * generator.uniform(0.5, 2) for size in sizes]
    projected = [bag @ vector for bag in bags]
    summary: Callable[[np.ndarray], float] = np.max if name == "largest" else np.std
    return bags, np.array([summary(values) for values in projected]) + 0.05 * generator.normal(size=num_bags)


@cache
def load(task: str) -> tuple[Bags, np.ndarray]:
    if task in REGRESSION:
        return generate_regression(task)
    return read_given(task) if task in GIVEN else generate(task)


@cache
def exact_kernel(task: str) -> np.ndarray:
    """Return the normalized set kernel of all bags of a task, with the width 1 / D of standardized features."""
    bags, _ = load(task)
    rows = np.concatenate(bags)
    rows = (rows - rows.mean(axis=0)) / np.where(rows.std(axis=0) > 0, rows.std(axis=0), 1)
    starts = np.concatenate([[0], np.cumsum([len(bag) for bag in bags])[:-1]])
    squares, sums = (rows**2).sum(axis=1), list[np.ndarray]()
    for bag in np.split(np.arange(len(rows)), starts[1:]):
        distances = squares[bag, None] + squares - 2 * rows[bag] @ rows.T
        sums.append(np.add.reduceat(np.exp(-np.maximum(distances, 0) / rows.shape[1]).sum(axis=0), starts))
    kernel = np.stack(sums)
    scale = np.sqrt(np.diagonal(kernel))
    return kernel / np.outer(scale, scale)


class AttentionMIL(ClassifierMixin, BaseEstimator):
    """ABMIL of torchmil on 64 hidden features, with early stopping on a fifth of the training bags."""

    def __init__(self, seed: int = 0, max_epochs: int = 200, patience: int = 30) -> None:
        self.seed, self.max_epochs, self.patience = seed, max_epochs, patience

    def pad(self, bags: Bags) -> tuple[torch.Tensor, torch.Tensor]:
        return SetBatch.from_list(
            [torch.as_tensor((bag - self.mean_) / self.scale_).float() for bag in bags]
        ).to_padded()

    def fit(self, bags: Bags, labels: np.ndarray) -> "AttentionMIL":
        from torchmil.models import ABMIL

        torch.manual_seed(self.seed)
        generator = np.random.default_rng(self.seed)
        rows = np.concatenate(bags)
        self.mean_, self.scale_ = rows.mean(axis=0), np.where(rows.std(axis=0) > 0, rows.std(axis=0), 1)
        elements, mask = self.pad(bags)
        targets = torch.as_tensor(labels).float()
        training, validation = train_test_split(
            np.arange(len(bags)), test_size=0.2, stratify=labels, random_state=self.seed
        )
        features = torch.nn.Sequential(torch.nn.Linear(rows.shape[1], 64), torch.nn.ReLU(), torch.nn.Dropout(0.1))
        model = ABMIL(in_shape=(rows.shape[1],), att_dim=64, gated=True, feat_ext=features)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-4)
        best, best_epoch = float("inf"), 0
        for epoch in range(self.max_epochs):
            model.train()
            for indices in np.array_split(generator.permutation(training), max(len(training) // 16, 1)):
                logits = model(elements[indices], mask[indices].float())
                loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, targets[indices])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            model.eval()
            with torch.no_grad():
                logits = model(elements[validation], mask[validation].float())
                loss = float(torch.nn.functional.binary_cross_entropy_with_logits(logits, targets[validation]))
            if loss < best:
                best, best_epoch = loss, epoch
                weights = {key: value.clone() for key, value in model.state_dict().items()}
            elif epoch - best_epoch >= self.patience:
                break
        model.load_state_dict(weights)
        self.model_ = model.eval()
        return self

    def decision_function(self, bags: Bags) -> np.ndarray:
        elements, mask = self.pad(bags)
        with torch.no_grad():
            return self.model_(elements, mask.float()).numpy()


SIMPLE = ("mean", "min", "max")
CLASSIFIERS: dict[str, Callable[[int], Any]] = {
    "statistics + SVM": lambda seed: make_pipeline(SetStatistics(SIMPLE), StandardScaler(), SVC()),
    "statistics + random forest": lambda seed: make_pipeline(
        SetStatistics(SIMPLE), RandomForestClassifier(300, random_state=seed)
    ),
    "set kernel + SVM": lambda seed: SVC(kernel="precomputed"),
    "mean embedding + SVM": lambda seed: make_pipeline(
        SetMeanEmbedding(random_state=seed), StandardScaler(with_std=False), SVC(kernel="linear", C=10)
    ),
    "torchmil ABMIL": lambda seed: AttentionMIL(seed),
    "SetClassifier, one network": lambda seed: SetClassifier(
        method="network", num_networks=1, batch_size=16, random_state=seed
    ),
    "SetClassifier, network": lambda seed: SetClassifier(method="network", random_state=seed),
    "SetClassifier": lambda seed: SetClassifier(random_state=seed),
}
REGRESSORS: dict[str, Callable[[int], Any]] = {
    "statistics + gradient boosting": lambda seed: make_pipeline(
        SetStatistics(), GradientBoostingRegressor(random_state=seed)
    ),
    "statistics + random forest": lambda seed: make_pipeline(
        SetStatistics(), RandomForestRegressor(300, random_state=seed)
    ),
    "SetRegressor, network": lambda seed: SetRegressor(method="network", random_state=seed),
    "SetRegressor": lambda seed: SetRegressor(random_state=seed),
}


def measure(task: str, row: str, repeat: int, fold: int, num_folds: int) -> dict[str, Any]:
    """Fit one row to the training folds, and score it on the test fold."""
    bags, targets = load(task)
    regression = task in REGRESSION
    kind = KFold if regression else StratifiedKFold
    splits = list(kind(num_folds, shuffle=True, random_state=repeat).split(np.zeros(len(bags)), targets))
    training, test = splits[fold]
    if row == "set kernel + SVM":
        kernel = exact_kernel(task)
        training_inputs, test_inputs = kernel[np.ix_(training, training)], kernel[np.ix_(test, training)]
    else:
        training_inputs, test_inputs = [bags[index] for index in training], [bags[index] for index in test]
    estimator = (REGRESSORS if regression else CLASSIFIERS)[row](repeat)
    began = time.process_time()
    estimator.fit(training_inputs, targets[training])
    entry: dict[str, Any] = {"seconds": round(time.process_time() - began, 3)}
    if row in ("SetClassifier", "SetRegressor"):
        entry["weights"] = {name: round(values["weight"], 3) for name, values in estimator.report_.items()}
    if regression:
        return entry | {"r2": round(float(r2_score(targets[test], estimator.predict(test_inputs))), 6)}
    if hasattr(estimator, "decision_function"):
        scores = estimator.decision_function(test_inputs)
        predicted = (scores > 0).astype(int)
    else:
        scores = estimator.predict_proba(test_inputs)[:, 1]
        predicted = (scores > 0.5).astype(int)
    return entry | {
        "auroc": round(float(roc_auc_score(targets[test], scores)), 6),
        "accuracy": round(float(accuracy_score(targets[test], predicted)), 6),
    }


def read_results(path: Path) -> dict[tuple[str, str, int, int, int], dict[str, Any]]:
    """Read the finished fits; a line that was cut short is ignored."""
    results = dict[tuple[str, str, int, int, int], dict[str, Any]]()
    for line in path.read_text().splitlines() if path.is_file() else []:
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        results[tuple(entry[key] for key in ("task", "row", "folds", "repeat", "fold"))] = entry
    return results


def code_commit() -> str:
    """Return the last commit of the code that is measured, with a plus sign if files differ from it."""
    root = Path(__file__).parent.parent

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(root), *arguments, "--", *CODE], capture_output=True, text=True, check=True
        ).stdout.strip()

    return git("log", "-1", "--format=%h") + ("+" if git("status", "--porcelain") else "")


def check_commits(entries: Iterable[dict[str, Any]], commit: str, *, path: Path) -> None:
    """Raise unless all fits of a record are of one commit."""
    others = sorted({str(entry.get("commit", "an unknown one")) for entry in entries} - {commit})
    if others:
        raise SystemExit(
            f"{path} has fits of the commit {', '.join(others)}; expected {commit}. Use another record, or pass "
            "--mix-commits if the changes between them do not matter."
        )


def print_comparison(
    scores: dict[tuple[str, str], dict[tuple[int, int], dict[str, Any]]],
    tasks: Sequence[str],
    rows: Iterable[str],
    *,
    metric: str,
    ours: str,
) -> None:
    """Print how our row compares with the others, on the folds that both have."""

    def differences(task: str, row: str) -> list[float]:
        mine, theirs = scores[task, ours], scores[task, row]
        return [mine[key][metric] - theirs[key][metric] for key in sorted(mine.keys() & theirs.keys())]

    by_task = {task: {row: values for row in rows if (values := differences(task, row))} for task in tasks}
    by_task = {task: compared for task, compared in by_task.items() if len(compared) > 1}
    print(f"{ours} against the best row of each task: difference (paired standard error)")
    below = list[str]()
    for task, compared in by_task.items():
        best = min(compared, key=lambda row: float(np.mean(compared[row])))
        values = compared[best]
        error = float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0
        reached = np.mean(values) >= -max(0.02, error)
        below += [] if reached else [task]
        print(
            f"  {task:20} {np.mean(values):+.3f} ({error:.3f}) to {best}, {len(values)} folds"
            + ("" if reached else "  BELOW")
        )
    print(f"within 0.02 or one paired standard error on every task: {'FAIL' if below else 'PASS'} {', '.join(below)}")
    means = {
        row: (float(np.mean(gains)), len(gains))
        for row in rows
        if row != ours
        and (gains := [float(np.mean(compared[row])) for compared in by_task.values() if row in compared])
    }
    print(f"{ours} against each row: mean difference over the tasks that both have")
    for row, (gain, count) in means.items():
        print(f"  {row:34} {gain:+.3f}  {count} tasks")
    highest = all(gain >= 0 for gain, _ in means.values())
    print(f"highest mean {metric} of all rows: {'PASS' if highest else 'FAIL'}")


def print_tables(entries: Iterable[dict[str, Any]]) -> list[dict[str, object]]:
    """Print the mean and the spread over folds of every row and task; return them."""
    measured = dict[tuple[str, str], dict[tuple[int, int], dict[str, Any]]]()
    for entry in entries:
        measured.setdefault((entry["task"], entry["row"]), {})[entry["repeat"], entry["fold"]] = entry
    scores = defaultdict(dict[tuple[int, int], dict[str, Any]], measured)
    summary = list[dict[str, object]]()
    for title, metric, tasks, rows, ours in (
        ("AUROC", "auroc", (*GIVEN, *GENERATED), CLASSIFIERS, "SetClassifier"),
        ("accuracy", "accuracy", (*GIVEN, *GENERATED), CLASSIFIERS, "SetClassifier"),
        ("R2", "r2", REGRESSION, REGRESSORS, "SetRegressor"),
    ):
        tasks = [task for task in tasks if any((task, row) in measured for row in rows)]
        rows = [row for row in rows if any((task, row) in measured for task in tasks)]
        if not tasks:
            continue
        print(f"\n{title}: mean (standard deviation over folds)")
        print(f"{'':34}" + "".join(f"{task[:12]:>14}" for task in tasks) + f"{'mean':>8}")
        for row in rows:
            values = {task: [entry[metric] for entry in scores[task, row].values()] for task in tasks}
            cells = [f"{np.mean(v):.3f} ({np.std(v):.3f})" if v else "-" for v in values.values()]
            whole = all(values.values())
            mean = f"{np.mean([np.mean(v) for v in values.values()]):8.3f}" if whole else f"{'-':>8}"
            print(f"{row:34}" + "".join(f"{cell:>14}" for cell in cells) + mean)
            for task, folds in values.items():
                seconds = [entry["seconds"] for entry in scores[task, row].values()]
                if folds:
                    summary.append(
                        {"task": task, "row": row, "metric": metric, "mean": float(np.mean(folds)), "fits": len(folds)}
                        | {"deviation": float(np.std(folds)), "seconds": float(np.median(seconds))}
                    )
        if metric == "accuracy":
            print("published accuracies (several choose the epoch or the threshold by the test fold):")
            for row, values in PUBLISHED.items():
                cells = [f"{values[task]:.3f}" if task in values else "" for task in tasks]
                print(f"{row[:33]:34}" + "".join(f"{cell:>14}" for cell in cells))
            continue
        print("median seconds of processor time a fit")
        for row in rows:
            seconds = [[entry["seconds"] for entry in scores[task, row].values()] for task in tasks]
            print(f"{row:34}" + "".join(f"{np.median(v):14.2f}" if v else f"{'-':>14}" for v in seconds))
        print_comparison(scores, tasks, rows, metric=metric, ours=ours)
    return summary


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", type=Path, required=True, help="file with one line for each fit")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--folds", type=int, default=10)
    parser.add_argument("--tasks", nargs="+", default=[*GIVEN, *GENERATED, *REGRESSION])
    parser.add_argument("--rows", nargs="+", default=[*CLASSIFIERS, *REGRESSORS])
    parser.add_argument("--table", action="store_true", help="print the tables of the finished fits only")
    parser.add_argument("--mix-commits", action="store_true", help="accept a record with fits of several commits")
    arguments = parser.parse_args()
    path = arguments.record
    path.parent.mkdir(parents=True, exist_ok=True)
    use_cpu_time()
    torch.optim.AdamW([torch.zeros(1, requires_grad=True)])  # imports a compiler, which is not part of the first fit
    results, commit = read_results(path), code_commit()
    if not arguments.mix_commits:
        recorded = next(iter(results.values()), {}).get("commit", "an unknown one")
        check_commits(results.values(), recorded if arguments.table else commit, path=path)
    with threadpool_limits(1):
        folds = product(range(0 if arguments.table else arguments.repeats), range(arguments.folds))
        # The folds outside, so that an unfinished record has as many of every task.
        for (repeat, fold), task in product(folds, arguments.tasks):
            for row in REGRESSORS if task in REGRESSION else CLASSIFIERS:
                key = (task, row, arguments.folds, repeat, fold)
                if key in results or row not in arguments.rows:
                    continue
                named = dict(zip(("task", "row", "folds", "repeat", "fold"), key, strict=True))
                results[key] = named | {"commit": commit} | measure(task, row, repeat, fold, arguments.folds)
                with path.open("a") as file:
                    file.write(json.dumps(results[key]) + "\n")
    entries = [entry for key, entry in results.items() if key[0] in arguments.tasks and key[2] == arguments.folds]
    record("bags", print_tables(entries), machine_limits())
