"""List of all operators, on each of which every law is tested.

A case has a function that builds the operator, its equation, and the laws that do not apply to it, with the reason.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from picaset import (
    AttentionPool,
    Canonicalize,
    DeepSets,
    Elementwise,
    FeaturewiseAttentionPool,
    GatedAttentionPool,
    GeneralizedPicaso,
    InducedSelfAttention,
    JanossyPool,
    MaxPool,
    MeanPool,
    Mixture,
    MultiheadAttentionBlock,
    Picaso,
    PicasoPool,
    SelfAttention,
    SetBatch,
    SetTransformer,
    SlotAttention,
    SoftKMeans,
    SortPool,
    SumPool,
    em_step,
)
from picaset.lab.networks.mixture_network import MixingPicasoPool
from picaset.large.rules import apply_streamed, attend_large
from tests import reference

DIM, OUT, HEADS, TEMPLATES, INDUCING = 6, 10, 2, 3, 4
"""Features in and out, heads, templates, inducing points: small and distinct."""


@dataclass(frozen=True, eq=False)
class Case:
    """An operator, its equation and its exemptions."""

    name: str
    build: Callable[[], nn.Module]
    equation: Callable[[nn.Module, np.ndarray], np.ndarray]
    """Equation of the operator for one set (n, DIM), in float64 NumPy."""
    kind: Literal["pool", "encoder"] = "pool"
    exempt: dict[str, str] = field(default_factory=dict)
    """Laws that do not apply, with the reason."""

    @cache  # noqa: B019 - cases live as long as the tests
    def operator(self, dtype: torch.dtype = torch.float64) -> nn.Module:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return self.build().to(dtype).eval()

    def expected(self, one_set: Tensor) -> Tensor:
        return torch.from_numpy(np.asarray(self.equation(self.operator(), one_set.double().numpy())))


def weights_of(operator: nn.Module) -> dict[str, np.ndarray]:
    return {name: tensor.double().numpy() for name, tensor in operator.state_dict().items()}


class BlockAsPool(nn.Module):
    """A pool that consists of a block with fixed queries."""

    def __init__(self, block: MultiheadAttentionBlock, num_queries: int) -> None:
        super().__init__()
        self.block = block
        self.queries = nn.Parameter(torch.randn(num_queries, block.dim_queries))

    takes_weights = True

    def forward(self, elements, mask=None, weights=None):
        num_sets = len(elements) if isinstance(elements, SetBatch) else elements.shape[0]
        return self.block(self.queries.expand(num_sets, -1, -1), elements, mask, weights)


@apply_streamed.register
def _(operator: BlockAsPool, large):
    return attend_large(operator.block, operator.queries.expand(large.sets, -1, -1), large)


class BlockAsEncoder(nn.Module):
    """An encoder that consists of a block with the elements as queries."""

    def __init__(self, block: MultiheadAttentionBlock) -> None:
        super().__init__()
        self.block = block

    def forward(self, elements, mask=None, weights=None):
        # The mask of a block is that of the elements; absent queries are up to the caller.
        if isinstance(elements, SetBatch):
            output = self.block(elements, elements)
            if elements.weights is None:
                return output
            return output.with_elements(output.elements.masked_fill(elements.weights[:, None] == 0, 0.0))
        present = torch.ones_like(elements[..., 0], dtype=torch.bool) if mask is None else mask
        present = present if weights is None else present & (weights != 0)
        absent = ~present[..., None]
        return self.block(elements.masked_fill(absent, 0.0), elements, mask, weights).masked_fill(absent, 0.0)


class OneOutput(nn.Module):
    """One of the two outputs of an operator."""

    def __init__(self, operator: nn.Module, index: int) -> None:
        super().__init__()
        self.operator = operator
        self.index = index

    takes_weights = True

    def forward(self, elements, mask=None, weights=None):
        return self.operator(elements, mask, weights)[self.index]


@apply_streamed.register
def _(operator: OneOutput, large):
    return apply_streamed(operator.operator, large)[operator.index]


class EMStep(nn.Module):
    """An EM step from a fixed mixture; returns means, variances and log weights, concatenated."""

    def __init__(self, num_variances: int) -> None:
        super().__init__()
        self.means = nn.Parameter(torch.randn(TEMPLATES, DIM))
        self.log_variances = nn.Parameter(torch.randn(TEMPLATES, num_variances))
        self.scores = nn.Parameter(torch.randn(TEMPLATES))

    def forward(self, elements, mask=None, weights=None):
        num_sets = len(elements) if isinstance(elements, SetBatch) else elements.shape[0]
        parts = (self.means, self.log_variances.exp(), self.scores.log_softmax(0))
        after = em_step(Mixture(*(part.expand(num_sets, *part.shape) for part in parts)), elements, mask, weights)
        return torch.cat([after.means, after.variances, after.log_weights[..., None]], dim=-1)


def em_equation(operator, X):
    parts = (operator.means, operator.log_variances.exp(), operator.scores.log_softmax(0))
    means, variances, log_weights = reference.em_step(*(part.detach().numpy() for part in parts), X)
    return np.concatenate([means, variances, log_weights[:, None]], axis=1)


def block_case(name: str, *, num_queries: int = TEMPLATES, **options) -> Case:
    return Case(
        f"MultiheadAttentionBlock {name}",
        lambda: BlockAsPool(MultiheadAttentionBlock(5, DIM, OUT, num_heads=HEADS, **options), num_queries),
        lambda op, X: reference.mab(
            reference.within(weights_of(op), "block"), weights_of(op)["queries"], X, num_heads=HEADS, **options
        ),
    )


def plain(function: Callable[..., np.ndarray], **arguments):
    """Return a case's equation from a function of (weights, X)."""
    return lambda op, X: function(weights_of(op), X, **arguments)


