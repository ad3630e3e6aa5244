"""The ensembles behind SetClassifier and SetRegressor: combination, inputs, weights, groups, saving."""

import json
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pandas
import pytest
import sklearn
from sklearn.covariance import ledoit_wolf
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.utils.estimator_checks import check_estimator

from picaset import SetClassifier, SetMeanEmbedding, SetRegressor, SetStatistics, SetVocabulary
from picaset.estimators import set_ensemble, set_estimators, set_inputs
from picaset.estimators.discriminant import ShrunkDiscriminant
from picaset.estimators.set_ensemble import (
    FEATURES,
    NETWORK,
    SetEnsemble,
    calibrate,
    fit_weights,
    log_loss,
    log_softmax,
    squared_error,
)
from picaset.estimators.set_estimators import split_folds, split_inner_folds
from picaset.estimators.set_inputs import read_set_list

TINY = {"dim": 4, "num_heads": 2, "max_iter": 2, "random_state": 0}
NETWORKS = {**TINY, "method": "network", "num_networks": 2}


@pytest.fixture(autouse=True)
def few_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(set_ensemble, "NUM_TREES", 5)


def shifted_bags(count: int = 30, seed: int = 0, dim: int = 3) -> tuple[list[np.ndarray], np.ndarray]:
    """Bags whose mean tells the class."""
    generator = np.random.default_rng(seed)
    labels = np.arange(count) % 2
    return [generator.normal(size=(generator.integers(2, 7), dim)) + 2 * label for label in labels], labels


@pytest.fixture(scope="module")
def fitted() -> SetClassifier:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(set_ensemble, "NUM_TREES", 5)
        return SetClassifier(**TINY).fit(*shifted_bags())


def test_the_default_is_an_ensemble_whose_report_has_every_member(fitted):
    assert set(fitted.report_) == {*FEATURES, NETWORK, "ensemble"}
    assert fitted.score(*shifted_bags(seed=1)) > 0.9
    assert all(entry["weight"] >= 0 for entry in fitted.report_.values())
    assert fitted.report_["ensemble"]["loss"] < np.log(2)
    assert len(fitted.networks_) == 5


def test_probabilities_sum_to_one_and_agree_with_the_decision_function(fitted):
    bags, _ = shifted_bags(seed=2)
    probabilities = fitted.predict_proba(bags)
    assert np.allclose(probabilities.sum(axis=1), 1)
    assert np.allclose(np.log(probabilities[:, 1] / probabilities[:, 0]), fitted.decision_function(bags))
    assert np.array_equal(fitted.predict(bags), (fitted.decision_function(bags) > 0).astype(int))


def test_importance_is_the_change_of_the_combined_prediction_without_the_element(fitted):
    bag = shifted_bags(seed=3)[0][1]
    bag = np.vstack([bag, bag[:1] + 1])
    logs = [np.log(fitted.predict_proba([np.delete(bag, index, axis=0)])[0]) for index in range(len(bag))]
    changes = np.abs(np.array(logs) - np.log(fitted.predict_proba([bag])[0])).sum(axis=1)
    (importance,) = fitted.element_importance([bag])
    np.testing.assert_allclose(importance, changes / changes.sum(), atol=1e-6)


@pytest.mark.parametrize("network_weight", [0.0, 0.5, 50.0])
def test_importance_of_a_large_set_sums_to_one_and_follows_the_order(fitted, network_weight, monkeypatch):
    monkeypatch.setitem(fitted.ensemble_.weights, NETWORK, network_weight)
    bag = np.random.default_rng(0).normal(size=(100, 3))
    order = np.random.default_rng(1).permutation(100)
    first, second = fitted.element_importance([bag, bag[order]])
    assert first.sum() == pytest.approx(1, abs=1e-6)
    np.testing.assert_allclose(first[order], second, atol=1e-5)
    assert first.std() > 0


@pytest.mark.parametrize(("share", "by_attention"), [(0.1, False), (0.6, True)])
def test_attention_is_the_importance_only_if_networks_have_most_of_the_weight(fitted, share, by_attention, monkeypatch):
    others = sum(weight for name, weight in fitted.ensemble_.weights.items() if name != NETWORK)
    monkeypatch.setitem(fitted.ensemble_.weights, NETWORK, others * share / (1 - share))
    bag = np.random.default_rng(0).normal(size=(100, 3))
    (importance,) = fitted.element_importance([bag])
    attention = fitted._attention(bag, np.ones(100))
    assert np.allclose(importance, attention) == by_attention


