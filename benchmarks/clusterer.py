"""How likely are the mixtures of AmortizedMixture, and how fast is it, compared with k-means++ starts and scikit-learn?

Sets of 300 to 600 points from four Gaussians as in training, one at a time and a thousand in one call; then other
numbers of components, smaller and larger sets, other scales, stretched and overlapping components that are not in the
training data, and real tables. Expected: the likelihood of scikit-learn's ten starts, in a twentieth of its time for
many sets and a fifth for one. Reported: log-likelihood per point, averaged over sets, and time per set.

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
from picaset.lab.data.gaussian_mixtures import draw_mixtures, seeded_generator

Method = Callable[[Sequence[np.ndarray], int], list[Any]]
"""A function of sets and a number of components that returns fitted mixtures."""


def amortized(**parameters: object) -> Method:
    return lambda sets, number: AmortizedMixture(number, random_state=0, **parameters).fit_many(sets)


def scikit_learn(num_starts: int, covariance_type: str = "spherical") -> Method:
    from sklearn.mixture import GaussianMixture

    return lambda sets, number: [
        GaussianMixture(number, covariance_type=covariance_type, n_init=num_starts, random_state=0).fit(points)
        for points in sets
    ]


AXIS_OFFSET = 3e-4
"""Added to differences in the figure, because the best method has none and the axis is logarithmic."""

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
    """Draw new sets; ``stretch`` widens one axis of every component, and the set is then rotated by a random angle."""
    sets = list[np.ndarray]()
    for index in range(count):
        generator = seeded_generator(77, index, sizes[0], number)
        num_points = int(torch.randint(sizes[0], sizes[1] + 1, (), generator=generator))
        widths = torch.tensor([deviation * stretch, deviation / stretch]).expand(1, number, 2)
        points, _ = draw_mixtures(1, num_points, generator=generator, num_components=number, deviation=widths)
        angle = float(torch.rand((), generator=generator)) * 2 * np.pi
        rotation = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
        sets.append(scale * (points[0].double().numpy() @ rotation + shift))
    return sets


def measure(method: Method, sets: Sequence[np.ndarray], number: int) -> dict[str, float]:
    """Return the mean log-likelihood per point of the fitted mixtures, and the milliseconds per set."""
    began = time.perf_counter()
    mixtures = method(sets, number)
    seconds = time.perf_counter() - began
    scores = [mixture.score(points) for mixture, points in zip(mixtures, sets, strict=True)]
    return {"log_likelihood": float(np.mean(scores)), "milliseconds": 1e3 * seconds / len(sets)}


def compare_speed(count: int) -> list[dict[str, object]]:
    """Measure all methods on sets as in training, in one call and one set at a time."""
    sets, rows = draw(count), list[dict[str, object]]()
    print(f"{'':32} {'likelihood':>10} {'ms a set':>9} {'one by one':>10}")
    for name, method in METHODS.items():
        method(sets[:2], 4)  # load networks before measuring
        together = measure(method, sets, 4)
        alone = np.median([measure(method, [points], 4)["milliseconds"] for points in sets[: min(count, 50)]])
        rows.append({"table": "time", "method": name, **together, "milliseconds_alone": float(alone)})
        print(f"{name:32} {together['log_likelihood']:10.4f} {together['milliseconds']:9.2f} {alone:10.2f}")
    return rows


def conditions(count: int) -> dict[str, tuple[list[np.ndarray], int]]:
    """Return sets that differ from the training data and their number of components, by the name of the condition."""
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
    """Return pairs of adjacent columns of scikit-learn's example tables, and a number of components for each table."""
    from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_linnerud, load_wine

    pairs_by_table = dict[str, tuple[list[np.ndarray], int]]()
    tables = {"iris": (load_iris, 3), "wine": (load_wine, 3), "breast cancer": (load_breast_cancer, 2)}
    tables |= {"diabetes": (load_diabetes, 4), "linnerud": (load_linnerud, 2)}
    for name, (load, number) in tables.items():
        table = load().data.astype(np.float64)
        pairs = [(left, left + 1) for left in range(min(table.shape[1], 12) - 1)]
        pairs_by_table[f"{name}, {len(pairs)} pairs of columns"] = ([table[:, pair] for pair in pairs], number)
    return pairs_by_table


def compare_conditions(name: str, tables: dict[str, tuple[list[np.ndarray], int]]) -> list[dict[str, object]]:
    """Measure ours, k-means++ alone and scikit-learn's ten starts on each condition or table."""
    chosen = {OURS: METHODS[OURS], "k-means++ alone, 16 starts": METHODS["k-means++ alone, 16 starts"]}
    chosen |= {TEN_STARTS: METHODS[TEN_STARTS]}
    rows = list[dict[str, object]]()
    print(f"\n{'':38}" + "".join(f"{method:>28}" for method in chosen))
    for label, (sets, number) in tables.items():
        results = {method: measure(fit, sets, number) for method, fit in chosen.items()}
        rows += [{"table": name, "condition": label, "method": method, **row} for method, row in results.items()]
        print(
            f"{label:38}"
            + "".join(f"{row['log_likelihood']:14.4f} {row['milliseconds']:10.2f} ms" for row in results.values())
        )
    return rows


FAMILIES = {
    "ours": ("network and k-means++", 0, -13),
    "network": ("network alone", 4, 8),
    "k-means++": ("k-means++ alone", 2, 8),
    "scikit-learn": ("scikit-learn", 1, 8),
}
"""Prefix of the methods of a family: label, index of the colour, and offset of the annotations in points."""


def draw_figure(rows: list[dict[str, Any]], path: Path) -> None:
    """Plot the difference to the best log-likelihood against time, in one call (filled) and one by one (hollow)."""
    from picaset.figures import COLOURS, new_figure

    rows = [row for row in rows if row["table"] == "time"]
    best = max(row["log_likelihood"] for row in rows)
    figure = new_figure(10.5, 5)
    axis = figure.subplots()
    for family, (title, colour, offset) in FAMILIES.items():
        family_rows = [row for row in rows if row["method"].startswith(family)]
        missing = [best - row["log_likelihood"] + AXIS_OFFSET for row in family_rows]
        for column, filled in (("milliseconds", True), ("milliseconds_alone", False)):
            times = [row[column] for row in family_rows]
            label = f"{title}, {'all in one call' if filled else 'one by one'}"
            face = COLOURS[colour] if filled else "white"
            axis.scatter(times, missing, s=55, edgecolor=COLOURS[colour], facecolor=face, label=label, zorder=3)
        for row, height in zip(family_rows, missing, strict=True):
            label = row["method"].partition(", ")[2].removeprefix("at most ").replace("no k-means++", "")
            axis.annotate(
                label or ("to the end" if family == "ours" else ""), (row["milliseconds"], height), xytext=(0, offset),
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
    parser.add_argument("--sets", type=int, default=1000, help="sets of the first table; the others use a tenth")
    parser.add_argument("--figure", type=Path, help="path of a figure of likelihood against time")
    parser.add_argument("--threads", type=int, help="number of torch threads")
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    warnings.simplefilter("ignore")  # scikit-learn warns about convergence
    rows = compare_speed(arguments.sets)
    rows += compare_conditions("elsewhere", conditions(max(10, arguments.sets // 10)))
    rows += compare_conditions("real", real_tables())
    if arguments.figure:
        draw_figure(rows, arguments.figure)
    print()
    record("clusterer", rows, {})


if __name__ == "__main__":
    main()
