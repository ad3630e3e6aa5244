"""A network that predicts mixtures: what every kind of it must satisfy."""

import pytest
import torch
from torch.testing import assert_close

from picaset import SetBatch
from picaset.lab.networks.mixture_network import MixtureNetwork, mixture_steps, with_frequencies
from picaset.operators.mixture import Mixture

KINDS = {
    "linear": dict(),
    "moments": dict(readout="moments"),
    "canonical": dict(canonicalize=True),
    "canonical moments": dict(canonicalize=True, readout="moments", num_steps=3),
    "attention": dict(pool="attention"),
    "mean": dict(encoder="elementwise", pool="mean"),
    "frequencies": dict(num_frequencies=2),
}


@pytest.fixture(params=KINDS)
def network(request) -> MixtureNetwork:
    torch.manual_seed(0)
    return MixtureNetwork(num_components=3, dim=16, num_inducing=4, **KINDS[request.param]).double().eval()


def draw(sizes: list[int]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [3 * torch.randn(size, 2, generator=generator, dtype=torch.float64) for size in sizes]


@torch.no_grad()
def test_order_does_not_matter(network):
    (points,) = draw([20])
    order = torch.randperm(20)
    assert_close(network(points[None]), network(points[order][None]))


@torch.no_grad()
def test_packed_padded_and_alone_agree(network):
    sets = draw([20, 3, 11, 1])
    batch = SetBatch.from_list(sets)
    elements, mask = batch.to_padded()
    alone = Mixture(*(torch.cat(parts) for parts in zip(*(network(one[None]) for one in sets), strict=True)))
    assert_close(network(batch), alone)
    assert_close(network(elements, mask), alone)


@torch.no_grad()
def test_weights_are_a_distribution_and_variances_positive(network):
    mixture = network(SetBatch.from_list(draw([20, 1, 5])))
    assert_close(mixture.log_weights.exp().sum(dim=1), torch.ones(3, dtype=torch.float64))
    assert (mixture.variances > 0).all()


@torch.no_grad()
def test_an_empty_set_has_a_finite_mixture(network):
    mixture = network(torch.zeros(1, 5, 2, dtype=torch.float64), torch.zeros(1, 5, dtype=torch.bool))
    assert all(part.isfinite().all() for part in mixture)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["canonical", "canonical moments"])
def test_canonicalized_it_moves_and_grows_with_the_points(kind):
    network = MixtureNetwork(num_components=3, dim=16, num_inducing=4, **KINDS[kind]).double()
    (points,) = draw([20])
    mixture = network(points[None])
    moved = network(100 + 7 * points[None])
    assert_close(moved.means, 100 + 7 * mixture.means)
    assert_close(moved.variances, 49 * mixture.variances)
    assert_close(moved.log_weights, mixture.log_weights)


@torch.no_grad()
def test_moments_are_those_of_the_points_that_are_claimed():
    network = MixtureNetwork(num_components=3, dim=16, num_inducing=4, readout="moments").double()
    (points,) = draw([20])
    mixture = network(points[None])
    weights = mixture.log_weights.exp()
    # Claims add up to one for every point, so the components together have the mean of the set.
    assert_close((weights[..., None] * mixture.means).sum(dim=1)[0], points.mean(dim=0), atol=1e-5, rtol=0)
    spread = (weights[..., None] * (mixture.variances + mixture.means.square().mean(dim=-1, keepdim=True))).sum()
    assert_close(spread, points.square().mean(), atol=1e-4, rtol=0)


@torch.no_grad()
def test_coarse_estimates_come_behind_the_others():
    network = MixtureNetwork(num_components=3, dim=16, num_inducing=4, readout="moments")
    points = torch.randn(2, 20, 2)
    both = network(points, coarse=True)
    assert both.means.shape == (4, 3, 2)
    assert_close(both.means[:2], network(points).means)
    assert not torch.allclose(both.means[2:], both.means[:2])


@torch.no_grad()
def test_a_saved_network_predicts_the_same(network, tmp_path):
    network.save_pretrained(tmp_path)
    points = torch.stack(draw([9]))
    assert_close(MixtureNetwork.from_pretrained(tmp_path)(points), network(points))


def test_every_weight_has_a_gradient(network):
    points = torch.stack(draw([9]))
    mixture = network(points, coarse=True)
    sum(part.sum() for part in mixture).backward()
    assert all(parameter.grad is not None for parameter in network.parameters())


@torch.no_grad()
def test_the_trace_is_that_of_the_cascade():
    for canonicalize in (False, True):
        network = MixtureNetwork(num_components=3, dim=16, num_inducing=4, canonicalize=canonicalize)
        trace = network.trace(torch.randn(2, 20, 2))
        assert trace.templates.shape == (3, 2, 3, 16)
        assert_close(trace.attention.sum(dim=-1), torch.ones(2, 2, 4, 3))


def test_frequencies_stand_beside_the_coordinates():
    points = torch.tensor([[[1.0, 0.0]]])
    assert_close(with_frequencies(points, 1), torch.tensor([[[1.0, 0.0, 1.0, 0.0, 0.0, 1.0]]]), atol=1e-6, rtol=0)
    assert_close(with_frequencies(points, 0), points)
    assert with_frequencies(points, 3).shape == (1, 1, 2 * 7)


@pytest.mark.as_installed
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(pool="median"), "pool must be one of 'picaso', .*, 'max'; got 'median'"),
        (dict(readout="linera"), "readout must be one of 'linear', 'moments'; got 'linera'"),
        (dict(pool="mean", readout="moments"), "readout 'moments' needs a template for each component; pool 'mean'"),
        (dict(num_components=0), "num_components must be at least 1; got 0"),
    ],
)
def test_settings_that_do_not_fit_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        MixtureNetwork(**options)


def test_only_a_cascade_can_be_traced():
    with pytest.raises(ValueError, match="only the pool 'picaso' has steps; this network has pool 'attention'"):
        MixtureNetwork(pool="attention").trace(torch.randn(1, 3, 2))


@torch.no_grad()
@pytest.mark.parametrize("kind", ["linear", "moments", "canonical", "canonical moments"])
def test_the_last_mixture_of_all_steps_is_the_prediction(kind):
    network = MixtureNetwork(num_components=3, dim=16, num_inducing=4, **KINDS[kind]).double()
    elements, mask = SetBatch.from_list(draw([20, 3])).to_padded()
    steps = mixture_steps(network, elements, mask)
    assert len(steps.mixtures) == network.config["num_steps"] + 1
    assert steps.attention.shape[-1] == 20
    assert_close(steps.mixtures[-1], network(elements, mask))
