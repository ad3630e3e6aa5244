"""``picaset cluster``"""

import json
import time
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from picaset.estimators.mixture_plot import MOST_SHOWN, Panel, draw_mixtures
from picaset.extras import require
from picaset.tables.large_table import fits_in_memory, open_large_table
from picaset.tables.table import read_table

MOST_PRINTED = 20
"""Sets of which the components are printed."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Fit Gaussian mixtures to the points of a file: one to all of them, or one to each set of them.

    Reads CSV (with or without a header), Parquet and NPY. A column may say which set a row belongs to; thousands of
    sets are then clustered at once. A file too large for memory is read in chunks.

    Examples:
        picaset cluster --example --plot clusters.png
        picaset cluster --example --set island --components auto --labels labels.csv --parameters mixtures.json
        picaset cluster --example --columns east north --components 4 --compare
    """

    file: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")] = None
    """The points, one in each row: .csv, .tsv, .txt, .parquet or .npy."""
    example: bool = False
    """Take the example that comes with picaset instead of a file."""
    columns: tuple[str, ...] = ()
    """Coordinates; all columns of numbers if none is named."""
    set: str | None = None
    """The column that says which set a row belongs to."""
    components: int | Literal["auto"] = "auto"
    """Gaussians in each mixture; auto takes as many as the Bayesian information criterion wants, at most 8."""
    covariance: Literal["spherical", "diag"] = "spherical"
    """One variance for each component, or one for each of its coordinates."""
    init: Literal["network", "k-means++"] = "network"
    """Where fits start; k-means++ works in any number of dimensions."""
    labels: Path | None = None
    """Write the rows with the component of each to this CSV file."""
    parameters: Path | None = None
    """Write the mixtures to this file, .json or .csv."""
    plot: Path | None = None
    """Draw points and components to this file, .png, .svg or .pdf."""
    compare: bool = False
    """Fit scikit-learn's GaussianMixture from ten starts, too, and print both."""
    drop_missing: bool = False
    """Leave rows with missing values out, instead of refusing them."""
    in_chunks: bool = False
    """Read the file in chunks, as is done in any case where it is too large for memory."""
    seed: int = 0
    """Seeds the starts."""
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
            clustered: Any = self.in_parts(path, estimator)
        else:
            clustered = cluster_table(
                read_table(path),
                estimator,
                columns=self.columns,
                set_column=self.set,
                drop_missing=self.drop_missing,
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
        compared = compare(clustered) if self.compare else None
        if self.json:
            print(json.dumps({"mixtures": clustered.parameters(), "seconds": clustered.seconds, "compared": compared}))
        else:
            self.show(clustered, compared)
        return 0

    def in_parts(self, path: Path, estimator: Any) -> Any:
        from picaset.estimators.clustered_table import cluster_file

        for name, wanted in (("set", self.set is not None), ("compare", self.compare)):
            if wanted:
                raise ValueError(f"--{name} needs the whole table in memory, and {path} is read in chunks.")
        bar = not self.json and Console(stderr=True).is_terminal
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

    def show(self, clustered: Any, compared: dict[str, Any] | None) -> None:
        console = Console(highlight=False)
        count = len(clustered.sets)
        left_out = f", {clustered.num_dropped} rows with missing values left out" if clustered.num_dropped else ""
        console.print(
            f"{clustered.num_points} points in {count} set{'s' * (count > 1)}, coordinates "
            f"{', '.join(clustered.columns)}{left_out}: {1e3 * clustered.seconds / count:.1f} ms a set"
        )
        console.print(components_table(clustered))
        if count > MOST_PRINTED:
            console.print(f"and {count - MOST_PRINTED} sets more; --parameters writes them all")
        if compared is not None:
            found = ", a number that ours had to find first" if self.components == "auto" else ""
            console.print(comparison_table(compared, title=f"as many components for both{found}"))
        for path in (self.labels, self.parameters, self.plot):
            if path is not None:
                console.print(f"written: {path}")
        if self.plot is not None and count > MOST_SHOWN:
            console.print(f"the figure shows the first {MOST_SHOWN} sets")


def components_table(clustered: Any) -> Table:
    table = Table()
    for name in ("set", "component", "weight", *clustered.columns, "deviation", "log-likelihood of the set"):
        table.add_column(name, justify="left" if name == "set" else "right")
    for name, mixture in list(zip(clustered.sets, clustered.mixtures, strict=True))[:MOST_PRINTED]:
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


def compare(clustered: Any) -> dict[str, Any]:
    """The same sets by scikit-learn, with as many components each, from ten starts."""
    from picaset.estimators.validation import from_scikit_learn

    gaussian_mixture = from_scikit_learn("sklearn.mixture", "GaussianMixture")
    found, seconds = list[float](), 0.0
    for index, mixture in enumerate(clustered.mixtures):
        points = clustered.of_set(index)
        began = time.perf_counter()
        theirs = gaussian_mixture(
            mixture.n_components_, covariance_type=mixture.covariance_type, n_init=10, random_state=0
        ).fit(points)
        seconds += time.perf_counter() - began
        found.append(float(theirs.score(points)))
    ours = [mixture.lower_bound_ for mixture in clustered.mixtures]
    return {
        "picaset": {"log_likelihood": float(np.mean(ours)), "seconds": clustered.seconds},
        "scikit-learn, 10 starts": {"log_likelihood": float(np.mean(found)), "seconds": seconds},
    }


def comparison_table(compared: dict[str, Any], *, title: str) -> Table:
    table = Table(title=title)
    for name in ("", "log-likelihood", "seconds"):
        table.add_column(name, justify="right" if name else "left")
    for name, row in compared.items():
        table.add_row(name, f"{row['log_likelihood']:.4f}", f"{row['seconds']:.3f}")
    return table
