"""Matrix capsules with EM routing, the paper's comparison for novel viewpoints (Hinton, Sabour and Frosst 2018).

A capsule is a part of an object: a 4x4 matrix that says how it lies, and an activation that says whether it is there.
A capsule's pose times a learned matrix is its vote for the pose of a whole; where the votes of many parts agree, the
whole is there.

Dimensions:  B images   C channels   N capsules of a layer   O places   W capsules that a place sees   I, J types

EM routing: parents find the votes of their children that agree (Hinton, Sabour and Frosst 2018, Algorithm 1).

Every child votes for the pose of each of its parents. A parent is a Gaussian; routing fits it to the votes that are
shared out to it, and it is active where the votes it has are many and close together:

    M step    mean, variance of a parent from its share of the votes;
              cost = sum_h (beta_use + log deviation_h) * votes it has,   activation = sigmoid(lambda (beta_act - cost))
    E step    a child shares itself out among its parents by activation times density of its vote

Everything that could under- or overflow is kept as a logarithm.

Dimensions:  B images   N children   O places   W children that a place sees   J types of parents at a place   H numbers
of a pose
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from picaset.checks import check_positive
from picaset.networks.pretrained import PretrainedNetwork

VARIANCE_FLOOR = 1e-4
"""Added to every variance: votes that agree exactly have a finite density."""
TINY = 1e-12


class Routed(NamedTuple):
    """What routing finds: the parents' poses, and the logarithms of the odds that they are there."""

    poses: Float[Tensor, "B O J H"]
    logits: Float[Tensor, "B O J"]


def em_routing(
    votes: Float[Tensor, "B O W J H"],
    activations: Float[Tensor, "B N"],
    children: Int[Tensor, "O W"],
    *,
    beta_use: Float[Tensor, " J"],
    beta_activation: Float[Tensor, " J"],
    num_iterations: int = 3,
    inverse_temperature: float = 0.01,
) -> Routed:
    """Fit every parent to the votes of its children.

    Args:
        votes: Of each child that a place sees, for each parent there.
        activations: Of each child, from 0 to 1.
        children: Which child each place sees; a child may be seen by several places, and shares itself out among them.
        beta_use: What it costs a parent to describe a vote.
        beta_activation: What it costs a parent not to be active.
        num_iterations: M steps; between two of them is an E step.
        inverse_temperature: Of the last activation if there were many iterations; it rises to it.
    """
    present = activations.clamp(min=TINY).log()[:, children][:, :, None]  # (B, O, 1, W)
    log_shares = -parents_of(children, activations.shape[1], votes.shape[3]).log()[children][None, :, None]
    # Routing does not depend on where zero is; in the middle of the votes, little is lost by subtracting squares.
    counted = present[:, :, 0].softmax(dim=-1)[..., None, None]  # (B, O, W, 1, 1)
    middle = (counted * votes).sum(dim=2).detach()  # (B, O, J, H)
    around = (votes - middle[:, :, None]).transpose(2, 3)  # (B, O, J, W, H)
    powers = torch.cat([around, around.square()], dim=-1)  # both steps are products with these
    for iteration in range(num_iterations):
        held = (log_shares + present).exp().expand(powers.shape[:-1])  # (B, O, J, W)
        total = held.sum(dim=-1, keepdim=True)  # (B, O, J, 1)
        means, squares = ((held / (total + TINY))[..., None, :] @ powers)[..., 0, :].chunk(2, dim=-1)  # (B, O, J, H)
        variances = (squares - means.square()).clamp(min=0) + VARIANCE_FLOOR
        log_variances = variances.log()
        cost = total[..., 0] * (beta_use[:, None] + 0.5 * log_variances).sum(dim=-1)
        logits = rising(inverse_temperature, iteration + 1) * (beta_activation - cost)
        if iteration == num_iterations - 1:
            return Routed(means + middle, logits)
        # (v - m)^2 / s = v * (-2 m / s) + v^2 * (1 / s) + m^2 / s, summed over the numbers of a pose.
        factors = torch.cat([-2 * means / variances, 1 / variances], dim=-1)[..., None]
        rest = (means.square() / variances + log_variances + math.log(2 * math.pi)).sum(dim=-1, keepdim=True)
        log_density = -0.5 * ((powers @ factors)[..., 0] + rest)  # (B, O, J, W)
        log_claims = logsigmoid(logits)[..., None] + log_density
        log_shares = log_claims - claimed(log_claims.logsumexp(dim=2), children, activations.shape[1])[:, :, None]
    raise ValueError(f"em_routing: num_iterations must be at least 1; got {num_iterations}.")


