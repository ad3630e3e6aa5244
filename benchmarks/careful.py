"""The main baseline of the benchmarks: the same mathematics as a careful engineer would write it in plain torch.

Keys and values of a set are projected once, by one product, and used by every step;
``torch.nn.functional.scaled_dot_product_attention`` computes the heads. The block is the authors' form, as in
``benchmarks/textbook.py``: H = Q + heads, H + relu(W H). ``compiled`` compiles a module as a user would.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.textbook import TextbookInduced, TextbookNetwork


class CarefulBlock(nn.Module):
    """A multihead attention block; keys and values may be projected once for several calls."""

    def __init__(self, dim_queries: int, dim_elements: int, dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.scale = dim**-0.5
        self.to_queries = nn.Linear(dim_queries, dim)
        self.to_keys_and_values = nn.Linear(dim_elements, 2 * dim)
        self.feed_forward = nn.Linear(dim, dim)

    def project(self, elements: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values, (B, H, N, d) each."""
        keys, values = self.to_keys_and_values(elements).chunk(2, dim=-1)
        return self.split(keys), self.split(values)

    def split(self, vectors: Tensor) -> Tensor:
        return vectors.unflatten(2, (self.num_heads, -1)).transpose(1, 2)

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        projected = self.to_queries(queries)
        present = None if mask is None else mask[:, None, None, :]
        heads = scaled_dot_product_attention(self.split(projected), keys, values, attn_mask=present, scale=self.scale)
        hidden = projected + heads.transpose(1, 2).flatten(2)
        return hidden + torch.relu(self.feed_forward(hidden))

    def forward(self, queries: Tensor, elements: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.attend(queries, *self.project(elements), mask)


class CarefulCascade(nn.Module):
    """PB: T = MAB(T, X), repeated with one block and one projection of the set."""

    def __init__(self, dim: int, num_templates: int, num_heads: int, num_steps: int) -> None:
        super().__init__()
        self.num_steps = num_steps
        self.templates = nn.Parameter(torch.randn(1, num_templates, dim))
        self.block = CarefulBlock(dim, dim, dim, num_heads)

    def forward(self, elements: Tensor, mask: Tensor | None = None) -> Tensor:
        keys, values = self.block.project(elements)
        templates = self.templates.expand(len(elements), -1, -1)
        for _ in range(self.num_steps):
            templates = self.block.attend(templates, keys, values, mask)
        return templates


class CarefulInduced(TextbookInduced):
    """AE of careful blocks."""

    block = CarefulBlock


class CarefulNetwork(TextbookNetwork):
    """The paper's clustering network of careful blocks."""

    block = CarefulBlock
    cascade = CarefulCascade
    induced = CarefulInduced


def compiled(module: nn.Module) -> nn.Module:
    """Return a compiled copy of a module that shares its weights; fixed sizes, no graph breaks."""
    torch.compiler.reset()
    return torch.compile(module, fullgraph=True, dynamic=False)  # pyright: ignore[reportReturnType]
