"""``picaset cluster``"""

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tyro
from rich.table import Table

from picaset.estimators.mixture_plot import MAX_PANELS, Panel, draw_mixtures, separating_columns
from picaset.extras import require
from picaset.figures import PLOT_SUFFIXES
from picaset.files import check_outputs, check_source
from picaset.tables.table import fits_in_memory, open_large_table, read_table
from picaset.terminal import Terminal, say

MAX_PRINTED = 20
"""Largest number of sets whose components are printed."""
MAX_COMPONENTS = 200
"""Largest number of Gaussians per mixture."""
MAX_COLUMNS = 20
"""Largest number of columns of a component that are printed one by one."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Fit Gaussian mixtures to the points of a file: one to all points, or one to each set of points.

    Reads CSV (also packed as .csv.gz), JSON lines, Parquet and NPY. Columns of text, dates and ids are left out. The
    column that --set names assigns the rows to sets, and thousands of sets are fitted at once. A file too large for
    memory is read in chunks.

    Examples:
        picaset cluster --example --plot clusters.png
        picaset cluster --example --set island --components auto --labels labels.csv --parameters mixtures.json
        picaset cluster --example --columns east north --components 4 --compare
    """

    file: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")] = None
    """File with one point per row: .csv, .tsv, .txt, .json, .jsonl, .parquet or .npy."""
    example: bool = False
    """Use the example data of picaset instead of a file."""
    columns: tuple[str, ...] = ()
    """Columns of the coordinates; all numeric columns by default."""
    set: str | None = None
    """Column that names the set of a row."""
    components: int | Literal["auto"] = "auto"
    """Number of Gaussians per mixture; auto selects it by the Bayesian information criterion."""
    max_components: int = 8
    """Largest number of Gaussians that auto tries."""
    covariance: Literal["auto", "spherical", "diag", "tied", "full"] = "auto"
    """Shape of the Gaussians: round, along the axes, all alike, or any; auto selects it by the same criterion."""
    noise: bool = False
    """Add a uniform background; its rows get the label -1."""
    init: Literal["k-means++", "network"] = "k-means++"
    """Initialization; network adds proposals of a network, if there is one for these dimensions."""
    labels: Path | None = None
    """Write the rows and their components to this CSV file."""
    parameters: Path | None = None
    """Write the mixtures to this .json or .csv file."""
    plot: Path | None = None
    """Draw points and components to this .png, .svg or .pdf file: two columns, or a histogram of a single one."""
    compare: bool = False
    """Also fit scikit-learn's GaussianMixture with ten initializations, and compare."""
    drop_missing: bool = False
    """Drop rows with missing values instead of raising an error."""
    keep_missing: bool = False
    """Keep rows with missing values, and integrate over these values."""
    in_chunks: bool = False
    """Read the file in chunks, even if it fits in memory."""
    device: str = "cpu"
    """Device on which the mixtures are searched, such as cuda."""
    seed: int = 0
    """Random seed of the initialization."""
    json: bool = False
    """Print the mixtures as one JSON line, and nothing else."""

    def run(self) -> int:
        self.check()
        require("sklearn", extra="estimators", purpose="picaset cluster")
        from picaset.estimators.amortized_mixture import AmortizedMixture
        from picaset.estimators.clustered_table import cluster_table

        path = self.file or Path(str(resources.files("picaset"))) / "tables" / "islands.csv"
        estimator = AmortizedMixture(
            self.components,
            covariance_type=self.covariance,
            noise=self.noise,
            missing="marginalize" if self.keep_missing else "error",
            init=self.init,
            max_components=self.max_components,
            device=self.device,
            random_state=self.seed,
        )
        if self.in_chunks or not fits_in_memory(path):
            clustered: Any = self.cluster_in_chunks(path, estimator)
        else:
            clustered = cluster_table(
                read_table(path), estimator, columns=self.columns, set_column=self.set, drop_missing=self.drop_missing
            )
        if self.labels is not None:
            clustered.write_labels(self.labels)
        if self.parameters is not None:
            clustered.write_parameters(self.parameters)
        notes = [*clustered.notes, *([] if self.plot is None else draw(clustered, self.plot))]
        comparison = compare_with_scikit_learn(clustered) if self.compare else None
        if self.json:
            record = {"mixtures": clustered.parameters(), "seconds": clustered.seconds, "compared": comparison}
            say(json.dumps(record | {"notes": notes}))
        else:
            self.print_result(clustered, comparison, notes)
        return 0

    def cluster_in_chunks(self, path: Path, estimator: Any) -> Any:
        from picaset.estimators.clustered_table import cluster_file

        needing_memory = {"set": self.set is not None, "compare": self.compare, "keep-missing": self.keep_missing}
        for name, is_set in needing_memory.items():
            if is_set:
                raise ValueError(f"--{name} needs the whole table in memory, and {path} is read in chunks.")
        bar = not self.json and Terminal(stderr=True).is_terminal
        table = open_large_table(path, self.columns, drop_missing=self.drop_missing)
        return cluster_file(table, estimator, progress=bar)

    def check(self) -> None:
        check_source(self.file, example=self.example)
        for name, number in (("components", self.components), ("max-components", self.max_components)):
            if isinstance(number, int) and not 1 <= number <= MAX_COMPONENTS:
                raise ValueError(f"--{name} must be between 1 and {MAX_COMPONENTS}; got {number}.")
        if self.drop_missing and self.keep_missing:
            raise ValueError("--drop-missing and --keep-missing exclude each other; give one of them.")
        check_outputs(
            self.file,
            labels=(self.labels, (".csv",)),
            parameters=(self.parameters, (".json", ".csv")),
            plot=(self.plot, PLOT_SUFFIXES),
        )

    def print_result(self, clustered: Any, comparison: dict[str, Any] | None, notes: Sequence[str]) -> None:
        console = Terminal()
        count, mixtures = len(clustered.sets), clustered.mixtures
        number = clustered.num_dropped
        dropped = f", {number} row{'s' * (number > 1)} with missing values dropped" if number else ""
        columns = clustered.columns
        names = f"columns {', '.join(columns)}" if len(columns) <= 6 else f"{len(columns)} columns"
        console.print(
            f"{clustered.num_points} point{'s' * (clustered.num_points > 1)} in {count} set{'s' * (count > 1)}, {names}"
            f"{dropped}: {1e3 * clustered.seconds / count:.1f} ms per set"
        )
        if count == 1:
            console.print(describe_mixture(mixtures[0], is_certain=bool(clustered.is_constant(0).all())))
        console.print(components_table(clustered, console))
        if count > MAX_PRINTED:
            more = f"{count - MAX_PRINTED} more set{'s' * (count - MAX_PRINTED > 1)}"
            console.print(f"and {more}; --parameters writes all of them")
        if comparison is not None:
            selected = ", selected by picaset" if self.components == "auto" else ""
            console.print(comparison_table(comparison, title=f"same number of components{selected}"))
        for note in notes:
            console.print(f"note: {note.replace('max_components', '--max-components')}")
        for path in (self.labels, self.parameters, self.plot):
            if path is not None:
                console.print(f"written: {path}")


