"""``picaset classify``"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.table import Table as PrintedTable

from picaset.checks import check_device
from picaset.extras import require
from picaset.figures import PLOT_SUFFIXES
from picaset.files import check_output_folder, check_outputs, check_source
from picaset.tables.table import read_table
from picaset.terminal import Terminal, say
from picaset.threads import SMALL, few_threads

MAX_PRINTED = 20
"""Largest number of sets that are printed."""


@dataclass(frozen=True, kw_only=True)
class Classify:
    """Learn a label (or a number) for each set of rows of a file, and predict it for others.

    Reads CSV (with or without a header), Parquet and NPY. A column assigns the rows to sets, and another one has the
    label, the same in all rows of a set. Prints cross-validated scores and the row of every set that decided. A target
    with more than 20 different numbers, or with fractions, is predicted as a number.

    Examples:
        picaset classify --example --set sample --target state --folds 2 --save model --plot scores.png
        picaset classify --example --set sample --model model --rows rows.csv --json
    """

    file: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")] = None
    """File with one element per row: .csv, .tsv, .txt, .parquet or .npy."""
    example: bool = False
    """Use generated example data instead of a file."""
    set: str
    """Column that names the set of a row."""
    target: str | None = None
    """Column of the label or number to learn."""
    columns: tuple[str, ...] = ()
    """Columns of the features; all numeric columns by default."""
    group: str | None = None
    """Column of the group of a set, such as the patient; a group is never split between training and validation."""
    predict: Path | None = None
    """Predict the sets of this file after learning from FILE."""
    model: Path | None = None
    """Predict the sets of FILE with a model written by --save instead of learning."""
    save: Path | None = None
    """Save the model to this folder."""
    rows: Path | None = None
    """Write the rows and the importance of each for its set to this CSV file."""
    plot: Path | None = None
    """Draw the cross-validated predictions to this .png, .svg or .pdf file."""
    folds: int = 5
    """Number of folds of the cross-validation."""
    drop_missing: bool = False
    """Drop rows with missing values instead of raising an error."""
    device: str = "cpu"
    """Device of the networks, such as cuda."""
    seed: int = 0
    """Random seed."""
    json: bool = False
    """Print scores and predictions as one JSON line, and nothing else."""

    def run(self) -> int:
        self.check()
        require("sklearn", extra="estimators", purpose="picaset classify")
        from threadpoolctl import threadpool_limits  # pyright: ignore[reportMissingTypeStubs]

        from picaset.tables.examples import example_samples

        table = example_samples() if self.file is None else read_table(self.file)
        size = table.num_rows * len(table.columns)
        with few_threads(size), threadpool_limits(1 if size <= SMALL else None):
            return self.run_with(table)

    def run_with(self, table: Any) -> int:
        """Learn from a table or predict it, and print the result."""
        from picaset.estimators.classified_table import describe_sets, predict, write_importance

        result = dict[str, Any]()
        rows: Any = None
        predictions: Any = None
        targets: Any = None
        notes = list[str]()
        if self.model is not None:
            estimator = load_model(self.model).set_params(device=self.device)
            columns = self.columns or tuple(getattr(estimator, "feature_names_in_", ()))
            rows = self.read_new(table, columns)
            predictions = predict(estimator, rows.arrays())
        else:
            labelled = self.read_labelled(table)
            rows, targets, columns = labelled.rows, labelled.targets, tuple(labelled.rows.columns)
            notes = self.notes_on_features(table, columns)
            if self.predict is not None:  # before learning, because that takes long
                table = read_table(self.predict)
                rows = self.read_new(table, columns)
            model = self.learn(labelled)
            estimator, predictions = model.estimator, model.held_out
            if self.predict is not None:
                predictions, targets = predict(estimator, rows.arrays()), None
            weights = {name: entry["weight"] for name, entry in estimator.report_.items()}
            result = {"sets": len(labelled.targets), "scores": model.scores, "members": weights}
            if estimator.report_ and "ensemble" not in estimator.report_:
                notes.append("too few sets to weight the members: all have equal weights, and there are no networks")
        entries, importance = describe_sets(estimator, table, rows, predictions, targets)
        if self.rows is not None:
            write_importance(table, rows, importance, self.rows)
        if self.json:
            result |= {"features": list(columns), "held_out": targets is not None}
            say(json.dumps(result | {"notes": notes, "predictions": entries}))
        else:
            self.print_result(result, entries, columns, [*notes, *self.notes(table, rows)])
        return 0

    def notes(self, table: Any, rows: Any) -> list[str]:
        """Return the remarks on rows and columns of a table that are not used."""
        notes = list[str]()
        if dropped := table.num_rows - len(rows.rows):
            notes.append(f"{dropped} row{'s' * (dropped > 1)} with missing values left out")
        used = {*rows.columns, self.set, self.target, self.group}
        if ignored := [name for name in table.columns if name not in used]:
            notes.append(f"columns that are not features: {', '.join(ignored)}")
        return notes

    def read_labelled(self, table: Any) -> Any:
        """Read the sets of a table to learn from, with their targets and groups."""
        from picaset.estimators.classified_table import read_labelled_sets

        assert self.target is not None
        return read_labelled_sets(
            table,
            set_column=self.set,
            target=self.target,
            columns=self.columns,
            group_column=self.group,
            drop_missing=self.drop_missing,
        )

    def read_new(self, table: Any, columns: Sequence[str]) -> Any:
        """Read the sets of a table to predict."""
        from picaset.estimators.classified_table import read_features

        return read_features(
            table, set_column=self.set, columns=columns, exclude=self.left_out(table), drop_missing=self.drop_missing
        )

    def notes_on_features(self, table: Any, columns: Sequence[str]) -> list[str]:
        """Return a note on each column that was not chosen and looks as if it identifies a group."""
        from picaset.estimators.classified_table import identifies_group

        return [
            f"column {name} is a feature, but looks like an identifier; with --group {name} its sets stay together and "
            "it is no feature, or choose the features with --columns"
            for name in columns
            if not self.columns and identifies_group(table, name)
        ]

    def learn(self, labelled: Any) -> Any:
        """Cross-validate and fit a model, and save and draw it."""
        from picaset.estimators.classified_table import draw_validation, validate_and_fit
        from picaset.estimators.set_estimators import SetClassifier, SetRegressor

        kind = SetClassifier if labelled.is_classification else SetRegressor
        verbose = not self.json and Terminal().is_terminal
        model = validate_and_fit(
            labelled,
            kind(device=self.device, random_state=self.seed, verbose=verbose),
            num_folds=self.folds,
            seed=self.seed,
        )
        if self.save is not None:
            model.estimator.save(self.save)
        if self.plot is not None:
            draw_validation(model, labelled, self.plot)
        return model

    def left_out(self, table: Any) -> list[str]:
        """Return the columns of a table to predict that are not features."""
        return [name for name in (self.target, self.group) if name is not None and name in table.columns]

    def check(self) -> None:
        check_source(self.file, example=self.example)
        if (self.target is None) == (self.model is None):
            got = "neither" if self.target is None else "both"
            raise ValueError(
                f"expected either --target (the column to learn) or --model (a saved model to predict with); got {got}."
            )
        if self.model is not None and (self.predict is not None or self.save is not None or self.plot is not None):
            raise ValueError("--model predicts FILE itself; it cannot be combined with --predict, --save or --plot.")
        check_device(self.device, caller="picaset classify")
        if self.folds < 2:
            raise ValueError(f"--folds must be at least 2; got {self.folds}.")
        check_outputs(self.file, rows=(self.rows, (".csv",)), plot=(self.plot, PLOT_SUFFIXES))
        check_output_folder("save", self.save)
        if self.plot is not None:
            require("matplotlib", extra="experiments", purpose="--plot")

    def print_result(
        self, result: dict[str, Any], entries: list[dict[str, Any]], columns: Any, notes: list[str]
    ) -> None:
        console = Terminal()
        console.print(f"{len(entries)} sets, features {', '.join(columns)}")
        for note in notes:
            console.print(f"note: {note}")
        for name, (mean, deviation) in result.get("scores", {}).items():
            console.print(f"{name}: {mean:.3f} +- {deviation:.3f} over {self.folds} folds")
        if "members" in result:
            weights = (f"{name} {weight:.2f}" for name, weight in result["members"].items() if name != "ensemble")
            console.print(f"weights of the members, in log-odds: {', '.join(weights)}")
            if self.predict is None:
                console.print("predictions are those of the folds in which the set was held out;")
                console.print("deciding rows are those of the final model, which has learned from all sets")
        table = PrintedTable()
        for name in entries[0]:
            table.add_column(name, justify="right" if name in ("rows", "probability", "importance") else "left")
        for entry in entries[:MAX_PRINTED]:
            cells = (f"{value:.3g}" if isinstance(value, float) else str(value) for value in entry.values())
            table.add_row(*cells)
        console.print(table)
        if len(entries) > MAX_PRINTED:
            console.print(f"and {len(entries) - MAX_PRINTED} more sets; --json prints all")
        for path in (self.rows, self.plot, self.save):
            if path is not None:
                console.print(f"written: {path}")


def load_model(folder: Path) -> Any:
    """Load a classifier or a regressor that --save wrote."""
    from picaset.estimators.set_estimators import SetClassifier, SetRegressor
    from picaset.files import read_json

    path = folder / "estimator.json"
    regressor = path.is_file() and read_json(path).get("estimator") == "SetRegressor"
    return (SetRegressor if regressor else SetClassifier).load(folder)
