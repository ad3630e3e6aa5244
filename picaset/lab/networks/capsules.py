"""Matrix capsules with EM routing, a baseline for novel viewpoints (Hinton, Sabour and Frosst 2018).

A capsule is a part of an object: a 4 x 4 pose matrix, and an activation, the probability that the part is present. A
child votes for the pose of each of its parents by its own pose times a learned matrix. EM routing (Algorithm 1) fits a
Gaussian to the votes of each parent, which is active if it has many votes that are close together:

    M step    mean and variance of each parent from its share of the votes;
              cost = sum_h (beta_use + log deviation_h) * votes,   activation = sigmoid(lambda (beta_activation - cost))
    E step    each child is shared out among its parents in proportion to activation times density of its vote

Probabilities are computed as logarithms, so that they neither underflow nor overflow.

Dimensions:  B images   C channels   S pixels a side   N children   O windows   W children of a window
             J types of parents of a window   H numbers of a pose   M parents
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from picaset.checks import check_positive
from picaset.pretrained import PretrainedNetwork

VARIANCE_FLOOR = 1e-4
"""Added to every variance, so that the density of equal votes is finite."""
TINY = 1e-12
"""Smallest activation, and a term that keeps denominators positive."""


class Routed(NamedTuple):
    """Poses of the parents, and logits of their activations."""

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
        votes: Vote of each child of a window for each parent of the window.
        activations: Activation of each child, from 0 to 1.
        children: Indices of the children of each window; a child in several windows is shared out among them.
        beta_use: Cost of describing a vote, for each type of parent.
        beta_activation: Cost of not activating, for each type of parent.
        num_iterations: Number of M steps, with an E step between two of them.
        inverse_temperature: Limit of the inverse temperature, which grows with the iterations.
    """
    present = activations.clamp(min=TINY).log()[:, children][:, :, None]  # (B, O, 1, W)
    log_shares = -count_parents(children, activations.shape[1], votes.shape[3]).log()[children][None, :, None]
    # Routing is invariant to the origin; near the mean of the votes, the difference of squares below is accurate.
    mean_weights = present[:, :, 0].softmax(dim=-1)[..., None, None]  # (B, O, W, 1, 1)
    centre = (mean_weights * votes).sum(dim=2).detach()  # (B, O, J, H)
    centred = (votes - centre[:, :, None]).transpose(2, 3)  # (B, O, J, W, H)
    powers = torch.cat([centred, centred.square()], dim=-1)  # both steps are matrix products with these
    for iteration in range(num_iterations):
        weights = (log_shares + present).exp().expand(powers.shape[:-1])  # (B, O, J, W)
        total = weights.sum(dim=-1, keepdim=True)  # (B, O, J, 1)
        means, squares = ((weights / (total + TINY))[..., None, :] @ powers)[..., 0, :].chunk(2, dim=-1)  # (B, O, J, H)
        variances = (squares - means.square()).clamp(min=0) + VARIANCE_FLOOR
        log_variances = variances.log()
        cost = total[..., 0] * (beta_use[:, None] + 0.5 * log_variances).sum(dim=-1)
        logits = annealed(inverse_temperature, iteration + 1) * (beta_activation - cost)
        if iteration == num_iterations - 1:
            return Routed(means + centre, logits)
        # (v - m)^2 / s = v * (-2 m / s) + v^2 * (1 / s) + m^2 / s, summed over the numbers of a pose
        factors = torch.cat([-2 * means / variances, 1 / variances], dim=-1)[..., None]
        rest = (means.square() / variances + log_variances + math.log(2 * math.pi)).sum(dim=-1, keepdim=True)
        log_density = -0.5 * ((powers @ factors)[..., 0] + rest)  # (B, O, J, W)
        log_joint = logsigmoid(logits)[..., None] + log_density
        log_total = sum_over_windows(log_joint.logsumexp(dim=2), children, activations.shape[1])  # (B, O, W)
        log_shares = log_joint - log_total[:, :, None]
    raise ValueError(f"em_routing: num_iterations must be at least 1; got {num_iterations}.")


def annealed(inverse_temperature: float, iterations: int) -> float:
    """Return the inverse temperature after a number of M steps."""
    return inverse_temperature * (1 - 0.95**iterations)


def count_parents(children: Int[Tensor, "O W"], num_children: int, num_types: int) -> Float[Tensor, " N"]:
    """Return the number of parents of each child."""
    return num_types * torch.bincount(children.flatten(), minlength=num_children).clamp(min=1).float()


def sum_over_windows(
    logs: Float[Tensor, "B O W"], children: Int[Tensor, "O W"], num_children: int
) -> Float[Tensor, "B O W"]:
    """Return, at every occurrence of a child, the log-sum-exp over all windows that contain it."""
    flat = logs.flatten(1)
    index = children.flatten().expand(len(flat), -1)
    empty = flat.new_full((len(flat), num_children), -torch.inf)
    largest = empty.scatter_reduce(1, index, flat.detach(), "amax").gather(1, index)
    total = torch.zeros_like(empty).scatter_add(1, index, (flat - largest).exp())
    return (total.gather(1, index).log() + largest).reshape(logs.shape)


