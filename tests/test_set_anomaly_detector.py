"""The detector of elements that do not belong to their set, and the command that uses it."""

import csv
import json
import os
from functools import cache, partial

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.covariance import MinCovDet
from sklearn.ensemble import IsolationForest
from sklearn.exceptions import NotFittedError
from sklearn.metrics import average_precision_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import picaset
from picaset.cli import main
from picaset.estimators import element_detectors, set_anomaly_detector
from picaset.estimators.detector_selection import Trial, Weight
from picaset.estimators.set_anomaly_detector import SetAnomalyDetector
from picaset.estimators.synthetic_anomalies import labelled_examples, swapped_examples
from picaset.tables.examples import draw_sets_along_lines, example_shelves

PASS_A_TABLE = [
    "fit_score_takes_y",
    "estimators_overwrite_params",
    "dont_overwrite_parameters",
    "estimators_fit_returns_self",
    "readonly_memmap_input",
    "n_features_in_after_fitting",
    "positive_only_tag_during_fit",
    "estimators_dtypes",
    "complex_data",
    "dtype_object",
    "estimators_empty_data_messages",
    "pipeline_consistency",
    "estimators_nan_inf",
    "estimator_sparse_array",
    "estimator_sparse_matrix",
    "estimators_pickle",
    "f_contiguous_array_estimator",
    "methods_sample_order_invariance",
    "methods_subset_invariance",
    "fit2d_1sample",
    "fit2d_1feature",
    "dict_unchanged",
    "fit_idempotent",
    "fit_check_is_fitted",
    "n_features_in",
    "fit2d_predict1d",
]
"""Checks of scikit-learn that fit one table, where this estimator takes a list of sets."""


@cache
def training_sets() -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    return [one for size in (6, 10, 14) for one in draw_sets_along_lines(100, size, generator=generator)[0]]


@cache
def fitted() -> SetAnomalyDetector:
    """Learned from contaminated sets: one element of each does not belong, and nothing says which."""
    return SetAnomalyDetector(method="network", max_iter=400, random_state=0).fit(training_sets())


@cache
def chosen() -> SetAnomalyDetector:
    """The default: a detector chosen by planted anomalies."""
    return SetAnomalyDetector(random_state=0).fit(training_sets())


