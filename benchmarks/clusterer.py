"""What does the clusterer find, and how fast: with a network, without one, and scikit-learn?

Sets of 300 to 600 points from four Gaussians as in training, one at a time and a thousand in one call; then every
number of components, ten times smaller and larger sets, other scales, stretched and overlapping components that
training did not have, and real tables. Expected: the likelihood of scikit-learn's ten starts, in a twentieth of its
time for many sets and a fifth for one. Reported: log-likelihood per point, averaged over sets, and time per set.

    python -m benchmarks.clusterer --figure docs/figures/clusterer.png
    python -m benchmarks.clusterer --sets 20         # a quick look

Prints tables, then one JSON line; commit it under ``results/``.
"""

import argparse
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.measure import record
from picaset import AmortizedMixture
from picaset.lab.data.gaussian_mixtures import draw_mixtures, generator_for

Method = Callable[[Sequence[np.ndarray], int], list[Any]]
"""From sets and a number of components to fitted mixtures."""


def amortized(**parameters: object) -> Method:
    return lambda sets, number: AmortizedMixture(number, random_state=0, **parameters).fit_many(sets)


def scikit_learn(num_starts: int, covariance_type: str = "spherical") -> Method:
    from sklearn.mixture import GaussianMixture

    return lambda sets, number: [
        GaussianMixture(number, covariance_type=covariance_type, n_init=num_starts, random_state=0).fit(points)
        for points in sets
    ]


SMALLEST_SHOWN = 3e-4
"""Added to differences in the figure, so that the best has a place on a logarithmic axis."""

OURS, TEN_STARTS = "ours", "scikit-learn, 10 starts"
METHODS: dict[str, Method] = {
    OURS: amortized(),
    **{f"ours, at most {steps} EM step{'s' * (steps > 1)}": amortized(max_iter=steps) for steps in (1, 5)},
    "network alone, no k-means++": amortized(n_init=0),
    **{
        f"k-means++ alone, {starts} start{'s' * (starts > 1)}": amortized(init="k-means++", n_init=starts)
        for starts in (1, 4, 16)
    },
    **{f"scikit-learn, {starts} start{'s' * (starts > 1)}": scikit_learn(starts) for starts in (1, 3, 10)},
}


def draw(
    count: int,
    *,
    sizes: tuple[int, int] = (300, 600),
    number: int = 4,
    deviation: float = 0.3,
    stretch: float = 1.0,
    scale: float = 1.0,
    shift: float = 0.0,
) -> list[np.ndarray]:
    """Fresh sets; ``stretch`` widens one axis of every component, and the set is then turned by a random angle."""
    sets = list[np.ndarray]()
    for index in range(count):
        generator = generator_for(77, index, sizes[0], number)
        num_points = int(torch.randint(sizes[0], sizes[1] + 1, (), generator=generator))
        widths = torch.tensor([deviation * stretch, deviation / stretch]).expand(1, number, 2)
        points, _ = draw_mixtures(1, num_points, generator=generator, num_components=number, deviation=widths)
        angle = float(torch.rand((), generator=generator)) * 2 * np.pi
        turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
        sets.append(scale * (points[0].double().numpy() @ turn + shift))
    return sets


def measure(method: Method, sets: Sequence[np.ndarray], number: int) -> dict[str, float]:
    began = time.perf_counter()
    mixtures = method(sets, number)
    seconds = time.perf_counter() - began
    scores = [mixture.score(points) for mixture, points in zip(mixtures, sets, strict=True)]
    return {"log_likelihood": float(np.mean(scores)), "milliseconds": 1e3 * seconds / len(sets)}


def against_time(count: int) -> list[dict[str, object]]:
    """All methods on sets as in training, in one call and one by one."""
    sets, rows = draw(count), list[dict[str, object]]()
    print(f"{'':32} {'likelihood':>10} {'ms a set':>9} {'one by one':>10}")
    for name, method in METHODS.items():
        method(sets[:2], 4)  # nothing is loaded while the clock runs
        together = measure(method, sets, 4)
        alone = np.median([measure(method, [one], 4)["milliseconds"] for one in sets[: min(count, 50)]])
        rows.append({"table": "time", "method": name, **together, "milliseconds_alone": float(alone)})
        print(f"{name:32} {together['log_likelihood']:10.4f} {together['milliseconds']:9.2f} {alone:10.2f}")
    return rows


