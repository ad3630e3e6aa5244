"""How well does AmortizedMixture find clusters, and how fast, compared with what people use otherwise?

Columns of the table: round, axis-aligned, elongated, overlapping, unequal and noisy clusters in 1, 2, 5, 10 and 30
dimensions, 50 groups each with 2 to 5 clusters. Clusters are Gaussian; their centres are at least 3 standard deviations
of both clusters apart (1.5 if overlapping). Unequal clusters have 30 to 300 points, others 100. Noisy groups have 8 %
uniform background, and ours gets noise=True. Reported for each method: mean adjusted Rand index (ARI), the share of
groups with the right number of clusters, and processor time per group.

scikit-learn's search fits GaussianMixture with 1 to 8 components and full, or all four, covariance types, and takes the
lowest BIC. All methods have one thread.

The parts `speed` measure elongated groups: ours on 50 and on 5000 groups in one call and on 50 groups one by one, and
scikit-learn's search on the same 50, because its time is linear in the number of groups.

The part `starts` compares initializations on the sets of the paper: 200 sets of 300 to 600 points from four round
Gaussians, whose number is given; log-likelihood per point. torchgmm is compared if it is installed (`pip install
--no-deps torchgmm`); pycave cannot be imported beside this version of PyTorch Lightning.

    python -m benchmarks.clusterer --record results/clusterer_shapes__MACHINE__MONTH.json   # continues where it stopped
    python -m benchmarks.clusterer --record /tmp/quick.json --groups 4 --dimensions 2       # a quick look

Every finished part is added to the record, with its commit; parts of another commit are not continued unless
--mix-commits is given. Ours and the other methods are parts of their own, so that a change of ours does not need the
others again. Settings of the library were chosen on groups with other seeds.
"""

import argparse
import json
import logging
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import clone
from sklearn.cluster import HDBSCAN
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
from threadpoolctl import threadpool_limits

from benchmarks.measure import describe_run
from picaset import AmortizedMixture
from picaset.lab.data.gaussian_mixtures import benchmark_sets

KINDS = ("round", "axis-aligned", "elongated", "overlapping", "unequal", "noisy")
DIMENSIONS = (1, 2, 5, 10, 30)
NOISE = 0.08
TYPES = ("spherical", "diag", "tied", "full")
SEED = 2026
FEW_GROUPS = 50
"""Number of groups on which the speed of methods is measured whose time is linear in the number of groups."""
SPEED_DIMENSIONS = (2, 10)
TABLE_SEEDS = range(10)
"""Seeds of every method on real tables, where the mixture that is found depends on the seed."""
Group = tuple[np.ndarray, np.ndarray]
"""Points (n, D) and the cluster of each, -1 for noise."""


def draw_group(kind: str, dim: int, random: np.random.Generator) -> Group:
    """Draw the clusters of one group."""
    number = int(random.integers(2, 6))
    sizes = random.integers(30, 301, number) if kind == "unequal" else np.full(number, 100)
    deviations = np.exp(random.uniform(np.log(0.3), np.log(3.0), (number, dim)))
    if kind == "round":
        deviations = np.ones((number, dim))
    rotations = np.stack([np.eye(dim)] * number)
    if kind not in ("round", "axis-aligned"):
        rotations = np.stack([np.linalg.qr(random.standard_normal((dim, dim)))[0] for _ in range(number)])
    factors = rotations * deviations[:, None, :]
    centres = draw_centres(factors, 1.5 if kind == "overlapping" else 3.0, random)
    clusters = [
        centre + random.standard_normal((size, dim)) @ factor.T
        for centre, factor, size in zip(centres, factors, sizes, strict=True)
    ]
    points, labels = np.concatenate(clusters), np.repeat(np.arange(number), sizes)
    if kind == "noisy":
        count = round(NOISE / (1 - NOISE) * len(points))
        points = np.concatenate([points, random.uniform(points.min(axis=0), points.max(axis=0), (count, dim))])
        labels = np.concatenate([labels, np.full(count, -1)])
    return points, labels


