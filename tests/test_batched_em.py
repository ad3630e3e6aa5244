"""EM by matrix products is EM, for every covariance type, from many starts at once."""

from itertools import pairwise
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.mixture import GaussianMixture
from torch.testing import assert_close

from picaset import Mixture, em_step
from picaset.estimators.batched_em import (
    Covariance,
    Mixtures,
    cholesky,
    e_step,
    fit_mixtures,
    m_step,
    point_features,
    statistics_of_mixtures,
    sufficient_statistics,
)
from picaset.estimators.missing_values import covariance_matrices, fit_incomplete
from picaset.estimators.mixture_search import SearchOptions, can_catch_up, draw_indices, kmeans_plus_plus, move_centres
from tests.reference import mixture_em_step

TYPES = get_args(Covariance)
SMALL = 1e-6


def draw(sizes: list[int], dim: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Padded standard points, zero where absent, and their weights."""
    generator = torch.Generator().manual_seed(seed)
    weights = (torch.arange(max(sizes)) < torch.tensor(sizes)[:, None]).double()
    points = torch.randn(*weights.shape, dim, generator=generator, dtype=torch.float64)
    return points * weights[..., None], weights * (0.5 + torch.rand(weights.shape, generator=generator).double())


def random_starts(
    sets: int, starts: int, components: int, dim: int, covariance: str, seed: int, noise: int = 0
) -> Mixtures:
    generator = torch.Generator().manual_seed(seed + 1)
    means = torch.randn(sets, starts, components, dim, generator=generator, dtype=torch.float64)
    matrices = 1 if covariance == "tied" else components
    if covariance in ("spherical", "diag"):
        columns = 1 if covariance == "spherical" else dim
        spread = torch.rand(sets, starts, components, columns, generator=generator, dtype=torch.float64)
        spread = (0.1 + spread).expand_as(means)
    else:
        factors = torch.randn(sets, starts, matrices, dim, dim + 2, generator=generator, dtype=torch.float64)
        spread = factors @ factors.mT / dim
    weights = torch.rand(sets, starts, components + noise, generator=generator, dtype=torch.float64).log_softmax(dim=2)
    return Mixtures(means, spread, weights)


@pytest.mark.parametrize("covariance", TYPES)
@given(
    sizes=st.lists(st.integers(2, 9), min_size=1, max_size=3),
    components=st.integers(1, 3),
    dim=st.integers(1, 3),
    noise=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_a_step_is_the_literal_equation_from_every_start(covariance, sizes, components, dim, noise, seed):
    points, weights = draw(sizes, dim, seed)
    starts = random_starts(len(sizes), 2, components, dim, covariance, seed, noise)
    widths = np.linspace(2.0, 5.0, dim)
    background = torch.full((len(sizes),), -float(np.log(widths).sum()), dtype=torch.float64)
    features = point_features(points, weights, covariance=covariance, log_background=background)
    expectation = e_step(features, starts, covariance)
    statistics = sufficient_statistics(features, expectation.responsibilities, covariance, num_components=components)
    after = m_step(statistics, covariance, features.relative_scales, num_components=components, min_variance=SMALL)
    likelihood = expectation.log_likelihood(features)
    for index in range(len(sizes)):
        present = weights[index] > 0
        for start in range(2):
            before = [part[index, start] for part in starts]
            matrices = covariance_matrices(before[1], covariance, components).numpy()
            expected = mixture_em_step(
                points[index, present].numpy(), weights[index, present].numpy(), before[0].numpy(), matrices,
                before[2].exp().numpy(), covariance, reg=SMALL, background=widths if noise else None,
            )  # fmt: skip
            ours = [part[index, start] for part in after]
            np.testing.assert_allclose(ours[0], expected[0], rtol=1e-6, atol=1e-8)
            ours_matrices = covariance_matrices(ours[1], covariance, components)
            np.testing.assert_allclose(ours_matrices, expected[1], rtol=1e-5, atol=1e-8)
            np.testing.assert_allclose(ours[2].exp(), expected[2], rtol=1e-6, atol=1e-9)
            assert float(likelihood[index, start]) == pytest.approx(expected[3])


@pytest.mark.parametrize("covariance", TYPES)
@pytest.mark.parametrize("noise", [False, True])
def test_a_step_over_missing_values_is_the_literal_equation(covariance, noise):
    random = np.random.default_rng(3)
    points, weights = random.normal(size=(17, 3)), random.uniform(0.5, 2, 17)
    points[random.random(points.shape) < 0.3] = np.nan
    points, weights = points[~np.isnan(points).all(axis=1)], weights[~np.isnan(points).all(axis=1)]
    start = random_starts(1, 1, 2, 3, covariance, 4, noise)
    widths = np.array([4.0, 5.0, 6.0])
    fit = fit_incomplete(
        torch.as_tensor(points), torch.as_tensor(weights), start, covariance, torch.ones(1, 3).double(),
        torch.as_tensor(widths) if noise else None, max_steps=1, min_variance=SMALL, tol=1e-12,
    )  # fmt: skip
    means, covariances, log_weights = (part[0, 0] for part in start)
    matrices = covariance_matrices(covariances, covariance, 2).numpy()
    expected = mixture_em_step(
        points, weights, means.numpy(), matrices, log_weights.exp().numpy(), covariance,
        reg=SMALL, background=widths if noise else None,
    )  # fmt: skip
    np.testing.assert_allclose(fit.mixtures.means[0, 0], expected[0], rtol=1e-7)
    ours = covariance_matrices(fit.mixtures.covariances[0, 0], covariance, 2)
    np.testing.assert_allclose(ours, expected[1], rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(fit.mixtures.log_weights[0, 0].exp(), expected[2], rtol=1e-7)


@pytest.mark.parametrize("covariance", TYPES)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_steps_agree_with_scikit_learn_from_the_same_start(covariance):
    points, _ = draw([60], 3, 0)
    start = random_starts(1, 1, 3, 3, covariance, 0)
    means, covariances, log_weights = (part[0, 0] for part in start)
    precisions = covariance_matrices(covariances, covariance, 3).inverse().numpy()
    shaped = {"spherical": precisions[:, 0, 0], "diag": precisions.diagonal(axis1=1, axis2=2), "tied": precisions[0]}
    theirs = GaussianMixture(
        3, covariance_type=covariance, means_init=means.numpy(), weights_init=log_weights.exp().numpy(),
        precisions_init=shaped.get(covariance, precisions), max_iter=7, tol=0.0, reg_covar=SMALL,
    ).fit(points[0].numpy())  # fmt: skip
    features = point_features(points, covariance=covariance)
    ours = fit_mixtures(features, start, covariance, max_steps=7, min_variance=SMALL).mixtures
    np.testing.assert_allclose(ours.means[0, 0], theirs.means_, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(ours.log_weights[0, 0].exp(), theirs.weights_, rtol=1e-6)


@pytest.mark.parametrize("covariance", ["spherical", "diag"])
def test_a_step_is_the_operator_em_step(covariance):
    points, weights = draw([9, 5], 2, 1)
    present = weights > 0
    starts = random_starts(2, 1, 3, 2, covariance, 1)
    features = point_features(points, present.double(), covariance=covariance)
    ours = fit_mixtures(features, starts, covariance, max_steps=1, min_variance=1e-12).mixtures
    variances = starts.covariances[:, 0, :, :1] if covariance == "spherical" else starts.covariances[:, 0]
    theirs = em_step(Mixture(starts.means[:, 0], variances, starts.log_weights[:, 0]), points, present)
    assert_close(ours.means[:, 0], theirs.means)
    assert_close(ours.covariances[:, 0], theirs.variances.expand_as(theirs.means), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("covariance", TYPES)
@pytest.mark.parametrize("noise", [0, 1])
def test_the_statistics_of_a_mixture_give_the_mixture(covariance, noise):
    mixtures = random_starts(2, 3, 3, 2, covariance, 2, noise)
    statistics = statistics_of_mixtures(mixtures, covariance, min_variance=SMALL)
    again = m_step(statistics, covariance, torch.ones(2, 2).double(), num_components=3, min_variance=SMALL)
    for ours, expected in zip(again, mixtures, strict=True):
        assert_close(ours, expected)


@pytest.mark.parametrize("covariance", TYPES)
def test_leaving_arrived_sets_out_changes_no_set(covariance):
    points, weights = draw([30, 9, 18], 2, 3)
    starts = random_starts(3, 2, 2, 2, covariance, 3)
    features = point_features(points, weights, covariance=covariance)
    options = dict(max_steps=60, min_variance=1e-2, tol=1e-3)
    together = fit_mixtures(features, starts, covariance, **options)
    assert together.steps.unique().numel() > 1  # otherwise nothing was left out
    for index in range(3):
        one = torch.tensor([index])
        alone = fit_mixtures(features.of_sets(one), starts.of_sets(one), covariance, **options)
        assert_close(alone.log_likelihood[0], together.log_likelihood[index])
        assert int(alone.steps) == int(together.steps[index])


@pytest.mark.parametrize("covariance", TYPES)
def test_climbing_never_descends(covariance):
    points, weights = draw([40, 25], 2, 5)
    starts = random_starts(2, 3, 3, 2, covariance, 5)
    features = point_features(points, weights, covariance=covariance)
    found = [
        fit_mixtures(features, starts, covariance, max_steps=steps, min_variance=1e-12).log_likelihood
        for steps in range(9)
    ]
    assert all((after - before > -1e-9).all() for before, after in pairwise(found))


def test_a_matrix_that_is_not_positive_definite_becomes_diagonal():
    matrices = torch.tensor([[[4.0, 9.0], [9.0, 1.0]], [[4.0, 1.0], [1.0, 1.0]]])
    factors = cholesky(matrices)
    assert_close(factors[0], torch.tensor([[2.0, 0.0], [0.0, 1.0]]))
    assert_close(factors[1] @ factors[1].mT, matrices[1])


@pytest.mark.parametrize("sizes", [[6, 6], [6, 2]])
def test_centres_are_present_points_and_different_while_there_are_enough(sizes):
    points, weights = draw(sizes, 2, 6)
    uniforms = torch.rand(50, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for one, own, centres in zip(points, weights, kmeans_plus_plus(points, weights, uniforms), strict=True):
        same = (centres[:, :, None] == one[own > 0]).all(dim=-1)  # (S, K, n)
        assert same.any(dim=-1).all()
        assert not (centres[:, 0] == centres[:, 1]).all(dim=-1).any()


def test_points_are_drawn_with_their_chances():
    uniforms = torch.rand(4000, generator=torch.Generator().manual_seed(0))
    chances = torch.tensor([1.0, 0.0, 3.0, 0.0]).expand(1, 4000, 4)
    counts = draw_indices(chances, uniforms).flatten().bincount(minlength=4) / 4000
    assert_close(counts, torch.tensor([0.25, 0.0, 0.75, 0.0]), atol=0.03, rtol=0)


def test_steps_of_kmeans_lower_the_squared_distances_and_keep_centres_without_points():
    points, weights = draw([40, 9], 3, 0)
    centres = torch.cat([points[:, :3], torch.full_like(points[:, :1], 1e3)], dim=1)[:, None]
    moved = move_centres(points, centres, weights)

    def cost(centres: torch.Tensor) -> torch.Tensor:
        return (torch.cdist(centres[:, 0], points).amin(dim=1).square() * weights).sum(dim=1)

    assert (cost(moved) < cost(centres)).all()
    assert_close(moved[:, :, 3], centres[:, :, 3])


def test_a_covariance_type_ends_if_equal_gains_and_one_penalty_cannot_make_it_the_best():
    options = SearchOptions(covariances=("spherical", "full"), component_counts=tuple(range(1, 9)))
    totals = torch.tensor([100.0])
    penalty = 4 * float(totals.log())  # a mean, a variance and a weight of a spherical component in 2 dimensions
    previous = torch.tensor([[1000.0, 500.0]], dtype=torch.float64)
    for behind, expected in ((6 * 10 + penalty - 1, True), (6 * 10 + penalty + 1, False)):
        values = torch.tensor([[990.0, 990.0 - behind]], dtype=torch.float64)
        found = can_catch_up(values, previous, values.amin(dim=1), 2, 2, totals, options)
        assert found.tolist() == [[expected, True]]