def test_a_single_element_decides_alone(fitted):
    assert fitted.element_importance([np.zeros((1, 3))])[0].tolist() == [1.0]


@pytest.mark.parametrize("kind", [SetClassifier, SetRegressor])
def test_an_ensemble_read_back_predicts_the_same_and_has_no_pickle(kind, tmp_path):
    bags, labels = shifted_bags()
    estimator = kind(**TINY, class_weight="balanced").fit(bags, labels) if kind is SetClassifier else None
    estimator = estimator or kind(**TINY).fit(bags, np.stack([labels, [len(bag) for bag in bags]], axis=1))
    estimator.save(tmp_path)
    again = kind.load(tmp_path)
    method = "predict_proba" if kind is SetClassifier else "predict"
    assert np.array_equal(getattr(again, method)(bags), getattr(estimator, method)(bags))
    assert again.get_params() == estimator.get_params()
    assert again.report_ == estimator.report_
    suffixes = {path.suffix for path in tmp_path.rglob("*") if path.is_file()}
    assert suffixes == {".json", ".safetensors"}


@pytest.mark.parametrize(
    ("damage", "error", "message"),
    [
        (lambda path: path.unlink(), FileNotFoundError, "does not exist; save the SetClassifier again"),
        (lambda path: path.write_bytes(path.read_bytes()[:-100]), ValueError, "does not hold the members"),
        (
            lambda path: path.write_bytes(path.read_bytes().replace(b"ExtraTreesClassifier", b"ExtraTreesClassifieR")),
            ValueError,
            "'ExtraTreesClassifieR' is not a class of a saved member",
        ),
    ],
)
def test_members_that_were_damaged_or_replaced_are_refused(fitted, tmp_path, damage, error, message):
    fitted.save(tmp_path)
    damage(tmp_path / "members.safetensors")
    with pytest.raises(error, match=message):
        SetClassifier.load(tmp_path)


def test_calibration_recovers_the_scale_of_the_log_odds():
    generator = np.random.default_rng(0)
    odds = 2 * generator.normal(size=4000)
    targets = (generator.random(4000) < 1 / (1 + np.exp(-odds))).astype(int)
    scores = np.stack([-odds, odds], axis=1) * 10
    factor = calibrate(scores, targets, np.ones(4000), log_loss)[0]
    assert factor == pytest.approx(0.05, rel=0.1)


def test_the_linear_classifier_is_discriminant_analysis_with_a_shrunk_covariance():
    generator = np.random.default_rng(0)
    labels = np.arange(60) % 3
    matrix = generator.normal(size=(60, 5)) @ generator.normal(size=(5, 5)) + np.eye(5)[labels]
    matrix -= np.stack([matrix[labels == label].mean(axis=0) for label in range(3)])[labels] - np.eye(5)[labels]
    covariance, _ = ledoit_wolf(matrix - np.eye(5)[labels], assume_centered=True)
    estimator = type("Given", (), {"fit": lambda self, X: setattr(self, "covariance_", covariance)})()
    theirs = LinearDiscriminantAnalysis(solver="lsqr", covariance_estimator=estimator).fit(matrix, labels)
    ours = ShrunkDiscriminant().fit(matrix, labels)
    np.testing.assert_allclose(
        log_softmax(ours.decision_function(matrix)), theirs.predict_log_proba(matrix), rtol=1e-9, atol=1e-9
    )
    assert np.array_equal(ours.predict(matrix), theirs.predict(matrix))


def test_rows_of_weight_zero_are_absent_and_classes_count_by_their_weights_in_discriminant_analysis():
    generator = np.random.default_rng(0)
    labels, matrix = np.arange(30) % 2, generator.normal(size=(30, 3))
    weights = np.r_[np.ones(24), np.zeros(6)]
    first = ShrunkDiscriminant().fit(matrix, labels, weights)
    second = ShrunkDiscriminant().fit(matrix[:24], labels[:24])
    np.testing.assert_allclose(first.decision_function(matrix), second.decision_function(matrix))
    heavier = ShrunkDiscriminant().fit(matrix, labels, 1.0 + 2.0 * labels)
    difference = (
        heavier.intercept_ + (heavier.coef_ * [matrix[labels == label].mean(axis=0) for label in (0, 1)]).sum(1) / 2
    )
    np.testing.assert_allclose(difference[1] - difference[0], np.log(3))


