r"""Sets found by descent: a set is moved until its encoding is the wanted vector (DSPN, Zhang et al. 2019).

.. math::  Y^\star = \arg\min_Y \tfrac12 \lVert g(Y) - z \rVert^2 + \tfrac{\lambda}{2} \lVert Y - Y_0 \rVert^2

An encoder of sets, ``g``, is all that is learned beside the start; a decoder comes from its gradient, so that the
elements of the result have no order. How gradients reach what is learned:

    unrolled    through every step of a plain descent            (DSPN)
    implicit    by the condition that holds at the end of it     (iDSPN, Zhang et al. 2021)

At the end the gradient of the objective is zero, so that the result moves with z by minus the inverse of its second
derivative. ``num_solves=0`` takes that inverse to be one, as published; more are steps of conjugate gradients, and
enough of them are exact. Where the descent has not come to such an end, the objective may bend downwards; the steps
stop there, and where the very first does, the inverse counts as one.

All of that supposes that the descent ends somewhere, near to what is wanted. What is learned by the condition at the
end has no reason to keep it so: an encoder that has grown too steep throws every set from one side of its valley to the
other, and one that adds more and more to every encoding leaves all vectors out of reach. ``bounded`` forbids the first,
and takes a vector for the way from the encoding of the start (:math:`g(Y) - g(Y_0) - z` above), which makes nothing of
the second. A set may still hover where the ranks of two elements swap.

Dimensions:  B vectors   Z features of a vector   K elements   D features of an element
"""

import math
from functools import partial
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils import parametrize

from picaset.checks import check_positive
from picaset.operators.sort_pool import SortPool
from picaset.operators.state import wide