def conditions(count: int) -> dict[str, tuple[list[np.ndarray], int]]:
    few = max(2, count // 10)
    return {
        **{f"{number} components": (draw(count, number=number), number) for number in range(2, 9)},
        "30 to 60 points": (draw(count, sizes=(30, 60)), 4),
        "30 to 60 points, 8 components": (draw(count, sizes=(30, 60), number=8), 8),
        "3 000 to 6 000 points": (draw(count, sizes=(3000, 6000)), 4),
        "3 000 to 6 000 points, 8 components": (draw(count, sizes=(3000, 6000), number=8), 8),
        "30 000 points": (draw(few, sizes=(30_000, 30_000)), 4),
        "scale 1/1000": (draw(count, scale=1e-3), 4),
        "scale 1000": (draw(count, scale=1e3), 4),
        "shift 12": (draw(count, shift=12.0), 4),
        "shift -1000": (draw(count, shift=-1000.0), 4),
        "stretched 2 to 1": (draw(count, stretch=2**0.5), 4),
        "stretched 4 to 1": (draw(count, stretch=2.0), 4),
        "overlapping, deviation 1": (draw(count, deviation=1.0), 4),
        "overlapping, deviation 2": (draw(count, deviation=2.0), 4),
    }


def real_tables() -> dict[str, tuple[list[np.ndarray], int]]:
    """Pairs of columns of tables that come with scikit-learn, with as many components as they have classes."""
    from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_linnerud, load_wine

    found = dict[str, tuple[list[np.ndarray], int]]()
    tables = {"iris": (load_iris, 3), "wine": (load_wine, 3), "breast cancer": (load_breast_cancer, 2)}
    tables |= {"diabetes": (load_diabetes, 4), "linnerud": (load_linnerud, 2)}
    for name, (load, number) in tables.items():
        table = load().data.astype(np.float64)
        pairs = [(left, left + 1) for left in range(min(table.shape[1], 12) - 1)]
        found[f"{name}, {len(pairs)} pairs of columns"] = ([table[:, pair] for pair in pairs], number)
    return found


def elsewhere(name: str, tables: dict[str, tuple[list[np.ndarray], int]]) -> list[dict[str, object]]:
    """Ours, k-means++ alone and scikit-learn's ten starts, where training was not."""
    chosen = {OURS: METHODS[OURS], "k-means++ alone, 16 starts": METHODS["k-means++ alone, 16 starts"]}
    chosen |= {TEN_STARTS: METHODS[TEN_STARTS]}
    rows = list[dict[str, object]]()
    print(f"\n{'':38}" + "".join(f"{method:>28}" for method in chosen))
    for label, (sets, number) in tables.items():
        found = {method: measure(fit, sets, number) for method, fit in chosen.items()}
        rows += [{"table": name, "condition": label, "method": method, **row} for method, row in found.items()]
        print(
            f"{label:38}"
            + "".join(f"{row['log_likelihood']:14.4f} {row['milliseconds']:10.2f} ms" for row in found.values())
        )
    return rows


FAMILIES = {
    "ours": ("network and k-means++", 0, -13),
    "network": ("network alone", 4, 8),
    "k-means++": ("k-means++ alone", 2, 8),
    "scikit-learn": ("scikit-learn", 1, 8),
}
"""How a family's methods begin: what they are called, their colour, and where their labels stand, in points."""


def draw_figure(rows: list[dict[str, Any]], path: Path) -> None:
    """What is missing to the best likelihood against time, all sets in one call (full) and one by one (hollow)."""
    from picaset.figures import COLOURS, new_figure

    rows = [row for row in rows if row["table"] == "time"]
    best = max(row["log_likelihood"] for row in rows)
    figure = new_figure(10.5, 5)
    axis = figure.subplots()
    for family, (words, colour, above) in FAMILIES.items():
        mine = [row for row in rows if row["method"].startswith(family)]
        missing = [best - row["log_likelihood"] + SMALLEST_SHOWN for row in mine]
        for where, filled in (("milliseconds", True), ("milliseconds_alone", False)):
            times = [row[where] for row in mine]
            label = f"{words}, {'all in one call' if filled else 'one by one'}"
            face = COLOURS[colour] if filled else "white"
            axis.scatter(times, missing, s=55, edgecolor=COLOURS[colour], facecolor=face, label=label, zorder=3)
        for row, height in zip(mine, missing, strict=True):
            label = row["method"].partition(", ")[2].removeprefix("at most ").replace("no k-means++", "")
            axis.annotate(
                label or ("to the end" if family == "ours" else ""), (row["milliseconds"], height), xytext=(0, above),
                textcoords="offset points", fontsize=7.5, ha="center", va="center", color=COLOURS[colour],
            )  # fmt: skip
    axis.set(xscale="log", yscale="log", xlabel="milliseconds a set", ylabel="log-likelihood missing to the best")
    axis.invert_yaxis()
    axis.grid(color="#eeeeee", which="both")
    axis.set_axisbelow(True)
    figure.legend(fontsize=8, loc="outside lower center", ncols=4)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=1000, help="sets of the first table; the others take a tenth")
    parser.add_argument("--figure", type=Path, help="where to draw likelihood against time")
    parser.add_argument("--threads", type=int, help="threads of torch")
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    warnings.simplefilter("ignore")  # scikit-learn's about convergence
    rows = against_time(arguments.sets)
    rows += elsewhere("elsewhere", conditions(max(10, arguments.sets // 10)))
    rows += elsewhere("real", real_tables())
    if arguments.figure:
        draw_figure(rows, arguments.figure)
    print()
    record("clusterer", rows, {})


if __name__ == "__main__":
    main()