def test_a_small_shift_of_many_means_is_found_best_by_the_linear_member():
    bags, labels = shifted_bags(count=80, dim=30)
    read = read_set_list([bag - 1.8 * label for bag, label in zip(bags, labels, strict=True)], caller="test")
    ensemble = SetEnsemble("classification", 2).fit(
        read,
        labels,
        folds=split_inner_folds(5, labels, None, 80, seed=0),
        set_weights=None,
        seed=0,
        network_scores=None,
        advance=lambda name: None,
    )
    losses = {name: entry["loss"] for name, entry in ensemble.report.items()}
    assert losses.pop("linear") < min(losses[name] for name in FEATURES if name != "linear")
    assert ensemble.weights["linear"] == max(ensemble.weights.values())


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_a_member_that_knows_gets_the_weight_and_noise_gets_little(kind):
    generator = np.random.default_rng(0)
    noise = generator.normal(size=(2, 500, 2))
    if kind == "classification":
        targets, loss = generator.integers(2, size=500), log_loss
        knowing = np.where(np.eye(2)[targets] > 0, 1.0, -1.0) + 0.3 * generator.normal(size=(500, 2))
    else:
        targets, loss = generator.normal(size=(500, 2)), squared_error
        knowing = targets + 0.1 * generator.normal(size=(500, 2))
    scores = np.stack([noise[0], knowing, noise[1]])
    scores = np.stack([c[0] * one + c[1:] for one in scores for c in [calibrate(one, targets, np.ones(500), loss)]])
    weights = fit_weights(scores, targets, np.ones(500), loss)
    assert (weights >= 0).all()
    assert weights[1] > 0.8
    assert np.median(weights[[0, 2]]) < 0.4


@pytest.mark.parametrize("loss", [log_loss, squared_error])
def test_gradients_of_the_losses_are_right(loss):
    generator = np.random.default_rng(0)
    scores, weights = generator.normal(size=(4, 3)), generator.random(4)
    targets = generator.integers(3, size=4) if loss is log_loss else generator.normal(size=(4, 3))
    direction = generator.normal(size=(4, 3))
    ends = [loss(scores + step * direction, targets, weights)[0] for step in (-1e-6, 1e-6)]
    assert (ends[1] - ends[0]) / 2e-6 == pytest.approx((loss(scores, targets, weights)[1] * direction).sum(), rel=1e-5)


@pytest.mark.parametrize("strata", [None, np.arange(24) % 2])
def test_a_group_is_never_split(strata):
    groups = np.repeat(np.arange(8), 3)
    folds = split_folds(4, strata, groups, 24, seed=0)
    assert len(folds) == 4
    for training, test in folds:
        assert not set(groups[training]) & set(groups[test])
    assert sorted(np.concatenate([test for _, test in folds])) == list(range(24))


@pytest.mark.parametrize("grouped", [False, True])
def test_a_rare_class_leaves_the_others_their_inner_folds(grouped):
    strata = np.r_[np.arange(24) % 2, 2, 2, 3] if grouped else np.r_[np.arange(24) % 2, 2, 3]
    groups = np.r_[np.repeat(np.arange(8), 3), 7, 7, 8] if grouped else None
    folds = split_inner_folds(4, strata, groups, len(strata), seed=0)
    assert len(folds) == 4
    for training, test in folds:
        assert sorted([*training, *test]) == list(range(len(strata)))
        assert 3 in strata[training]
        if groups is not None:
            assert not set(groups[training]) & set(groups[test])
    tested = np.concatenate([test for _, test in folds])
    assert sorted(tested) == list(range(26 if grouped else 24))


def test_without_a_rare_class_inner_folds_are_those_of_all_sets():
    strata = np.arange(24) % 2
    for one, other in zip(
        split_inner_folds(4, strata, None, 24, seed=3), split_folds(4, strata, None, 24, seed=3), strict=True
    ):
        assert all(map(np.array_equal, one, other))


def test_an_ensemble_with_a_class_of_one_set_is_weighted_by_the_other_sets():
    bags, labels = shifted_bags(30)
    classifier = SetClassifier(**TINY).fit([*bags, bags[0] - 9], [*labels, 2])
    assert len(classifier.networks_) == 5
    assert all("loss" in entry for entry in classifier.report_.values())
    assert classifier.score(*shifted_bags(seed=1)) > 0.9
    probabilities = classifier.predict_proba([bags[0] - 9])[0]
    assert probabilities[2] > classifier.predict_proba(bags[:1])[0][2]
    assert all(values[3] == 0 for values in classifier.ensemble_.calibration.values())


