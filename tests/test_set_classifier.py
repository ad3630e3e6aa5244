"""The classifier and the regressor of sets: what they learn, what they promise, what they refuse."""

import json
import os
from functools import cache, partial

import numpy as np
import pytest
import torch
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from torch.testing import assert_close

import picaset
from picaset.estimators.set_estimators import SetClassifier, SetRegressor
from picaset.estimators.set_training import draw_validation_indices
from picaset.networks.set_predictor import POOLS, SetPredictor
from picaset.operators import buckets
from picaset.operators.simple_pools import MaxPool
from picaset.sets import SetBatch

ENCODERS = ("elementwise", "induced", "self")
Classifier = partial(SetClassifier, method="network", num_networks=1, batch_size=16)
Regressor = partial(SetRegressor, method="network", num_networks=1, batch_size=16)


@pytest.fixture(autouse=True)
def one_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small sets are padded together, as they are for users; elsewhere in the tests every difference in size counts."""
    monkeypatch.setattr(buckets, "NEGLIGIBLE_PADDING", 2048)


def two_kinds(count: int, seed: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Bags that hold an element of kind A and one of kind B, or two of the same kind: no single element tells."""
    generator = np.random.default_rng(seed)
    kinds = 7.0 * np.eye(6)[:2]
    bags, labels = [], []
    for index in range(count):
        bag = generator.normal(size=(generator.integers(4, 12), 6))
        first = generator.integers(2)
        bag[0] += kinds[first]
        bag[1] += kinds[first ^ (index % 2)]
        bags.append(generator.permutation(bag))
        labels.append("both" if index % 2 else "same")
    return bags, np.array(labels)


@cache
def fitted() -> SetClassifier:
    return Classifier(random_state=0, n_iter_no_change=20).fit(*two_kinds(200, seed=0))


@cache
def small(pool: str, encoder: str = "elementwise") -> SetClassifier:
    return Classifier(pool, encoder=encoder, dim=8, max_iter=2, random_state=0).fit(*two_kinds(20, seed=0))


@pytest.mark.as_installed  # trains for seconds, and shape checks would double them
def test_it_beats_mean_pooling_and_logistic_regression_where_elements_have_to_be_seen_together():
    (bags, labels), (new, truth) = two_kinds(200, seed=0), two_kinds(200, seed=1)
    averages = LogisticRegression().fit([bag.mean(axis=0) for bag in bags], labels)
    assert averages.score([bag.mean(axis=0) for bag in new], truth) < 0.65
    assert fitted().score(new, truth) > 0.85


@pytest.mark.as_installed  # trains for seconds, and shape checks would double them
def test_a_hundred_bags_with_a_hundred_features_are_enough_to_find_the_element_that_counts():
    generator = np.random.default_rng(0)
    direction = generator.normal(size=100)
    direction *= 6 / np.linalg.norm(direction)

    def draw(count: int) -> tuple[list[np.ndarray], list[int], list[int]]:
        bags = [generator.normal(size=(generator.integers(5, 20), 100)) for _ in range(count)]
        places = [int(generator.integers(len(bag))) for bag in bags]
        for bag, place in list(zip(bags, places, strict=True))[::2]:
            bag[place] += direction
        return bags, [1 - index % 2 for index in range(count)], places

    bags, labels, _ = draw(100)
    classifier = Classifier(random_state=0).fit(bags, labels)
    new, truth, places = draw(100)
    assert classifier.score(new, truth) > 0.85
    found = [int(shares.argmax()) for shares in classifier.element_importance(new[::2])]
    assert np.mean(np.array(found) == places[::2]) > 0.85


@pytest.mark.parametrize(
    ("pool", "encoder"),
    [(pool, encoder) for pool in POOLS for encoder in ENCODERS if pool != "witness" or encoder == "elementwise"],
)
def test_the_order_of_the_elements_changes_no_prediction_and_reorders_importance(pool: str, encoder: str):
    classifier, (bags, _) = small(pool, encoder), two_kinds(5, seed=2)
    orders = [np.random.default_rng(3).permutation(len(bag)) for bag in bags]
    mixed = [bag[order] for bag, order in zip(bags, orders, strict=True)]
    assert np.allclose(classifier.predict_proba(mixed), classifier.predict_proba(bags), atol=1e-5)
    for one, other, order in zip(
        classifier.element_importance(bags), classifier.element_importance(mixed), orders, strict=True
    ):
        assert np.allclose(one[order], other, atol=1e-4)


