r"""Set norm: standardize a whole set, not each of its elements (Zhang et al. 2022).

.. math::  \mathrm{SN}(X)_{nd} = \gamma_d \, \frac{X_{nd} - \mu}{\sqrt{\sigma^2 + \epsilon}} + \beta_d, \qquad
    \mu = \operatorname{mean}_{nd} X_{nd}, \quad \sigma^2 = \operatorname{mean}_{nd} (X_{nd} - \mu)^2

Layer norm gives every element the same mean and variance, which removes what distinguishes elements of different size;
set norm removes the mean and the scale of the set, and keeps the differences between its elements.

Dimensions:  B sets   N elements (padded)   D features
"""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from picaset.operators.state import upcast_half

EPSILON = 1e-5


class SetNorm(nn.Module):
    """Standardize each set by the mean and the variance of all its elements and features.

    Args:
        dim: Features of an element.

    Shapes:
        elements  (B, N, D)
        mask      (B, N)       True, or a weight above zero, where an element is present; None if all are
        returns   (B, N, D)    zero where an element is absent

    Example:
        >>> normed = SetNorm(4)(3 + 5 * torch.randn(2, 100, 4))
        >>> normed.mean(dim=(1, 2)).abs().max() < 1e-5, (normed.var(dim=(1, 2)) - 1).abs().max() < 0.01
        (tensor(True), tensor(True))
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim))

    def forward(
        self, elements: Float[Tensor, "B N D"], mask: Shaped[Tensor, "B N"] | None = None
    ) -> Float[Tensor, "B N D"]:
        """Return the standardized sets."""
        values = upcast_half(elements)
        counts = torch.ones_like(values[..., :1]) if mask is None else mask[..., None].to(values.dtype)  # (B, N, 1)
        size = counts.sum(dim=1, keepdim=True).clamp(min=torch.finfo(values.dtype).tiny) * values.shape[2]
        deviations = values - (counts * values).sum(dim=(1, 2), keepdim=True) / size
        variance = (counts * deviations.square()).sum(dim=(1, 2), keepdim=True) / size
        normed = deviations * (variance + EPSILON).rsqrt() * upcast_half(self.weight) + upcast_half(self.bias)
        normed = normed if mask is None else normed.masked_fill(counts == 0, 0.0)
        return normed.to(elements.dtype)