def test_an_ensemble_does_not_continue_from_networks_that_saw_its_validation_sets():
    with pytest.raises(ValueError, match="SetClassifier: warm_start=True needs method='network'; with 'auto'"):
        SetClassifier(**TINY, warm_start=True).fit(*shifted_bags())


def test_groups_reach_the_inner_folds(monkeypatch):
    bags, labels = shifted_bags(24)
    groups, seen = np.repeat(["a", "b", "c", "d", "e", "f"], 4), []
    monkeypatch.setattr(
        set_estimators, "split_folds", lambda *args, **options: seen.append(args[2]) or split_folds(*args, **options)
    )
    SetClassifier(**TINY).fit(bags, labels, groups=groups)
    assert seen[0].tolist() == np.repeat(np.arange(6), 4).tolist()
    with pytest.raises(ValueError, match="expected a group for each of 24 sets; got 3"):
        SetClassifier(**TINY).fit(bags, labels, groups=[1, 2, 3])


def test_too_few_sets_for_inner_folds_are_classified_without_networks(tmp_path):
    bags, labels = shifted_bags(3)
    with pytest.warns(UserWarning, match="too few sets or groups for inner cross-validation"):
        classifier = SetClassifier(**TINY).fit(bags, labels)
    assert classifier.networks_ == []
    assert {entry["weight"] for entry in classifier.report_.values()} == {1 / len(FEATURES)}
    with pytest.raises(AttributeError, match="has no networks"):
        _ = classifier.network_
    classifier.save(tmp_path)
    assert np.array_equal(SetClassifier.load(tmp_path).predict_proba(bags), classifier.predict_proba(bags))


def test_a_set_of_weight_zero_teaches_nothing_to_the_networks():
    bags, labels = shifted_bags(20)
    wrong = [*bags, *(bag + 50 * (1 - label) for bag, label in zip(bags, labels, strict=True))]
    weights = [1.0] * 20 + [0.0] * 20
    options = {**NETWORKS, "early_stopping": False, "batch_size": 40}
    first, second = (
        SetClassifier(**options).fit(wrong, [*labels, *other], sample_weight=weights) for other in (labels, 1 - labels)
    )
    np.testing.assert_allclose(first.predict_proba(bags), second.predict_proba(bags), atol=1e-6)


@pytest.mark.parametrize("kind", [SetClassifier, SetRegressor])
def test_sets_of_weight_zero_are_as_good_as_absent_from_an_ensemble(kind):
    bags, labels = shifted_bags(20)
    wrong = [*bags, *(bag + 50 for bag in bags[:5])]
    weights = np.r_[np.ones(20), np.zeros(5)]
    groups = np.arange(25) // 2
    first = kind(**TINY).fit(wrong, [*labels, *[0] * 5], sample_weight=weights, groups=groups)
    second = kind(**TINY).fit(bags, labels, sample_weight=weights[:20], groups=groups[:20])
    assert np.array_equal(first.predict(bags), second.predict(bags))
    assert first.report_ == second.report_


def test_a_class_whose_sets_all_have_weight_zero_is_never_predicted():
    bags, labels = shifted_bags(20)
    weights = np.r_[np.ones(20), np.zeros(5)]
    wrong = [*bags, *(bag - 50 for bag in bags[:5])]
    classifier = SetClassifier(**TINY).fit(wrong, [*labels, *[2] * 5], sample_weight=weights)
    assert classifier.predict_proba(bags).shape == (20, 3)
    assert classifier.score(bags, labels) > 0.9
    with pytest.raises(ValueError, match="expected at least 2 classes with sets of weight above 0"):
        SetClassifier(**TINY).fit(bags, labels, sample_weight=labels)