def draw_centres(factors: np.ndarray, separation: float, random: np.random.Generator) -> list[np.ndarray]:
    """Draw centres in a box that grows until all pairs are apart by this multiple of their deviations."""
    number, dim = factors.shape[:2]
    width, centres = 4.0 * number ** (1 / dim), list[np.ndarray]()
    while len(centres) < number:
        centre, apart = random.uniform(-width, width, dim), True
        for other, factor in zip(centres, factors, strict=False):
            distance = np.linalg.norm(centre - other)
            direction = (centre - other) / distance
            deviations = (np.linalg.norm(each.T @ direction) for each in (factors[len(centres)], factor))
            apart = apart and distance >= separation * sum(deviations)
        if apart:
            centres.append(centre)
        else:
            width *= 1.02
    return centres


def draw_groups(kind: str, dim: int, count: int) -> list[Group]:
    return [draw_group(kind, dim, np.random.default_rng([SEED, dim, KINDS.index(kind), i])) for i in range(count)]


def search_scikit_learn(points: np.ndarray, seed: int = 0) -> dict[str, np.ndarray]:
    """Return the labels of scikit-learn's search over full, and over all, covariance types, and its times."""
    best, times = dict[str, Any](), dict[str, float]()
    for covariance in TYPES:
        began = time.process_time()
        fits = [
            GaussianMixture(count, covariance_type=covariance, random_state=seed).fit(points) for count in range(1, 9)
        ]
        best[covariance] = min(fits, key=lambda fit: fit.bic(points))
        times[covariance] = time.process_time() - began
    overall = min(best.values(), key=lambda fit: fit.bic(points))
    return {
        "full": best["full"].predict(points), "all": overall.predict(points),
        "full time": np.array(times["full"]), "all time": np.array(sum(times.values())),
    }  # fmt: skip


def measure_ours(kind: str, dim: int, count: int) -> list[dict[str, Any]]:
    """Return the row of our method."""
    groups = draw_groups(kind, dim, count)
    sets = [points for points, _ in groups]
    estimator = AmortizedMixture(noise=kind == "noisy", random_state=0)
    estimator.fit_many(sets[:2])
    began = time.process_time()
    mixtures = estimator.fit_many(sets)
    seconds = time.process_time() - began
    labels = [mixture.predict(points) for mixture, points in zip(mixtures, sets, strict=True)]
    return [quality_row(kind, dim, groups, "ours", labels, seconds)]


def measure_others(kind: str, dim: int, count: int) -> list[dict[str, Any]]:
    """Return one row for each of the other methods."""
    groups = draw_groups(kind, dim, count)
    sets = [points for points, _ in groups]
    rows, searches = list[dict[str, Any]](), [search_scikit_learn(points) for points in sets]
    for name, key in (("scikit-learn, full", "full"), ("scikit-learn, all types", "all")):
        labels = [search[key] for search in searches]
        seconds = float(sum(search[f"{key} time"] for search in searches))
        rows.append(quality_row(kind, dim, groups, name, labels, seconds))
    peers: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "HDBSCAN": lambda points: HDBSCAN(min_cluster_size=10, copy=True).fit_predict(points),
        "BayesianGaussianMixture": lambda points: BayesianGaussianMixture(
            n_components=8, max_iter=300, random_state=0
        ).fit_predict(points),
    }
    for name, peer in peers.items():
        began = time.process_time()
        labels = [peer(points) for points in sets]
        rows.append(quality_row(kind, dim, groups, name, labels, time.process_time() - began))
    return rows


def quality_row(
    kind: str, dim: int, groups: Sequence[Group], method: str, labels: Sequence[np.ndarray], seconds: float
) -> dict[str, Any]:
    return {
        "table": "quality", "kind": kind, "dimensions": dim, "groups": len(groups), "method": method,
        **quality(groups, labels), "milliseconds": 1e3 * seconds / len(groups),
    }  # fmt: skip


def quality(groups: Sequence[Group], found: Sequence[np.ndarray]) -> dict[str, float]:
    """Return the mean ARI with its standard error, and the share of groups with the right number of clusters."""
    scores = [adjusted_rand_score(labels, own) for (_, labels), own in zip(groups, found, strict=True)]
    right = [
        len(set(labels[labels >= 0])) == len(set(own[own >= 0])) for (_, labels), own in zip(groups, found, strict=True)
    ]
    return {
        "ari": float(np.mean(scores)), "ari_error": float(np.std(scores) / len(scores) ** 0.5),
        "right_number": float(np.mean(right)),
    }  # fmt: skip