@pytest.mark.parametrize("pool", POOLS)
def test_sets_of_any_size_are_classified_at_once_and_their_shares_sum_to_one(pool: str):
    sets = [np.random.default_rng(size).normal(size=(size, 6)) for size in (1, 40, 2, 300)]
    probabilities = small(pool).predict_proba(sets)
    assert probabilities.shape == (4, 2)
    assert np.allclose(probabilities.sum(axis=1), 1)
    shares = small(pool).element_importance(sets)
    assert [one.shape for one in shares] == [(1,), (40,), (2,), (300,)]
    assert all(np.isclose(one.sum(), 1, atol=1e-4) and (one >= 0).all() for one in shares)


@pytest.mark.parametrize("pool", POOLS)
def test_a_set_knows_nothing_of_the_others(pool: str):
    bags, _ = two_kinds(5, seed=2)
    together = small(pool).predict_proba(bags)
    assert np.allclose(np.concatenate([small(pool).predict_proba([bag]) for bag in bags]), together, atol=1e-5)


@pytest.mark.parametrize("pool", ["mean", "sum", "max"])
def test_importance_of_a_pool_that_weighs_nothing_is_what_leaving_out_changes(pool: str):
    torch.manual_seed(0)
    network = SetPredictor(3, 2, dim=8, pool=pool).eval()
    elements = torch.randn(1, 5, 3)
    whole = network(elements)[0, 0]
    changes = torch.stack(
        [
            (network(torch.cat([elements[:, :n], elements[:, n + 1 :]], dim=1))[0, 0] - whole).abs().sum()
            for n in range(5)
        ]
    )
    assert_close(network.importance(elements)[0], changes / changes.sum())
    padded, mask = torch.cat([elements, torch.full((1, 2, 3), torch.nan)], dim=1), torch.arange(7)[None] < 5
    assert_close(network.importance(padded, mask)[0, :5], changes / changes.sum())
    assert network.importance(padded, mask)[0, 5:].tolist() == [0, 0]


def test_elements_that_change_nothing_share_alike():
    network = SetPredictor(3, 2, dim=8, pool="max").eval()
    assert_close(network.importance(torch.ones(2, 4, 3)), torch.full((2, 4), 0.25))
    assert isinstance(network.pool, MaxPool)


@pytest.mark.parametrize("pool", POOLS)
def test_packed_and_padded_importance_agree(pool: str):
    torch.manual_seed(0)
    network = SetPredictor(3, 2, dim=8, pool=pool).eval()
    batch = SetBatch.from_list([torch.randn(size, 3) for size in (4, 1, 6)])
    elements, mask = batch.to_padded()
    assert_close(network.importance(elements, mask)[mask], network.importance(batch))


@pytest.mark.parametrize("kind", [Classifier, Regressor])
def test_the_same_seed_gives_the_same_network_and_leaves_the_random_numbers_of_others_alone(kind):
    bags, labels = two_kinds(20, seed=0)
    before = torch.get_rng_state()
    first, again, other = (
        kind(dim=8, max_iter=3, dropout=0.3, random_state=seed).fit(bags, (labels == "both").astype(int))
        for seed in (4, 4, 5)
    )
    assert (first.loss_curve_, first.validation_curve_) == (again.loss_curve_, again.validation_curve_)
    assert torch.equal(torch.get_rng_state(), before)
    assert other.loss_curve_ != first.loss_curve_


@pytest.mark.parametrize(
    "labels", [["no", "yes"], [3, 7], [False, True], [-1.0, 1.0], np.array(["a", "bb"], dtype=object)]
)
def test_labels_come_back_as_they_were_given_also_from_disk(labels, tmp_path):
    bags, _ = two_kinds(20, seed=0)
    y = np.array([labels[index % 2] for index in range(20)], dtype=np.asarray(labels).dtype)
    classifier = Classifier(dim=8, max_iter=2, random_state=0).fit(bags, y)
    classifier.save(tmp_path)
    for one in (classifier, SetClassifier.load(tmp_path)):
        assert one.classes_.tolist() == list(labels)
        assert one.classes_.dtype == y.dtype
        assert set(one.predict(bags).tolist()) <= set(labels)


