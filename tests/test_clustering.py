"""The clustering experiment: its data, its score, and what it is compared with."""

import math

import pytest
import torch
from sklearn.mixture import GaussianMixture
from torch.testing import assert_close

from picaset.lab.data.gaussian_mixtures import Move, benchmark_sets, draw_mixtures, training_batch
from picaset.lab.tasks.clustering import NETWORK, SHIFTS, Clustering, evaluate_scikit_learn, likelihoods
from picaset.operators.mixture import log_likelihood


def test_a_step_sees_the_same_sets_whenever_it_is_asked_for():
    asked = dict(seed=3, num_sets=4, sizes=(30, 60))
    assert torch.equal(training_batch(7, **asked), training_batch(7, **asked))
    assert not torch.equal(training_batch(7, **asked)[:, :30], training_batch(8, **asked)[:, :30])
    assert not torch.equal(training_batch(7, **asked)[:, :30], training_batch(7, **asked | {"seed": 4})[:, :30])


def test_sizes_are_within_their_bounds_and_reach_them():
    sizes = {training_batch(step, seed=0, num_sets=1, sizes=(3, 5)).shape[1] for step in range(40)}
    assert sizes == {3, 4, 5}


def test_the_benchmark_is_fixed_and_as_large_as_asked():
    first, again = ([points for points, _ in benchmark_sets(25)] for _ in range(2))
    assert [len(points) for points in first] == [10, 10, 5]
    assert all(300 <= points.shape[1] <= 600 for points in first)
    assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))


def test_the_oracle_of_the_benchmark_is_that_of_the_paper():
    found = torch.cat([log_likelihood(truth, points) for points, truth in benchmark_sets(1000)])
    assert float(found.mean()) == pytest.approx(-1.4697, abs=4 * float(found.std()) / math.sqrt(1000))


@pytest.mark.parametrize("move", [Move(shift=-12), Move(scale=2), Move(degrees=30), Move(3, 0.5, 70)])
def test_points_and_mixture_move_together(move: Move):
    points, truth = draw_mixtures(3, 50, generator=torch.Generator().manual_seed(0))
    before, after = log_likelihood(truth, points), log_likelihood(move.mixture(truth), move.points(points))
    assert_close(after, before - 2 * math.log(move.scale), atol=1e-4, rtol=0)


def test_a_move_is_described_in_words():
    assert [str(move) for move in (Move(), Move(8), Move(-10), Move(scale=2), Move(degrees=45))] == [
        "0", "+8", "-10", "x2", "45 degrees",
    ]  # fmt: skip


def test_em_steps_raise_the_likelihood_of_a_prediction_to_that_of_a_fit():
    task = Clustering(num_benchmark_sets=20)

    class Spoiled(torch.nn.Module):
        def forward(self, points):
            (mixture,) = (truth for given, truth in benchmark_sets(20) if torch.equal(given, points))
            return mixture._replace(means=mixture.means + 0.2)

    found = likelihoods(Spoiled(), Move(), task.sets(20, torch.zeros(())), em_steps=(0, 1, 5))
    assert found[0] < found[1] < found[5]
    assert found[5] > found["oracle"]


def test_the_loss_is_the_negative_log_likelihood():
    task = Clustering(network=NETWORK.replace(dim=16, num_inducing=4))
    network = task.build_network()
    (points,) = task.batch(0, seed=0, num_examples=3, progress=0.0)
    assert_close(task.loss(network, (points,)), -log_likelihood(network(points), points).mean())


def test_small_sets_come_first():
    task = Clustering(small_share=0.5)
    shapes = [
        task.batch(3, seed=0, num_examples=2, progress=progress)[0].shape[1] for progress in (0.0, 0.49, 0.5, 1.0)
    ]
    assert [75 <= size <= 150 for size in shapes] == [True, True, False, False]
    assert [300 <= size <= 600 for size in shapes] == [False, False, True, True]


def test_an_evaluation_has_every_move_and_what_the_figures_show():
    task = Clustering(network=NETWORK.replace(dim=16, num_inducing=4), sizes=(30, 60), num_benchmark_sets=20)
    found = task.evaluate(task.build_network().eval())
    assert [row["shift"] for row in found["moves"][: len(SHIFTS)]] == list(SHIFTS)
    assert all(set(row["log_likelihood"]) == {"0", "1", "5"} for row in found["moves"])
    assert found["milliseconds_per_set"] > 0
    assert set(found["shown"]["predictions"]) == {f"{shift:+d}" for shift in SHIFTS}
    points, _ = next(benchmark_sets(3, sizes=(30, 60)))
    assert torch.tensor(found["shown"]["attention"]).shape == (2, 4, points.shape[1])


def test_scikit_learn_is_asked_on_the_same_sets():
    found = evaluate_scikit_learn(num_starts=2, num_sets=3, sizes=(30, 60))
    expected = [
        GaussianMixture(4, covariance_type="spherical", n_init=2, random_state=0).fit(one.double()).score(one.double())
        for points, _ in benchmark_sets(3, sizes=(30, 60))
        for one in points
    ]
    assert found["moves"][0]["log_likelihood"] == pytest.approx(sum(expected) / 3, abs=1e-6)
    assert found["moves"][0]["oracle"] < 0
