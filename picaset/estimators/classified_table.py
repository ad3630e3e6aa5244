"""Labels for the sets of a table: cross-validated scores, predictions, and the rows that decided."""

import re
import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from picaset.estimators.set_estimators import SetClassifier, SetRegressor, split_folds
from picaset.estimators.validation import clone, from_scikit_learn
from picaset.figures import COLOURS, literal, new_figure
from picaset.files import atomic_write
from picaset.tables.table import RowSets, Table, choose_columns, group_rows, is_whole

Floats = NDArray[np.float64]
Estimator = SetClassifier | SetRegressor
MAX_CLASSES = 20
"""Largest number of different numbers in a target column that are read as classes."""
GROUP_NAME = re.compile(
    r"(^|_)(patient|subject|participant|person|donor|case|slide|plate|batch|site|group|id|nr|number)(_|\d|$)", re.I
)
"""Names of columns that tell which sets belong together."""


@dataclass(frozen=True)
class LabelledSets:
    """Sets of rows with a target for each, and the group of each set."""

    table: Table
    rows: RowSets
    targets: NDArray[Any]
    groups: NDArray[Any] | None

    @property
    def is_classification(self) -> bool:
        """Whether the targets are classes: text, or few different whole numbers."""
        if self.targets.dtype.kind != "f":
            return True
        values = np.unique(self.targets)
        return len(values) <= MAX_CLASSES and bool((values == values.round()).all())


def read_labelled_sets(
    table: Table,
    *,
    set_column: str,
    target: str,
    columns: Sequence[str],
    group_column: str | None = None,
    drop_missing: bool = False,
) -> LabelledSets:
    """Group the rows of a table into sets, and read the target of each set, which all its rows must have."""
    if group_column == target:
        raise ValueError(
            f"the group {group_column!r} determines the label, because it is the target; --group is for sets that "
            "belong together, such as those of a patient."
        )
    if target == set_column or target in columns:
        raise ValueError(f"the target {target!r} cannot also be the set column or a feature.")
    rows = read_features(
        table, set_column=set_column, columns=columns, exclude=(target, group_column), drop_missing=drop_missing
    )
    targets = value_by_set(table, rows, target)
    if bool(table.is_number(target).all()):
        targets = targets.astype(np.float64)
        whole = bool((targets == targets.round()).all())
        targets = targets.astype(np.int64) if whole and len(np.unique(targets)) <= MAX_CLASSES else targets
    groups = None if group_column is None else value_by_set(table, rows, group_column)
    return LabelledSets(table, rows, targets, groups)


def read_features(
    table: Table,
    *,
    set_column: str,
    columns: Sequence[str],
    exclude: Sequence[str | None] = (),
    drop_missing: bool = False,
) -> RowSets:
    """Group the rows of a table into sets by ``set_column``; features are all numeric columns if none are named."""
    for name in (set_column, *(name for name in exclude if name is not None)):
        table.column(name)  # raises if there is none
    joined = next((name for name in columns if name not in table.columns and "," in name), None)
    if joined is not None and all(name.strip() in table.columns for name in joined.split(",")):
        parts = " ".join(name.strip() for name in joined.split(","))
        raise ValueError(f"{table.path} has no column {joined!r}; separate columns by spaces: --columns {parts}.")
    features = Table(
        table.path, {name: values for name, values in table.columns.items() if name not in exclude}, table.locations
    )
    names = list(columns) or choose_columns(features, exclude=(set_column,))[0]
    hint = "fill it in, or drop such rows with --drop-missing"
    return group_rows(features, columns=names, set_column=set_column, drop_missing=drop_missing, hint=hint)


def identifies_group(table: Table, name: str) -> bool:
    """Return whether a column has whole numbers and the name of an identifier, such as ``patient``."""
    column = table.column(name)
    return GROUP_NAME.search(name) is not None and column.dtype.kind in "iuf" and is_whole(column)


def check_groups(targets: NDArray[Any], groups: NDArray[Any]) -> None:
    """Raise if all sets of a class are in one group, so that a model never sees the class when it is tested."""
    for name in np.unique(targets):
        of_class = np.unique(groups[targets == name])
        if len(of_class) == 1:
            determined = all(len(np.unique(targets[groups == group])) == 1 for group in np.unique(groups))
            raise ValueError(
                f"every class needs sets of at least 2 groups for cross-validation; all of {str(name)!r} are in the "
                f"group {str(of_class[0])!r}."
                + (" Every group has one label: choose another column for --group, or none." if determined else "")
            )