def rising(inverse_temperature: float, iterations: int) -> float:
    """The inverse temperature after so many M steps."""
    return inverse_temperature * (1 - 0.95**iterations)


def parents_of(children: Int[Tensor, "O W"], num_children: int, num_types: int) -> Float[Tensor, " N"]:
    """How many parents each child has."""
    return num_types * torch.bincount(children.flatten(), minlength=num_children).clamp(min=1).float()


def claimed(log_claims: Float[Tensor, "B O W"], children: Int[Tensor, "O W"], num_children: int) -> Tensor:
    """The logarithm of what all parents of a child claim of it together, wherever they are; (B, O, W)."""
    flat = log_claims.flatten(1)
    index = children.flatten().expand(len(flat), -1)
    nothing = flat.new_full((len(flat), num_children), -torch.inf)
    largest = nothing.scatter_reduce(1, index, flat.detach(), "amax").gather(1, index)
    total = torch.zeros_like(nothing).scatter_add(1, index, (flat - largest).exp())
    return (total.gather(1, index).log() + largest).reshape(log_claims.shape)


PUBLISHED = (32, 32, 32, 32)
"""Channels of the convolution, and types of the three layers of capsules, as published."""
SMALL = (32, 4, 8, 8)
"""What two cores can train."""


class CapsuleNetwork(PretrainedNetwork):
    """EM capsules: a convolution, primary capsules, two convolutional layers of capsules, one capsule for each class.

    Args:
        num_classes: Classes, each a capsule of the last layer.
        channels_in: Channels of an image.
        image_size: Pixels of an image, in each direction.
        sizes: Channels of the convolution, and types of primary and of the two layers of convolutional capsules.
        num_iterations: Of routing.
        inverse_temperature: Of routing; see :func:`em_routing`.

    Shapes:
        images    (B, C, S, S)
        returns   (B, num_classes)     the activation of each class, from 0 to 1

    Example:
        >>> network = CapsuleNetwork(5, sizes=(4, 2, 3, 2))
        >>> network(torch.randn(2, 1, 32, 32)).shape
        torch.Size([2, 5])
    """

    def __init__(
        self,
        num_classes: int,
        *,
        channels_in: int = 1,
        image_size: int = 32,
        sizes: tuple[int, int, int, int] | list[int] = PUBLISHED,
        num_iterations: int = 3,
        inverse_temperature: float = 0.01,
    ) -> None:
        channels, primary, first, second = sizes
        check_positive(
            caller="CapsuleNetwork", num_classes=num_classes, channels_in=channels_in, channels=channels,
            primary=primary, first=first, second=second, num_iterations=num_iterations,
        )  # fmt: skip
        if image_size < 15:
            raise ValueError(f"CapsuleNetwork: image_size must be at least 15; got {image_size}.")
        super().__init__()
        side = (image_size - 5) // 2 + 1
        self.convolution = nn.Conv2d(channels_in, channels, 5, stride=2)
        self.primary = nn.Conv2d(channels, primary * 17, 1)
        self.layers = nn.ModuleList()
        for types_in, types_out, kernel, stride in ((primary, first, 3, 2), (first, second, 3, 1)):
            layer = CapsuleLayer(
                types_in, types_out, side=side, kernel=kernel, stride=stride, num_iterations=num_iterations,
                inverse_temperature=inverse_temperature,
            )  # fmt: skip
            self.layers.append(layer)
            side = layer.side_out
        self.layers.append(
            CapsuleLayer(
                second, num_classes, side=side, kernel=side, stride=1, shared=True, num_iterations=num_iterations,
                inverse_temperature=inverse_temperature,
            )
        )  # fmt: skip

    def forward(self, images: Float[Tensor, "B C S S"]) -> Float[Tensor, "B classes"]:
        found = self.primary(torch.relu(self.convolution(images)))  # (B, I * 17, s, s)
        capsules = found.unflatten(1, (-1, 17)).permute(0, 3, 4, 1, 2).flatten(1, 3)  # (B, N, 17): place, then type
        poses, activations = capsules[..., :16].unflatten(-1, (4, 4)), capsules[..., 16].sigmoid()
        for layer in self.layers:
            poses, activations = layer(poses, activations)
        return activations


