"""The baseline of the benchmarks: the equations written directly, without optimization.

Every step of a cascade projects the whole set again; heads are made by splitting and concatenating; sets of
different sizes are padded to the largest. The block is the authors' form: H = Q + heads, H + relu(W H).
"""

import math

import torch
from torch import Tensor, nn


class TextbookBlock(nn.Module):
    """A multihead attention block with heads stacked along the batch."""

    def __init__(self, dim_queries: int, dim_elements: int, dim: int, num_heads: int) -> None:
        super().__init__()
        self.dim = dim
        self.num_heads = num_heads
        self.to_queries = nn.Linear(dim_queries, dim)
        self.to_keys = nn.Linear(dim_elements, dim)
        self.to_values = nn.Linear(dim_elements, dim)
        self.feed_forward = nn.Linear(dim, dim)

    def stack(self, vectors: Tensor) -> Tensor:
        """Move heads from the features to the batch."""
        return torch.cat(vectors.split(self.dim // self.num_heads, dim=2), dim=0)

    def forward(self, queries: Tensor, elements: Tensor, mask: Tensor | None = None) -> Tensor:
        projected = self.to_queries(queries)
        keys, values = self.stack(self.to_keys(elements)), self.stack(self.to_values(elements))
        scores = self.stack(projected).bmm(keys.transpose(1, 2)) / math.sqrt(self.dim)
        if mask is not None:
            scores = scores.masked_fill(~mask.repeat(self.num_heads, 1)[:, None, :], -torch.inf)
        heads = scores.softmax(dim=2).bmm(values)
        hidden = projected + torch.cat(heads.split(len(queries), dim=0), dim=2)
        return hidden + torch.relu(self.feed_forward(hidden))


class TextbookCascade(nn.Module):
    """PB: T = MAB(T, X), repeated with one block."""

    def __init__(self, dim: int, num_templates: int, num_heads: int, num_steps: int) -> None:
        super().__init__()
        self.num_steps = num_steps
        self.templates = nn.Parameter(torch.randn(1, num_templates, dim))
        self.block = TextbookBlock(dim, dim, dim, num_heads)

    def forward(self, elements: Tensor, mask: Tensor | None = None) -> Tensor:
        templates = self.templates.repeat(len(elements), 1, 1)
        for _ in range(self.num_steps):
            templates = self.block(templates, elements, mask)
        return templates


class TextbookInduced(nn.Module):
    """AE: Z = MAB(T, X), X' = MAB(X, Z)."""

    block: type[nn.Module] = TextbookBlock

    def __init__(self, dim_in: int, dim: int, num_heads: int, num_inducing: int) -> None:
        super().__init__()
        self.inducing = nn.Parameter(torch.randn(1, num_inducing, dim))
        self.gather = self.block(dim, dim_in, dim, num_heads)
        self.spread = self.block(dim_in, dim, dim, num_heads)

    def forward(self, elements: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.spread(elements, self.gather(self.inducing.repeat(len(elements), 1, 1), elements, mask))


class TextbookNetwork(nn.Module):
    """AE, AE, PB, SA and a linear map: the paper's clustering network."""

    block: type[nn.Module] = TextbookBlock
    cascade: type[nn.Module] = TextbookCascade
    induced: type[nn.Module] = TextbookInduced

    def __init__(
        self,
        dim_in: int,
        dim_out: int,
        *,
        dim: int,
        num_heads: int,
        num_inducing: int,
        num_outputs: int,
        num_steps: int,
    ) -> None:
        super().__init__()
        self.encoders = nn.ModuleList(self.induced(width, dim, num_heads, num_inducing) for width in (dim_in, dim))
        self.pool = self.cascade(dim, num_outputs, num_heads, num_steps)
        self.among = self.block(dim, dim, dim, num_heads)
        self.last = nn.Linear(dim, dim_out)

    def forward(self, elements: Tensor, mask: Tensor | None = None) -> Tensor:
        for encoder in self.encoders:
            elements = encoder(elements, mask)
        templates = self.pool(elements, mask)
        return self.last(self.among(templates, templates))