def measure_speed(many: int, dim: int) -> list[dict[str, Any]]:
    """Return the processor time per group of ours, in one call and one by one, and of scikit-learn's search."""
    sets = [points for points, _ in draw_groups("elongated", dim, many)]
    few, rows = sets[:FEW_GROUPS], list[dict[str, Any]]()
    estimator = AmortizedMixture(random_state=0)

    def add(method: str, groups: Sequence[np.ndarray], call: Callable[[], object]) -> None:
        began = time.process_time()
        call()
        milliseconds = 1e3 * (time.process_time() - began) / len(groups)
        rows.append(
            {"table": "speed", "dimensions": dim, "groups": len(groups), "method": method, "milliseconds": milliseconds}
        )

    estimator.fit_many(sets[:2])
    add("ours, one call", few, lambda: estimator.fit_many(few))
    add("ours, one by one", few, lambda: [clone(estimator).fit(points) for points in few])
    searches = list[dict[str, np.ndarray]]()
    add("scikit-learn, all types", few, lambda: searches.extend(map(search_scikit_learn, few)))
    full = 1e3 * float(np.mean([search["full time"] for search in searches]))
    rows.append({**rows[-1], "method": "scikit-learn, full", "milliseconds": full})
    add("ours, one call", sets, lambda: estimator.fit_many(sets))
    return rows


def measure_tables() -> list[dict[str, Any]]:
    """Return the ARI of ours and of scikit-learn's search on real tables with known classes, one for each seed."""
    rows = list[dict[str, Any]]()
    for name, load in (("iris", load_iris), ("wine", load_wine), ("breast cancer", load_breast_cancer)):
        points, classes = load(return_X_y=True)
        found = dict[str, list[np.ndarray]]()
        for seed in TABLE_SEEDS:
            search = search_scikit_learn(points, seed)
            standardized = search_scikit_learn((points - points.mean(axis=0)) / points.std(axis=0), seed)
            for method, labels in (
                ("ours", AmortizedMixture(random_state=seed).fit_predict(points)),
                ("scikit-learn, full", search["full"]),
                ("scikit-learn, all types", search["all"]),
                ("scikit-learn, full, standardized", standardized["full"]),
            ):
                found.setdefault(method, []).append(labels)
        rows += [
            {
                "table": "real", "data": name, "method": method,
                "numbers": [len(set(labels)) for labels in of_seeds],
                "aris": [float(adjusted_rand_score(classes, labels)) for labels in of_seeds],
            }
            for method, of_seeds in found.items()
        ]  # fmt: skip
    return rows


def measure_optima() -> list[dict[str, Any]]:
    """Return the BIC and ARI of full covariances on breast cancer, by the number of components and the search."""
    points, classes = load_breast_cancer(return_X_y=True)
    points = (points - points.mean(axis=0)) / points.std(axis=0)
    rows = list[dict[str, Any]]()
    for count in (2, 3, 4):
        fits = {
            "ours": AmortizedMixture(count, covariance_type="full", random_state=0),
            "scikit-learn, 1 start": GaussianMixture(count, random_state=0),
            "scikit-learn, 20 random starts": GaussianMixture(
                count, n_init=20, init_params="random_from_data", random_state=0
            ),
        }
        for method, mixture in fits.items():
            mixture.fit(points)
            ari = float(adjusted_rand_score(classes, mixture.predict(points)))
            rows.append(
                {"table": "optima", "number": count, "method": method, "bic": float(mixture.bic(points)), "ari": ari}
            )
    return rows


