"""EM by matrix products is EM, from many starts at once."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from picaset import Mixture, em_step, log_likelihood
from picaset.estimators.batched_em import Mixtures, e_step, fit_mixtures, m_step, point_features, sufficient_statistics
from picaset.estimators.mixture_search import draw_indices, kmeans_plus_plus

MIN_VARIANCE = 1e-6


def draw(sizes: list[int], dim: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Padded canonical points, zero where absent."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.arange(max(sizes)) < torch.tensor(sizes)[:, None]
    points = torch.randn(*mask.shape, dim, generator=generator, dtype=torch.float64)
    return points.masked_fill(~mask[..., None], 0.0), mask


def random_starts(sets: int, starts: int, components: int, dim: int, variances: int, seed: int) -> Mixtures:
    generator = torch.Generator().manual_seed(seed + 1)
    means = torch.randn(sets, starts, components, dim, generator=generator, dtype=torch.float64)
    spread = 0.1 + torch.rand(sets, starts, components, variances, generator=generator, dtype=torch.float64)
    weights = torch.rand(sets, starts, components, generator=generator, dtype=torch.float64).log_softmax(dim=2)
    return Mixtures(means, spread, weights)


@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    components=st.integers(1, 4),
    dim=st.integers(1, 3),
    diagonal=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_expecting_and_maximizing_is_an_em_step_from_every_start(sizes, components, dim, diagonal, seed):
    points, mask = draw(sizes, dim, seed)
    starts = random_starts(len(sizes), 2, components, dim, dim if diagonal else 1, seed)
    features = point_features(points, mask)
    expectation = e_step(features, starts)
    likelihood = expectation.log_likelihood(features)
    statistics = sufficient_statistics(features, expectation.responsibilities)
    after = m_step(statistics, features.sizes, starts, min_variance=MIN_VARIANCE)
    for start in range(2):
        mixture = Mixture(*(part[:, start] for part in starts))
        expected = em_step(mixture, points, mask, min_variance=MIN_VARIANCE)
        assert_close(likelihood[:, start], log_likelihood(mixture, points, mask))
        for ours, theirs in zip(after, expected, strict=True):
            assert_close(ours[:, start], theirs, rtol=1e-6, atol=1e-8)


def test_a_component_of_weight_zero_stays_absent_and_changes_nothing():
    points, mask = draw([9, 5], 2, 0)
    starts = random_starts(2, 1, 3, 2, 1, 0)
    absent = Mixtures(
        torch.cat([starts.means, torch.zeros(2, 1, 1, 2)], dim=2),
        torch.cat([starts.variances, torch.ones(2, 1, 1, 1)], dim=2),
        torch.cat([starts.log_weights, torch.full((2, 1, 1), -torch.inf)], dim=2),
    )
    alone = fit_mixtures(point_features(points, mask), starts, max_steps=4, min_variance=MIN_VARIANCE)
    beside = fit_mixtures(point_features(points, mask), absent, max_steps=4, min_variance=MIN_VARIANCE)
    assert_close(beside.log_likelihood, alone.log_likelihood)
    assert_close(beside.mixtures.means[:, :, :3], alone.mixtures.means)
    assert (beside.mixtures.log_weights[:, :, 3] == -torch.inf).all()


def test_leaving_arrived_sets_out_changes_no_set():
    points, mask = draw([30, 7, 18], 2, 3)
    starts = random_starts(3, 2, 3, 2, 1, 3)
    together = fit_mixtures(point_features(points, mask), starts, max_steps=60, min_variance=MIN_VARIANCE, tol=1e-3)
    assert together.steps.unique().numel() > 1  # otherwise nothing was left out
    for index in range(3):
        one = torch.tensor([index])
        alone = fit_mixtures(
            point_features(points, mask).of_sets(one),
            starts.of_sets(one),
            max_steps=60,
            min_variance=MIN_VARIANCE,
            tol=1e-3,
        )
        assert_close(alone.log_likelihood[0], together.log_likelihood[index])
        assert int(alone.steps) == int(together.steps[index])


def test_the_likelihood_that_is_returned_is_that_of_the_mixture_that_is_returned():
    points, mask = draw([30, 7], 2, 4)
    fit = fit_mixtures(
        point_features(points, mask), random_starts(2, 1, 3, 2, 1, 4), max_steps=12, min_variance=MIN_VARIANCE
    )
    mixture = Mixture(*(part[:, 0] for part in fit.mixtures))
    assert_close(fit.log_likelihood[:, 0], log_likelihood(mixture, points, mask))


def test_climbing_never_descends():
    points, mask = draw([40, 25], 2, 5)
    starts = random_starts(2, 3, 4, 2, 1, 5)
    found = [
        fit_mixtures(point_features(points, mask), starts, max_steps=steps, min_variance=1e-9).log_likelihood
        for steps in range(9)
    ]
    assert all((after - before > -1e-12).all() for before, after in pairwise(found))


@pytest.mark.parametrize("sizes", [[6, 6], [6, 2]])
def test_centres_are_present_points_and_different_while_there_are_enough(sizes):
    points, mask = draw(sizes, 2, 6)
    generator = torch.Generator().manual_seed(0)
    means = kmeans_plus_plus(points, mask, num_components=2, num_mixtures=50, generator=generator).means
    for one, present, centres in zip(points, mask, means, strict=True):
        same = (centres[:, :, None] == one[present]).all(dim=-1)  # (S, K, n)
        assert same.any(dim=-1).all()
        assert not (centres[:, 0] == centres[:, 1]).all(dim=-1).any()


def test_points_are_drawn_with_their_chances():
    generator = torch.Generator().manual_seed(0)
    chances = torch.tensor([1.0, 0.0, 3.0, 0.0]).expand(1, 4000, 4)
    counts = draw_indices(chances, generator).flatten().bincount(minlength=4) / 4000
    assert_close(counts, torch.tensor([0.25, 0.0, 0.75, 0.0]), atol=0.03, rtol=0)


def test_equal_points_have_finite_seeds():
    starts = kmeans_plus_plus(torch.zeros(1, 5, 2), None, num_components=3, num_mixtures=2, generator=torch.Generator())
    assert all(part.isfinite().all() for part in starts)