def test_a_classifier_read_back_is_the_same_and_has_no_pickle(tmp_path):
    bags, labels = two_kinds(20, seed=0)
    classifier = Classifier("gated", dim=8, max_iter=2, class_weight={"both": 2.0, "same": 1.0}, random_state=1)
    classifier.fit(bags, labels).save(tmp_path / "saved")
    again = SetClassifier.load(tmp_path / "saved")
    assert again.get_params() == classifier.get_params()
    assert np.array_equal(again.predict_proba(bags), classifier.predict_proba(bags))
    assert (again.loss_curve_, again.best_epoch_) == (classifier.loss_curve_, classifier.best_epoch_)
    assert sorted(os.listdir(tmp_path / "saved")) == ["config.json", "estimator.json", "model.safetensors"]


def test_a_weight_for_a_class_that_is_a_number_comes_back_as_one(tmp_path):
    bags, _ = two_kinds(20, seed=0)
    Classifier(dim=8, max_iter=1, class_weight={0: 2.0, 1: 1.0}).fit(bags, [0, 1] * 10).save(tmp_path)
    assert SetClassifier.load(tmp_path).class_weight == {0: 2.0, 1: 1.0}


@pytest.mark.as_installed  # trains for seconds, and shape checks would double them
def test_early_stopping_takes_the_network_that_was_best_on_its_validation_sets():
    classifier = fitted()
    curve = classifier.validation_curve_
    assert len(curve) == len(classifier.loss_curve_) < 300
    assert curve[classifier.best_epoch_] <= min(curve) * 1.001
    assert len(curve) == classifier.best_epoch_ + classifier.n_iter_no_change + 1
    without = Classifier(dim=8, max_iter=3, early_stopping=False, random_state=0).fit(*two_kinds(4, seed=0))
    assert (without.validation_curve_, len(without.loss_curve_), without.best_epoch_) == ([], 3, 2)


def test_validation_takes_an_equal_share_of_every_class_and_never_a_whole_one():
    groups = np.array([0] * 50 + [1] * 10 + [2])
    kept = draw_validation_indices(groups, 0.2, generator=np.random.default_rng(0))
    assert np.bincount(groups[kept], minlength=3).tolist() == [10, 2, 0]


def test_features_are_standardised_by_the_sets_that_are_trained_on_alone():
    bags, labels = two_kinds(40, seed=0)
    whole = Classifier(dim=8, max_iter=1, early_stopping=False, random_state=0).fit(bags, labels)
    assert np.allclose(whole.mean_, np.concatenate(bags).mean(axis=0))
    part = Classifier(dim=8, max_iter=1, random_state=0).fit(bags, labels)
    assert not np.allclose(part.mean_, whole.mean_)
    moved = [1000 * bag + 5 for bag in bags]
    again = Classifier(dim=8, max_iter=1, random_state=0).fit(moved, labels)
    assert np.allclose(again.predict_proba(moved), part.predict_proba(bags), atol=1e-4)


@pytest.mark.as_installed  # trains for seconds, and shape checks would double them
def test_a_rare_class_counts_as_much_as_a_common_one_if_it_shall():
    generator = np.random.default_rng(0)
    labels = (np.arange(200) % 10 == 0).astype(int)
    bags = [generator.normal(size=(5, 2)) + 0.5 * label for label in labels]
    called = [
        Classifier("mean", dim=8, max_iter=30, class_weight=weight, random_state=0).fit(bags, labels).predict(bags)
        for weight in (None, "balanced", {0: 1.0, 1: 50.0})
    ]
    assert called[0].sum() < called[1].sum() < called[2].sum()


@pytest.mark.as_installed  # trains for seconds, and shape checks would double them
def test_numbers_are_predicted_in_their_own_units_one_or_several():
    generator = np.random.default_rng(0)
    bags = [generator.normal(size=(generator.integers(3, 12), 3)) for _ in range(150)]
    largest = np.array([1000 + 50 * bag[:, 0].max() for bag in bags])
    average = np.array([bag[:, 1].mean() for bag in bags])
    one = Regressor("max", random_state=0, max_iter=40).fit(bags[:100], largest[:100])
    assert one.predict(bags[100:]).shape == (50,)
    assert one.score(bags[100:], largest[100:]) > 0.8
    both = np.stack([largest, average], axis=1)
    several = Regressor(random_state=0, max_iter=40).fit(bags[:100], both[:100])
    assert several.predict(bags[100:]).shape == (50, 2)
    assert several.score(bags[100:], both[100:]) > 0.5


