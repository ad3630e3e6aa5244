"""Average precision of predicted objects, by hand; each plausible mistake gives another number here."""

import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from picaset.lab.data.scenes import from_vectors, to_vectors
from picaset.lab.tasks.scene_scores import THRESHOLDS, average_precision

CUBE, BALL = (0, 0, 1, 0), (1, 1, 2, 1)


def image(*objects: tuple, slots: int = 4) -> torch.Tensor:
    """Vectors of one image; an object is a presence, a place and its properties."""
    vectors = torch.zeros(1, slots, 19)
    for slot, (presence, place, properties) in enumerate(objects):
        one = torch.ones(1, 1, dtype=torch.bool)
        vectors[0, slot] = to_vectors(one, torch.tensor([[place]]).float(), torch.tensor([[properties]]))[0, 0]
        vectors[0, slot, 0] = presence
    return vectors


def precision(predicted, targets) -> dict[float, float]:
    return dict(zip(THRESHOLDS, average_precision(predicted, targets).tolist(), strict=True))


def test_objects_as_vectors_and_back():
    present = torch.tensor([[True, False]])
    places = torch.tensor([[[-3.0, 0.0, 3.0], [1.0, 1.0, 1.0]]])
    properties = torch.tensor([[[2, 1, 7, 0], [1, 1, 1, 1]]])
    vectors = to_vectors(present, places, properties)
    assert vectors[0, 0].tolist() == [1, 0, 0.5, 1, *(0, 0, 1), *(0, 1), *(0, 0, 0, 0, 0, 0, 0, 1), *(1, 0)]
    assert not vectors[0, 1].any()
    found = from_vectors(vectors)
    assert found.presence.tolist() == [[1, 0]]
    assert_close(found.coordinates[0, 0], places[0, 0])
    assert found.properties[0, 0].tolist() == [2, 1, 7, 0]


def test_what_is_right_scores_one_and_empty_slots_cost_nothing():
    targets = image((1, (0, 0, 0.7), CUBE), (1, (2, 1, 0.35), BALL))
    assert set(precision(targets, targets).values()) == {1.0}


def test_ranking_is_over_all_images_and_not_within_each():
    # By presence: a wrong one of the second image, then a right one of each. Ranked within images, the first image
    # would begin with its hit, and the mean of both images would be 3/4.
    targets = torch.cat([image((1, (0, 0, 0), CUBE)), image((1, (0, 0, 0), CUBE))])
    predicted = torch.cat([image((0.5, (0, 0, 0), CUBE)), image((0.9, (0, 0, 0), BALL), (0.4, (0, 0, 0), CUBE))])
    # Hits at ranks 2 and 3: precision 1/2 and 2/3, and 2/3 is the best from recall 1/2 on.
    assert precision(predicted, targets)[math.inf] == pytest.approx((2 / 3 + 2 / 3) / 2)


def test_an_object_is_found_once():
    targets = image((1, (0, 0, 0), CUBE), (1, (2, 2, 0), BALL))
    predicted = image((0.9, (0, 0, 0), CUBE), (0.8, (0, 0, 0), CUBE), (0.7, (2, 2, 0), BALL))
    # The second is a repetition, and so wrong: precision 1 at the first, 2/3 at the third. Counted twice it were 1.
    assert precision(predicted, targets)[1.0] == pytest.approx((1 + 2 / 3) / 2)


def test_the_nearest_object_counts_even_where_another_is_free():
    targets = image((1, (0, 0, 0), CUBE), (1, (1, 0, 0), CUBE))
    predicted = image((0.9, (0, 0, 0), CUBE), (0.8, (0.4, 0, 0), CUBE))
    assert precision(predicted, targets)[math.inf] == pytest.approx(1 / 2)
    predicted = image((0.9, (0, 0, 0), CUBE), (0.8, (0.6, 0, 0), CUBE))
    assert precision(predicted, targets)[math.inf] == 1.0


def test_who_is_too_far_away_takes_nothing():
    targets = image((1, (0, 0, 0), CUBE))
    predicted = image((0.9, (0.8, 0, 0), CUBE), (0.8, (0.1, 0, 0), CUBE))
    found = precision(predicted, targets)
    assert found[1.0] == 1.0
    assert found[0.5] == pytest.approx(1 / 2)


@pytest.mark.parametrize("distance", [0.1, 0.2, 0.4, 0.9, 1.1, 4.0])
@pytest.mark.parametrize("direction", [(1, 0, 0), (0, 0, 1), (0.6, 0.8, 0), (1 / 3, 2 / 3, -2 / 3)])
def test_distances_are_in_the_units_of_clevr(distance, direction):
    # In [0, 1] a sixth of it would be compared, in [-1, 1] a third.
    start = np.array([-1.5, -1.5, 1.0])
    targets = image((1, tuple(start), CUBE))
    predicted = image((1, tuple(start + distance * np.array(direction)), CUBE))
    assert precision(predicted, targets) == {limit: float(distance < limit) for limit in THRESHOLDS}


