"""EM routing on its own, and the network of matrix capsules."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from picaset.lab.networks.capsules import (
    PUBLISHED_SIZES,
    SMALL_SIZES,
    CapsuleLayer,
    CapsuleNetwork,
    em_routing,
    spread_loss,
    windows,
)
from tests import reference

CHILDREN = torch.tensor([[0, 1, 2, 3], [2, 3, 4, 5]])
"""Six children; two of them are seen from both places."""
BETAS = {"beta_use": torch.tensor([0.3, -0.2, 0.1]), "beta_activation": torch.tensor([1.0, 0.0, -1.0])}


def drawn(seed: int = 0, scale: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    votes = scale * torch.randn(2, 2, 4, 3, 5, generator=generator)
    return votes, torch.rand(2, 6, generator=generator)


@pytest.mark.parametrize("num_iterations", [1, 2, 3])
@pytest.mark.parametrize("inverse_temperature", [0.01, 1.0])
def test_routing_is_the_published_algorithm(num_iterations, inverse_temperature):
    votes, activations = (part.double() for part in drawn())
    options = {"num_iterations": num_iterations, "inverse_temperature": inverse_temperature}
    betas = {name: beta.double() for name, beta in BETAS.items()}
    found = em_routing(votes, activations, CHILDREN, **betas, **options)
    for image in range(2):
        poses, active = reference.em_routing(
            votes[image].numpy(), activations[image].numpy(), CHILDREN.numpy(),
            **{name: beta.numpy() for name, beta in betas.items()}, **options,
        )  # fmt: skip
        assert np.allclose(found.poses[image].numpy(), poses, atol=1e-6)
        assert np.allclose(found.logits[image].sigmoid().numpy(), active, atol=1e-6)


def test_the_order_of_the_children_changes_nothing():
    votes, activations = drawn()
    order = torch.tensor([2, 0, 3, 1])
    found = em_routing(votes, activations, CHILDREN, **BETAS)
    shuffled = em_routing(votes[:, :, order], activations, CHILDREN[:, order], **BETAS)
    assert_close(shuffled.poses, found.poses)
    assert_close(shuffled.logits, found.logits)


def test_votes_that_agree_activate_their_parent():
    generator = torch.Generator().manual_seed(0)
    votes = torch.randn(1, 1, 20, 2, 16, generator=generator)
    votes[:, :, :, 0] = votes[:, :, :1, 0] + 0.01 * torch.randn(1, 1, 20, 16, generator=generator)
    zeros = {name: torch.zeros(2) for name in BETAS}
    found = em_routing(votes, torch.ones(1, 20), torch.arange(20)[None], **zeros, inverse_temperature=1.0)
    agreeing, scattered = found.logits.sigmoid()[0, 0]
    assert agreeing > 0.99
    assert scattered < 0.51  # it has no votes, and says nothing
    assert_close(found.poses[0, 0, 0], votes[0, 0, :, 0].mean(dim=0), atol=0.02, rtol=0)


def test_a_child_that_is_not_there_has_no_vote():
    votes, activations = drawn()
    activations[:, 1] = 0.0
    found = em_routing(votes, activations, CHILDREN, **BETAS)
    votes[:, 0, 1] += 100.0
    assert_close(em_routing(votes, activations, CHILDREN, **BETAS).poses, found.poses, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("scale", [0.0, 1e-4, 1e4])
@pytest.mark.parametrize("active", [0.0, 1.0])
def test_routing_and_its_gradient_are_finite_however_votes_lie(scale, active):
    votes, activations = drawn(scale=scale)
    votes.requires_grad_()
    activations = torch.full_like(activations, active, requires_grad=True)
    found = em_routing(votes, activations, CHILDREN, **BETAS)
    (found.poses.sum() + found.logits.sigmoid().sum()).backward()
    for tensor in (found.poses, found.logits, votes.grad, activations.grad):
        assert bool(tensor.isfinite().all())


def test_routing_without_iterations_is_refused():
    with pytest.raises(ValueError, match="num_iterations must be at least 1; got 0"):
        em_routing(*drawn(), CHILDREN, **BETAS, num_iterations=0)


@pytest.mark.parametrize("inverse_temperature", [0.01, 0.05])
def test_a_capsule_without_votes_is_as_active_as_was_learned(inverse_temperature):
    layer = CapsuleLayer(2, 3, side=3, kernel=3, stride=1, inverse_temperature=inverse_temperature)
    with torch.no_grad():
        layer.threshold.copy_(torch.tensor([-2.0, 0.0, 1.0]))
        _, activations = layer(torch.randn(1, 18, 4, 4), torch.zeros(1, 18))
    assert_close(activations, torch.tensor([[-2.0, 0.0, 1.0]]).sigmoid())


def test_a_window_has_all_types_of_its_places():
    found = windows(side=4, types=2, kernel=3, stride=1)
    assert found.shape == (4, 18)
    assert found[3].tolist() == [
        2 * (4 * row + column) + kind for row in (1, 2, 3) for column in (1, 2, 3) for kind in (0, 1)
    ]


def test_the_place_of_a_part_is_added_to_its_vote_for_the_whole():
    layer = CapsuleLayer(1, 2, side=2, kernel=2, stride=1, shared=True, num_iterations=1)
    torch.nn.init.zeros_(layer.weight)
    poses, _ = layer(torch.randn(1, 4, 4, 4), torch.ones(1, 4))
    expected = torch.zeros(4, 4)
    expected[:2, 3] = 0.5  # the mean of a quarter and three quarters
    assert_close(poses[0, 0], expected)


def test_activations_are_probabilities_and_every_weight_learns():
    torch.manual_seed(0)
    network = CapsuleNetwork(5, channels_in=2, sizes=(4, 2, 3, 2))
    found = network(torch.randn(3, 2, 32, 32))
    assert found.shape == (3, 5)
    assert bool(((found > 0) & (found < 1)).all())
    spread_loss(found, torch.tensor([0, 3, 4]), torch.full((3,), 0.9)).backward()
    for name, weight in network.named_parameters():
        assert weight.grad is not None, name
        assert bool(weight.grad.isfinite().all()), name
        assert bool(weight.grad.any()), name


def test_the_published_network_has_its_published_size():
    assert sum(weight.numel() for weight in CapsuleNetwork(5, sizes=PUBLISHED_SIZES).parameters()) == pytest.approx(
        310_000, rel=0.05
    )
    assert CapsuleNetwork(5, sizes=SMALL_SIZES).config["sizes"] == list(SMALL_SIZES)


def test_a_saved_capsule_network_gives_the_same_numbers(tmp_path):
    network = CapsuleNetwork(3, sizes=(4, 2, 2, 2)).eval()
    network.save_pretrained(tmp_path)
    images = torch.randn(2, 1, 32, 32)
    assert torch.equal(CapsuleNetwork.from_pretrained(tmp_path)(images), network(images))


def test_the_spread_loss_is_zero_where_the_margin_is_kept():
    activations = torch.tensor([[0.9, 0.1, 0.3], [0.2, 0.5, 0.6]])
    labels = torch.tensor([0, 1])
    assert float(spread_loss(activations[:1], labels[:1], torch.tensor([0.5]))) == 0.0
    expected = (0.5 - 0.3) ** 2 + (0.5 + 0.1) ** 2
    assert float(spread_loss(activations[1:], labels[1:], torch.tensor([0.5]))) == pytest.approx(expected)


def test_an_image_too_small_for_its_windows_is_refused():
    with pytest.raises(ValueError, match="image_size must be at least 15; got 14"):
        CapsuleNetwork(5, image_size=14)