def draw(clustered: Any, path: Path) -> list[str]:
    """Draw the mixtures to a file; return notes on what the figure leaves out."""
    count, labels = len(clustered.sets), clustered.labels[0]
    means = [mixture.means_ for mixture in clustered.mixtures[:MAX_PANELS]]
    covariances = [mixture.covariance_matrices() for mixture in clustered.mixtures[:MAX_PANELS]]
    notes = [f"the figure shows the first {MAX_PANELS} sets"] if count > MAX_PANELS else []
    axes = list(range(len(clustered.columns)))
    if len(clustered.columns) > 2:
        axes = list(separating_columns(means, covariances))
        names = [clustered.columns[axis] for axis in axes]
        notes.append(f"the figure shows columns {names[0]} and {names[1]}, which separate the components best")
    panels = list[Panel]()
    for index, (centres, matrices) in enumerate(zip(means, covariances, strict=True)):
        members = clustered.members[index]
        number = clustered.num_points
        title = clustered.sets[index] if count > 1 else f"{number:,} point{'s' * (number > 1)}"
        matrices, mixture = matrices[:, axes][:, :, axes], clustered.mixtures[index]
        widths: list[float] = mixture.noise_widths_[axes].tolist()
        background = mixture.noise_weight_ / math.prod(widths)
        points = clustered.points[members][:, axes]
        panels.append(Panel(title, points, labels[members], centres[:, axes], matrices, mixture.weights_, background))
    draw_mixtures(panels, [clustered.columns[axis] for axis in axes], path)
    return notes


def describe_mixture(mixture: Any, *, is_certain: bool) -> str:
    """Describe the only mixture in a line: number of components with its probability, covariances, likelihood."""
    count = mixture.n_components_
    probabilities = getattr(mixture, "n_components_probabilities_", {})
    others = [f"{number}: {value:.0%}" for number, value in probabilities.items() if value >= 0.01]
    if len(probabilities) < 2 or is_certain:  # nothing was chosen
        others = []
    sure = f" (probability of {', '.join(others)})" if others else ""
    text = f"{count} component{'s' * (count > 1)}{sure}, {mixture.covariance_type_} covariances"
    return f"{text}; log-likelihood per point {mixture.lower_bound_:.4f}"