@pytest.mark.as_installed  # trains for seconds, and shape checks would double them
def test_a_sum_grows_with_the_set_and_a_mean_does_not():
    bags = [np.ones((size, 1)) for size in range(1, 31)] * 2
    totals = [float(len(bag)) for bag in bags]
    summed, averaged = (
        Regressor(pool, random_state=0, dropout=0.0).fit(bags, totals).score(bags, totals) for pool in ("sum", "mean")
    )
    assert summed > 0.8
    assert averaged < 0.1


@pytest.mark.parametrize("targets", [np.arange(20.0), np.arange(40.0).reshape(20, 2), np.arange(20.0)[:, None]])
def test_a_regressor_read_back_is_the_same(targets, tmp_path):
    bags, _ = two_kinds(20, seed=0)
    regressor = Regressor(dim=8, max_iter=2, random_state=0).fit(bags, targets)
    regressor.save(tmp_path)
    again = SetRegressor.load(tmp_path)
    assert np.array_equal(again.predict(bags), regressor.predict(bags))
    assert again.predict(bags).shape == targets.shape


def test_they_are_scikit_learn_estimators():
    bags, labels = two_kinds(20, seed=0)
    classifier = Classifier("max", dim=8, max_iter=2, class_weight="balanced", random_state=3)
    assert clone(classifier).get_params() == classifier.get_params()
    assert (is_classifier(classifier), is_regressor(Regressor())) == (True, True)
    assert cross_val_score(classifier, bags, labels, cv=2).shape == (2,)
    assert (picaset.SetClassifier, picaset.SetRegressor) == (SetClassifier, SetRegressor)
    for method in ("predict", "predict_proba", "element_importance"):
        with pytest.raises(NotFittedError):
            getattr(classifier, method)(bags)


SOME = [np.zeros((4, 2)), np.ones((3, 2)), np.ones((2, 2))]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"pool": "median"},
            "pool must be one of 'picaso', 'attention', 'gated', 'mean', 'sum', 'max', 'witness'; got 'median'",
        ),
        ({"encoder": "none"}, "encoder must be one of 'induced', 'self', 'elementwise'; got 'none'"),
        ({"max_iter": 0}, "max_iter must be at least 1; got 0"),
        ({"device": "abacus"}, "device must be one that PyTorch has on this machine, such as 'cpu'; got 'abacus'"),
        ({"learning_rate": 0.0}, r"learning_rate must be above 0; got 0\.0"),
        ({"weight_decay": -1.0}, r"weight_decay must not be negative; got -1\.0"),
        ({"validation_fraction": 1.0}, r"validation_fraction must be between 0 and 1; got 1\.0"),
        ({"dropout": 1.0}, r"dropout must be at least 0 and below 1; got 1\.0"),
        ({"num_heads": 3}, "num_heads must divide dim; got num_heads=3 and dim=64"),
        ({"class_weight": "heavy"}, "class_weight"),
        (
            {"class_weight": {0: -2.0, 1: 1.0}},
            "class_weight must contain non-negative finite numbers, at least one above zero",
        ),
        ({"class_weight": {0: 0.0, 1: 0.0}}, "class_weight must contain .* at least one above zero"),
        ({"encoder": "wings"}, "SetClassifier: encoder must be"),
        (
            {"early_stopping": True},
            "3 sets are too few to use 20% of them for early stopping; pass early_stopping=False",
        ),
    ],
)
@pytest.mark.as_installed
def test_parameters_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Classifier(**{"early_stopping": False, "max_iter": 1, **options}).fit(SOME, [0, 1, 1])