@pytest.mark.as_installed
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak of memory is measured on Linux only")
def test_sets_in_files_of_many_rows_are_learned_in_bounded_memory(tmp_path):
    generator = np.random.default_rng(0)

    def write(num_rows: int, index: int) -> Path:
        path = tmp_path / f"{num_rows}_{index}.npy"
        # Small numbers: the file that is mapped is resident, too.
        np.save(path, generator.integers(-60, 60, size=(num_rows, 32), dtype=np.int8) + np.int8(40 * (index % 2)))
        return path

    labels = np.arange(6) % 2
    small = [write(100, index) for index in range(6)]
    many = 500_000
    sets = [*small[:4], write(many, 4), write(many, 5)]
    # In a process of its own: the memory that other tests have left behind would count.
    with get_context("spawn").Pool(1) as pool:
        predicted, rise = pool.apply(learn_and_measure_memory, (small, sets, labels))
    assert predicted == labels.tolist()
    both_sets_in_double_precision = 2 * many * 32 * 8
    assert (
        rise < 0.9 * both_sets_in_double_precision
    )  # half of it, the mapped files (an eighth), and what libraries take


def learn_and_measure_memory(small: list[Path], sets: list[Path], labels: np.ndarray) -> tuple[list[int], int]:
    """Fit and predict sets in files; return the predictions and the rise of the peak of resident memory in bytes."""
    SetClassifier(**TINY).fit(small, labels).predict_proba(small)  # imports modules and allocates what any sets need
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = resident("VmRSS")
    classifier = SetClassifier(**TINY).fit(sets, labels)
    classifier.ensemble_.weights[NETWORK] = 1.0
    return classifier.predict(sets).tolist(), resident("VmHWM") - before


@pytest.mark.parametrize("method", ["auto", "network"])
def test_a_set_in_a_file_of_several_chunks_is_predicted_as_in_memory(method, tmp_path, monkeypatch):
    monkeypatch.setattr(set_inputs, "CHUNK_VALUES", 3 * 50)
    bags, labels = shifted_bags(20)
    classifier = SetClassifier(**TINY, method=method).fit(bags, labels)
    bag = np.random.default_rng(1).normal(size=(180, 3))
    np.save(tmp_path / "bag.npy", bag)
    np.testing.assert_allclose(
        classifier._network_outputs(classifier._read([tmp_path / "bag.npy"], method="predict")),
        classifier._network_outputs(classifier._read([bag], method="predict")),
        atol=1e-5,
    )


def resident(name: str) -> int:
    """Return the resident memory of this process (VmRSS), or its peak (VmHWM), in bytes."""
    status = Path("/proc/self/status").read_text()
    return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith(name))


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0], r"expected a weight for each of 30 sets; got shape \(1,\)"),
        ([-1.0] * 30, "sample_weight must contain non-negative finite numbers, at least one above zero"),
        ([0.0] * 30, "sample_weight must contain non-negative finite numbers, at least one above zero"),
    ],
)
def test_weights_that_make_no_sense_are_refused(weights, message):
    with pytest.raises(ValueError, match=message):
        SetClassifier(**TINY).fit(*shifted_bags(), sample_weight=weights)


@pytest.mark.parametrize("pool", ["picaso", "attention", "gated", "mean", "sum", "max", "witness"])
def test_elements_count_as_often_as_their_weights_say(pool, tmp_path):
    bags, labels = shifted_bags(20)
    weighted = [np.column_stack([bag, np.r_[2.0, np.ones(len(bag) - 3), 0.5, 0.0]]) for bag in map(with_two_more, bags)]
    classifier = SetClassifier(pool, **NETWORKS, weight_column=3).fit(weighted, labels)
    twice = [np.column_stack([bag[:, :3], 2 * bag[:, 3]])[:-1] for bag in weighted]
    again = [np.vstack([bag[:1], bag]) for bag in twice]
    for bag in again:
        bag[:2, 3] /= 2
    np.testing.assert_allclose(classifier.predict_proba(again), classifier.predict_proba(twice), atol=1e-6)
    if pool != "sum":
        np.testing.assert_allclose(classifier.predict_proba(weighted), classifier.predict_proba(twice), atol=1e-6)
    np.save(tmp_path / "bag.npy", weighted[0])
    np.testing.assert_allclose(
        classifier.predict_proba([tmp_path / "bag.npy"]), classifier.predict_proba(weighted[:1]), atol=1e-5
    )
    for importance, bag in zip(classifier.element_importance(weighted), weighted, strict=True):
        assert importance.sum() == pytest.approx(1)
        assert importance[-1] == 0
        assert importance.shape == (len(bag),)


def with_two_more(bag):
    return np.vstack([bag, bag[:1] + 1, bag[:1] - 50])


