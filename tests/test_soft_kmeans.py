"""Soft K-means, in both readings of Proposition 2, and the EM step."""

import copy
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from sklearn.mixture import GaussianMixture
from torch.testing import assert_close

from picaset import Mixture, PicasoPool, SoftKMeans, em_step, log_likelihood
from picaset.lab.data.gaussian_mixtures import draw_mixtures
from tests.operators import DIM, TEMPLATES
from tests.random_sets import Sets, sets


def with_identity_maps(pool: PicasoPool) -> PicasoPool:
    for block in pool.blocks:
        for layer in (block.query_map, block.key_map, block.value_map, block.output_map):
            torch.nn.init.eye_(layer.weight)
            torch.nn.init.zeros_(layer.bias)
    return pool


@given(data=sets())
def test_a_bare_cascade_is_the_papers_soft_kmeans(data: Sets):
    pool = PicasoPool(DIM, num_templates=TEMPLATES, num_heads=1, residual=False, feed_forward=False).double()
    kmeans = SoftKMeans(DIM, num_templates=TEMPLATES, compete=False).double()
    kmeans.templates = with_identity_maps(pool).templates
    assert_close(kmeans(*data.padded()), pool(*data.padded()))


def separated_points(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return separated clusters, and an initial centroid near each, so that no cluster empties."""
    generator = torch.Generator().manual_seed(seed)
    centres = 8 * torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    points = centres.repeat(20, 1) + torch.randn(60, 2, generator=generator, dtype=torch.float64)
    return points, centres + torch.randn(3, 2, generator=generator, dtype=torch.float64)


@given(seed=st.integers(0, 999), steps=st.integers(1, 5))
def test_as_the_temperature_falls_soft_kmeans_becomes_kmeans(seed: int, steps: int):
    points, start = separated_points(seed)
    soft = SoftKMeans(2, num_templates=3, num_steps=steps, temperature=1e-6).double()
    soft.templates.data = start
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it has not converged, which is the point
        hard = KMeans(3, init=start.numpy(), n_init=1, max_iter=steps, tol=0).fit(points.numpy())
    assert_close(soft(points[None])[0].detach(), torch.from_numpy(hard.cluster_centers_))


@pytest.mark.parametrize("far", [9.7, 10.2, 11.0, 30.0, 1e4])
def test_a_far_centroid_follows_the_equation_with_finite_gradients(far: float):
    # Its shares underflow in float32; their ratio, which moves it, does not.
    kmeans = SoftKMeans(1, num_templates=2, num_steps=1)
    kmeans.templates.data = torch.tensor([[0.0], [far]])
    points = torch.tensor([[[-0.1], [0.1], [0.2]]], requires_grad=True)
    result = kmeans(points)
    result.sum().backward()
    assert points.grad is not None
    assert points.grad.isfinite().all()
    exact = copy.deepcopy(kmeans).double()(points.detach().double())
    assert_close(result.double(), exact, rtol=1e-3, atol=1e-3)
    assert -0.1 <= result[0, 1].item() <= 0.2001


@pytest.mark.parametrize(("temperature", "expected"), [(1e-36, [-1.0, 3.0]), (1e-38, [1.0, 9.0])])
def test_the_lowest_temperatures_give_no_nan(temperature: float, expected: list[float]):
    # A far centroid is moved by the least far point; where even that share is beyond float32, it stays.
    kmeans = SoftKMeans(1, num_templates=2, temperature=temperature)
    kmeans.templates.data = torch.tensor([[0.0], [9.0]])
    points = torch.tensor([[[-1.0], [3.0]]], requires_grad=True)
    centroids = kmeans(points)
    centroids.sum().backward()
    assert points.grad is not None
    assert points.grad.isfinite().all()
    assert centroids.flatten().tolist() == expected


def test_soft_kmeans_moves_with_its_points():
    points, start = separated_points(0)
    kmeans = SoftKMeans(2, num_templates=3).double()
    kmeans.templates.data = start
    here = kmeans(points[None])
    kmeans.templates.data = start + 1e6
    assert_close(kmeans(points[None] + 1e6) - 1e6, here, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("kind", "columns"), [("spherical", 1), ("diag", 2)])
def test_em_steps_are_those_of_scikit_learn(kind: str, columns: int):
    points, start = separated_points(3)
    variances, weights = np.full((3, columns), 1.5), np.array([0.2, 0.3, 0.5])
    peer = GaussianMixture(
        3,
        covariance_type=kind,
        max_iter=4,
        tol=0.0,
        reg_covar=0.0,
        means_init=start.numpy(),
        precisions_init=1 / variances.squeeze() if columns == 1 else 1 / variances,
        weights_init=weights,
    )
    with pytest.warns(match="converge"):
        peer.fit(points.numpy())
    mixture = Mixture(start[None], torch.from_numpy(variances)[None], torch.from_numpy(weights).log()[None])
    for _ in range(4):
        mixture = em_step(mixture, points[None])
    assert_close(mixture.means[0], torch.from_numpy(peer.means_))
    assert_close(mixture.variances[0].squeeze(), torch.from_numpy(peer.covariances_))
    assert_close(mixture.log_weights[0].exp(), torch.from_numpy(peer.weights_))
    assert_close(log_likelihood(mixture, points[None])[0].item(), peer.score(points.numpy()))


@given(data=sets(min_size=4, max_size=30), spherical=st.booleans())
def test_an_em_step_never_lowers_the_likelihood(data: Sets, spherical: bool):
    elements, mask = data.padded()
    shape = (len(elements), TEMPLATES)
    mixture = Mixture(
        torch.randn(*shape, DIM, generator=data.generator, dtype=torch.float64),
        torch.ones(*shape, 1 if spherical else DIM, dtype=torch.float64),
        torch.zeros(shape, dtype=torch.float64).log_softmax(dim=1),
    )
    before = log_likelihood(mixture, elements, mask)
    for _ in range(3):
        mixture = em_step(mixture, elements, mask)
        after = log_likelihood(mixture, elements, mask)
        assert (after >= before - 1e-9).all()
        before = after


@pytest.mark.parametrize("far", [13.0, 40.0, 1e3])
def test_a_far_component_stays_finite_and_is_moved_by_the_nearest_points(far: float):
    means = torch.tensor([[[0.0], [far]]], requires_grad=True)
    mixture = Mixture(means, torch.ones(1, 2, 1), torch.tensor([[0.5, 0.5]]).log())
    after = em_step(mixture, torch.tensor([[[-1.0], [1.0]]]))
    sum(part.sum() for part in after).backward()
    assert means.grad is not None
    assert means.grad.isfinite().all()
    assert_close(after.means[0, 1], torch.ones(1), rtol=1e-3, atol=1e-3)
    assert after.log_weights[0, 1] < -50


def test_gradients_through_em_are_finite_from_any_start():
    for seed in range(200):
        generator = torch.Generator().manual_seed(seed)
        points, _ = draw_mixtures(1, 100, generator=generator)
        means = (4 * torch.randn(1, 4, 2, generator=generator)).requires_grad_()
        mixture = Mixture(means, torch.full((1, 4, 1), 0.09), torch.zeros(1, 4))
        for _ in range(3):
            mixture = em_step(mixture, points)
        log_likelihood(mixture, points).sum().backward()
        assert means.grad is not None
        assert means.grad.isfinite().all()


def test_the_likelihood_of_an_empty_set_is_zero():
    standard = Mixture(torch.zeros(1, 1, 2), torch.ones(1, 1, 1), torch.zeros(1, 1))
    assert log_likelihood(standard, torch.zeros(1, 3, 2), torch.zeros(1, 3, dtype=torch.bool)) == 0