def test_a_distance_that_equals_the_threshold_is_too_far():
    targets, predicted = image((1, (0, 0, 0), CUBE)), image((1, (1.5, 0, 0), CUBE))
    assert average_precision(predicted, targets, (1.5, 1.5 + 1e-6)).tolist() == [0.0, 1.0]


@pytest.mark.parametrize("wrong", range(4))
def test_one_wrong_property_is_enough_to_be_wrong(wrong):
    changed = list(CUBE)
    changed[wrong] = (changed[wrong] + 1) % 2
    targets, predicted = image((1, (0, 0, 0), CUBE)), image((1, (0, 0, 0), tuple(changed)))
    assert set(precision(predicted, targets).values()) == {0.0}


def test_an_absent_object_is_not_found():
    targets = image((1, (0, 0, 0), CUBE))
    targets[0, 1] = targets[0, 0]
    targets[0, 1, 0] = 0  # a slot without an object, whatever else it holds
    predicted = image((0.9, (0, 0, 0), CUBE), (0.8, (0, 0, 0), CUBE))
    assert precision(predicted, targets)[1.0] == 1.0


def test_a_missed_object_costs_recall():
    targets = image((1, (0, 0, 0), CUBE), (1, (2, 0, 0), BALL), (1, (0, 2, 0), BALL))
    predicted = image((0.9, (0, 0, 0), CUBE))
    assert precision(predicted, targets)[1.0] == pytest.approx(1 / 3)


def test_numbers_that_are_none_are_wrong():
    targets = image((1, (0, 0, 0), CUBE))
    predicted = image((0.9, (math.nan, 0, 0), CUBE))
    assert set(precision(predicted, targets).values()) == {0.0}


def random_case(seed: int, images: int = 12):
    """Predictions near the truth, some wrong, some twice."""
    generator = torch.Generator().manual_seed(seed)
    present = torch.rand(images, 5, generator=generator) < 0.7
    places = 2 * torch.rand(images, 5, 3, generator=generator) - 1
    properties = torch.randint(0, 2, (images, 5, 4), generator=generator)
    properties[..., :3] = 0
    targets = to_vectors(present, places, properties)
    chosen = torch.randint(0, 5, (images, 5), generator=generator)
    rows = torch.arange(images)[:, None]
    moved = places[rows, chosen] + 0.4 * torch.randn(images, 5, 3, generator=generator)
    predicted = to_vectors(torch.ones_like(present), moved, properties[rows, chosen])
    predicted[..., 0] = torch.rand(images, 5, generator=generator)
    return predicted, targets


def literal(predicted, targets, threshold: float) -> float:
    """The published definition, one prediction after the other."""
    found, there = from_vectors(predicted), from_vectors(targets)
    count = predicted.shape[1]
    order = sorted(range(predicted.shape[0] * count), key=lambda index: -float(found.presence.flatten()[index]))
    taken, hits = set(), []
    for index in order:
        scene, slot = divmod(index, count)
        best, nearest = math.inf, None
        for number in range(targets.shape[1]):
            same = bool((found.properties[scene, slot] == there.properties[scene, number]).all())
            if there.presence[scene, number] > 0 and same:
                distance = float((found.coordinates[scene, slot] - there.coordinates[scene, number]).norm())
                if distance < best:
                    best, nearest = distance, number
        hit = nearest is not None and best < threshold and (scene, nearest) not in taken
        if hit:
            taken.add((scene, nearest))
        hits.append(hit)
    total = int((there.presence > 0).sum())
    recall = [0.0, *(np.cumsum(hits) / total), 1.0]
    precision = [0.0, *(np.cumsum(hits) / np.arange(1, len(hits) + 1)), 0.0]
    for index in range(len(precision) - 2, -1, -1):
        precision[index] = max(precision[index], precision[index + 1])
    return sum(precision[index + 1] * (recall[index + 1] - recall[index]) for index in range(len(recall) - 1))


@pytest.mark.parametrize("seed", range(5))
def test_it_is_the_published_definition(seed):
    predicted, targets = random_case(seed)
    found = precision(predicted, targets)
    for threshold in THRESHOLDS:
        assert found[threshold] == pytest.approx(literal(predicted, targets, threshold), abs=1e-9)
    assert 0 < found[0.5] < found[math.inf] < 1


def test_the_order_of_images_and_slots_changes_nothing():
    predicted, targets = random_case(7)
    order = torch.randperm(len(predicted), generator=torch.Generator().manual_seed(0))
    slots = torch.tensor([3, 1, 4, 0, 2])
    shuffled = average_precision(predicted[order][:, slots], targets[order].flip(1))
    assert_close(shuffled, average_precision(predicted, targets))


def test_nothing_to_find_is_refused():
    with pytest.raises(ValueError, match="the targets have no objects; pass scenes that have some"):
        average_precision(image((1, (0, 0, 0), CUBE)), torch.zeros(1, 4, 19))


@pytest.mark.parametrize("length", [18, 20])
def test_vectors_of_another_length_are_refused(length):
    with pytest.raises(ValueError, match=rf"must have 19 numbers; got vectors of shape \(2, 4, {length}\)"):
        average_precision(torch.zeros(2, 4, length), torch.zeros(2, 4, length))