def test_whole_weights_teach_what_repetitions_teach():
    bags, labels = shifted_bags(20)
    options = {**NETWORKS, "dropout": 0.0}
    weighted = [np.column_stack([bag, np.r_[2.0, np.ones(len(bag) - 1)]]) for bag in bags]
    repeated = [np.vstack([bag, bag[:1]]) for bag in bags]
    first = SetClassifier(**options, weight_column=3).fit(weighted, labels).predict_proba(weighted)
    second = SetClassifier(**options).fit(repeated, labels).predict_proba(repeated)
    np.testing.assert_allclose(first, second, atol=1e-4)


def test_a_set_whose_elements_all_have_weight_zero_is_empty(tmp_path):
    bags, labels = shifted_bags(20)
    weighted = [np.column_stack([bag, np.ones(len(bag))]) for bag in bags]
    weighted[0][:, 3] = 0
    classifier = SetClassifier(**NETWORKS, weight_column=3).fit(weighted, labels)
    np.save(tmp_path / "bag.npy", weighted[0])
    for sets in (weighted[:1], [tmp_path / "bag.npy"]):
        assert np.isfinite(classifier.predict_proba(sets)).all()
        assert np.allclose(classifier.element_importance(sets)[0], 1 / len(bags[0]))


def test_missing_values_are_refused_or_replaced_by_the_mean():
    bags, labels = shifted_bags(20)
    bags[3][0, 1] = np.nan
    with pytest.raises(ValueError, match="numbers must be finite; set 3 has nan in row 0, column 1"):
        SetClassifier(**NETWORKS).fit(bags, labels)
    filled = [bag.copy() for bag in bags]
    filled[3][0, 1] = np.nanmean(np.concatenate(bags)[:, 1])
    first = SetClassifier(**NETWORKS, missing="mean").fit(bags, labels).predict_proba(bags)
    np.testing.assert_allclose(first, SetClassifier(**NETWORKS).fit(filled, labels).predict_proba(filled), atol=1e-6)
    empty = [np.column_stack([bag[:, 0], np.full(len(bag), np.nan)]) for bag in bags]
    with pytest.raises(ValueError, match="column 1 has no values, only missing ones"):
        SetClassifier(**NETWORKS, missing="mean").fit(empty, labels)


def test_several_labels_per_set_are_learned_and_saved(tmp_path):
    bags, labels = shifted_bags(20)
    both = np.stack([labels, [len(bag) > 4 for bag in bags]], axis=1).astype(int)
    classifier = SetClassifier(**{**NETWORKS, "max_iter": 15}, learning_rate=0.03).fit(bags, both)
    assert classifier.predict(bags).shape == classifier.predict_proba(bags).shape == (20, 2)
    assert (classifier.predict(bags)[:, 0] == labels).mean() > 0.5
    assert [one.sum() for one in classifier.element_importance(bags[:2])] == pytest.approx([1, 1])
    classifier.save(tmp_path)
    assert np.array_equal(SetClassifier.load(tmp_path).predict_proba(bags), classifier.predict_proba(bags))
    both[:, 1] = 1
    with pytest.raises(ValueError, match="label 1 is the same for all sets; drop its column"):
        SetClassifier(**NETWORKS).fit(bags, both)


def test_networks_learn_further_from_parts_and_from_where_they_stopped():
    bags, labels = shifted_bags(40)
    classifier = SetClassifier(**NETWORKS, learning_rate=0.03)
    for _ in range(15):
        classifier.partial_fit(bags[:20], labels[:20], classes=[0, 1]).partial_fit(bags[20:], labels[20:])
    assert classifier.score(bags, labels) > 0.9
    assert classifier.n_iter_ == 30
    warm = SetClassifier(**NETWORKS, warm_start=True, early_stopping=False).fit(bags, labels)
    before = warm.loss_curve_[-1]
    assert warm.fit(bags, labels).loss_curve_[0] < before * 1.1
    regressor = SetRegressor(**NETWORKS).partial_fit(bags, labels).partial_fit(bags, labels)
    assert len(regressor.loss_curve_) == 2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda one: one.set_params(method="auto").partial_fit(*shifted_bags(), classes=[0, 1]),
            "needs method='network'",
        ),
        (lambda one: one.partial_fit(*shifted_bags()), "classes must list all labels in the first call; got None"),
        (
            lambda one: one.partial_fit(*shifted_bags(), classes=[1, 2]),
            r"labels must be among the classes of the first call, \[1, 2\]; got .*0",
        ),
    ],
)
def test_partial_fit_reports_missing_requirements(call, message):
    with pytest.raises(ValueError, match=message):
        call(SetClassifier(**NETWORKS))