PUBLISHED_SIZES = (32, 32, 32, 32)
"""Channels of the convolution and types of the three capsule layers, as published."""
SMALL_SIZES = (32, 4, 8, 8)
"""The same for a network that two cores can train."""


class CapsuleNetwork(PretrainedNetwork):
    """Capsule network: a convolution, primary capsules, two convolutional capsule layers, and one capsule per class.

    Args:
        num_classes: Number of classes.
        channels_in: Channels of an image.
        image_size: Pixels of an image, in each direction.
        sizes: Channels of the convolution, and types of the primary and of the two convolutional capsule layers.
        num_iterations: Iterations of routing.
        inverse_temperature: See :func:`em_routing`.

    Shapes:
        images    (B, C, S, S)
        returns   (B, num_classes)     activation of each class, from 0 to 1

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
        sizes: tuple[int, int, int, int] | list[int] = PUBLISHED_SIZES,
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
        features = self.primary(torch.relu(self.convolution(images)))  # (B, types * 17, side, side)
        capsules = features.unflatten(1, (-1, 17)).permute(0, 3, 4, 1, 2).flatten(1, 3)  # (B, N, 17): place, then type
        poses, activations = capsules[..., :16].unflatten(-1, (4, 4)), capsules[..., 16].sigmoid()
        for layer in self.layers:
            poses, activations = layer(poses, activations)
        return activations


class CapsuleLayer(nn.Module):
    """Route the capsules of every window to capsules of new types.

    Args:
        types_in: Types of input capsules at every place.
        types_out: Types of output capsules for every window.
        side: Places of the input, in each direction.
        kernel: Places of a window, in each direction.
        stride: Places between neighbouring windows.
        shared: One matrix per type for all places of a window; the coordinates of a capsule are added to its votes.
        num_iterations: Iterations of routing.
        inverse_temperature: See :func:`em_routing`.

    Shapes:
        poses        (B, N, 4, 4)             N = side * side * types_in, by row, column, type
        activations  (B, N)
        returns      (B, M, 4, 4), (B, M)     poses and activations of the output capsules
    """

    window_children: Tensor
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
        # Near the identity, so that at first a parent has about the pose of its children.
        self.weight = nn.Parameter(torch.eye(4) + 0.2 * torch.randn(matrices, types_out, 4, 4))
        self.beta_use = nn.Parameter(torch.zeros(types_out))
        # Logit of a parent without votes. As a cost, the published parameter, it would need values about a thousand
        # times as large as one step of training can reach.
        self.threshold = nn.Parameter(torch.full((types_out,), -1.0))
        self.register_buffer("window_children", windows(side, types_in, kernel, stride), persistent=False)
        places = (torch.arange(kernel) + 0.5) / kernel
        rows, columns = torch.meshgrid(places, places, indexing="ij")
        coordinates = torch.stack([rows, columns], dim=-1).reshape(-1, 1, 2).expand(-1, types_in, -1).reshape(-1, 2)
        coordinates = coordinates if shared else torch.zeros_like(coordinates)
        self.register_buffer("coordinates", coordinates, persistent=False)

    def forward(
        self, poses: Float[Tensor, "B N 4 4"], activations: Float[Tensor, "B N"]
    ) -> tuple[Float[Tensor, "B M 4 4"], Float[Tensor, "B M"]]:
        weight = self.weight.repeat(self.repeats, 1, 1, 1)  # (W, J, 4, 4)
        votes = torch.einsum("bowxy,wjyz->bowjxz", poses[:, self.window_children], weight)
        # Coordinate addition: the coordinates are added to the first two numbers of the right-hand column.
        votes = votes + nn.functional.pad(self.coordinates[..., None], (3, 0, 0, 2))[:, None]
        routed = em_routing(
            votes.flatten(-2),
            activations,
            self.window_children,
            beta_use=self.beta_use,
            beta_activation=self.threshold / annealed(self.inverse_temperature, self.num_iterations),
            num_iterations=self.num_iterations,
            inverse_temperature=self.inverse_temperature,
        )
        return routed.poses.reshape(len(poses), -1, 4, 4), routed.logits.sigmoid().flatten(1)


def windows(side: int, types: int, kernel: int, stride: int) -> Int[Tensor, "O W"]:
    """Return the indices of the capsules of each window: all types at every place."""
    index = torch.arange(side * side * types).reshape(side, side, types)
    unfolded = index.unfold(0, kernel, stride).unfold(1, kernel, stride)  # (o, o, types, kernel, kernel)
    return unfolded.permute(0, 1, 3, 4, 2).reshape(-1, kernel * kernel * types)


def spread_loss(
    activations: Float[Tensor, "B classes"], labels: Int[Tensor, " B"], margin: Float[Tensor, " B"]
) -> Float[Tensor, ""]:
    """Return the spread loss: squared hinge of the margin between the true class and every other (their Eq. 3)."""
    true_class = activations.gather(1, labels[:, None])
    losses = (margin[:, None] - (true_class - activations)).clamp(min=0).square()
    return losses.scatter(1, labels[:, None], 0.0).sum(dim=1).mean()
