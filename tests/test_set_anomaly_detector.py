"""The detector of elements that do not belong to their set, and the command that uses it."""

import csv
import json
import os
from functools import cache

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.ensemble import IsolationForest
from sklearn.exceptions import NotFittedError

import picaset
from picaset.cli import main
from picaset.estimators.set_anomaly_detector import SetAnomalyDetector
from picaset.estimators.synthetic_anomalies import labelled_examples, swapped_examples
from picaset.tables.example_shelves import draw_sets_along_lines, example_shelves


@cache
def training_sets() -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    return [one for size in (6, 10, 14) for one in draw_sets_along_lines(100, size, generator=generator)[0]]


@cache
def fitted() -> SetAnomalyDetector:
    """Learned from contaminated sets: one element of each does not belong, and nothing says which."""
    return SetAnomalyDetector(max_iter=400, random_state=0).fit(training_sets())


def found(scores: list[np.ndarray], odd: np.ndarray) -> float:
    """How often the element that does not belong has the highest score."""
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


def test_scores_follow_the_order_of_the_elements_and_know_nothing_of_other_sets():
    sets, _ = draw_sets_along_lines(3, 9, generator=np.random.default_rng(1))
    order = np.random.default_rng(2).permutation(9)
    expected = fitted().score_elements(sets)
    assert np.allclose(fitted().score_elements([sets[0][order]])[0], expected[0][order], atol=1e-4)
    assert np.allclose(fitted().score_elements(sets[::-1])[0], expected[2], atol=1e-4)


def test_sets_of_any_size_are_scored_at_once():
    sets = [np.zeros((size, 3)) for size in (1, 40, 2, 300)]
    assert [one.shape for one in fitted().score_elements(sets)] == [(1,), (40,), (2,), (300,)]
    assert fitted().find_odd(sets).shape == (4,)


def test_odd_is_what_scores_above_the_threshold():
    sets, _ = draw_sets_along_lines(5, 9, generator=np.random.default_rng(1))
    for scores, odd in zip(fitted().score_elements(sets), fitted().predict(sets), strict=True):
        assert np.array_equal(odd, scores > 0)


def test_a_given_contamination_is_the_share_called_odd():
    sets, _ = draw_sets_along_lines(30, 10, generator=np.random.default_rng(1))
    detector = SetAnomalyDetector(dim=8, max_iter=3, contamination=0.1, random_state=0)
    assert np.concatenate(detector.fit_predict(sets)).mean() == pytest.approx(0.1, abs=0.01)


def test_the_same_seed_gives_the_same_detector_and_leaves_the_random_numbers_of_others_alone():
    sets = training_sets()[:20]
    before = torch.get_rng_state()
    first, again = (SetAnomalyDetector(dim=8, max_iter=3, random_state=4).fit(sets) for _ in range(2))
    assert first.loss_curve_ == again.loss_curve_
    assert torch.equal(torch.get_rng_state(), before)
    assert SetAnomalyDetector(dim=8, max_iter=3, random_state=5).fit(sets).loss_curve_ != first.loss_curve_


def test_a_verbose_fit_tells_how_far_it_is_and_is_silent_otherwise(capsys):
    sets = list(np.random.default_rng(0).normal(size=(4, 5, 2)))
    SetAnomalyDetector(dim=8, num_heads=1, max_iter=20, random_state=0).fit(sets)
    assert capsys.readouterr() == ("", "")
    SetAnomalyDetector(dim=8, num_heads=1, max_iter=20, random_state=0, verbose=True).fit(sets)
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
        SetAnomalyDetector(**options).fit(training_sets()[:5])


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
        (lambda path: describe(path, learned={}), "does not fit a SetAnomalyDetector: 'mean'"),
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
    assert rows[0].keys() == {"shelf", "age", "length", "depth", "score", "odd"}
    with (tmp_path / "books.csv").open(newline="") as file:
        assert [row["age"] for row in csv.DictReader(file)] == [row["age"] for row in rows]
    for entry in entries:
        line = int(entry["place"].removeprefix("line "))
        assert rows[line - 2]["shelf"] == entry["set"]
        assert float(rows[line - 2]["score"]) == pytest.approx(entry["score"], abs=1e-3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give either a file or --example."),
        (["{}", "--example"], "give either a file or --example."),
        (["{}", "--scores", "scores.txt"], "--scores must be a .csv file in a folder that exists; got scores.txt."),
        (["{}", "--columns", "age", "wings"], "has no column 'wings'"),
        (["{}", "--detector", "nowhere"], "estimator.json does not exist"),
    ],
)
def test_a_mistake_is_one_clear_line(tmp_path, capsys, arguments, message):
    write_shelves(tmp_path / "books.csv")
    given = [argument.format(tmp_path / "books.csv") for argument in arguments]
    assert main(["odd", *given, "--set", "shelf"]) == 1
    shown = capsys.readouterr().err
    assert message in shown
    assert shown.count("\n") == 1


def test_a_missing_value_is_refused_with_its_line(tmp_path, capsys):
    (tmp_path / "books.csv").write_text("shelf,age\na,1\na,\nb,2\n")
    assert main(["odd", str(tmp_path / "books.csv"), "--set", "shelf"]) == 1
    assert "line 3: a value is missing (as in 1 of 3 rows); fill it in or remove the row." in capsys.readouterr().err
