"""An ensemble for sets: scikit-learn estimators on vectors that describe each set, and set networks.

    trees         extremely randomized trees on the statistics of each set
    forest        random forest on the same statistics
    svm           support vector machine with an RBF kernel on the same statistics
    kernel        support vector machine (ridge regression) on the random features of the set kernel
    linear        linear discriminant analysis or ridge regression on the mean of each set
    words         extremely randomized trees on the vocabulary of each set
    network       set networks, trained by the caller; one for each fold

The members are combined by inner cross-validation: each predicts the sets that it was not trained on, these
predictions are calibrated, and non-negative weights of the calibrated log-probabilities are fitted to them.

Dimensions:  B sets   C classes or targets   M members
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from picaset.estimators.discriminant import ShrunkDiscriminant
from picaset.estimators.set_features import SetMeanEmbedding, SetStatistics, SetVocabulary
from picaset.estimators.set_inputs import SetList
from picaset.estimators.validation import (
    SVC,
    SVR,
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    MultiOutputRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
    RidgeCV,
    StandardScaler,
    clone,
    make_pipeline,
    minimize,
)

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
Folds = Sequence[tuple[Indices, Indices]]
Kind = Literal["classification", "regression"]
NUM_TREES = 150
"""Number of trees of each member that has trees."""
REGRESSION_SHARE, MAX_CANDIDATES = 2 / 3, 64
"""Share of these trees, and largest number of features that a split compares, in regression, where splits are slow."""
TREES_TIMES_SETS, MIN_FOLD_TREES = 75_000, 60
"""In the inner folds of more than 500 sets, trees are fewer, so that their number times that of sets is about this."""
LEAST_PROBABILITY = 1e-3
"""Probabilities of trees are kept away from zero by this, since their logarithms are used."""
SHRINKAGE = 4.0
"""Strength of the regularization of the weights towards equal weights: that of as many sets of typical loss."""
MIN_WEIGHT = 0.02
"""Members of a smaller weight are left out."""
FEATURES = {
    "trees": "statistics",
    "forest": "statistics",
    "svm": "statistics",
    "kernel": "embedding",
    "linear": "means",
    "words": "vocabulary",
}
"""Features of each member."""
NETWORK = "network"
PENALTIES = np.logspace(-1, 5, 13)
"""Penalties among which the linear member of a regression chooses by leave-one-out, for standardized features."""


@dataclass
class SetEnsemble:
    """Fitted members, and how their predictions are combined."""

    kind: Kind
    num_outputs: int
    transformers: dict[str, Any] = field(default_factory=dict[str, Any])
    members: dict[str, Any] = field(default_factory=dict[str, Any])
    calibration: dict[str, Floats] = field(default_factory=dict[str, Floats])
    """Scale and offsets of the scores of each member, (1 + C,)."""
    weights: dict[str, float] = field(default_factory=dict[str, float])
    report: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])

    def fit(
        self,
        read: SetList,
        targets: NDArray[Any],
        *,
        folds: Folds,
        set_weights: Floats | None,
        seed: int,
        network_scores: Floats | None,
        advance: Callable[[str], None],
    ) -> "SetEnsemble":
        """Fit all members, and combine them by their predictions for the sets outside their folds.

        Args:
            read: The sets.
            targets: Indices of the classes (B,), or standardized targets (B, C).
            folds: Indices of the training and of the test sets of each inner fold; if empty, weights are equal. Sets
                that are in no test part do not influence the weights.
            set_weights: Weight of each set.
            seed: Seed of all members.
            network_scores: Log-probabilities or predictions of networks for sets that they were not trained on.
            advance: Called with the name of each member when it is fitted.
        """
        self.transformers = {
            "statistics": SetStatistics().fit_list(read),
            "means": SetStatistics(("mean",)).fit_list(read),
            "embedding": SetMeanEmbedding(random_state=seed).fit_list(read),
            "vocabulary": SetVocabulary(random_state=seed).fit_list(read),
        }
        features = self.features(read, FEATURES.values())
        held_out = dict[str, Floats]()
        widths = {name: matrix.shape[1] for name, matrix in features.items()}
        for name, member in build_members(self.kind, widths, seed=seed).items():
            matrix, scores = features[FEATURES[name]], np.zeros((len(read), self.num_outputs))
            for training, test in folds:
                copied = with_fold_trees(clone(member), num_sets=len(read))
                fitted = fit_member(copied, matrix[training], targets[training], take(set_weights, training))
                scores[test] = self.scores(fitted, matrix[test])
            held_out[name] = scores
            self.members[name] = fit_member(member, matrix, targets, set_weights)
            advance(name)
        if network_scores is not None:
            held_out[NETWORK] = network_scores
        judged = self.find_judged(targets, folds)
        weights = np.ones(len(read)) if set_weights is None else set_weights
        if weights[judged].any():
            held_out = {name: scores[judged] for name, scores in held_out.items()}
            self.combine(held_out, targets[judged], weights[judged])
        else:
            identity = np.concatenate([[1.0], np.zeros(self.num_outputs)])
            self.calibration = dict.fromkeys(self.members, identity)
            self.weights = {name: 1 / len(self.members) for name in self.members}
            self.report = {name: {"weight": weight} for name, weight in self.weights.items()}
        return self

    def find_judged(self, targets: NDArray[Any], folds: Folds) -> NDArray[np.bool_]:
        """Return a mask (B,) of the sets that are in the test part of a fold whose training part has their class."""
        judged = np.zeros(len(targets), dtype=np.bool_)
        for training, test in folds:
            judged[test] = True if self.kind == "regression" else np.isin(targets[test], targets[training])
        return judged

    def combine(self, held_out: Mapping[str, Floats], targets: NDArray[Any], set_weights: Floats) -> None:
        """Calibrate each member and fit the weights, by predictions for sets that the members were not trained on."""
        loss = log_loss if self.kind == "classification" else squared_error
        for name, scores in held_out.items():
            self.calibration[name] = calibrate(scores, targets, set_weights, loss)
        calibrated = np.stack([self.calibrated(name, scores) for name, scores in held_out.items()])
        shares = fit_weights(calibrated, targets, set_weights, loss)
        shares = np.where(shares < MIN_WEIGHT, 0.0, shares)
        self.weights = dict(zip(held_out, shares.tolist(), strict=True))
        for name, scores in zip(held_out, calibrated, strict=True):
            self.report[name] = {"weight": self.weights[name], "loss": loss(scores, targets, set_weights)[0]}
        combined = np.tensordot(shares, calibrated, axes=1)
        self.report["ensemble"] = {"weight": float(shares.sum()), "loss": loss(combined, targets, set_weights)[0]}

    def predict(self, read: SetList, network_scores: Callable[[], Floats]) -> Floats:
        """Return the combined logits of every class, or the combined predictions, (B, C)."""
        active = [name for name, weight in self.weights.items() if weight > 0]
        features = self.features(read, {FEATURES[name] for name in active if name != NETWORK})
        total = np.zeros((len(read), self.num_outputs))
        for name in active:
            scores = network_scores() if name == NETWORK else self.scores(self.members[name], features[FEATURES[name]])
            total += self.weights[name] * self.calibrated(name, scores)
        return log_softmax(total) if self.kind == "classification" else total

    @property
    def is_led_by_networks(self) -> bool:
        """Whether the networks have more than half of the total weight."""
        return self.weights.get(NETWORK, 0.0) > sum(self.weights.values()) / 2

    def split_by_word(self, values: Floats, weights: Floats) -> list[Indices]:
        """Return the indices of the elements of a set, of positive weight, grouped by their nearest word."""
        nearest = self.transformers["vocabulary"].nearest_words(values)
        return [rows for word in np.unique(nearest) if len(rows := np.flatnonzero((nearest == word) & (weights > 0)))]

    def features(self, read: SetList, names: Any) -> dict[str, Floats]:
        return {name: self.transformers[name].transform_list(read) for name in sorted(set(names))}

    def scores(self, member: Any, matrix: Floats) -> Floats:
        """Return the scores of a member: log-probabilities, decision values or predictions, (B, C)."""
        if self.kind == "regression":
            return np.asarray(member.predict(matrix)).reshape(len(matrix), self.num_outputs)
        if hasattr(member, "predict_proba"):
            scores = np.log(np.maximum(member.predict_proba(matrix), LEAST_PROBABILITY))
        else:
            scores = np.asarray(member.decision_function(matrix))
            scores = np.stack([-scores, scores], axis=1) / 2 if scores.ndim == 1 else scores
        if scores.shape[1] == self.num_outputs:
            return scores
        result = np.full((len(matrix), self.num_outputs), scores.min())  # a class was absent from the fold
        result[:, member.classes_] = scores
        return result

    def calibrated(self, name: str, scores: Floats) -> Floats:
        values = self.calibration[name][0] * scores + self.calibration[name][1:]
        return log_softmax(values) if self.kind == "classification" else values


def build_members(kind: Kind, widths: Mapping[str, int], *, seed: int) -> dict[str, Any]:
    """Return the members that are not networks, not fitted, for features of these widths."""
    if kind == "classification":
        return {
            "trees": ExtraTreesClassifier(NUM_TREES, random_state=seed),
            "forest": RandomForestClassifier(NUM_TREES, random_state=seed),
            "svm": make_pipeline(StandardScaler(), SVC()),
            "kernel": make_pipeline(StandardScaler(), SVC()),
            "linear": make_pipeline(StandardScaler(), ShrunkDiscriminant()),
            "words": ExtraTreesClassifier(NUM_TREES, random_state=seed),
        }
    num_trees = max(round(REGRESSION_SHARE * NUM_TREES), 1)
    statistics, words = (min(MAX_CANDIDATES, widths[name]) for name in ("statistics", "vocabulary"))
    return {
        "trees": ExtraTreesRegressor(num_trees, max_features=statistics, random_state=seed),
        "forest": RandomForestRegressor(num_trees, max_features=statistics, random_state=seed),
        "svm": make_pipeline(StandardScaler(), MultiOutputRegressor(SVR())),
        "kernel": make_pipeline(StandardScaler(with_std=False), RidgeCV(np.logspace(-4, 2, 13))),
        "linear": make_pipeline(StandardScaler(), RidgeCV(PENALTIES)),
        "words": ExtraTreesRegressor(num_trees, max_features=words, random_state=seed),
    }


def with_fold_trees(member: Any, *, num_sets: int) -> Any:
    """Reduce the trees of a member that is fitted to a fold: with many sets, the weights need less exact scores."""
    if hasattr(member, "n_estimators"):
        count = max(TREES_TIMES_SETS // num_sets, MIN_FOLD_TREES)
        member.set_params(n_estimators=min(member.n_estimators, count))
    return member


def fit_member(member: Any, matrix: Floats, targets: NDArray[Any], weights: Floats | None) -> Any:
    """Fit an estimator or a pipeline with weights of the sets."""
    if targets.ndim == 2 and not hasattr(member, "steps"):
        targets = targets.squeeze(axis=1) if targets.shape[1] == 1 else targets
    if weights is None:
        return member.fit(matrix, targets)
    steps = getattr(member, "steps", None)
    return member.fit(matrix, targets, **{f"{steps[-1][0]}__sample_weight" if steps else "sample_weight": weights})


def take(values: Floats | None, indices: Indices) -> Floats | None:
    return None if values is None else values[indices]


def log_softmax(logits: Floats) -> Floats:
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


Objective = Callable[[Floats, NDArray[Any], Floats], tuple[float, Floats]]
"""Function of scores (B, C), targets and weights (B,) that returns the mean loss and its gradient by the scores."""


def log_loss(scores: Floats, targets: NDArray[Any], weights: Floats) -> tuple[float, Floats]:
    """Return the weighted mean of the negative log-probability of the true class, and its gradient."""
    logs, share = log_softmax(scores), weights / weights.sum()
    rows = np.arange(len(scores))
    gradient = np.exp(logs)
    gradient[rows, targets] -= 1
    return float(-(share * logs[rows, targets]).sum()), gradient * share[:, None]


def squared_error(scores: Floats, targets: NDArray[Any], weights: Floats) -> tuple[float, Floats]:
    """Return half the weighted mean squared error, and its gradient."""
    difference, share = scores - targets, weights / weights.sum() / scores.shape[1]
    return float((share[:, None] * difference**2).sum() / 2), difference * share[:, None]


def calibrate(scores: Floats, targets: NDArray[Any], weights: Floats, loss: Objective) -> Floats:
    """Fit a positive slope of the scores and an intercept for each class, (1 + C,) (Platt scaling, 1999)."""
    scale = float((scores - scores.mean(axis=1, keepdims=True)).std() if scores.shape[1] > 1 else scores.std()) or 1.0

    def objective(parameters: Floats) -> tuple[float, Floats]:
        value, gradient = loss(parameters[0] * scores / scale + parameters[1:], targets, weights)
        # As much as one set with a target half-way: keeps the factor finite where the classes are separated.
        value += (parameters**2).sum() / (20 * len(scores))
        slopes = np.concatenate([[(gradient * scores).sum() / scale], gradient.sum(axis=0)])
        return value, slopes + parameters / (10 * len(scores))

    start = np.concatenate([[1.0], np.zeros(scores.shape[1])])
    # The probability of a class without targets is not known, so its scores are only multiplied.
    known = np.ones(scores.shape[1]) if targets.ndim == 2 else np.bincount(targets, minlength=scores.shape[1])
    bounds = [(0.0, None), *((None, None) if count else (0.0, 0.0) for count in known)]
    fitted: Floats = minimize(objective, start, jac=True, bounds=bounds, method="L-BFGS-B").x
    return np.concatenate([fitted[:1] / scale, fitted[1:]])


def fit_weights(scores: Floats, targets: NDArray[Any], weights: Floats, loss: Objective) -> Floats:
    """Return a non-negative weight for each member, (M,), from calibrated scores (M, B, C)."""
    num_members, num_sets = scores.shape[:2]
    equal = 1 / num_members
    # Relative to the loss of the best member, so that a member that is almost perfect is not diluted.
    pull = SHRINKAGE / num_sets * min(loss(one, targets, weights)[0] for one in scores)

    def objective(shares: Floats) -> tuple[float, Floats]:
        value, gradient = loss(np.tensordot(shares, scores, axes=1), targets, weights)
        difference = shares - equal
        return value + pull * (difference**2).sum(), np.tensordot(scores, gradient, axes=2) + 2 * pull * difference

    start, bounds = np.full(num_members, equal), [(0.0, None)] * num_members
    return minimize(objective, start, jac=True, bounds=bounds, method="L-BFGS-B").x
