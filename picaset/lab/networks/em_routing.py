r"""EM routing: parents find the votes of their children that agree (Hinton, Sabour and Frosst 2018, Algorithm 1).

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
from torch import Tensor
from torch.nn.functional import logsigmoid

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
