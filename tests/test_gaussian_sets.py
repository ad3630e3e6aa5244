"""The hierarchical Gaussian model of sets, and the statistical detectors that use it."""

import json

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_t
from sklearn.neighbors import LocalOutlierFactor
from torch.testing import assert_close

from picaset.estimators.element_detectors import (
    MAX_REFERENCE,
    StatisticalDetectors,
    local_outlier_factors,
    log_density,
    padded_batches,
)
from picaset.estimators.gaussian_sets import GaussianSets, fit_gaussian_sets, moments_of
from picaset.tables.examples import draw_sets_along_lines


def model() -> GaussianSets:
    scatter = torch.tensor([[2.0, 0.5, 0.1], [0.5, 1.0, 0.2], [0.1, 0.2, 3.0]], dtype=torch.float64)
    number = lambda value: torch.tensor(value, dtype=torch.float64)  # noqa: E731
    return GaussianSets(number([0.5, -1.0, 0.2]), number(0.7), scatter, number(4.3))


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_the_marginal_likelihood_is_the_product_of_the_predictive_densities():
    elements, total = draw(2, 5, 3), torch.zeros(2, dtype=torch.float64)
    for index in range(5):
        before = (torch.arange(5) < index).double().expand(2, 5)
        total += model().densities(elements, before).log_density[:, index]
    assert_close(model().log_marginal(moments_of(elements, torch.ones(2, 5, dtype=torch.float64))), total)


def test_the_density_of_an_element_given_a_set_without_it_is_the_leave_one_out_density():
    elements, weights = draw(2, 6, 3), torch.ones(2, 6, dtype=torch.float64)
    expected = model().densities(elements, weights)
    for index in range(6):
        without = weights.clone()
        without[:, index] = 0
        for values, one_by_one in zip(expected, model().densities(elements, without), strict=True):
            assert_close(values[:, index], one_by_one[:, index])


def test_the_density_without_a_set_is_the_student_t_of_the_prior():
    elements, prior = draw(1, 4, 3), model()
    dof = float(prior.dof) - 3 + 1
    shape = prior.scatter.numpy() * (1 + float(prior.strength)) / (float(prior.strength) * dof)
    expected = multivariate_t(prior.mean.numpy(), shape, df=dof).logpdf(elements[0].numpy())
    assert_close(prior.prior_log_density(elements)[0], torch.as_tensor(expected))
    assert_close(
        prior.densities(elements, torch.zeros(1, 4, dtype=torch.float64)).log_density[0], torch.as_tensor(expected)
    )


def test_padding_and_the_order_of_the_elements_change_no_score():
    elements, mask = draw(2, 9, 3), torch.arange(9) < torch.tensor([[9], [6]])
    scores = model().score(elements, mask)
    order = torch.randperm(9, generator=torch.Generator().manual_seed(1))
    assert_close(model().score(elements[:1, order], mask[:1]), scores[:1, order])
    assert_close(model().score(elements[1:, :6], mask[1:, :6]), scores[1:, :6])
    assert_close(model().score(elements + (~mask)[..., None] * 1e3, mask)[mask], scores[mask])


def test_elements_far_from_their_set_do_not_count_for_it():
    elements = draw(1, 20, 3) / 10
    elements[:, :4] += 5
    typical = model().typical_elements(elements, torch.ones(1, 20, dtype=torch.bool))
    assert typical[0, :4].sum() == 0
    assert typical[0, 4:].sum() >= 15


def test_the_fitted_distribution_is_at_least_as_likely_as_the_one_that_the_sets_are_from():
    generator, true = np.random.default_rng(0), model()
    sets = list[torch.Tensor]()
    for _ in range(80):
        factor = np.linalg.inv(np.linalg.cholesky(true.scatter.numpy()))
        normal = generator.normal(size=(9, 3)) @ factor  # an inverse Wishart with nine degrees of freedom
        covariance = np.linalg.inv(normal.T @ normal)
        mean = generator.multivariate_normal(true.mean.numpy(), covariance / float(true.strength))
        sets.append(torch.as_tensor(generator.multivariate_normal(mean, covariance, size=7)))
    elements = torch.stack(sets)
    everything = torch.ones(80, 7, dtype=torch.float64)
    fitted = fit_gaussian_sets([(elements, everything.bool())], num_rounds=1)
    true = true._replace(dof=torch.tensor(9.0, dtype=torch.float64))
    ours, theirs = (float(one.log_marginal(moments_of(elements, everything)).sum()) for one in (fitted, true))
    assert theirs < ours < theirs + 15


