r"""Slot Attention: slots compete for the elements of a set (Locatello et al. 2020).

Dimensions:  B sets   N elements (padded)   K slots   D features   L steps
"""

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from picaset.checks import check_choice, check_positive
from picaset.operators.base import CascadePool, CascadeStep, learned_templates
from picaset.operators.state import Presence, upcast_half

Initial = Literal["learned", "sampled"]


class SlotAttention(CascadePool):
    r"""Slots compete for the elements of a set and are updated by a GRU (Locatello 2020, Algorithm 1).

    .. math::

        A = \mathrm{softmax}_k\, \frac{q(\mathrm{LN}(S)) \cdot k(\mathrm{LN}(X))}{\sqrt{D}}, \qquad
        U_k = \frac{\sum_n (A_{kn} + \epsilon)\, v(\mathrm{LN}(x_n))}{\sum_n (A_{kn} + \epsilon)}, \qquad
        S \leftarrow \mathrm{GRU}(S, U) + \mathrm{MLP}(\mathrm{LN}(\cdot))

    Args:
        dim: Features of an element.
        num_slots: Vectors returned per set.
        num_steps: Number of updates of the slots.
        dim_slots: Features of a slot; defaults to ``dim``.
        dim_hidden: Features of the hidden layer; defaults to ``2 * dim_slots``.
        initial: ``"learned"`` slots, or slots ``"sampled"`` from one learned Gaussian. In training mode every call
            draws new noise; in evaluation mode all calls use the noise stored with the weights.
        epsilon: Constant added to every attention weight.

    Shapes:
        elements  (B, N, D)            or a SetBatch
        mask      (B, N)               True where an element is present; None if all are
        returns   (B, K, dim_slots)

    Example:
        >>> SlotAttention(16, num_slots=4)(torch.randn(8, 100, 16)).shape
        torch.Size([8, 4, 16])
    """

    takes_weights = True
    draws: Tensor

    def __init__(
        self,
        dim: int,
        *,
        num_slots: int,
        num_steps: int = 3,
        dim_slots: int | None = None,
        dim_hidden: int | None = None,
        initial: Initial = "learned",
        epsilon: float = 1e-8,
    ) -> None:
        super().__init__()
        caller = type(self).__name__
        check_positive(caller=caller, dim=dim, num_slots=num_slots, num_steps=num_steps)
        check_choice(initial, ("learned", "sampled"), caller=caller, name="initial")
        width = dim if dim_slots is None else dim_slots
        hidden = 2 * width if dim_hidden is None else dim_hidden
        check_positive(caller=caller, dim_slots=width, dim_hidden=hidden)
        self.dim_in = dim
        self.num_steps = num_steps
        self.initial = initial
        self.epsilon = epsilon
        if initial == "learned":
            self.slots = learned_templates(num_slots, width)
        else:
            self.slots_mean = learned_templates(1, width)
            self.slots_log_deviation = learned_templates(1, width)
            self.register_buffer("draws", torch.randn(num_slots, width))
        self.num_slots = num_slots
        self.element_norm = nn.LayerNorm(dim)
        self.slot_norm = nn.LayerNorm(width)
        self.update_norm = nn.LayerNorm(width)
        self.query_map = nn.Linear(width, width, bias=False)
        self.key_map = nn.Linear(dim, width, bias=False)
        self.value_map = nn.Linear(dim, width, bias=False)
        self.recurrence = nn.GRUCell(width, width)
        self.feed_forward = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, width))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Initialize the weights as the authors' program does.

        With torch's smaller default weights, the slots hardly distinguish elements at first, and compete late.
        """
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
        nn.init.xavier_uniform_(self.recurrence.weight_ih)
        nn.init.orthogonal_(self.recurrence.weight_hh)
        for name, parameter in self.named_parameters():
            if name.endswith(("bias", "bias_ih", "bias_hh")):
                parameter.zero_()

    def begin(self, elements: Float[Tensor, "B N D"], mask: Presence | None) -> CascadeStep:
        return CascadeStep(self.initial_slots(elements), (*self.project(elements), mask))

    def advance(self, step: CascadeStep, index: int, *, with_attention: bool) -> CascadeStep:
        keys, values, mask = step.inputs
        shares = self.compete(step.templates, keys, mask)  # (B, K, N)
        slots = self.update(step.templates, shares.sum(dim=-1, keepdim=True), shares @ values)
        return CascadeStep(slots, step.inputs, shares[:, None] if with_attention else None)

    def initial_slots(self, elements: Float[Tensor, "B N D"]) -> Float[Tensor, "B K E"]:
        """Return the slots before the first step."""
        return self.slots_from(self.draw(elements.shape[0]))

    def draw(self, num_sets: int) -> Float[Tensor, "B K E"]:
        """Return the noise of sampled slots: new in training mode, constant in evaluation mode."""
        if self.initial == "learned":
            return torch.zeros_like(self.slots).expand(num_sets, -1, -1)
        draws = self.draws.expand(num_sets, -1, -1)
        return torch.randn_like(draws) if self.training else draws

    def slots_from(self, draws: Float[Tensor, "B K E"]) -> Float[Tensor, "B K E"]:
        """Return learned slots, or slots of the learned Gaussian from standard normal noise."""
        if self.initial == "learned":
            return self.slots.expand(draws.shape[0], -1, -1)
        return self.slots_mean + self.slots_log_deviation.exp() * draws

    def project(self, elements: Float[Tensor, "B N D"]) -> tuple[Float[Tensor, "B N E"], Float[Tensor, "B N E"]]:
        """Return the keys and values of the elements, which all steps use."""
        elements = self.element_norm(elements)
        return upcast_half(self.key_map(elements)), upcast_half(self.value_map(elements))

    def compete(
        self, slots: Float[Tensor, "B K E"], keys: Float[Tensor, "B N E"], mask: Presence | None
    ) -> Float[Tensor, "B K N"]:
        """Return the share of each slot in each element; they sum to its weight (plus ``epsilon`` each)."""
        queries = upcast_half(self.query_map(self.slot_norm(slots))) / math.sqrt(keys.shape[-1])
        shares = (queries @ keys.transpose(1, 2)).softmax(dim=1) + self.epsilon  # (B, K, N)
        if mask is None or mask.dtype is torch.bool:
            return shares if mask is None else shares.masked_fill(~mask[:, None, :], 0.0)
        return shares * mask[:, None, :]

    def update(
        self, slots: Float[Tensor, "B K E"], total: Float[Tensor, "B K 1"], weighted: Float[Tensor, "B K E"]
    ) -> Float[Tensor, "B K E"]:
        """Update the slots from the total attention that each has received and the values weighted by it."""
        updates = (weighted / torch.where(total == 0, 1.0, total)).to(slots.dtype)
        slots = self.recurrence(updates.flatten(0, 1), slots.flatten(0, 1)).unflatten(0, slots.shape[:2])
        return slots + self.feed_forward(self.update_norm(slots))