def move_back(prediction: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    return prediction * scale + shift


def canonicalized_equation(operator, X):
    shift, scale, canonical = reference.canonical(X)
    network = reference.within(weights_of(operator), "network")
    return reference.picaso(network, canonical, num_steps=2, num_heads=HEADS) * scale + shift


AUTHORS = {"form": "authors", "norm": True}
DEPENDS_ON_SIZE = {"repetition": "the result depends on the number of elements, not only on their distribution"}
NO_WEIGHTS = {"weights": "copies of an element form tuples with each other, or have ranks of their own"}
NOT_STREAMABLE = {
    "streaming": "elements of different chunks interact: all attend to each other, form tuples, or are sorted"
}
SET_NORM = {"norm": "set", "residual": "clean"}
NOT_CHUNKED = {"streaming": "set norm needs the mean and the variance of all elements, before any is attended to"}
NOT_A_MODULE = {"streaming": "a function of a mixture and a set, not a module"}
PICASO = {"num_templates": TEMPLATES, "num_heads": HEADS}

OPERATORS = [
    block_case("paper"),
    block_case("authors", form="authors"),
    block_case("authors with norm", **AUTHORS),
    block_case("paper with norm", norm=True),
    block_case("paper without residual", residual=False),
    block_case("authors without residual", residual=False, form="authors"),
    block_case("paper without feed-forward", feed_forward=False),
    block_case("authors without feed-forward", feed_forward=False, form="authors"),
    block_case("many queries", num_queries=31),
    block_case("paper with set norm", norm="set"),
    block_case("authors with layer norm and clean residuals", form="authors", norm="layer", residual="clean"),
    block_case("with clean residuals and nothing else", norm=False, residual="clean", feed_forward=False),
    Case(
        "MultiheadAttentionBlock of elements",
        lambda: BlockAsEncoder(MultiheadAttentionBlock(DIM, DIM, OUT, num_heads=HEADS)),
        lambda op, X: reference.mab(reference.within(weights_of(op), "block"), X, X, num_heads=HEADS),
        kind="encoder",
        exempt=NOT_STREAMABLE,
    ),
    Case(
        "Elementwise",
        lambda: Elementwise(nn.Sequential(nn.Linear(DIM, OUT), nn.ReLU())),
        lambda op, X: reference.relu(reference.linear(weights_of(op), "network.0", X)),
        kind="encoder",
    ),
    Case(
        "SelfAttention",
        lambda: SelfAttention(DIM, OUT, num_heads=HEADS),
        plain(reference.self_attention, num_heads=HEADS),
        kind="encoder",
        exempt=NOT_STREAMABLE,
    ),
    Case(
        "SelfAttention authors",
        lambda: SelfAttention(DIM, OUT, num_heads=HEADS, **AUTHORS),
        plain(reference.self_attention, num_heads=HEADS, **AUTHORS),
        kind="encoder",
        exempt=NOT_STREAMABLE,
    ),
    Case(
        "InducedSelfAttention",
        lambda: InducedSelfAttention(DIM, OUT, num_heads=HEADS, num_inducing=INDUCING),
        plain(reference.induced_self_attention, num_heads=HEADS),
        kind="encoder",
    ),
    Case(
        "InducedSelfAttention authors",
        lambda: InducedSelfAttention(DIM, OUT, num_heads=HEADS, num_inducing=INDUCING, **AUTHORS),
        plain(reference.induced_self_attention, num_heads=HEADS, **AUTHORS),
        kind="encoder",
    ),
    Case(
        "InducedSelfAttention with set norm and clean residuals",
        lambda: InducedSelfAttention(DIM, OUT, num_heads=HEADS, num_inducing=INDUCING, **SET_NORM),
        plain(reference.induced_self_attention, num_heads=HEADS, **SET_NORM),
        kind="encoder",
        exempt=NOT_CHUNKED,
    ),
    Case(
        "SelfAttention with set norm",
        lambda: SelfAttention(DIM, OUT, num_heads=HEADS, norm="set"),
        plain(reference.self_attention, num_heads=HEADS, norm="set"),
        kind="encoder",
        exempt=NOT_STREAMABLE,
    ),
    Case("MeanPool", MeanPool, lambda op, X: reference.mean_pool(X)),
    Case(
        "SumPool",
        SumPool,
        lambda op, X: reference.sum_pool(X),
        exempt={"repetition": "a sum grows with the copies, as test_a_sum_counts_copies checks"},
    ),
    Case("MaxPool", MaxPool, lambda op, X: reference.max_pool(X)),
    Case("GatedAttentionPool", lambda: GatedAttentionPool(DIM, dim_hidden=5), plain(reference.gated_attention)),
    Case(
        "GatedAttentionPool with several templates",
        lambda: GatedAttentionPool(DIM, dim_hidden=5, num_templates=TEMPLATES),
        plain(reference.gated_attention),
    ),
    Case("FeaturewiseAttentionPool", lambda: FeaturewiseAttentionPool(DIM), plain(reference.featurewise_attention)),
    Case(
        "JanossyPool order 1",
        lambda: JanossyPool(DIM, order=1, dim_hidden=7, dim_out=OUT),
        plain(reference.janossy, order=1),
        exempt=NO_WEIGHTS | NOT_STREAMABLE,
    ),
    Case(
        "JanossyPool order 2",
        lambda: JanossyPool(DIM, order=2, dim_hidden=7),
        plain(reference.janossy, order=2),
        exempt=DEPENDS_ON_SIZE | NO_WEIGHTS | NOT_STREAMABLE,
    ),
    Case(
        "JanossyPool order 3",
        lambda: JanossyPool(DIM, order=3, dim_hidden=5),
        plain(reference.janossy, order=3),
        exempt=DEPENDS_ON_SIZE | NO_WEIGHTS | NOT_STREAMABLE,
    ),
    Case(
        "SortPool",
        lambda: SortPool(DIM, num_pieces=5),
        plain(reference.sort_pool),
        exempt=DEPENDS_ON_SIZE | NO_WEIGHTS | NOT_STREAMABLE,
    ),
    Case("AttentionPool", lambda: AttentionPool(DIM, **PICASO), plain(reference.picaso, num_steps=1, num_heads=HEADS)),
    Case("PicasoPool", lambda: PicasoPool(DIM, **PICASO), plain(reference.picaso, num_steps=3, num_heads=HEADS)),
    Case(
        "PicasoPool projecting",
        lambda: PicasoPool(DIM, **PICASO, order="project"),
        plain(reference.picaso, num_steps=3, num_heads=HEADS),
    ),
    Case(
        "PicasoPool absorbing",
        lambda: PicasoPool(DIM, **PICASO, order="absorb"),
        plain(reference.picaso, num_steps=3, num_heads=HEADS),
    ),
    Case(
        "PicasoPool authors",
        lambda: PicasoPool(DIM, **PICASO, num_steps=2, **AUTHORS),
        plain(reference.picaso, num_steps=2, num_heads=HEADS, **AUTHORS),
    ),
    Case(
        "PicasoPool with layer norm and clean residuals",
        lambda: PicasoPool(DIM, **PICASO, norm="layer", residual="clean"),
        plain(reference.picaso, num_steps=3, num_heads=HEADS, norm="layer", residual="clean"),
    ),
    Case(
        "PicasoPool with set norm and clean residuals",
        lambda: PicasoPool(DIM, **PICASO, **SET_NORM),
        plain(reference.picaso, num_steps=3, num_heads=HEADS, **SET_NORM),
        exempt=NOT_CHUNKED,
    ),
    Case(
        "PicasoPool with separate steps",
        lambda: PicasoPool(DIM, **PICASO, num_steps=2, share=False),
        plain(reference.picaso, num_steps=2, num_heads=HEADS, share=False),
    ),
    Case(
        "MixingPicasoPool",
        lambda: MixingPicasoPool(DIM, **PICASO),
        plain(reference.mixing_picaso, num_steps=3, num_heads=HEADS),
    ),
    Case(
        "GeneralizedPicaso templates",
        lambda: OneOutput(GeneralizedPicaso(DIM, **PICASO), 0),
        lambda op, X: reference.generalized_picaso(weights_of(op.operator), X, num_steps=3, num_heads=HEADS)[0],
    ),
    Case(
        "GeneralizedPicaso elements",
        lambda: OneOutput(GeneralizedPicaso(DIM, **PICASO), 1),
        lambda op, X: reference.generalized_picaso(weights_of(op.operator), X, num_steps=3, num_heads=HEADS)[1],
        kind="encoder",
    ),
    Case(
        "GeneralizedPicaso elements with set norm",
        lambda: OneOutput(GeneralizedPicaso(DIM, **PICASO, num_steps=2, norm="set"), 1),
        lambda op, X: reference.generalized_picaso(
            weights_of(op.operator), X, num_steps=2, num_heads=HEADS, norm="set"
        )[1],
        kind="encoder",
        exempt=NOT_CHUNKED,
    ),
    Case(
        "GeneralizedPicaso untied",
        lambda: OneOutput(GeneralizedPicaso(DIM, **PICASO, num_steps=2, tied=False, **AUTHORS), 0),
        lambda op, X: reference.generalized_picaso(
            weights_of(op.operator), X, num_steps=2, num_heads=HEADS, tied=False, **AUTHORS
        )[0],
    ),
    Case(
        "SoftKMeans of points competing",
        lambda: SoftKMeans(DIM, num_templates=TEMPLATES, compete=False),
        plain(reference.soft_kmeans, num_steps=3, compete=False, temperature=1.0),
    ),
    Case(
        "SoftKMeans of clusters competing",
        lambda: SoftKMeans(DIM, num_templates=TEMPLATES, temperature=2.0),
        plain(reference.soft_kmeans, num_steps=3, compete=True, temperature=2.0),
    ),
    Case("em_step spherical", lambda: EMStep(1), em_equation, exempt=NOT_A_MODULE),
    Case("em_step diagonal", lambda: EMStep(DIM), em_equation, exempt=NOT_A_MODULE),
    Case(
        "SlotAttention",
        lambda: SlotAttention(DIM, num_slots=TEMPLATES),
        lambda op, X: reference.slot_attention(weights_of(op), X, slots=weights_of(op)["slots"], num_steps=3),
    ),
    Case(
        "SlotAttention sampled",
        lambda: SlotAttention(DIM, num_slots=TEMPLATES, dim_slots=5, num_steps=2, initial="sampled"),
        lambda op, X: reference.slot_attention(
            weights_of(op), X, slots=op.initial_slots(torch.zeros(1, 1, DIM))[0].detach().numpy(), num_steps=2
        ),
    ),
    Case(
        "Canonicalize", lambda: Canonicalize(PicasoPool(DIM, **PICASO, num_steps=2), move_back), canonicalized_equation
    ),
    Case(
        "DeepSets",
        lambda: DeepSets(DIM, OUT, dim=7, num_outputs=2),
        plain(reference.deep_sets, pool=reference.mean_pool, num_outputs=2),
    ),
    Case(
        "DeepSets with maximum",
        lambda: DeepSets(DIM, OUT, dim=7, pool="max"),
        plain(reference.deep_sets, pool=reference.max_pool, num_outputs=1),
    ),
    Case(
        "DeepSets with sum",
        lambda: DeepSets(DIM, OUT, dim=7, pool="sum"),
        plain(reference.deep_sets, pool=reference.sum_pool, num_outputs=1),
        exempt={"repetition": "a sum grows with the copies"},
    ),
    Case(
        "SetTransformer",
        lambda: SetTransformer(DIM, 5, dim=OUT, num_heads=HEADS, num_inducing=INDUCING, num_outputs=2),
        plain(
            reference.attention_network,
            encode=reference.induced_self_attention,
            num_encoders=2,
            num_steps=1,
            num_decoders=1,
            num_heads=HEADS,
        ),
    ),
    Case(
        "Picaso",
        lambda: Picaso(DIM, 5, dim=OUT, num_heads=HEADS, num_inducing=INDUCING, num_outputs=2, num_steps=2),
        plain(
            reference.attention_network,
            encode=reference.induced_self_attention,
            num_encoders=2,
            num_steps=2,
            num_decoders=1,
            num_heads=HEADS,
        ),
    ),
    Case(
        "Picaso of elements by themselves",
        lambda: Picaso(DIM, 5, dim=OUT, num_heads=HEADS, encoder="elementwise", num_decoder_blocks=0),
        plain(
            reference.attention_network,
            encode=reference.one_layer,
            num_encoders=2,
            num_steps=3,
            num_decoders=0,
            num_heads=HEADS,
        ),
    ),
    Case(
        "Picaso with self-attention",
        lambda: Picaso(DIM, 5, dim=OUT, num_heads=HEADS, encoder="self", num_decoder_blocks=0, **AUTHORS),
        plain(
            reference.attention_network,
            encode=reference.self_attention,
            num_encoders=2,
            num_steps=3,
            num_decoders=0,
            num_heads=HEADS,
            **AUTHORS,
        ),
        exempt=NOT_STREAMABLE,
    ),
]


def obeying(law: str) -> list[Case]:
    """Return the operators to which a law applies."""
    return [case for case in OPERATORS if law not in case.exempt]


CODE_PATHS = {
    "blocks and encoders": (
        "MultiheadAttentionBlock authors with norm", "Elementwise", "SelfAttention",
        "InducedSelfAttention with set norm and clean residuals", "Canonicalize",
    ),
    "pools": (
        "MeanPool", "SumPool", "MaxPool", "GatedAttentionPool with several templates", "FeaturewiseAttentionPool",
        "JanossyPool order 2", "SortPool", "AttentionPool", "PicasoPool projecting", "PicasoPool absorbing",
    ),
    "cascades": (
        "PicasoPool with separate steps", "MixingPicasoPool", "GeneralizedPicaso elements",
        "SoftKMeans of points competing", "SoftKMeans of clusters competing", "em_step diagonal", "SlotAttention",
    ),
    "networks": ("DeepSets", "SetTransformer", "Picaso"),
}  # fmt: skip
"""One case of every operator and of every code path, by name; the other cases leave out or exchange a layer."""