def components_table(clustered: Any, console: Terminal) -> Table:
    """Return the components of the first sets: one row each if the terminal is wide enough, or one row per column."""
    mixtures = clustered.mixtures[:MAX_PRINTED]
    # The variance of equal values is the smallest that a component may have, which is not a property of the data.
    spreads = [
        np.where(clustered.is_constant(index), 0.0, np.sqrt(mixture.variances_by_coordinate()))
        for index, mixture in enumerate(mixtures)
    ]
    formats = [column_format(mixtures, spreads, column) for column in range(len(clustered.columns))]
    names = ["set"] * (len(clustered.sets) > 1) + ["component", "weight"]
    by_component, by_column = Table(), Table()
    for table, headings in ((by_component, [*names, *clustered.columns]), (by_column, [*names, "column", "mean"])):
        for name in headings:
            table.add_column(name, justify="left" if name in ("set", "column") else "right")
    by_column.add_column("deviation", justify="right")
    for set_name, mixture, deviations in zip(clustered.sets, mixtures, spreads, strict=False):
        for component, (weight, means) in enumerate(zip(mixture.weights_, mixture.means_, strict=True)):
            is_last = component == mixture.n_components_ - 1 and not mixture.noise_weight_
            first = [set_name if component == 0 else ""] * (len(clustered.sets) > 1)
            first += [str(component), f"{weight:.3f}"]
            cells = [
                write(mean, deviation)
                for write, mean, deviation in zip(formats, means, deviations[component], strict=True)
            ]
            by_component.add_row(*first, *(" ± ".join(cell) for cell in cells), end_section=is_last)
            for index, (name, cell) in enumerate(zip(clustered.columns[:MAX_COLUMNS], cells, strict=False)):
                blank = first if index == 0 else [""] * len(first)
                by_column.add_row(*blank, name, *cell, end_section=index == min(len(cells), MAX_COLUMNS) - 1)
        if mixture.noise_weight_:
            row = [""] * (len(clustered.sets) > 1) + ["noise", f"{mixture.noise_weight_:.3f}"]
            by_component.add_row(*row, end_section=True)
            by_column.add_row(*row, end_section=True)
    without_limit = console.options.update(max_width=10_000)
    if console.measure(by_component, options=without_limit).maximum <= console.width:
        return by_component
    if len(clustered.columns) > MAX_COLUMNS:
        by_column.caption = f"and {len(clustered.columns) - MAX_COLUMNS} more columns; --parameters writes all of them"
    return by_column


def column_format(
    mixtures: Sequence[Any], spreads: Sequence[Any], column: int
) -> Callable[[float, float], tuple[str, str]]:
    """Return a function that writes a mean and a deviation with the digits that the spread of a column calls for.

    Two digits of the smallest deviation above zero are shown, however large the numbers themselves are.
    """
    means = np.concatenate([mixture.means_[:, column] for mixture in mixtures])
    deviations = np.concatenate([spread[:, column] for spread in spreads])
    spread = max(float(np.ptp(means)), float(deviations.max()))
    resolution = max(float(deviations[deviations > 0].min(initial=np.inf)) if deviations.any() else 0, spread / 1000)
    largest = max(float(np.abs(means).max()), resolution)
    if resolution <= 0:
        return lambda mean, deviation: (f"{mean:.6g}", f"{deviation:.2g}")
    decimals = 1 - math.floor(math.log10(resolution))
    if largest < 1e12 and decimals <= 6:
        decimals = max(decimals, 0)
        return lambda mean, deviation: (
            f"{round(mean, decimals) + 0.0:.{decimals}f}", f"{deviation:.{decimals}f}" if deviation else "0"
        )  # fmt: skip
    digits = min(max(math.floor(math.log10(largest)) + decimals, 1), 16)
    return lambda mean, deviation: (f"{mean:.{digits}e}", f"{deviation:.1e}" if deviation else "0")


def compare_with_scikit_learn(clustered: Any) -> dict[str, Any]:
    """Fit scikit-learn to the same sets, with the same numbers of components and ten initializations."""
    from picaset.estimators.validation import from_scikit_learn

    gaussian_mixture = from_scikit_learn("sklearn.mixture", "GaussianMixture")
    our_scores, their_scores, seconds = list[float](), list[float](), 0.0
    for index, mixture in enumerate(clustered.mixtures):
        points = clustered.points_of_set(index)
        if len(points) < max(2, mixture.n_components_) or np.isnan(points).any():
            continue
        start = time.perf_counter()
        fitted = gaussian_mixture(
            mixture.n_components_, covariance_type=mixture.covariance_type_, n_init=10, random_state=0
        ).fit(points)
        seconds += time.perf_counter() - start
        our_scores.append(mixture.lower_bound_)
        their_scores.append(float(fitted.score(points)))
    if not their_scores:
        raise ValueError("--compare needs a set with at least two points and no missing values.")
    return {
        "picaset": {"log_likelihood": float(np.mean(our_scores)), "seconds": clustered.seconds},
        "scikit-learn, 10 starts": {"log_likelihood": float(np.mean(their_scores)), "seconds": seconds},
    }


def comparison_table(comparison: dict[str, Any], *, title: str) -> Table:
    table = Table(title=title)
    for name in ("", "log-likelihood", "seconds"):
        table.add_column(name, justify="right" if name else "left")
    for name, row in comparison.items():
        table.add_row(name, f"{row['log_likelihood']:.4f}", f"{row['seconds']:.3f}")
    return table
