"""Amortized clustering: predict in one pass the Gaussian mixture of a set of points.

    MixtureNetwork    the network of the paper's clustering experiment, with a choice of readouts
    mixture_steps     the mixtures that its templates describe after every step of the cascade

Dimensions:  B sets   N points (padded)   n points of a chunk   K components   D coordinates   E features
             S estimates per component   H heads   L steps   T templates, K or 1
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple, Unpack, cast, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from picaset.checks import check_choice, check_num_heads, check_positive
from picaset.large.large_set import LargeSet
from picaset.large.rules import apply_streamed, attend_large, num_passes
from picaset.large.statistics import Sums
from picaset.networks.mixture_proposer import SMALLEST_DEVIATION, components, with_frequencies
from picaset.networks.set_networks import Encoder, attention_encoders, four_layers
from picaset.operators.attention_pools import AttentionPool
from picaset.operators.base import CascadeStep, SetPool, Trace, check_input_set, read_set
from picaset.operators.block import BlockOptions
from picaset.operators.buckets import pool_in_buckets
from picaset.operators.canonicalize import Canonicalize, standardize
from picaset.operators.encoders import Elementwise, SelfAttention
from picaset.operators.mixture import Mixture
from picaset.operators.picaso import PicasoPool
from picaset.operators.simple_pools import MaxPool, MeanPool
from picaset.operators.state import AttentionState
from picaset.pretrained import PretrainedNetwork
from picaset.sets import SetBatch

Pool = Literal["picaso", "mixing-picaso", "attention", "mean", "max"]
Readout = Literal["linear", "moments"]


class MixtureNetwork(PretrainedNetwork):
    """Predict a Gaussian mixture for each set of points, one component per template.

    The rows of the paper's clustering experiment differ in ``encoder``, ``num_inducing``, ``pool`` and
    ``num_decoder_blocks``. Beyond the paper, ``readout="moments"`` computes responsibilities of the templates for the
    points, and from them the moments of each component, like the M step of EM. The linear readout is kept as a coarse
    estimate, whose likelihood in the loss prevents templates from collapsing.

    Args:
        num_components: Components of each mixture.
        dim_in: Coordinates of a point.
        dim: Hidden features.
        num_heads: Attention heads; divides ``dim``.
        encoder: ``"induced"`` (AE), ``"self"`` (SA) or ``"elementwise"`` (rFF, as in DeepSets).
        num_inducing: Inducing points of each induced encoder.
        num_encoder_blocks: Number of encoders.
        pool: ``"picaso"`` (PB), ``"mixing-picaso"`` (PB with self-attention among the templates after every step),
            ``"attention"`` (PMA), ``"mean"`` or ``"max"``; the last two decode one vector into
            all components, as DeepSets does.
        num_steps: Steps of the pool ``"picaso"``.
        share: One block for all steps of the pool ``"picaso"``, instead of one for each.
        num_decoder_blocks: Self-attention blocks among the templates.
        readout: ``"linear"`` or ``"moments"``.
        num_frequencies: Number of frequencies whose sines and cosines of each coordinate are added to the features.
        canonicalize: Shift and scale every set to zero mean and unit variance.
        options: Keywords of :class:`MultiheadAttentionBlock`, for every block.

    Shapes:
        elements  (B, N, dim_in)    or a SetBatch
        mask      (B, N)            True where an element is present; None means all are
        returns   a Mixture with one variance per component

    Example:
        >>> mixture = MixtureNetwork(num_components=3, dim=16)(torch.randn(8, 100, 2))
        >>> mixture.means.shape, mixture.variances.shape, mixture.log_weights.shape
        (torch.Size([8, 3, 2]), torch.Size([8, 3, 1]), torch.Size([8, 3]))
    """

    def __init__(
        self,
        *,
        num_components: int = 4,
        dim_in: int = 2,
        dim: int = 128,
        num_heads: int = 4,
        encoder: Encoder = "induced",
        num_inducing: int = 32,
        num_encoder_blocks: int = 2,
        pool: Pool = "picaso",
        num_steps: int = 2,
        share: bool = True,
        num_decoder_blocks: int = 1,
        readout: Readout = "linear",
        num_frequencies: int = 0,
        canonicalize: bool = False,
        **options: Unpack[BlockOptions],
    ) -> None:
        caller = type(self).__name__
        check_positive(caller=caller, num_components=num_components, dim_in=dim_in)
        check_num_heads(num_heads, dim, caller=caller)
        check_choice(pool, get_args(Pool), caller=caller, name="pool")
        check_choice(readout, ("linear", "moments"), caller=caller, name="readout")
        if readout == "moments" and pool in ("mean", "max"):
            raise ValueError(
                f"{caller}: readout 'moments' needs a template for each component; pool {pool!r} has none."
            )
        super().__init__()
        self.dim_in = dim_in
        cascade: Any = dict(num_templates=num_components, num_heads=num_heads, **options)
        pools: dict[Pool, Any] = {
            "picaso": lambda: PicasoPool(dim, num_steps=num_steps, share=share, **cascade),
            "mixing-picaso": lambda: MixingPicasoPool(dim, num_steps=num_steps, **cascade),
            "attention": lambda: AttentionPool(dim, **cascade),
            "mean": MeanPool,
            "max": MaxPool,
        }
        dim_points = dim_in * (1 + 2 * num_frequencies)
        encoders = attention_encoders(
            encoder, dim_points, dim, num_blocks=num_encoder_blocks, num_heads=num_heads, num_inducing=num_inducing,
            caller=caller, **options,
        )  # fmt: skip
        decoder = nn.Sequential(
            *(SelfAttention(dim, dim, num_heads=num_heads, **options) for _ in range(num_decoder_blocks))
        )
        if pool in ("mean", "max"):
            if encoder == "elementwise":
                encoders = [Elementwise(four_layers(dim_points, dim, dim), dim_points)]
            decoder = nn.Sequential(
                nn.Flatten(),
                four_layers(dim, dim, num_components * (dim_in + 2)),
                nn.Unflatten(1, (num_components, dim_in + 2)),
            )
            coarse: nn.Module = nn.Identity()
        else:
            coarse = nn.Linear(dim, dim_in + 2)
        claims = nn.Linear(dim, dim) if readout == "moments" else None
        estimator = Estimator(nn.ModuleList(encoders), pools[pool](), decoder, coarse, claims, num_frequencies)
        self.network: nn.Module = Canonicalize(estimator, restore) if canonicalize else estimator

    def forward(
        self,
        elements: Float[Tensor, "B N D"] | SetBatch,
        mask: Bool[Tensor, "B N"] | None = None,
        *,
        coarse: bool = False,
        every_step: bool = False,
    ) -> Mixture:
        """Predict the mixture of every set.

        With ``coarse``, return twice as many mixtures: the estimates, then the coarse estimates of the same sets. With
        ``every_step``, return L times as many: the estimates after each step of the cascade.
        """
        if every_step:
            steps = mixture_steps(self, cast(Tensor, elements), mask).mixtures[1:]
            return Mixture(*(torch.cat(parts) for parts in zip(*steps, strict=True)))
        check_input_set(self, elements, mask)
        estimates = self.network(elements, mask)  # (B, K, S, D + 2)
        return self.mixture(torch.cat([estimates[:, :, 0], estimates[:, :, -1]]) if coarse else estimates[:, :, 0])

    def mixture(self, estimates: Float[Tensor, "B K D_plus_2"]) -> Mixture:
        return Mixture(estimates[..., : self.dim_in], estimates[..., -2:-1].exp(), estimates[..., -1])

    def trace(self, elements: Float[Tensor, "B N D"], mask: Bool[Tensor, "B N"] | None = None) -> Trace:
        """Return the templates and the attention of every step of the cascade."""
        estimator, points, present, _ = self.canonical(elements, mask, caller="MixtureNetwork.trace")
        trace = estimator.trace(estimator.encode(points, present), present)
        return trace._replace(attention=trace.attention[..., : elements.shape[1]])

    def canonical(
        self, elements: Float[Tensor, "B N D"], mask: Bool[Tensor, "B N"] | None, *, caller: str
    ) -> "tuple[Estimator, Tensor, Tensor | None, tuple[Tensor, Tensor] | None]":
        """Return the estimator, the points and mask that it is applied to, and their shift and scale if canonicalized.

        An error if the pool has no steps.
        """
        if self.config["pool"] not in ("picaso", "mixing-picaso"):
            raise ValueError(
                f"{caller}: only the pool 'picaso' has steps; this network has pool {self.config['pool']!r}."
            )
        points, present = read_set(self, elements, mask)
        network, place = self.network, None
        if isinstance(network, Canonicalize):
            points, place = standardize(points, present)
            network = network.network
        assert isinstance(network, Estimator)
        return network, points, present, place


class MixingPicasoPool(PicasoPool):
    """A PicasoPool whose templates attend to each other after every step, by one shared self-attention block."""

    def __init__(self, dim: int, *, num_heads: int, **options: Any) -> None:
        super().__init__(dim, num_heads=num_heads, **options)
        block = {name: value for name, value in options.items() if name in BlockOptions.__annotations__}
        self.mixing = SelfAttention(dim, dim, num_heads=num_heads, **cast(Any, block))

    def advance(self, step: CascadeStep, index: int, *, with_attention: bool) -> CascadeStep:
        step = super().advance(step, index, with_attention=with_attention)
        return step._replace(templates=self.mixing.encode(step.templates, None))

    def finish(
        self, state: AttentionState, templates: Float[Tensor, "B K D"], *, step: int = 0
    ) -> Float[Tensor, "B K D"]:
        return self.mixing.encode(super().finish(state, templates, step=step), None)


class Estimator(nn.Module):
    """Predict mean, log variance and log weight of each component, without canonicalization.

    Shapes:
        returns   (B, K, S, D + 2)    S = 2 with ``claims``: the moments, then the coarse estimate; otherwise S = 1
    """

    def __init__(
        self,
        encoders: nn.ModuleList,
        pool: SetPool,
        decoder: nn.Module,
        coarse: nn.Module,
        claims: nn.Module | None,
        num_frequencies: int,
    ) -> None:
        super().__init__()
        self.encoders = encoders
        self.pool = pool
        self.decoder = decoder
        self.coarse = coarse
        self.claims = claims
        self.num_frequencies = num_frequencies

    def forward(
        self, elements: Float[Tensor, "B N D"] | SetBatch, mask: Bool[Tensor, "B N"] | None = None
    ) -> Float[Tensor, "B K S D_plus_2"]:
        if isinstance(elements, SetBatch):
            return pool_in_buckets(elements, self.estimate)
        return self.estimate(*read_set(self, elements, mask))

    def estimate(
        self, elements: Float[Tensor, "B N D"], mask: Bool[Tensor, "B N"] | None
    ) -> Float[Tensor, "B K S D_plus_2"]:
        encoded = self.encode(elements, mask)
        return self.read(self.pool(encoded, mask), encoded, elements, mask)

    def read(
        self,
        templates: Float[Tensor, "B T E"],
        encoded: Float[Tensor, "B N E"],
        elements: Float[Tensor, "B N D"],
        mask: Bool[Tensor, "B N"] | None,
    ) -> Float[Tensor, "B K S D_plus_2"]:
        """Decode templates to the estimates of all components."""
        decoded = self.decoder(templates)
        coarse = components(self.coarse(decoded))
        if self.claims is None:
            return coarse[:, :, None]
        shares = responsibilities(self.claims(decoded), encoded, mask)
        squares = partial(weighted_squares, shares, elements)
        return torch.stack([moments(*weighted_sums(shares, elements), squares), coarse], dim=2)

    def trace(self, encoded: Float[Tensor, "B N E"], mask: Bool[Tensor, "B N"] | None) -> Trace:
        assert isinstance(self.pool, PicasoPool)
        return self.pool.trace(encoded, mask)

    def encode(self, elements: Float[Tensor, "B N D"], mask: Bool[Tensor, "B N"] | None) -> Float[Tensor, "B N E"]:
        encoded = with_frequencies(elements, self.num_frequencies)
        for encoder in self.encoders:
            encoded = encoder(encoded, mask)
        return encoded


@apply_streamed.register
def _(network: MixtureNetwork, large: LargeSet) -> Mixture:
    return network.mixture(apply_streamed(network.network, large)[:, :, 0])


@apply_streamed.register
def _(pool: MixingPicasoPool, large: LargeSet) -> Float[Tensor, "B K D"]:
    templates = pool.initial(large.sets)
    for step in range(pool.num_steps):
        templates = pool.mixing.encode(attend_large(pool.block(step), templates, large, pool.order), None)
    return templates


@apply_streamed.register
def _(estimator: Estimator, large: LargeSet) -> Float[Tensor, "B K S D_plus_2"]:
    def features(points: Tensor) -> Tensor:
        return with_frequencies(points, estimator.num_frequencies)

    encoded = large.map(features)
    for module in estimator.encoders:
        encoded = apply_streamed(module, encoded.cache(reads=num_passes(module)))
    decoded = estimator.decoder(apply_streamed(estimator.pool, encoded.cache(reads=num_passes(estimator.pool))))
    coarse = components(estimator.coarse(decoded))
    if estimator.claims is None:
        return coarse[:, :, None]
    queries, chunks = estimator.claims(decoded), large.concatenate_features(encoded)
    totals, sums = chunks.fold(Sums(chunk_sums), queries).sums
    fine = moments(totals, sums, lambda means: chunks.fold(Sums(chunk_squares), queries, means).sums[0])
    return torch.stack([fine, coarse], dim=2)


def restore(
    estimates: Float[Tensor, "B K S D_plus_2"], shift: Float[Tensor, "B 1 D"], scale: Float[Tensor, "B 1 1"]
) -> Float[Tensor, "B K S D_plus_2"]:
    """Map estimates for canonical points back to the coordinates of the data."""
    means, log_variances, log_weights = estimates[..., :-2], estimates[..., -2:-1], estimates[..., -1:]
    shift, scale = shift[:, :, None], scale[:, :, None]
    return torch.cat([means * scale + shift, log_variances + 2 * scale.log(), log_weights], dim=-1)


class MixtureSteps(NamedTuple):
    """Mixtures and attention of every step of a cascade.

    Shapes:
        mixtures   L + 1 of them, from the templates before the first step and after each
        attention  (L, B, H, K, N)
    """

    mixtures: list[Mixture]
    attention: Float[Tensor, "L B H K N"]


def mixture_steps(
    network: MixtureNetwork, elements: Float[Tensor, "B N D"], mask: Bool[Tensor, "B N"] | None = None
) -> MixtureSteps:
    """Decode the templates after every step to mixtures; the last is the prediction of the network.

    Example:
        >>> import torch
        >>> network, points = MixtureNetwork(num_components=3, dim=16, num_steps=2), torch.randn(1, 50, 2)
        >>> steps = mixture_steps(network, points)
        >>> len(steps.mixtures), steps.attention.shape
        (3, torch.Size([2, 1, 4, 3, 50]))
        >>> torch.allclose(steps.mixtures[-1].means, network(points).means, atol=1e-5)
        True
    """
    estimator, points, present, place = network.canonical(elements, mask, caller="mixture_steps")
    encoded = estimator.encode(points, present)
    trace = estimator.trace(encoded, present)
    estimates = [estimator.read(templates, encoded, points, present) for templates in trace.templates]
    if place is not None:
        estimates = [restore(estimate, *place) for estimate in estimates]
    mixtures = [network.mixture(estimate[:, :, 0]) for estimate in estimates]
    return MixtureSteps(mixtures, trace.attention[..., : elements.shape[1]])


def responsibilities(
    queries: Float[Tensor, "B K E"], encoded: Float[Tensor, "B N E"], mask: Bool[Tensor, "B N"] | None
) -> Float[Tensor, "B K N"]:
    """Return the responsibility of each query for each point: a softmax of the scores over the queries."""
    shares = (queries @ encoded.transpose(1, 2) / math.sqrt(queries.shape[2])).softmax(dim=1)
    return shares if mask is None else shares.masked_fill(~mask[:, None], 0.0)


def weighted_sums(
    shares: Float[Tensor, "B K N"], points: Float[Tensor, "B N D"]
) -> tuple[Float[Tensor, "B K 1"], Float[Tensor, "B K D"]]:
    return shares.sum(dim=2, keepdim=True), shares @ points


def weighted_squares(
    shares: Float[Tensor, "B K N"], points: Float[Tensor, "B N D"], means: Float[Tensor, "B K D"]
) -> Float[Tensor, "B K 1"]:
    squares = (points[:, None] - means[:, :, None]).square().mean(dim=-1)  # (B, K, N)
    return (shares * squares).sum(dim=2, keepdim=True)


def moments(
    totals: Float[Tensor, "B K 1"],
    sums: Float[Tensor, "B K D"],
    sum_squares: Callable[[Float[Tensor, "B K D"]], Float[Tensor, "B K 1"]],
) -> Float[Tensor, "B K D_plus_2"]:
    """Return mean, log variance and log weight of each component, from sums over the points.

    ``sum_squares`` returns the weighted sum of squared distances to given means.
    """
    totals = totals + 1e-6
    means = sums / totals
    variances = sum_squares(means) / totals + SMALLEST_DEVIATION**2
    weights = totals / totals.sum(dim=1, keepdim=True)
    return torch.cat([means, variances.log(), weights.log()], dim=-1)


# The same sums over a chunk whose elements are points followed by their encodings.


def split_chunk(chunk: Tensor, mask: Tensor | None, queries: Tensor) -> tuple[Tensor, Tensor]:
    """Return the responsibilities and the points of a chunk."""
    width = queries.shape[2]
    return responsibilities(queries, chunk[..., -width:], mask), chunk[..., :-width]


def chunk_sums(chunk: Tensor, mask: Tensor | None, queries: Tensor) -> tuple[Tensor, Tensor]:
    return weighted_sums(*split_chunk(chunk, mask, queries))


def chunk_squares(chunk: Tensor, mask: Tensor | None, queries: Tensor, means: Tensor) -> tuple[Tensor]:
    return (weighted_squares(*split_chunk(chunk, mask, queries), means),)