@pytest.mark.parametrize(
    ("sets", "labels", "message"),
    [
        ([], [], "expected at least one set; got none"),
        (SOME, [0, 1], "expected a target for each of 3 sets; got 2"),
        (SOME, [[0], [1], [1]], r"expected one label for each set; got labels of shape \(3, 1\)"),
        (SOME, ["a", "a", "a"], "expected at least 2 classes, got one class: all sets are 'a'"),
        (SOME, [0.5, 0.7, 1.1], "continuous"),
        ([*SOME[:2], np.full((3, 2), np.nan)], [0, 1, 1], "numbers must be finite; set 2 has nan in row 0, column 0"),
        ([*SOME[:2], np.zeros((0, 2))], [0, 1, 1], "set 2 has no points"),
        ([np.zeros((2, 0))] * 3, [0, 1, 1], "set 0 has no columns"),
        (
            [*SOME[:2], np.full((3, 2), -1e300)],
            [0, 1, 1],
            r"must be between .* and 1e\+100; set 2 has -1e\+300 in row 0",
        ),
        ([*SOME[:2], np.full((3, 2), 1j)], [0, 1, 1], "set 2 is not an array of numbers: its numbers are complex"),
        ({"a": SOME}, [0], "expected a list of arrays, one for each set; got a dict"),
        (None, [0], "expected a list of arrays, one for each set; got a NoneType"),
        (np.array(3.0), [0], "expected a list of arrays, one for each set; got a ndarray"),
        (iter(SOME), [0, 1, 1], "expected a list of arrays, one for each set; got a list_iterator"),
        (SOME, [0.0, np.nan, 1.0], "labels must be finite; the label of set 1 is nan"),
    ],
)
@pytest.mark.as_installed
def test_sets_and_labels_that_do_not_fit_are_refused(sets, labels, message):
    with pytest.raises(ValueError, match=message):
        Classifier().fit(sets, labels)


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (["a", "b", "c"], "targets must be numbers"),
        ([1.0, np.nan, 2.0], "targets must be finite; the target of set 1 is nan"),
        (np.zeros((3, 1, 1)), r"expected targets of shape \(sets,\) or \(sets, outputs\); got \(3, 1, 1\)"),
        ([1.0, 2.0], "expected a target for each of 3 sets; got 2"),
    ],
)
def test_targets_that_are_no_numbers_are_refused(targets, message):
    with pytest.raises(ValueError, match=message):
        Regressor().fit(SOME, targets)


def test_no_sets_are_refused_by_the_regressor_too():
    with pytest.raises(ValueError, match=r"SetRegressor.fit: expected at least one set; got none"):
        Regressor().fit([], [])


def test_a_file_is_not_written_over(tmp_path):
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(ValueError, match="notes is a file; a folder is needed to write to"):
        small("mean").save(tmp_path / "notes")
    assert (tmp_path / "notes").read_text() == "mine"


def test_numbers_that_fit_never_saw_the_like_of_are_refused():
    with pytest.raises(
        ValueError, match=r"column 2 has mean \S+ and standard deviation \S+; set 1 has 1e\+60 in row 1"
    ):
        small("mean").predict([np.zeros((2, 6)), np.where(np.arange(12).reshape(2, 6) == 8, 1e60, 0.0)])


def test_sets_of_another_width_are_refused():
    with pytest.raises(ValueError, match="sets must have 6 columns, as in fit; got 2"):
        small("mean").predict(SOME)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: path.unlink(), "does not exist; SetClassifier.load reads a folder that SetClassifier.save wrote"),
        (lambda path: path.write_text("{"), "is not JSON"),
        (lambda path: path.write_text("[]"), "must hold a JSON object; got list"),
        (
            lambda path: describe(path, estimator="SetRegressor"),
            "describes a SetRegressor; load it with SetRegressor.load",
        ),
        (lambda path: describe(path, parameters={"wings": 2}), "does not fit a SetClassifier"),
        (lambda path: describe(path, learned=None), 'must contain the objects "parameters" and "learned"'),
        (lambda path: forget_a_class(path), "holds the network of another estimator than estimator.json describes"),
    ],
)
def test_a_folder_of_something_else_is_refused(tmp_path, change, message):
    small("mean").save(tmp_path)
    change(tmp_path / "estimator.json")
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        SetClassifier.load(tmp_path)


def describe(path, **changes) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def forget_a_class(path) -> None:
    learned = json.loads(path.read_text())["learned"]
    describe(path, learned=learned | {"classes": learned["classes"][:1]})