def measure_starts(count: int = 200) -> list[dict[str, Any]]:
    """Return the log-likelihood and processor time of initializations, with four spherical components."""
    sets = [points.double().numpy() for batch, _ in benchmark_sets(count) for points in batch]
    rows = list[dict[str, Any]]()

    def add(method: str, fit: Callable[[], Sequence[Any]]) -> None:
        began = time.process_time()
        mixtures = fit()
        milliseconds = 1e3 * (time.process_time() - began) / count
        scores = [mixture.score(points) for mixture, points in zip(mixtures, sets, strict=True)]
        rows.append(
            {"table": "starts", "method": method, "log_likelihood": np.mean(scores), "milliseconds": milliseconds}
        )

    for number in (1, 4, 16):
        for init in ("k-means++", "network"):
            estimator = AmortizedMixture(4, covariance_type="spherical", init=init, n_init=number, random_state=0)
            estimator.fit_many(sets[:2])
            add(f"{init}, {number}", lambda estimator=estimator: estimator.fit_many(sets))
    for number in (1, 10):
        peer = GaussianMixture(4, covariance_type="spherical", n_init=number, random_state=0)
        add(f"scikit-learn, {number}", lambda peer=peer: [clone(peer).fit(points) for points in sets])
    return rows


def measure_torchgmm(count: int = 200) -> list[dict[str, Any]]:
    """Return the log-likelihood and processor time of torchgmm on the same sets."""
    from torchgmm.bayes import GaussianMixture as TorchMixture

    sets = [points.float().numpy() for batch, _ in benchmark_sets(count) for points in batch]
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    options = {"accelerator": "cpu", "enable_progress_bar": False, "enable_model_summary": False, "logger": False}
    scores, began = list[float](), time.process_time()
    for points in map(torch.from_numpy, sets):
        torch.manual_seed(0)
        mixture = TorchMixture(4, covariance_type="spherical", trainer_params=options)
        scores.append(-float(mixture.fit(points).score(points)))
    milliseconds = 1e3 * (time.process_time() - began) / len(sets)
    return [
        {"table": "starts", "method": "torchgmm, 1", "log_likelihood": np.mean(scores), "milliseconds": milliseconds}
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", type=Path, required=True, help="JSON file that every finished part is added to")
    parser.add_argument("--groups", type=int, default=50, help="groups of a column")
    parser.add_argument("--many", type=int, default=5000, help="groups in one call for the speed of ours")
    parser.add_argument("--mix-commits", action="store_true", help="continue a record of another commit")
    parser.add_argument("--dimensions", type=int, nargs="+", default=DIMENSIONS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # scikit-learn warns about convergence, ours about the largest number tried
    columns = [(kind, dim, arguments.groups) for dim in arguments.dimensions for kind in KINDS]
    parts: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "tables": measure_tables,
        "optima": measure_optima,
        "starts": measure_starts,
        **({"starts, torchgmm": measure_torchgmm} if find_spec("torchgmm") else {}),
        **{f"{kind} {dim}, ours": partial(measure_ours, kind, dim, count) for kind, dim, count in columns},
        **{f"{kind} {dim}, others": partial(measure_others, kind, dim, count) for kind, dim, count in columns},
        **{f"speed {dim}": partial(measure_speed, arguments.many, dim) for dim in SPEED_DIMENSIONS},
    }
    run = describe_run("clusterer", {})  # once, because the checked out commit may change during a long run
    with threadpool_limits(1):
        for name, measure in parts.items():
            saved = read_record(arguments.record)
            if name not in saved["parts"]:
                if not arguments.mix_commits:
                    check_commits(saved["commits"], str(run["commit"]), arguments.record)
                commits = {**saved["commits"], name: run["commit"]}
                saved = {**run, "commits": commits, "parts": {**saved["parts"], name: measure()}}
                arguments.record.write_text(json.dumps(saved) + "\n")
            for row in saved["parts"][name]:
                values = [f"{value:.3f}" if isinstance(value, float) else value for value in row.values()]
                print(name, *values[1:], flush=True)


def read_record(path: Path) -> dict[str, Any]:
    """Return the finished parts of a record, and the commit of each."""
    return json.loads(path.read_text()) if path.is_file() else {"commits": {}, "parts": {}}


def check_commits(commits: dict[str, str], commit: str, path: Path) -> None:
    """Raise an error if a part of a record was measured at another commit."""
    if others := {name: other for name, other in commits.items() if other != commit}:
        name, other = next(iter(others.items()))
        raise SystemExit(
            f"{path}: part {name!r} was measured at commit {other}, this is {commit}. Delete the file, or pass "
            "--mix-commits to add parts of this commit; the commit of each part is recorded."
        )


if __name__ == "__main__":
    main()