def test_constant_and_equal_features_are_scored():
    generator = np.random.default_rng(0)
    column = generator.normal(size=(12, 6, 1))
    sets = list(np.concatenate([column, column, np.zeros_like(column)], axis=2))
    detectors = StatisticalDetectors.fit(sets, seed=0)
    for member in ("mahalanobis", "density", "lof"):
        assert np.isfinite(np.concatenate(detectors.score(member, sets))).all()


# Statistical detectors


def lines() -> list[np.ndarray]:
    generator = np.random.default_rng(3)
    return [one for size in (5, 9) for one in draw_sets_along_lines(20, size, generator=generator)[0]]


def test_batches_hold_every_element_of_every_set_once():
    sets = [np.full((size, 2), float(index)) for index, size in enumerate((3, 40, 1, 5, 300, 4))]
    seen = dict[int, int]()
    for indices, elements, mask in padded_batches(sets):
        for index, values, present in zip(indices, elements, mask, strict=True):
            assert (values[present] == index).all()
            seen[index] = int(present.sum())
    assert seen == {index: len(elements) for index, elements in enumerate(sets)}


def test_the_density_is_that_of_kernels_around_the_other_elements():
    elements = draw(7, 2).numpy()
    width = 0.5 * 7 ** (-1 / 6)
    for index, value in enumerate(log_density(elements, 0.5, seed=0)):
        others = np.delete(elements, index, axis=0)
        kernels = np.exp(-np.square(others - elements[index]).sum(axis=1) / (2 * width**2)) / (2 * np.pi * width**2)
        assert value == pytest.approx(np.log(kernels.sum() / 7))


def test_sets_larger_than_the_reference_are_scored_like_smaller_ones():
    elements = np.random.default_rng(0).normal(size=(MAX_REFERENCE + 500, 2))
    elements[7] = 30
    whole = -LocalOutlierFactor(20).fit(elements).negative_outlier_factor_
    assert np.corrcoef(np.log(local_outlier_factors(elements, seed=0)), np.log(whole))[0, 1] > 0.8
    assert log_density(elements, 1.0, seed=0).argmin() == 7


@pytest.mark.parametrize("member", ["mahalanobis", "density", "lof", "forest"])
def test_sets_of_one_and_two_elements_have_finite_scores(member):
    detectors = StatisticalDetectors.fit(lines(), seed=0)
    scores = detectors.score(member, [np.zeros((1, 3)), np.ones((2, 3)), np.eye(3)])
    assert [len(values) for values in scores] == [1, 2, 3]
    assert np.isfinite(np.concatenate(scores)).all()


def test_more_features_than_the_maximum_are_reduced_without_losing_the_anomaly():
    generator = np.random.default_rng(0)
    sets = [centre + generator.normal(size=(12, 40)) / 3 for centre in generator.normal(size=(30, 40))]
    sets[4][5] = sets[8][0]
    detectors = StatisticalDetectors.fit(sets, seed=0)
    assert detectors.components.shape == (40, 32)
    assert detectors.score("mahalanobis", sets)[4].argmax() == 5


def test_detectors_read_back_from_json_give_the_same_scores():
    detectors = StatisticalDetectors.fit(lines(), seed=0)
    again = StatisticalDetectors.from_json(json.loads(json.dumps(detectors.to_json())))
    for member in ("mahalanobis", "density"):
        for first, second in zip(detectors.score(member, lines()), again.score(member, lines()), strict=True):
            assert np.array_equal(first, second)
