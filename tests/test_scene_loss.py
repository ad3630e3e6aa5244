"""Matching predictions with objects, and the loss that it gives."""

import itertools
import math

import pytest
import torch
from torch.testing import assert_close

from picaset.lab.tasks.scene_loss import assign, scene_loss


def random_vectors(seed: int, sets: int = 3, slots: int = 4) -> torch.Tensor:
    return torch.rand(sets, slots, 19, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("seed", range(4))
def test_no_other_assignment_is_cheaper(seed):
    cost = torch.rand(3, 5, 5, generator=torch.Generator().manual_seed(seed))
    found = assign(cost)
    for one, chosen in zip(cost, found, strict=True):
        assert sorted(chosen.tolist()) == list(range(5))
        totals = [
            sum(float(one[row, column]) for row, column in enumerate(order))
            for order in itertools.permutations(range(5))
        ]
        assert float(one[torch.arange(5), chosen].sum()) == pytest.approx(min(totals), abs=1e-6)


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_a_cost_that_is_no_number_is_refused(wrong):
    cost = torch.rand(3, 2, 2)
    cost[1, 0, 1] = wrong
    with pytest.raises(ValueError, match=rf"costs must be finite; set 1 has {wrong}.*lower the learning rate"):
        assign(cost)


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
@pytest.mark.parametrize("objective", ["published", "reweighted", "likelihood"])
@pytest.mark.parametrize("index", [0, 2, 18])  # of presence, of a coordinate, of a property
def test_a_prediction_that_is_no_number_is_refused(objective, wrong, index):
    predicted = random_vectors(0)
    predicted[1, 3, index] = wrong
    with pytest.raises(ValueError, match=rf"predictions must be finite; set 1 has {wrong}.*lower the learning rate"):
        scene_loss(predicted, random_vectors(1), objective=objective)


def test_more_objects_than_predictions_are_refused():
    with pytest.raises(ValueError, match="as many predictions as objects; got 2 and 3"):
        assign(torch.rand(1, 2, 3))


def test_no_sets_need_no_assignment():
    assert assign(torch.zeros(0, 3, 3)).shape == (0, 3)


@pytest.mark.parametrize("objective", ["published", "reweighted", "likelihood"])
def test_the_order_of_predictions_and_of_objects_changes_nothing(objective):
    predicted, targets = random_vectors(0), random_vectors(1)
    order = torch.tensor([2, 0, 3, 1])
    expected = scene_loss(predicted, targets, objective=objective)
    assert float(expected) > 0
    assert_close(scene_loss(predicted[:, order], targets, objective=objective), expected)
    assert_close(scene_loss(predicted, targets[:, order], objective=objective), expected)


@pytest.mark.parametrize("objective", ["published", "reweighted", "likelihood"])
def test_the_loss_of_many_steps_is_the_mean_of_theirs(objective):
    steps, targets = torch.stack([random_vectors(seed) for seed in range(3)]), random_vectors(9)
    each = [scene_loss(step, targets, objective=objective) for step in steps]
    assert_close(scene_loss(steps, targets, objective=objective), torch.stack(each).mean())


def test_the_published_loss_is_a_mean_over_numbers_a_sum_over_slots_and_a_mean_over_scenes():
    targets = torch.zeros(2, 3, 19)
    predicted = targets.clone()
    predicted[0, 1, 2], predicted[0, 2, 5], predicted[1, 0, 0] = 0.5, 0.3, 1.0
    expected = 0.5 * (0.5**2 + 0.3**2 + 1.0) / 19 / 2
    assert float(scene_loss(predicted, targets)) == pytest.approx(expected)


def test_reweighted_coordinates_count_in_the_units_of_clevr():
    targets = torch.zeros(1, 1, 19)
    for index, distance in ((1, 0.05), (3, 0.5)):
        predicted = targets.clone()
        predicted[..., index] = distance
        units = 6 * distance
        expected = (0.5 * units**2 if units < 1 else units - 0.5) / 19
        assert float(scene_loss(predicted, targets, objective="reweighted")) == pytest.approx(expected)
    predicted = targets.clone()
    predicted[..., [0, 4, 18]] = 0.4
    assert_close(scene_loss(predicted, targets, objective="reweighted"), scene_loss(predicted, targets))


def test_by_likelihood_an_empty_slot_is_asked_for_presence_alone():
    targets, predicted = torch.zeros(1, 1, 19), torch.full((1, 1, 19), 0.3)
    assert float(scene_loss(predicted, targets, objective="likelihood")) == pytest.approx(-math.log(0.7))
    targets[..., [0, 5, 7, 12, 18]] = 1.0
    targets[..., 1:4] = torch.tensor([0.3, 0.3, 0.4])
    expected = -5 * math.log(0.3) - 11 * math.log(0.7) + 0.5 * 0.6**2
    assert float(scene_loss(predicted, targets, objective="likelihood")) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("objective", ["published", "reweighted", "likelihood"])
def test_gradients_reach_every_prediction(objective):
    predicted = random_vectors(2).requires_grad_()
    scene_loss(predicted, random_vectors(3), objective=objective).backward()
    assert bool((predicted.grad.abs().sum(dim=2) > 0).all())


@pytest.mark.as_installed
@pytest.mark.parametrize("objective", ["published", "reweighted", "likelihood"])
def test_vectors_of_another_length_are_refused(objective):
    right, short = random_vectors(0), random_vectors(1)[..., :18]
    for predicted, targets in ((right, short), (short, right), (short, short)):
        with pytest.raises(ValueError, match=r"must have 19 numbers; got vectors of shape \(3, 4, 18\)"):
            scene_loss(predicted, targets, objective=objective)


@pytest.mark.as_installed
def test_another_objective_is_refused():
    with pytest.raises(
        ValueError, match="objective must be one of 'published', 'reweighted', 'likelihood'; got 'none'"
    ):
        scene_loss(random_vectors(0), random_vectors(1), objective="none")