class CapsuleLayer(nn.Module):
    """From the capsules in every window to capsules of new types, by routing.

    Args:
        types_in: Types of capsules at every place below.
        types_out: Types of capsules at every place here.
        side: Places below, in each direction.
        kernel: Places of a window, in each direction.
        stride: Places from one window to the next.
        shared: One matrix for all places of a window; where a capsule is, is then added to its vote.
        num_iterations: Of routing.
        inverse_temperature: Of routing.

    Shapes:
        poses        (B, N, 4, 4)     N = side * side * types_in, by row, column, type
        activations  (B, N)
        returns      the same of this layer
    """

    seen: Tensor
    coordinates: Tensor

    def __init__(
        self,
        types_in: int,
        types_out: int,
        *,
        side: int,
        kernel: int,
        stride: int,
        shared: bool = False,
        num_iterations: int = 3,
        inverse_temperature: float = 0.01,
    ) -> None:
        super().__init__()
        self.side_out = (side - kernel) // stride + 1
        self.num_iterations = num_iterations
        self.inverse_temperature = inverse_temperature
        self.repeats = kernel * kernel if shared else 1
        matrices = types_in if shared else kernel * kernel * types_in
        # Near the identity: at first a whole lies as its parts do.
        self.weight = nn.Parameter(torch.eye(4) + 0.2 * torch.randn(matrices, types_out, 4, 4))
        self.beta_use = nn.Parameter(torch.zeros(types_out))
        # The logit of a parent that has no votes. In units of a cost, as published, one step of training would change
        # it a thousandth as much as it must be able to change.
        self.threshold = nn.Parameter(torch.full((types_out,), -1.0))
        self.register_buffer("seen", windows(side, types_in, kernel, stride), persistent=False)
        places = (torch.arange(kernel) + 0.5) / kernel
        rows, columns = torch.meshgrid(places, places, indexing="ij")
        where = torch.stack([rows, columns], dim=-1).reshape(-1, 1, 2).expand(-1, types_in, -1).reshape(-1, 2)
        self.register_buffer("coordinates", where if shared else torch.zeros_like(where), persistent=False)

    def forward(
        self, poses: Float[Tensor, "B N 4 4"], activations: Float[Tensor, "B N"]
    ) -> tuple[Float[Tensor, "B M 4 4"], Float[Tensor, "B M"]]:
        weight = self.weight.repeat(self.repeats, 1, 1, 1)  # (W, J, 4, 4)
        votes = torch.einsum("bowxy,wjyz->bowjxz", poses[:, self.seen], weight)
        # Coordinate addition: the place goes into the first two numbers of the right-hand column.
        votes = votes + nn.functional.pad(self.coordinates[..., None], (3, 0, 0, 2))[:, None]
        routed = em_routing(
            votes.flatten(-2),
            activations,
            self.seen,
            beta_use=self.beta_use,
            beta_activation=self.threshold / rising(self.inverse_temperature, self.num_iterations),
            num_iterations=self.num_iterations,
            inverse_temperature=self.inverse_temperature,
        )
        return routed.poses.reshape(len(poses), -1, 4, 4), routed.logits.sigmoid().flatten(1)


def windows(side: int, types: int, kernel: int, stride: int) -> Int[Tensor, "O W"]:
    """The capsules that each place sees: all types at every place of its window."""
    index = torch.arange(side * side * types).reshape(side, side, types)
    seen = index.unfold(0, kernel, stride).unfold(1, kernel, stride)  # (o, o, types, kernel, kernel)
    return seen.permute(0, 1, 3, 4, 2).reshape(-1, kernel * kernel * types)


def spread_loss(
    activations: Float[Tensor, "B classes"], labels: Int[Tensor, " B"], margin: Float[Tensor, " B"]
) -> Float[Tensor, ""]:
    """How far every wrong class is from being less active than the right one by a margin, squared (their Eq. 3)."""
    right = activations.gather(1, labels[:, None])
    short = (margin[:, None] - (right - activations)).clamp(min=0).square()
    wrong = torch.ones_like(short).scatter(1, labels[:, None], 0.0)
    return (short * wrong).sum(dim=1).mean()
