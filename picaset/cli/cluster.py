"""``picaset cluster``"""

import json
import time
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tyro
from rich.table import Table

from picaset.estimators.mixture_plot import MAX_PANELS, Panel, draw_mixtures
from picaset.extras import require
from picaset.tables.table import fits_in_memory, open_large_table, read_table
from picaset.terminal import Terminal, say

MAX_PRINTED = 20
"""Largest number of sets whose components are printed."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Fit Gaussian mixtures to the points of a file: one to all points, or one to each set of points.

    Reads CSV (with or without a header), Parquet and NPY. With --set, a column assigns the rows to sets, and thousands
    of sets are fitted at once. A file too large for memory is read in chunks.

    Examples:
        picaset cluster --example --plot clusters.png
        picaset cluster --example --set island --components auto --labels labels.csv --parameters mixtures.json
        picaset cluster --example --columns east north --components 4 --compare
    """

    file: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")] = None
    """File with one point per row: .csv, .tsv, .txt, .parquet or .npy."""
    example: bool = False
    """Use the example data of picaset instead of a file."""
    columns: tuple[str, ...] = ()
    """Columns of the coordinates; all numeric columns by default."""
    set: str | None = None
    """Column that names the set of a row."""
    components: int | Literal["auto"] = "auto"
    """Number of Gaussians per mixture; auto selects it by the Bayesian information criterion, up to 8."""
    covariance: Literal["spherical", "diag"] = "spherical"
    """One variance per component (spherical), or one per component and coordinate (diag)."""
    init: Literal["network", "k-means++"] = "network"
    """Initialization; k-means++ works in any number of dimensions."""
    labels: Path | None = None
    """Write the rows and their components to this CSV file."""
    parameters: Path | None = None
    """Write the mixtures to this .json or .csv file."""
    plot: Path | None = None
    """Draw points and components to this .png, .svg or .pdf file."""
    compare: bool = False
    """Also fit scikit-learn's GaussianMixture with ten initializations, and compare."""
    drop_missing: bool = False
    """Drop rows with missing values instead of raising an error."""
    in_chunks: bool = False
    """Read the file in chunks, even if it fits in memory."""
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
            self.components, covariance_type=self.covariance, init=self.init, random_state=self.seed
        )
        if self.in_chunks or not fits_in_memory(path):
            clustered: Any = self.cluster_in_chunks(path, estimator)
        else:
            clustered = cluster_table(
                read_table(path), estimator, columns=self.columns, set_column=self.set, drop_missing=self.drop_missing
            )
        if self.plot is not None and len(clustered.columns) != 2:
            raise ValueError(
                f"--plot draws two coordinates; got {', '.join(clustered.columns)}. Choose with --columns."
            )
        if self.labels is not None:
            clustered.write_labels(self.labels)
        if self.parameters is not None:
            clustered.write_parameters(self.parameters)
        if self.plot is not None:
            self.draw(clustered)
        comparison = compare_with_scikit_learn(clustered) if self.compare else None
        if self.json:
            say(json.dumps({"mixtures": clustered.parameters(), "seconds": clustered.seconds, "compared": comparison}))
        else:
            self.print_result(clustered, comparison)
        return 0

    def cluster_in_chunks(self, path: Path, estimator: Any) -> Any:
        from picaset.estimators.clustered_table import cluster_file

        for name, is_set in (("set", self.set is not None), ("compare", self.compare)):
            if is_set:
                raise ValueError(f"--{name} needs the whole table in memory, and {path} is read in chunks.")
        bar = not self.json and Terminal(stderr=True).is_terminal
        table = open_large_table(path, self.columns, drop_missing=self.drop_missing)
        return cluster_file(table, estimator, progress=bar)

    def check(self) -> None:
        if (self.file is None) != self.example:
            raise ValueError("give either a file or --example.")
        for name, path, suffixes in (
            ("labels", self.labels, (".csv",)),
            ("parameters", self.parameters, (".json", ".csv")),
            ("plot", self.plot, (".png", ".svg", ".pdf")),
        ):
            if path is not None and path.suffix not in suffixes:
                raise ValueError(f"--{name} must end in {' or '.join(suffixes)}; got {path}.")
            if path is not None and not path.parent.is_dir():
                raise ValueError(f"--{name}: there is no folder {path.parent}.")

    def draw(self, clustered: Any) -> None:
        panels = list[Panel]()
        labels, _ = clustered.labels
        for name, mine, mixture in zip(clustered.sets, clustered.members, clustered.mixtures, strict=True):
            title = name if self.set else f"{clustered.num_points} points"
            variances = mixture.variances_by_coordinate()
            panels.append(Panel(title, clustered.points[mine], labels[mine], mixture.means_, variances))
        assert self.plot is not None
        draw_mixtures(panels, clustered.columns, self.plot)

    def print_result(self, clustered: Any, comparison: dict[str, Any] | None) -> None:
        console = Terminal()
        count = len(clustered.sets)
        dropped = f", {clustered.num_dropped} rows with missing values dropped" if clustered.num_dropped else ""
        console.print(
            f"{clustered.num_points} points in {count} set{'s' * (count > 1)}, coordinates "
            f"{', '.join(clustered.columns)}{dropped}: {1e3 * clustered.seconds / count:.1f} ms per set"
        )
        console.print(components_table(clustered))
        if count > MAX_PRINTED:
            console.print(f"and {count - MAX_PRINTED} more sets; --parameters writes all of them")
        if comparison is not None:
            selected = ", selected by picaset" if self.components == "auto" else ""
            console.print(comparison_table(comparison, title=f"same number of components{selected}"))
        for path in (self.labels, self.parameters, self.plot):
            if path is not None:
                console.print(f"written: {path}")
        if self.plot is not None and count > MAX_PANELS:
            console.print(f"the figure shows the first {MAX_PANELS} sets")


