"""A network that proposes mixtures: what must not matter to it."""

import pytest
import torch
from torch.testing import assert_close

from picaset.lab.tasks.mixture_proposals import NETWORK, MixtureProposals
from picaset.networks.mixture_proposer import MixtureProposer
from picaset.operators.mixture import Mixture, em_step, log_likelihood


@pytest.fixture
def proposer() -> MixtureProposer:
    torch.manual_seed(0)
    return MixtureProposer(dim=16, num_proposals=3, num_frequencies=1).double().eval()


def draw(count: int) -> torch.Tensor:
    return 3 * torch.randn(2, count, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@torch.no_grad()
@pytest.mark.parametrize("num_components", [1, 2, 8])
def test_every_number_of_components_is_proposed_for(proposer, num_components):
    mixtures = proposer(draw(20), num_components=num_components)
    assert mixtures.means.shape == (6, num_components, 2)
    assert_close(mixtures.log_weights.exp().sum(dim=1), torch.ones(6, dtype=torch.float64))
    assert (mixtures.variances > 0).all()


@torch.no_grad()
def test_order_does_not_matter(proposer):
    points = draw(20)
    assert_close(proposer(points.flip(1), num_components=3), proposer(points, num_components=3))


@torch.no_grad()
def test_padding_is_never_read(proposer):
    points = draw(20)
    padded = torch.cat([points, torch.full((2, 4, 2), torch.nan, dtype=torch.float64)], dim=1)
    mask = (torch.arange(24) < 20).expand(2, -1)
    assert_close(proposer(padded, mask, num_components=3), proposer(points, num_components=3))


@torch.no_grad()
def test_proposals_move_and_grow_with_the_points(proposer):
    points = draw(20)
    before, after = proposer(points, num_components=3), proposer(7 * points - 30, num_components=3)
    assert_close(after.means, 7 * before.means - 30)
    assert_close(after.variances, 49 * before.variances)
    assert_close(after.log_weights, before.log_weights)


@torch.no_grad()
def test_the_proposals_of_one_set_are_next_to_each_other(proposer):
    points = draw(20)
    assert_close(proposer(points[1:], num_components=2).means, proposer(points, num_components=2).means[3:])


@torch.no_grad()
def test_proposals_differ(proposer):
    means = proposer(draw(20)[:1], num_components=2).means
    assert (means[0] - means[1]).abs().max() > 1e-3


def test_too_many_components_are_refused(proposer):
    with pytest.raises(ValueError, match="from 1 to 8; got 9"):
        proposer(draw(20), num_components=9)


@torch.no_grad()
def test_the_last_of_every_step_is_the_proposal(proposer):
    points = draw(20)
    every, last = proposer(points, num_components=3, every_step=True), proposer(points, num_components=3)
    assert every.means.shape == (6 * proposer.num_steps, 3, 2)
    for part, expected in zip(every, last, strict=True):
        assert_close(part[-6:], expected)


@pytest.mark.parametrize("share", [True, False])
def test_shared_blocks_do_not_grow_with_the_steps(share):
    few, many = (
        sum(weight.numel() for weight in MixtureProposer(dim=16, num_steps=steps, share=share).parameters())
        for steps in (2, 5)
    )
    assert (few == many) == share


@torch.no_grad()
def test_the_loss_is_the_likelihood_of_the_best_and_of_the_average_proposal_after_an_em_step_and_before():
    task = MixtureProposals(network=NETWORK.replace(dim=16, num_proposals=4, num_steps=2))
    network = task.build_network()
    points, numbers = batch = task.batch(3, seed=0, num_examples=5, progress=0.0)
    repeated = points.repeat_interleave(4, dim=0)

    def best_and_average(mixture: Mixture) -> torch.Tensor:
        found = log_likelihood(mixture, repeated).view(5, 4)
        return (found.amax(dim=1) + found.mean(dim=1)).mean() / 2

    every = network(points, num_components=int(numbers[0]), every_step=True)
    first, second = (Mixture(*parts) for parts in zip(*(part.chunk(2) for part in every), strict=True))
    steps = (best_and_average(first) + best_and_average(second)) / 2
    assert_close(task.loss(network, batch), -(best_and_average(em_step(second, repeated)) + 0.5 * steps))


def test_a_batch_is_the_same_whenever_it_is_asked_for():
    task = MixtureProposals()
    first, again = (task.batch(7, seed=3, num_examples=4, progress=0.5) for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (dict(network=NETWORK.replace(max_components=1)), "max_components must be at least 2; got 1"),
        (dict(sizes=(9, 3)), r"sizes must be \(smallest, largest\) with 0 < smallest <= largest; got \(9, 3\)"),
        (dict(deviations=(0.0, 1.0)), r"deviations must be \(smallest, largest\) with 0 < smallest"),
        (dict(num_scored_sets=0), "num_scored_sets must be at least 1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        MixtureProposals(**settings)