def value_by_set(table: Table, rows: RowSets, name: str) -> NDArray[Any]:
    """Return the value of a column for each set, or raise if the rows of a set differ or have none."""
    column, missing = table.column(name), table.is_missing(name)
    result = list[Any]()
    for set_name, members in zip(rows.names, rows.members, strict=True):
        indices = rows.rows[members]
        if missing[indices].any():
            row = int(indices[missing[indices].argmax()])
            raise ValueError(f"{table.path}, {table.locations[row]}: {name} is missing; every row of a set needs it.")
        values = [str(value).strip() for value in column[indices]]
        different = next((index for index, value in enumerate(values) if value != values[0]), None)
        if different is not None:
            raise ValueError(
                f"{table.path}, {table.locations[int(indices[different])]}: set {set_name} has {name} "
                f"{values[different]!r}, and {values[0]!r} before; all rows of a set must have the same."
            )
        result.append(values[0])
    return np.array(result)


@dataclass(frozen=True)
class ValidatedModel:
    """An estimator fitted to all sets, and predictions of estimators that were not fitted to a set."""

    estimator: Estimator
    scores: dict[str, tuple[float, float]]
    """Mean and standard deviation over the folds, by name of the score."""
    held_out: Floats
    """Probabilities of the classes (B, C), or predictions (B,), for sets outside the training folds."""


def validate_and_fit(sets: LabelledSets, estimator: Estimator, *, num_folds: int, seed: int) -> ValidatedModel:
    """Cross-validate an estimator, and fit it to all sets."""
    arrays, targets = sets.rows.arrays(), sets.targets
    strata = np.unique(targets, return_inverse=True)[1].astype(np.int64) if sets.is_classification else None
    group_codes = None if sets.groups is None else np.unique(sets.groups, return_inverse=True)[1].astype(np.int64)
    if strata is not None and (counts := np.bincount(strata)).min() < 2:
        rare = np.unique(targets)[int(counts.argmin())]
        raise ValueError(
            f"every class needs at least 2 sets for cross-validation; {str(rare)!r} has 1. Add sets, or remove it."
        )
    if strata is not None and sets.groups is not None:
        check_groups(targets, sets.groups)
    folds = split_folds(num_folds, strata, group_codes, len(arrays), seed=seed)
    if not folds:
        raise ValueError(
            "cross-validation needs at least two sets (or groups) of every class; add sets, or merge classes."
        )
    by_fold, held_out = list[dict[str, float]](), list[tuple[NDArray[np.int64], Floats]]()
    for training, test in folds:
        with without_warning_of_few_sets():
            fitted: Estimator = clone(estimator).fit(
                [arrays[index] for index in training],
                targets[training],
                groups=None if sets.groups is None else sets.groups[training],
            )
        test_arrays: list[Floats] = [arrays[int(index)] for index in test]
        predictions = predict(fitted, test_arrays)
        held_out.append((test, predictions))
        by_fold.append(score(fitted, targets[test], targets[training], predictions))
    with without_warning_of_few_sets():
        estimator.fit(arrays, targets, groups=sets.groups)
    estimator.feature_names_in_ = np.array(list(sets.rows.columns), dtype=object)
    collected = np.zeros((len(arrays), *held_out[0][1].shape[1:]))
    for test, predictions in held_out:
        collected[test] = predictions
    names = [name for name in by_fold[0] if all(name in scores for scores in by_fold)]
    values = {name: [scores[name] for scores in by_fold] for name in names}
    return ValidatedModel(
        estimator, {name: (float(np.mean(folds)), float(np.std(folds))) for name, folds in values.items()}, collected
    )


