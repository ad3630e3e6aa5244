r"""Deep set prediction networks: a set is found by gradient descent on the error of its encoding (DSPN, Zhang 2019).

.. math::  Y^\star = \arg\min_Y \tfrac12 \lVert g(Y) - z \rVert^2 + \tfrac{\lambda}{2} \lVert Y - Y_0 \rVert^2

The set encoder ``g`` and the start ``Y_0`` are learned. The decoder is the gradient of ``g``, so the elements of the
result have no order. Gradients of the result are either

    unrolled    backpropagated through every step of the descent                   (DSPN)
    implicit    from the optimality condition at the end, by the implicit          (iDSPN, Zhang et al. 2021)
                function theorem

At a minimum the gradient of the objective is zero, so the derivative of the result with respect to z contains the
inverse Hessian. ``num_solves=0`` replaces that inverse by the identity, as published; otherwise it is applied by that
many steps of conjugate gradients. Where the descent has not converged, the Hessian may not be positive definite: the
conjugate gradients stop at the first direction of negative curvature, and if that is the very first direction, the
identity is used.

Implicit gradients assume that the descent converges, but training does not enforce it: the encoder may become so steep
that the descent oscillates, or may add an offset that puts every target out of reach. ``bounded`` prevents both: it
bounds the Lipschitz constant of the encoder, and it measures encodings from the encoding of the start
(:math:`g(Y) - g(Y_0) - z` in the objective above). A set may still oscillate where the ranks of two elements swap.

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
from picaset.operators.state import upcast_half


class SetDescent(nn.Module):
    r"""Map a vector to the set whose encoding is closest to it, by gradient descent.

    Args:
        dim_in: Features of a vector.
        dim: Features of an element.
        num_elements: Elements of a set.
        num_steps: Steps of gradient descent.
        implicit: Implicit gradients instead of unrolled ones.
        step_size: Step size of the descent.
        momentum: Momentum of the descent.
        damping: Weight :math:`\lambda` of the distance to the start.
        clip: Largest norm of the gradient of a set in a step, as in iDSPN; 0 disables clipping. With momentum, a step
            may be longer.
        num_solves: Steps of conjugate gradients for implicit gradients; 0 replaces the Hessian by the identity.
        dim_hidden: Hidden features of the set encoder.
        bounded: Bound the Lipschitz constant of the encoder close to 1, and take a vector as the difference between
            the encodings of the result and of the start.

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
        if num_solves and not implicit:
            raise ValueError(
                f"SetDescent: num_solves={num_solves} needs implicit=True; unrolled gradients solve nothing."
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
                parametrize.register_parametrization(layer, "weight", SpectralBound())
        self.elementwise = nn.Sequential(first, nn.GELU() if bounded else nn.ReLU(), last)
        self.pool = SortPool(dim_in)

    def forward(self, vectors: Float[Tensor, "B Z"], *, num_steps: int | None = None) -> Float[Tensor, "B K D"]:
        """Return the sets; ``num_steps`` overrides the number of steps."""
        steps = self.num_steps if num_steps is None else num_steps
        start = self.start.expand(len(vectors), -1, -1)
        # The descent needs the gradient of the encoder even where the caller needs no gradients.
        differentiable = torch.is_grad_enabled()
        with torch.enable_grad(), parametrize.cached():  # bounded weights are computed once, not in every step
            target = self.target(vectors)
            if not self.implicit:
                return self.descend(target, start, steps, differentiable=differentiable)
            solution = self.descend(target.detach(), start.detach(), steps, differentiable=False)
            return self.with_implicit_gradients(target, start, solution) if differentiable else solution

    def target(self, vectors: Float[Tensor, "B Z"]) -> Float[Tensor, "B Z"]:
        """Return the encoding that each set should have."""
        return vectors + self.encode(self.start[None]) if self.bounded else vectors

    def encode(self, elements: Float[Tensor, "B K D"]) -> Float[Tensor, "B Z"]:
        """Return the encoding of each set, scaled so that it does not grow with the number of elements."""
        pooled = self.pool(self.elementwise(elements))[:, 0]
        if not self.bounded:
            return pooled / math.sqrt(elements.shape[1])
        ranks = torch.linspace(0, 1, elements.shape[1], dtype=upcast_half(self.pool.knots).dtype, device=pooled.device)
        norms = self.pool.rank_weights(ranks[None])[0].square().sum(dim=0).sqrt()  # (Z,)
        return pooled / norms.clamp(min=1).to(pooled.dtype)

    def gradient(
        self, elements: Float[Tensor, "B K D"], target: Float[Tensor, "B Z"], start: Float[Tensor, "B K D"]
    ) -> Float[Tensor, "B K D"]:
        """Return the gradient of the objective with respect to the elements, itself differentiable."""
        error = self.encode(elements) - target
        (of_encoding,) = torch.autograd.grad(error.square().sum() / 2, elements, create_graph=True)
        return of_encoding + self.damping * (elements - start)

    def descend(
        self, target: Float[Tensor, "B Z"], start: Float[Tensor, "B K D"], num_steps: int, *, differentiable: bool
    ) -> Float[Tensor, "B K D"]:
        elements, velocity = start, torch.zeros_like(start)
        for _ in range(num_steps):
            elements = elements if differentiable else elements.detach()
            elements = elements if elements.requires_grad else elements.requires_grad_()
            gradient = clip_norm(self.gradient(elements, target, start), self.clip)
            velocity = self.momentum * velocity - self.step_size * (gradient if differentiable else gradient.detach())
            elements = elements + velocity
        return elements if differentiable else elements.detach()

    def with_implicit_gradients(
        self, target: Float[Tensor, "B Z"], start: Float[Tensor, "B K D"], solution: Float[Tensor, "B K D"]
    ) -> Float[Tensor, "B K D"]:
        """Return the same elements, with the gradients of the implicit function theorem."""
        solution = solution.detach().requires_grad_()
        gradient = self.gradient(solution, target, start)
        result = solution.detach() + (gradient.detach() - gradient)
        if self.num_solves:
            hooked: Any = result
            hooked.register_hook(partial(self.solve_hessian, gradient, solution))
        return result

    def solve_hessian(
        self, gradient: Float[Tensor, "B K D"], solution: Float[Tensor, "B K D"], vector: Float[Tensor, "B K D"]
    ) -> Float[Tensor, "B K D"]:
        """Return the inverse Hessian times a vector, by conjugate gradients for each set separately."""
        result, residual = torch.zeros_like(vector), vector
        direction, size = residual, inner(residual, residual)
        convex = torch.ones_like(size, dtype=torch.bool)
        for number in range(self.num_solves):
            (product,) = torch.autograd.grad(gradient, solution, direction, retain_graph=True)
            curvature = inner(direction, product)
            convex = convex & (curvature > torch.finfo(direction.dtype).eps * inner(direction, direction))
            if number == 0:
                result = torch.where(convex, result, vector)
            length = torch.where(convex, size / curvature, 0.0)
            result, residual = result + length * direction, residual - length * product
            previous, size = size, inner(residual, residual)
            direction = residual + torch.where(convex, size / previous, 0.0) * direction
        return result


class SpectralBound(nn.Module):
    """Divide a matrix by its spectral norm if that is above 1, so that the linear map never lengthens a vector."""

    def forward(self, weight: Float[Tensor, "out in"]) -> Float[Tensor, "out in"]:
        norm: Tensor = cast(Any, torch.linalg).matrix_norm(upcast_half(weight), 2)
        return weight / norm.clamp(min=1).to(weight.dtype)


def clip_norm(gradient: Float[Tensor, "B K D"], largest: float) -> Float[Tensor, "B K D"]:
    """Scale the gradient of each set to at most the norm ``largest``; 0 means no limit."""
    if not largest:
        return gradient
    return gradient * (largest / inner(gradient, gradient).clamp(min=largest**2).sqrt())


def inner(left: Float[Tensor, "B K D"], right: Float[Tensor, "B K D"]) -> Float[Tensor, "B 1 1"]:
    """Return the inner product of each pair of sets."""
    return (left * right).sum(dim=(1, 2), keepdim=True)