def groups(*, swapped: int, clusters: bool = False) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Groups of 40 to 80 rows, each with its own centre and shape; some rows are from other groups."""
    generator = np.random.default_rng(7)
    sets = list[np.ndarray]()
    for _ in range(16):
        rows = generator.normal(size=(int(generator.integers(40, 81)), 3))
        if clusters:
            rows = 3 * generator.normal(size=(3, 3))[generator.integers(3, size=len(rows))] + rows / 5
        sets.append(2 * generator.normal(size=3) + rows @ generator.normal(size=(3, 3)))
    mixed, odd = [rows.copy() for rows in sets], [np.zeros(len(rows), dtype=bool) for rows in sets]
    for index, rows in enumerate(mixed):
        for row in generator.choice(len(rows), swapped, replace=False):
            other = sets[(index + int(generator.integers(1, 16))) % 16]
            rows[row], odd[index][row] = other[generator.integers(len(other))], True
    return mixed, odd


def found(scores: list[np.ndarray], odd: np.ndarray) -> float:
    """Return the share of sets in which the element that does not belong has the highest score."""
    return float(np.mean([one.argmax() == place for one, place in zip(scores, odd, strict=True)]))


@pytest.mark.as_installed  # trains for seconds, and shape checks would double them
@pytest.mark.parametrize("size", [5, 8, 20])
def test_planted_elements_are_found_in_sets_of_other_sizes_than_in_training(size: int):
    # Each element is ordinary by itself and no further from the middle than others: only its set gives it away.
    sets, odd = draw_sets_along_lines(100, size, generator=np.random.default_rng(size))
    ours = found(fitted().score_elements(sets), odd)
    rows = np.concatenate(sets)
    forest = -IsolationForest(random_state=0, n_estimators=50).fit(np.concatenate(training_sets())).score_samples(rows)
    by_row = found(np.split(forest, len(sets)), odd)
    by_distance = found([np.linalg.norm(one - one.mean(axis=0), axis=1) for one in sets], odd)
    assert ours > 0.55
    assert ours > 2 * max(by_row, by_distance)


@pytest.mark.parametrize("detector", [fitted, chosen])
def test_scores_follow_the_order_of_the_elements_and_know_nothing_of_other_sets(detector):
    sets, _ = draw_sets_along_lines(3, 9, generator=np.random.default_rng(1))
    order = np.random.default_rng(2).permutation(9)
    expected = detector().score_elements(sets)
    assert np.allclose(detector().score_elements([sets[0][order]])[0], expected[0][order], atol=1e-4)
    assert np.allclose(detector().score_elements(sets[::-1])[0], expected[2], atol=1e-4)


def test_sets_of_any_size_are_scored_at_once():
    sets = [np.zeros((size, 3)) for size in (1, 40, 2, 300)]
    assert [one.shape for one in fitted().score_elements(sets)] == [(1,), (40,), (2,), (300,)]
    assert fitted().find_odd(sets).shape == (4,)


def test_elements_with_a_score_above_the_threshold_are_odd():
    sets, _ = draw_sets_along_lines(5, 9, generator=np.random.default_rng(1))
    for scores, odd in zip(fitted().score_elements(sets), fitted().predict(sets), strict=True):
        assert np.array_equal(odd, scores > 0)


def test_a_given_contamination_is_the_share_called_odd():
    sets, _ = draw_sets_along_lines(30, 10, generator=np.random.default_rng(1))
    detector = SetAnomalyDetector(contamination=0.1, random_state=0)
    assert np.concatenate(detector.fit_predict(sets)).mean() == pytest.approx(0.1, abs=0.01)


def test_the_same_seed_gives_the_same_detector_and_leaves_the_random_numbers_of_others_alone():
    sets = training_sets()[:20]
    before = torch.get_rng_state()
    first, again = (SetAnomalyDetector(method="network", dim=8, max_iter=3, random_state=4).fit(sets) for _ in range(2))
    assert first.loss_curve_ == again.loss_curve_
    assert torch.equal(torch.get_rng_state(), before)
    assert (
        SetAnomalyDetector(method="network", dim=8, max_iter=3, random_state=5).fit(sets).loss_curve_
        != first.loss_curve_
    )


def test_a_verbose_fit_tells_how_far_it_is_and_is_silent_otherwise(capsys):
    sets = list(np.random.default_rng(0).normal(size=(4, 5, 2)))
    SetAnomalyDetector(method="network", dim=8, num_heads=1, max_iter=20, random_state=0).fit(sets)
    assert capsys.readouterr() == ("", "")
    SetAnomalyDetector(method="network", dim=8, num_heads=1, max_iter=20, random_state=0, verbose=True).fit(sets)
    told = capsys.readouterr()
    assert told.out == ""
    assert [line.split(",")[0] for line in told.err.splitlines()] == [
        f"step {step} of 20" for step in (1, *range(2, 21, 2))
    ]


@pytest.mark.as_installed  # trains for seconds, and shape checks would double them
def test_labels_are_learned_where_there_are_any():
    # Odd is what lies high, which no swapping of elements would ever tell.
    generator = np.random.default_rng(0)
    sets = [generator.normal(size=(8, 2)) for _ in range(60)]
    labels = [one[:, 0] > 1.2 for one in sets]
    detector = SetAnomalyDetector(dim=16, max_iter=120, learning_rate=3e-3, random_state=0).fit(sets, labels)
    new = [generator.normal(size=(11, 2)) for _ in range(40)]
    right = [(odd == (one[:, 0] > 1.2)).mean() for odd, one in zip(detector.predict(new), new, strict=True)]
    assert np.mean(right) > 0.93


@pytest.mark.as_installed
@pytest.mark.parametrize("size", [4, 8, 30])
def test_the_default_finds_planted_elements_in_small_sets_without_training_a_network(size: int):
    sets, odd = draw_sets_along_lines(60, size, generator=np.random.default_rng(size))
    assert chosen().network_ is None
    assert list(chosen().members_) == ["mahalanobis"]
    assert found(chosen().score_elements(sets), odd) > 0.9
    flagged = np.concatenate(chosen().predict(sets))
    truth = np.concatenate([np.arange(size) == index for index in odd])
    assert flagged[truth].mean() > 0.8
    assert truth[flagged].mean() > 0.8


@pytest.mark.as_installed
def test_large_groups_are_searched_at_least_as_well_as_by_a_robust_covariance_of_each():
    sets, odd = groups(swapped=2)
    detector, truth = SetAnomalyDetector(random_state=0).fit(sets), np.concatenate(odd)
    one_liner = np.concatenate([MinCovDet(random_state=0).fit(rows).mahalanobis(rows) for rows in sets])
    ours = average_precision_score(truth, np.concatenate(detector.decision_scores_))
    assert ours > average_precision_score(truth, one_liner) - 0.01
    flagged = np.concatenate(detector.labels_) > 0
    assert truth[flagged].mean() > 0.8
    assert flagged[truth].mean() > 0.6
    clean = SetAnomalyDetector(random_state=0).fit(groups(swapped=0)[0])
    assert np.concatenate(clean.labels_).mean() < 0.01


@pytest.mark.as_installed
def test_groups_of_clusters_are_searched_by_density():
    sets, odd = groups(swapped=2, clusters=True)
    detector = SetAnomalyDetector(random_state=0).fit(sets)
    assert "density" in detector.members_
    assert average_precision_score(np.concatenate(odd), np.concatenate(detector.decision_scores_)) > 0.8


@pytest.mark.as_installed
def test_the_network_is_trained_where_statistics_do_not_suffice_and_used_only_if_it_is_better(monkeypatch, tmp_path):
    # The hundred trees for each set would take most of the time.
    monkeypatch.setattr(element_detectors, "IsolationForest", partial(IsolationForest, n_estimators=10))
    generator = np.random.default_rng(0)
    sets = list(generator.normal(size=(40, 6, 2)))  # nothing tells these sets apart
    detector = SetAnomalyDetector(dim=8, max_iter=2, random_state=0).fit(sets)
    assert "network" in detector.report_
    assert np.concatenate(detector.labels_).sum() <= 5

    def prefer_the_network(_, trials):
        return {"network" if "network" in trials else "mahalanobis": Weight(0.0, 1.0)}, 1.0

    monkeypatch.setattr(set_anomaly_detector, "combine_detectors", prefer_the_network)
    monkeypatch.setattr(Trial, "average_precision", 0.5)
    used = SetAnomalyDetector(dim=8, max_iter=2, random_state=0).fit(sets)
    assert list(used.members_) == ["network"]
    used.save(tmp_path)
    assert np.array_equal(SetAnomalyDetector.load(tmp_path).score_elements(sets), used.score_elements(sets))


def test_the_network_of_the_default_does_not_learn_from_what_the_statistics_suspect(monkeypatch):
    generator = np.random.default_rng(0)
    sets = list(generator.normal(size=(40, 6, 2)))
    for elements in sets[::5]:
        elements[4] += 30
    learned = list[np.ndarray]()

    def keep_sets(detector, standardized, _labels, *, seed):
        learned.extend(elements * detector.scale_ + detector.mean_ for elements in standardized)
        train(detector, standardized, _labels, seed=seed)

    train = SetAnomalyDetector._train_network
    monkeypatch.setattr(set_anomaly_detector, "SUFFICIENT", 1.1)
    monkeypatch.setattr(SetAnomalyDetector, "_train_network", keep_sets)
    SetAnomalyDetector(dim=8, max_iter=1, random_state=0).fit(sets)
    assert [elements.shape for elements in learned] == [(5, 2)] * 30
    assert np.concatenate(learned).max() < 10


@pytest.mark.parametrize("method", ["mahalanobis", "density", "lof", "forest"])
def test_a_statistic_can_be_chosen_saved_and_read_back(method, tmp_path):
    sets = training_sets()[:3]
    detector = SetAnomalyDetector(method=method, random_state=0).fit(sets)
    assert list(detector.members_) == [method]
    detector.save(tmp_path / "detector")
    assert os.listdir(tmp_path / "detector") == ["estimator.json"]
    again = SetAnomalyDetector.load(tmp_path / "detector")
    for one, other in zip(again.decision_function(sets), detector.decision_scores_, strict=True):
        assert np.allclose(one, other)
    assert all(np.array_equal(*pair) for pair in zip(again.predict(sets), detector.predict(sets), strict=True))
    assert again.report_ == detector.report_


def test_labels_and_scores_of_the_sets_in_fit_are_attributes():
    detector, sets = chosen(), training_sets()
    for scores, labels, again, odd in zip(
        detector.decision_scores_,
        detector.labels_,
        detector.decision_function(sets),
        detector.predict(sets),
        strict=True,
    ):
        assert np.allclose(scores, again)
        assert np.array_equal(labels, odd.astype(int))
        assert np.array_equal(labels, scores > detector.threshold_)


def test_a_statistic_refuses_labels():
    with pytest.raises(ValueError, match="method 'lof' does not learn from labels; use 'auto' or 'network'"):
        SetAnomalyDetector(method="lof").fit(SOME, [[0, 0, 0, 1], [0, 1, 0]])


@pytest.mark.as_installed
@parametrize_with_checks(
    [SetAnomalyDetector(method="mahalanobis")],
    expected_failed_checks=lambda _: {f"check_{name}": "fits one table, not a list of sets" for name in PASS_A_TABLE},
)
def test_checks_of_scikit_learn_that_do_not_pass_a_table(estimator, check):
    check(estimator)


def test_an_element_of_another_set_is_swapped_in_and_marked():
    sets = [np.full((size, 1), float(index)) for index, size in enumerate((5, 9, 4))]
    examples = swapped_examples(sets, 200, anomaly_rate=0.8, generator=np.random.default_rng(0))
    for elements, mask, odd in zip(*examples, strict=True):
        present, marked = elements[mask, 0], odd[mask]
        assert marked.sum() <= 1
        assert len(np.unique(present[~marked])) == 1
        assert not marked.any() or present[marked] != present[~marked][0]
        assert not odd[~mask].any()
    assert 0.7 < examples.anomalous.any(axis=1).mean() < 0.9


def test_parts_of_labelled_sets_keep_their_labels():
    sets = [np.arange(9.0)[:, None], np.arange(5.0)[:, None]]
    examples = labelled_examples(sets, [one[:, 0] == 3 for one in sets], 50, generator=np.random.default_rng(0))
    assert np.array_equal(examples.anomalous, (examples.elements[..., 0] == 3) & examples.mask)


def test_a_detector_read_back_gives_the_same_scores(tmp_path):
    fitted().save(tmp_path / "detector")
    again = SetAnomalyDetector.load(tmp_path / "detector")
    sets, _ = draw_sets_along_lines(4, 9, generator=np.random.default_rng(1))
    for one, other in zip(again.score_elements(sets), fitted().score_elements(sets), strict=True):
        assert np.array_equal(one, other)
    assert again.get_params() == fitted().get_params()
    assert sorted(os.listdir(tmp_path / "detector")) == ["config.json", "estimator.json", "model.safetensors"]


def test_it_is_a_scikit_learn_estimator():
    detector = SetAnomalyDetector(dim=8, random_state=3)
    assert clone(detector).get_params() == detector.get_params()
    assert picaset.SetAnomalyDetector is SetAnomalyDetector
    with pytest.raises(NotFittedError):
        detector.score_elements([np.zeros((3, 2))])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "mean"}, "method must be one of 'auto', 'network', 'mahalanobis', .*; got 'mean'"),
        ({"device": "abacus"}, "device must be one that PyTorch has on this machine, such as 'cpu'; got 'abacus'"),
        ({"pool": "mean"}, "pool must be one of 'generalized', 'picaso', 'attention'; got 'mean'"),
        ({"max_iter": 0}, "max_iter must be at least 1; got 0"),
        ({"learning_rate": 0.0}, "learning_rate must be above 0; got 0.0"),
        ({"contamination": 1.5}, "contamination must be 'auto' or between 0 and 1; got 1.5"),
        ({"contamination": "much"}, "contamination must be 'auto' or between 0 and 1; got 'much'"),
        ({"num_heads": 3}, "num_heads must divide dim; got num_heads=3 and dim=64"),
    ],
)
@pytest.mark.as_installed
def test_parameters_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        SetAnomalyDetector(**{"method": "network"} | options).fit(training_sets()[:5])


SOME = [np.zeros((4, 2)), np.ones((3, 2))]


@pytest.mark.parametrize(
    ("sets", "labels", "message"),
    [
        ([], None, "expected at least one set; got none"),
        (SOME[:1], None, "expected at least 2 sets of 3 elements or more; got 1"),
        ([one[:2] for one in SOME], None, "expected at least 2 sets of 3 elements or more; got 0"),
        ([SOME[0], np.full((3, 2), np.nan)], None, "numbers must be finite; set 1 has nan in row 0, column 0"),
        (SOME, [[0, 0, 0, 1]], "expected labels for 2 sets; got 1"),
        (SOME, [[0, 0, 0, 1], [0, 1]], "the labels of set 1 must be 3 booleans, one for each element; got"),
        (SOME, [[0, 0, 0, 1], [0, 1, 2]], "the labels of set 1 must be 3 booleans"),
        (SOME, [[0, 0, 0, 0], [0, 0, 0]], "no element is labelled as an anomaly; fit without labels instead"),
    ],
)
def test_sets_and_labels_that_do_not_fit_are_refused(sets, labels, message):
    with pytest.raises(ValueError, match=message):
        SetAnomalyDetector().fit(sets, labels)


def test_sets_of_another_width_are_refused():
    with pytest.raises(ValueError, match="sets must have 3 columns, as in fit; got 2"):
        fitted().score_elements(SOME)


def test_numbers_that_exceed_single_precision_are_refused():
    with pytest.raises(ValueError, match=r"SetAnomalyDetector: numbers must be .* set 1 has 1e\+60 in row 2. Check"):
        fitted().score_elements([np.zeros((4, 3)), np.where(np.arange(9).reshape(3, 3) == 7, 1e60, 0.0)])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda path: path.unlink(),
            "does not exist; SetAnomalyDetector.load reads a folder that SetAnomalyDetector.save wrote",
        ),
        (lambda path: path.write_text("{"), "is not JSON"),
        (lambda path: path.write_text("[]"), "must hold a JSON object; got list"),
        (lambda path: describe(path, parameters={"wings": 2}), "does not fit a SetAnomalyDetector"),
        (lambda path: describe(path, learned={}), "learned lacks 'mean'; was it written by another program"),
        (lambda path: describe(path, learned=ONE_FEATURE), "holds the network of another estimator"),
        (lambda path: describe(path, estimator="SetClassifier"), "describes a SetClassifier; load it with"),
    ],
)
def test_a_folder_of_something_else_is_refused(tmp_path, change, message):
    fitted().save(tmp_path)
    change(tmp_path / "estimator.json")
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        SetAnomalyDetector.load(tmp_path)


ONE_FEATURE = {"mean": [0.0], "scale": [1.0], "threshold": 0.5, "loss_curve": []}


def describe(path, **changes) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


# picaset odd


def write_shelves(path) -> None:
    table = example_shelves(30)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(table.columns)
        writer.writerows(zip(*(column.tolist() for column in table.columns.values()), strict=True))


def test_the_command_scores_every_row_and_names_the_most_suspicious_of_every_set(tmp_path, capsys):
    write_shelves(tmp_path / "books.csv")
    arguments = ["odd", str(tmp_path / "books.csv"), "--set", "shelf", "--steps", "2", "--json"]
    assert main([*arguments, "--scores", str(tmp_path / "scores.csv")]) == 0
    entries = json.loads(capsys.readouterr().out)["sets"]
    assert len(entries) == 30
    assert [entry["score"] for entry in entries] == sorted((entry["score"] for entry in entries), reverse=True)
    with (tmp_path / "scores.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[0].keys() == {"shelf", "age", "length", "depth", "belongs", "score", "odd"}
    with (tmp_path / "books.csv").open(newline="") as file:
        assert [row["age"] for row in csv.DictReader(file)] == [row["age"] for row in rows]
    for entry in entries:
        line = int(entry["place"].removeprefix("line "))
        assert rows[line - 2]["shelf"] == entry["set"]
        assert float(rows[line - 2]["score"]) == pytest.approx(entry["score"], abs=1e-3)


def test_a_saved_detector_reads_its_columns_by_name(tmp_path, capsys):
    write_shelves(tmp_path / "books.csv")
    with (tmp_path / "books.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))

    def scores_of(names, *options) -> list[dict[str, str]]:
        with (tmp_path / "others.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, names, extrasaction="ignore")
            writer.writeheader()
            writer.writerows(rows)
        arguments = ["odd", str(tmp_path / "others.csv"), "--set", "shelf", "--scores", str(tmp_path / "scores.csv")]
        if main([*arguments, "--json", *options]):
            return []
        with (tmp_path / "scores.csv").open(newline="") as file:
            return [row["score"] for row in csv.DictReader(file)]

    saved = str(tmp_path / "detector")
    fitted = scores_of(["shelf", "age", "length", "depth"], "--method", "mahalanobis", "--save", saved)
    assert scores_of(["depth", "age", "belongs", "length", "shelf"], "--detector", saved) == fitted
    assert scores_of(["shelf", "age", "depth"], "--detector", saved) == []
    message = "the detector was fitted to the columns age, length, depth; the table has no length."
    assert message in capsys.readouterr().err
    assert scores_of(["shelf", "age", "length", "depth"], "--detector", saved, "--columns", "age", "depth") == []
    assert "the detector was fitted to the columns age, length, depth; got age, depth." in capsys.readouterr().err
    description = tmp_path / "detector/estimator.json"
    damaged = description.read_text().replace('["age", "length", "depth"]', '["age"]')
    assert damaged != description.read_text()
    description.write_text(damaged)
    with pytest.raises(ValueError, match="names must be 3 names; got 1"):
        SetAnomalyDetector.load(saved)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "expected either a file or --example; got neither."),
        (["{}", "--example"], "expected either a file or --example; got both."),
        (["{}", "--scores", "scores.txt"], "--scores must end in .csv; got scores.txt."),
        (["{}", "--columns", "age", "wings"], "has no column 'wings'"),
        (["{}", "--detector", "nowhere"], "estimator.json does not exist"),
        (["{}", "--columns", "shelf"], "--columns must not include shelf, which is the column of --set."),
        (["{}", "--save", "{}"], "--save must be a folder that can be written to, or a new one; got "),
        (["{}", "--save", "{}/new"], "--save must be a folder that can be written to, or a new one; got "),
        (
            ["{}", "--device", "abacus"],
            "device must be one that PyTorch has on this machine, such as 'cpu'; got 'abacus'",
        ),
        (["{}", "--contamination", "2"], "contamination must be 'auto' or between 0 and 1; got 2"),
    ],
)
def test_a_mistake_is_one_clear_line(tmp_path, capsys, arguments, message):
    write_shelves(tmp_path / "books.csv")
    given = [argument.format(tmp_path / "books.csv") for argument in arguments]
    assert main(["odd", *given, "--set", "shelf"]) == 1
    shown = capsys.readouterr().err
    assert message in shown
    assert shown.count("\n") == 1


@pytest.mark.as_installed
def test_the_documented_example_finds_its_books(tmp_path, capsys):
    assert main(["odd", "--example", "--scores", str(tmp_path / "scores.csv")]) == 0
    shown = capsys.readouterr().out
    assert "120 sets, 1087 rows, features age, length, depth; detector: mahalanobis" in shown
    assert "note: columns that are not features: shelf, belongs" in shown
    with (tmp_path / "scores.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    flagged = [row["odd"] == "1" for row in rows]
    misplaced = [row["belongs"] == "elsewhere" for row in rows]
    assert sum(misplaced) == 120
    assert sum(map(min, flagged, misplaced)) >= 115
    assert sum(flagged) <= 122


def test_rows_with_missing_values_are_left_out_on_request_and_stay_in_the_file(tmp_path, capsys):
    lines = [f"{shelf},{index}.{shelf},{index % 3}" for shelf in range(4) for index in range(5)]
    (tmp_path / "books.csv").write_text("\n".join(["shelf,age,depth", "1,,2", *lines, "9,4,1"]) + "\n")
    arguments = ["odd", str(tmp_path / "books.csv"), "--set", "shelf", "--method", "mahalanobis", "--drop-missing"]
    assert main([*arguments, "--scores", str(tmp_path / "scores.csv")]) == 0
    shown = capsys.readouterr().out
    assert "note: 1 rows with missing values are left out" in shown
    assert "note: 1 sets have fewer than 3 rows, too few to say which is odd" in shown
    with (tmp_path / "scores.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["score"] == "" for row in rows] == [True] + [False] * 21


def test_a_missing_value_is_refused_with_its_line(tmp_path, capsys):
    (tmp_path / "books.csv").write_text("shelf,age\na,1\na,\nb,2\n")
    assert main(["odd", str(tmp_path / "books.csv"), "--set", "shelf"]) == 1
    assert (
        "line 3: a value is missing in column age (as in 1 of 3 rows); fill it in, or use --drop-missing."
        in capsys.readouterr().err
    )