@contextmanager
def without_warning_of_few_sets() -> Generator[None]:
    """Hide the warning that members have equal weights, which ``report_`` shows."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*too few sets or groups for inner cross-validation")
        yield


def predict(estimator: Estimator, arrays: Sequence[Floats]) -> Floats:
    """Return probabilities (B, C), or predicted numbers (B,)."""
    return estimator.predict_proba(arrays) if isinstance(estimator, SetClassifier) else estimator.predict(arrays)


def score(
    estimator: Estimator, targets: NDArray[Any], training_targets: NDArray[Any], predictions: Floats
) -> dict[str, float]:
    """Return the scores of a fold, with that of the most frequent class or the mean for comparison."""
    if not isinstance(estimator, SetClassifier):
        residual, total = np.square(targets - predictions).sum(), np.square(targets - training_targets.mean()).sum()
        error = float(np.abs(targets - predictions).mean())
        return {"R2": float(1 - residual / total) if total else 0.0, "mean absolute error": error}
    classes, counts = np.unique(training_targets, return_counts=True)
    result = {
        "accuracy": float((estimator.classes_[predictions.argmax(axis=1)] == targets).mean()),
        "accuracy of the most frequent class": float((classes[counts.argmax()] == targets).mean()),
    }
    if len(classes) == 2 and len(np.unique(targets)) == 2:
        roc_auc_score: Any = from_scikit_learn("sklearn.metrics", "roc_auc_score")
        result = {"AUROC": float(roc_auc_score(targets, predictions[:, 1]))} | result
    return result


def describe_sets(
    estimator: Estimator, table: Table, rows: RowSets, predictions: Floats, targets: NDArray[Any] | None
) -> tuple[list[dict[str, Any]], list[Floats]]:
    """Return the prediction and the deciding row of every set, and the importance of all rows of every set."""
    importance = estimator.element_importance(rows.arrays())
    entries = list[dict[str, Any]]()
    for index, (name, shares) in enumerate(zip(rows.names, importance, strict=True)):
        entry: dict[str, Any] = {"set": name, "rows": len(shares)}
        if targets is not None:
            entry["target"] = targets[index].item()
        if isinstance(estimator, SetClassifier):
            best = int(predictions[index].argmax())
            probability = float(predictions[index, best])
            entry |= {"predicted": estimator.classes_[best].item(), "probability": probability}
        else:
            entry["predicted"] = float(predictions[index])
        decisive = int(shares.argmax())
        location = table.locations[int(rows.rows[rows.members[index][decisive]])]
        entries.append(entry | {"deciding row": location, "importance": float(shares[decisive])})
    return entries, importance


def write_importance(table: Table, rows: RowSets, importance: Sequence[Floats], path: Path) -> None:
    """Write the table as CSV, with the importance of each row for its set; empty for dropped rows."""
    column = np.full(table.num_rows, "", dtype=object)
    for members, shares in zip(rows.members, importance, strict=True):
        column[rows.rows[members]] = [f"{share:.4f}" for share in shares]
    table.write_csv(path, {"importance": column.tolist()})


def draw_validation(model: ValidatedModel, sets: LabelledSets, path: Path) -> None:
    """Draw held-out predictions against the targets, and the weights of the members."""
    figure = new_figure(9.5, 4.0)
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    generator = np.random.default_rng(0)
    if isinstance(model.estimator, SetClassifier):
        for index, name in enumerate(model.estimator.classes_):
            chosen = sets.targets == name
            probability = model.held_out[chosen, -1 if len(model.estimator.classes_) == 2 else index]
            height = index + generator.uniform(-0.3, 0.3, size=int(chosen.sum()))
            left.scatter(probability, height, s=14, color=COLOURS[index % len(COLOURS)], alpha=0.6, linewidths=0)
        classes = [literal(str(name)) for name in model.estimator.classes_]
        left.set_yticks(range(len(classes)), classes)
        left.set_xlabel(f"probability of {classes[1]}" if len(classes) == 2 else "probability of the true class")
        left.set_ylabel("class")
        left.set_xlim(-0.02, 1.02)
    else:
        left.scatter(sets.targets, model.held_out, s=14, color=COLOURS[0], alpha=0.6, linewidths=0)
        left.axline((float(sets.targets.mean()),) * 2, slope=1, color="#999999", linewidth=1)
        left.set_xlabel("target")
        left.set_ylabel("prediction")
    left.set_title("sets, each predicted without having been seen", fontsize=11)
    weights = {name: entry["weight"] for name, entry in model.estimator.report_.items() if name != "ensemble"}
    right.barh(list(weights), list(weights.values()), color=COLOURS[0])
    right.invert_yaxis()
    right.set_xlabel("weight")
    right.set_title("members of the ensemble", fontsize=11)
    with atomic_write(path) as unfinished:
        figure.savefig(unfinished, format=path.suffix[1:].lower(), dpi=150)