@pytest.mark.parametrize("kind", [SetClassifier, SetRegressor])
def test_targets_are_required(kind):
    with pytest.raises(ValueError, match="requires y to be passed, but the target y is None"):
        kind().fit(shifted_bags()[0], None)


def long_frame(count: int = 24) -> pandas.DataFrame:
    bags, labels = shifted_bags(count)
    frame = pandas.DataFrame(np.concatenate(bags), columns=["a", "b", "c"])
    frame["bag"] = np.repeat([f"bag {index}" for index in range(count)], [len(bag) for bag in bags])
    frame["label"] = np.repeat(labels, [len(bag) for bag in bags])
    return frame


def test_a_long_data_frame_works_in_grid_search_with_a_label_for_each_row():
    frame = long_frame()
    search = GridSearchCV(
        SetClassifier(**NETWORKS, set_column="bag"),
        {"learning_rate": [0.003, 0.03]},
        cv=GroupKFold(2),
        scoring="roc_auc",
    )
    features = frame.drop(columns="label")
    search.fit(features, frame["label"], groups=frame["bag"])
    assert len(search.predict(features)) == len(frame)
    assert search.best_estimator_.feature_names_in_.tolist() == ["a", "b", "c"]
    by_set = frame.groupby("bag", sort=False)["label"].first()
    classifier = SetClassifier(**NETWORKS, set_column="bag").fit(features, by_set)
    assert len(classifier.predict(features)) == 24
    with pytest.raises(ValueError, match="the target of all rows of a set must be equal; set 0 has"):
        SetClassifier(**NETWORKS, set_column="bag").fit(features, frame["label"].mask(frame.index == 1, 5))


def test_files_and_groups_work_in_grid_search(tmp_path):
    bags, labels = shifted_bags(24)
    for index, bag in enumerate(bags):
        np.save(tmp_path / f"{index}.npy", bag)
    paths = [str(tmp_path / f"{index}.npy") for index in range(24)]
    groups = np.repeat(np.arange(6), 4)
    with sklearn.config_context(enable_metadata_routing=True):
        estimator = SetClassifier(**NETWORKS).set_fit_request(groups=True)
        search = GridSearchCV(estimator, {"dropout": [0.0, 0.2]}, cv=GroupKFold(2)).fit(paths, labels, groups=groups)
    in_memory = search.best_estimator_.predict_proba(bags)
    np.testing.assert_allclose(search.best_estimator_.predict_proba(paths), in_memory, atol=1e-5)


@pytest.mark.parametrize("form", ["data frame", "files"])
def test_the_default_works_in_grid_search_with_groups(form, tmp_path, monkeypatch):
    monkeypatch.setattr(set_estimators, "INNER_FOLDS", 2)
    bags, labels = shifted_bags(24)
    frame = long_frame().drop(columns="label")
    of_row = np.repeat(np.arange(24), [len(bag) for bag in bags])
    patients = np.repeat(np.arange(6), 4)
    for index, bag in enumerate(bags):
        np.save(tmp_path / f"{index}.npy", bag)
    options, sets, owners = {
        "data frame": ({"set_column": "bag"}, frame, of_row),
        "files": ({}, [tmp_path / f"{index}.npy" for index in range(24)], np.arange(24)),
    }[form]
    seen = list[int]()
    split = set_estimators.split_inner_folds

    def spy(num_folds, strata, groups, *arguments, **keywords):
        seen.append(len(np.unique(groups)))
        return split(num_folds, strata, groups, *arguments, **keywords)

    monkeypatch.setattr(set_estimators, "split_inner_folds", spy)
    with sklearn.config_context(enable_metadata_routing=True):
        estimator = SetClassifier(**TINY, **options).set_fit_request(groups=True)
        search = GridSearchCV(estimator, {"dropout": [0.0, 0.2]}, cv=GroupKFold(2), scoring="roc_auc")
        search.fit(sets, labels[owners], groups=patients[owners])
    assert seen == [3, 3, 3, 3, 6]  # patients of the training part of two folds, twice, and all of them
    assert search.best_score_ > 0.9
    assert len(search.predict(sets)) == len(owners)
    assert search.best_estimator_.ensemble_ is not None