class SetDescent(nn.Module):
    """A vector becomes the set whose encoding comes nearest to it.

    Args:
        dim_in: Features of a vector.
        dim: Features of an element.
        num_elements: Elements of a set.
        num_steps: Steps of descent.
        implicit: Gradients by the condition at the end, and not through the steps.
        step_size: Of the descent.
        momentum: What a step keeps of the one before.
        damping: How strongly the start attracts.
        clip: Norm that the gradient of a set is cut to in every step, as iDSPN does; 0 leaves it as it is. A step
            may be longer by momentum.
        num_solves: Steps of conjugate gradients when gradients are implicit; 0 takes the second derivative as one.
        dim_hidden: Features inside the encoder of sets.
        bounded: An encoder that is never steep: the encoding moves little further than the elements do, whatever is
            learned, so that a descent by small steps does not fly off. A vector then says how far the encoding of the
            set shall be from that of the start.

    Shapes:
        vectors   (B, dim_in)
        returns   (B, K, D)

    Example:
        >>> SetDescent(8, 4, num_elements=3, num_steps=5)(torch.randn(2, 8)).shape
        torch.Size([2, 3, 4])
    """

    def __init__(
        self,
        dim_in: int,
        dim: int,
        *,
        num_elements: int,
        num_steps: int = 10,
        implicit: bool = False,
        step_size: float = 1.0,
        momentum: float = 0.0,
        damping: float = 0.1,
        clip: float = 0.0,
        num_solves: int = 0,
        dim_hidden: int = 128,
        bounded: bool = False,
    ) -> None:
        super().__init__()
        check_positive(caller="SetDescent", dim_in=dim_in, dim=dim, num_elements=num_elements, num_steps=num_steps)
        if not 0 <= momentum < 1 or step_size <= 0 or min(damping, clip, num_solves) < 0:
            raise ValueError(
                "SetDescent: momentum must be at least 0 and below 1, step_size above 0, damping, clip and num_solves "
                f"not negative; got {momentum}, {step_size}, {damping}, {clip}, {num_solves}."
            )
        self.num_steps = num_steps
        self.implicit = implicit
        self.step_size, self.momentum, self.damping = step_size, momentum, damping
        self.clip, self.num_solves = clip, num_solves
        self.start = nn.Parameter(torch.randn(num_elements, dim))
        self.bounded = bounded
        first, last = nn.Linear(dim, dim_hidden), nn.Linear(dim_hidden, dim_in, bias=not bounded)
        if bounded:
            for layer in (first, last):
                parametrize.register_parametrization(layer, "weight", NeverLonger())
        self.elementwise = nn.Sequential(first, nn.GELU() if bounded else nn.ReLU(), last)
        self.pool = SortPool(dim_in)

    def forward(self, vectors: Float[Tensor, "B Z"]) -> Float[Tensor, "B K D"]:
        start = self.start.expand(len(vectors), -1, -1)
        # The result is a derivative, which is wanted even where its own derivatives are not.
        differentiable = torch.is_grad_enabled()
        with torch.enable_grad(), parametrize.cached():  # weights are bounded once, not in every step
            goal = self.goal(vectors)
            if not self.implicit:
                return self.descend(goal, start, differentiable=differentiable)
            found = self.descend(goal.detach(), start.detach(), differentiable=False)
            return self.at_the_end(goal, start, found) if differentiable else found

    def goal(self, vectors: Float[Tensor, "B Z"]) -> Float[Tensor, "B Z"]:
        """What the encoding of each set shall be."""
        return vectors + self.encode(self.start[None]) if self.bounded else vectors

    def encode(self, elements: Float[Tensor, "B K D"]) -> Float[Tensor, "B Z"]:
        """The encoding of a set, scaled so that it does not grow with the set."""
        pooled = self.pool(self.elementwise(elements))[:, 0]
        if not self.bounded:
            return pooled / math.sqrt(elements.shape[1])
        ranks = torch.linspace(0, 1, elements.shape[1], dtype=wide(self.pool.knots).dtype, device=pooled.device)
        length = self.pool.rank_weights(ranks[None])[0].square().sum(dim=0).sqrt()  # (Z,)
        return pooled / length.clamp(min=1).to(pooled.dtype)

    def slope(
        self, elements: Float[Tensor, "B K D"], goal: Float[Tensor, "B Z"], start: Float[Tensor, "B K D"]
    ) -> Float[Tensor, "B K D"]:
        """The gradient of the objective in the elements, itself differentiable."""
        missing = self.encode(elements) - goal
        (of_encoding,) = torch.autograd.grad(missing.square().sum() / 2, elements, create_graph=True)
        return of_encoding + self.damping * (elements - start)

    def descend(
        self, goal: Float[Tensor, "B Z"], start: Float[Tensor, "B K D"], *, differentiable: bool
    ) -> Float[Tensor, "B K D"]:
        elements, pace = start, torch.zeros_like(start)
        for _ in range(self.num_steps):
            elements = elements if differentiable else elements.detach()
            elements = elements if elements.requires_grad else elements.requires_grad_()
            slope = cut(self.slope(elements, goal, start), self.clip)
            pace = self.momentum * pace - self.step_size * (slope if differentiable else slope.detach())
            elements = elements + pace
        return elements if differentiable else elements.detach()

    def at_the_end(
        self, goal: Float[Tensor, "B Z"], start: Float[Tensor, "B K D"], found: Float[Tensor, "B K D"]
    ) -> Float[Tensor, "B K D"]:
        """The same elements, with the gradients that the condition at the end gives them."""
        found = found.detach().requires_grad_()
        slope = self.slope(found, goal, start)
        result = found.detach() + (slope.detach() - slope)
        if self.num_solves:
            hooked: Any = result
            hooked.register_hook(partial(self.solved, slope, found))
        return result

    def solved(
        self, slope: Float[Tensor, "B K D"], found: Float[Tensor, "B K D"], wanted: Float[Tensor, "B K D"]
    ) -> Float[Tensor, "B K D"]:
        """The second derivative's inverse times a vector, by conjugate gradients, for each set by itself."""
        answer, rest = torch.zeros_like(wanted), wanted
        way, size = rest, inner(rest, rest)
        upwards = torch.ones_like(size, dtype=torch.bool)
        for number in range(self.num_solves):
            (bent,) = torch.autograd.grad(slope, found, way, retain_graph=True)
            curvature = inner(way, bent)
            upwards = upwards & (curvature > torch.finfo(way.dtype).eps * inner(way, way))
            if number == 0:
                answer = torch.where(upwards, answer, wanted)
            share = torch.where(upwards, size / curvature, 0.0)
            answer, rest = answer + share * way, rest - share * bent
            before, size = size, inner(rest, rest)
            way = rest + torch.where(upwards, size / before, 0.0) * way
        return answer


class NeverLonger(nn.Module):
    """A linear map that makes no vector longer: one that would is divided by the most that it stretches."""

    def forward(self, weight: Float[Tensor, "out in"]) -> Float[Tensor, "out in"]:
        stretches: Tensor = cast(Any, torch.linalg).matrix_norm(wide(weight), 2)
        return weight / stretches.clamp(min=1).to(weight.dtype)


def cut(slope: Float[Tensor, "B K D"], most: float) -> Float[Tensor, "B K D"]:
    """The same for sets whose norm is small enough, shorter for others."""
    if not most:
        return slope
    return slope * (most / inner(slope, slope).clamp(min=most**2).sqrt())


def inner(one: Float[Tensor, "B K D"], other: Float[Tensor, "B K D"]) -> Float[Tensor, "B 1 1"]:
    return (one * other).sum(dim=(1, 2), keepdim=True)