def components_table(clustered: Any) -> Table:
    table = Table()
    for name in ("set", "component", "weight", *clustered.columns, "deviation", "log-likelihood per point"):
        table.add_column(name, justify="left" if name == "set" else "right")
    for name, mixture in list(zip(clustered.sets, clustered.mixtures, strict=True))[:MAX_PRINTED]:
        deviations = np.sqrt(mixture.covariances_.reshape(mixture.n_components_, -1))
        for component in range(mixture.n_components_):
            table.add_row(
                name if component == 0 else "",
                str(component),
                f"{mixture.weights_[component]:.3f}",
                *(f"{value:.4g}" for value in mixture.means_[component]),
                " x ".join(f"{value:.3g}" for value in deviations[component]),
                f"{mixture.lower_bound_:.4f}" if component == 0 else "",
                end_section=component == mixture.n_components_ - 1,
            )
    return table


def compare_with_scikit_learn(clustered: Any) -> dict[str, Any]:
    """Fit scikit-learn to the same sets, with the same numbers of components and ten initializations."""
    from picaset.estimators.validation import from_scikit_learn

    gaussian_mixture = from_scikit_learn("sklearn.mixture", "GaussianMixture")
    scores, seconds = list[float](), 0.0
    for index, mixture in enumerate(clustered.mixtures):
        points = clustered.points_of_set(index)
        start = time.perf_counter()
        fitted = gaussian_mixture(
            mixture.n_components_, covariance_type=mixture.covariance_type, n_init=10, random_state=0
        ).fit(points)
        seconds += time.perf_counter() - start
        scores.append(float(fitted.score(points)))
    ours = float(np.mean([mixture.lower_bound_ for mixture in clustered.mixtures]))
    return {
        "picaset": {"log_likelihood": ours, "seconds": clustered.seconds},
        "scikit-learn, 10 starts": {"log_likelihood": float(np.mean(scores)), "seconds": seconds},
    }


def comparison_table(comparison: dict[str, Any], *, title: str) -> Table:
    table = Table(title=title)
    for name in ("", "log-likelihood", "seconds"):
        table.add_column(name, justify="right" if name else "left")
    for name, row in comparison.items():
        table.add_row(name, f"{row['log_likelihood']:.4f}", f"{row['seconds']:.3f}")
    return table