class ClassifierOfRows(SetClassifier):
    """A classifier of rows, each of which becomes a set of one element: scikit-learn's checks pass arrays (n, D)."""

    def fit(self, X, y, sample_weight=None):
        return super().fit(to_sets(self, X, "fit"), y, sample_weight)

    def partial_fit(self, X, y, classes=None, sample_weight=None):
        first = not getattr(self, "networks_", [])
        return super().partial_fit(to_sets(self, X, "fit" if first else "predict"), y, classes, sample_weight)

    def predict_proba(self, X):
        return super().predict_proba(to_sets(self, X, "predict"))

    def decision_function(self, X):
        return super().decision_function(to_sets(self, X, "predict"))

    def predict(self, X):
        return super().predict(to_sets(self, X, "predict"))


def of_rows(kind):
    """Return a subclass for rows, each of which becomes a set of one element: scikit-learn's checks pass (n, D)."""

    class RowsAsSets(kind):
        def fit(self, X, y=None, **options):
            return super().fit(to_sets(self, X, "fit"), y, **options)

        def __sklearn_tags__(self):
            tags = super().__sklearn_tags__()
            tags.input_tags.two_d_array = True
            return tags

    def on_rows(name):
        return lambda self, X: getattr(super(RowsAsSets, self), name)(to_sets(self, X, "predict"))

    def partial_fit(self, X, y, *arguments, **options):
        method = "predict" if getattr(self, "networks_", []) else "fit"
        return super(RowsAsSets, self).partial_fit(to_sets(self, X, method), y, *arguments, **options)

    for name in ("predict", "transform"):
        if hasattr(kind, name):
            setattr(RowsAsSets, name, on_rows(name))
    if hasattr(kind, "partial_fit"):
        RowsAsSets.partial_fit = partial_fit
    RowsAsSets.__name__ = RowsAsSets.__qualname__ = f"{kind.__name__}OfRows"
    return globals().setdefault(RowsAsSets.__name__, RowsAsSets)  # pickle looks classes up by name


def to_sets(estimator, X, method):
    from sklearn.utils.validation import check_is_fitted, validate_data

    if method == "predict":
        check_is_fitted(estimator)
    X = validate_data(estimator, X, reset=method == "fit")
    return X[:, None, :]


STEPS = "networks are trained by steps on random parts of the sets"
FEW = {"dim": 4, "num_heads": 2, "max_iter": 1, "random_state": 0}
CHECKED = {
    "classifier, networks": ClassifierOfRows(
        **{**FEW, "max_iter": 8}, method="network", num_networks=2, learning_rate=0.1
    ),
    "classifier": ClassifierOfRows(**FEW),
    "regressor": of_rows(SetRegressor)(**FEW),
    "statistics": of_rows(SetStatistics)(),
    "mean embedding": of_rows(SetMeanEmbedding)(10, random_state=0),
    "vocabulary": of_rows(SetVocabulary)(5, random_state=0),
}
FOLDS = "inner folds and bootstrap samples are drawn from the sets, whatever their weights"
COLUMN = "a column of labels is refused: two dimensions mean several labels per set"
OUTPUTS = "a column of targets is one of several outputs, and gives no warning"
PARTS = "only networks learn from parts of the sets: partial_fit needs method='network'"
BY_PARTS = dict.fromkeys(
    ("check_fit_score_takes_y", "check_n_features_in_after_fitting", "check_estimators_partial_fit_n_features"), PARTS
)
EXPECTED_TO_FAIL = {
    "classifier, networks": {"check_sample_weight_equivalence_on_dense_data": STEPS, "check_supervised_y_2d": COLUMN},
    "classifier": {"check_sample_weight_equivalence_on_dense_data": FOLDS, "check_supervised_y_2d": COLUMN, **BY_PARTS},
    "regressor": {"check_supervised_y_2d": OUTPUTS, **BY_PARTS},
}


@pytest.mark.as_installed
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CHECKED)
def test_scikit_learn_checks_pass(name, monkeypatch):
    monkeypatch.setattr(set_estimators, "INNER_FOLDS", 2)
    results = check_estimator(CHECKED[name], expected_failed_checks=EXPECTED_TO_FAIL.get(name, {}), on_fail=None)
    failed = {
        result["check_name"]: str(result["exception"])[:200] for result in results if result["status"] == "failed"
    }
    assert failed == {}
    assert sum(result["status"] == "passed" for result in results) > 25


def test_the_saved_description_is_json(fitted, tmp_path):
    fitted.save(tmp_path)
    assert json.loads((tmp_path / "estimator.json").read_text())["parameters"]["method"] == "auto"
