"""Planted anomalies, the choice of detectors by them, and the threshold."""

import numpy as np
import pytest

from picaset.estimators.detector_selection import (
    Weight,
    best_threshold,
    choose_threshold,
    combine_detectors,
    try_detector,
)
from picaset.estimators.synthetic_anomalies import plant_anomalies


def sets_around_points(num_sets: int = 30, size: int = 20) -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    return [centre + generator.normal(size=(size, 2)) / 4 for centre in generator.normal(size=(num_sets, 2))]


def distances(column: int):
    """A detector that sees one feature only."""
    return lambda sets: [np.abs(elements - np.median(elements, axis=0))[:, column] for elements in sets]


def test_elements_of_other_sets_replace_those_with_the_highest_scores():
    sets = [np.full((size, 1), float(index)) for index, size in enumerate((2, 5, 60))]
    scores = [np.arange(len(elements), dtype=float) for elements in sets]
    planted, labels = plant_anomalies(sets, scores, generator=np.random.default_rng(0))
    assert [np.flatnonzero(label).tolist() for label in labels] == [[], [4], [57, 58, 59]]
    for index, (elements, label) in enumerate(zip(planted, labels, strict=True)):
        assert (elements[~label] == index).all()
        assert (elements[label] != index).all()
    assert (sets[1] == 1).all()


def test_anomalies_that_a_detector_finds_do_not_count_against_it():
    sets = sets_around_points()
    for elements in sets:
        elements[3] += 50
    assert try_detector(distances(0), sets, seed=0).average_precision > 0.6


def test_a_combination_is_used_where_detectors_find_different_anomalies():
    sets = sets_around_points()
    detectors = {"first": distances(0), "second": distances(1)}
    trials = {name: try_detector(score, sets, seed=0) for name, score in detectors.items()}
    weights, precision = combine_detectors(detectors, trials)
    assert weights.keys() == detectors.keys()
    assert precision > max(trial.average_precision for trial in trials.values())


def test_detectors_that_seem_alike_by_few_planted_elements_are_combined():
    generator = np.random.default_rng(0)
    sets = [generator.normal(size=(8, 1)) + np.repeat(centre, 1) for centre in 2 * generator.normal(size=(24, 1))]

    def noisy(seed):
        noise = np.random.default_rng(seed)
        return lambda sets: [
            np.abs(elements - np.median(elements, axis=0))[:, 0] + noise.normal(size=len(elements)) for elements in sets
        ]

    detectors = {"first": noisy(1), "second": noisy(2)}
    trials = {name: try_detector(score, sets, seed=0) for name, score in detectors.items()}
    weights, _ = combine_detectors(detectors, trials)
    assert weights.keys() == detectors.keys()


def test_a_detector_that_adds_nothing_is_not_used():
    sets, generator = sets_around_points(), np.random.default_rng(1)
    detectors = {"good": distances(0), "noise": lambda sets: [generator.random(len(elements)) for elements in sets]}
    trials = {name: try_detector(score, sets, seed=0) for name, score in detectors.items()}
    weights, precision = combine_detectors(detectors, trials)
    assert weights == {"good": Weight.of(trials["good"].scores)}
    assert precision == trials["good"].average_precision


def test_standardized_scores_keep_their_order():
    scores = np.random.default_rng(0).standard_cauchy(50)
    assert np.array_equal(np.argsort(Weight.of(scores).apply(scores)), np.argsort(scores))
    assert np.isfinite(Weight.of(np.ones(3)).apply(np.ones(3))).all()


@pytest.mark.parametrize("share", [0.01, 0.05, 0.15])
def test_the_threshold_separates_what_can_be_separated(share):
    generator, recalls = np.random.default_rng(0), list[float]()
    for _ in range(20):
        odd = generator.random(2000) < share
        scores = generator.normal(size=2000) + 8 * odd
        flagged = scores > best_threshold(scores, 8 + generator.normal(size=100))
        assert odd[flagged].all()
        recalls.append(flagged[odd].mean())
    assert np.mean(recalls) > 0.93


def test_nothing_is_odd_where_no_element_scores_like_a_planted_one():
    generator = np.random.default_rng(0)
    scores = generator.normal(size=2000)
    assert best_threshold(scores, 8 + generator.normal(size=100)) > scores.max()


def test_the_odd_row_of_two_small_sets_is_above_the_threshold():
    generator = np.random.default_rng(0)
    sets = [centre + generator.normal(size=(7, 2)) / 10 for centre in (0, 5)]
    sets[0][2] = 5
    threshold = choose_threshold(distances(0), sets, seed=0)
    assert [np.flatnonzero(scores > threshold).tolist() for scores in distances(0)(sets)] == [[2], []]


def test_nothing_is_odd_where_planted_elements_score_like_all_others():
    generator = np.random.default_rng(0)
    scores = generator.normal(size=2000)
    assert best_threshold(scores, generator.normal(size=100)) > scores.max()


def test_few_elements_of_clean_sets_are_above_the_threshold():
    sets = sets_around_points()
    threshold = choose_threshold(distances(0), sets, seed=0)
    assert (np.concatenate(distances(0)(sets)) > threshold).mean() < 0.01
