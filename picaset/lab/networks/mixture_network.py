"""Amortized clustering: from a set of points to the Gaussian mixture they come from, in one pass.

Moments of the points that answers claim: of a set in memory, and, in two passes, of one that is read in chunks.

Dimensions:  B sets   N elements   n elements of a chunk   K answers   D coordinates   E features

A mixture after every step of a cascade: what its templates would say if they were asked then.

Dimensions:  B sets   N elements (padded)   K components   H heads   L steps
"""

import math
from typing import Any, Literal, NamedTuple, Unpack

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from picaset.checks import check_choice, check_divides, check_positive
from picaset.large.large_set import LargeSet
from picaset.large.rules import num_passes, read_large
from picaset.large.statistics import Sums
from picaset.networks.mixture_proposer import SMALLEST_DEVIATION, components, with_frequencies
from picaset.networks.pretrained import PretrainedNetwork
from picaset.networks.set_networks import Encoder, attention_encoders, four_layers
from picaset.operators.attention_pools import AttentionPool
from picaset.operators.base import SetPool, Trace, check_fits, read_set
from picaset.operators.block import BlockOptions
from picaset.operators.buckets import pool_in_buckets
from picaset.operators.canonicalize import Canonicalize
from picaset.operators.encoders import Elementwise, SelfAttention
from picaset.operators.mixture import Mixture
from picaset.operators.picaso import PicasoPool
from picaset.operators.simple_pools import MaxPool, MeanPool
from picaset.sets import SetBatch


def moments(
    answers: Float[Tensor, "B K E"],
    encoded: Float[Tensor, "B N E"],
    elements: Float[Tensor, "B N D"],
    mask: Bool[Tensor, "B N"] | None,
) -> Float[Tensor, "B K D_plus_2"]:
    """Mean, spread and number of the points that each answer claims; answers compete for every point."""
    scores = answers @ encoded.transpose(1, 2) / math.sqrt(encoded.shape[2])  # (B, K, N)
    claims = scores.softmax(dim=1)
    if mask is not None:
        claims = claims.masked_fill(~mask[:, None], 0.0)
    claimed = claims.sum(dim=2, keepdim=True) + 1e-6  # (B, K, 1)
    means = claims @ elements / claimed
    squares = (elements[:, None] - means[:, :, None]).square().mean(dim=-1)  # (B, K, N)
    variances = (claims * squares).sum(dim=2, keepdim=True) / claimed + SMALLEST_DEVIATION**2
    weights = claimed / claimed.sum(dim=1, keepdim=True)
    return torch.cat([means, variances.log(), weights.log()], dim=-1)


def moments_of_large(
    answers: Float[Tensor, "B K E"], large: LargeSet, encoded: LargeSet
) -> Float[Tensor, "B K D_plus_2"]:
    """The same, of points that are read in chunks."""
    both = large.beside(encoded)
    total, weighted = both.fold(Sums(claimed_sums), answers).sums
    claimed = total + 1e-6  # (B, K, 1)
    means = weighted / claimed
    (squares,) = both.fold(Sums(claimed_squares), answers, means).sums
    variances = squares / claimed + SMALLEST_DEVIATION**2
    weights = claimed / claimed.sum(dim=1, keepdim=True)
    return torch.cat([means, variances.log(), weights.log()], dim=-1)


def claims_of(both: Tensor, mask: Tensor | None, answers: Tensor) -> tuple[Tensor, Tensor]:
    """The share of every point that each answer claims, (B, K, n), and the points."""
    width = answers.shape[2]
    points, encoded = both[..., :-width], both[..., -width:]
    claims = (answers @ encoded.transpose(1, 2) / math.sqrt(width)).softmax(dim=1)
    return (claims if mask is None else claims.masked_fill(~mask[:, None], 0.0)), points


def claimed_sums(both: Tensor, mask: Tensor | None, answers: Tensor) -> tuple[Tensor, Tensor]:
    claims, points = claims_of(both, mask, answers)
    return claims.sum(dim=2, keepdim=True), claims @ points


def claimed_squares(both: Tensor, mask: Tensor | None, answers: Tensor, means: Tensor) -> tuple[Tensor]:
    claims, points = claims_of(both, mask, answers)
    squares = (points[:, None] - means[:, :, None]).square().mean(dim=-1)  # (B, K, n)
    return ((claims * squares).sum(dim=2, keepdim=True),)


Pool = Literal["picaso", "attention", "mean", "max"]
Readout = Literal["linear", "moments"]


class MixtureNetwork(PretrainedNetwork):
    """Predict a Gaussian mixture for each set of points, one component per template.

    The rows of the paper's clustering experiment differ in ``encoder``, ``num_inducing``, ``pool`` and
    ``num_decoder_blocks``. Beyond the paper, ``readout="moments"`` lets each template claim a share of every point and
    takes the moments of what it claims, as the last half of an EM step does, instead of a linear map of the template.
    The linear map is there too, as a coarse estimate whose likelihood keeps templates apart while training.

    Args:
        num_components: Gaussians in each mixture.
        dim_in: Coordinates of a point.
        dim: Features inside.
        num_heads: Attention heads; divides ``dim``.
        encoder: ``"induced"`` (AE), ``"self"`` (SA) or ``"elementwise"`` (rFF, as in DeepSets).
        num_inducing: Learned points of each induced encoder.
        num_encoder_blocks: Encoders, one after the other.
        pool: ``"picaso"`` (PB), ``"attention"`` (PMA), ``"mean"`` or ``"max"``; the last two decode one vector into
            all components, as DeepSets does.
        num_steps: Steps of the cascade.
        share: One block for all steps, or one for each.
        num_decoder_blocks: Self-attention blocks among the answers.
        readout: ``"linear"`` or ``"moments"``.
        num_frequencies: Sines and cosines of each coordinate that are shown to the network beside it.
        canonicalize: Show the network every set at the origin with unit spread.
        options: The keywords of :class:`MultiheadAttentionBlock`, for every block.

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
        check_divides(num_heads, dim, caller=caller)
        check_choice(pool, ("picaso", "attention", "mean", "max"), caller=caller, name="pool")
        check_choice(readout, ("linear", "moments"), caller=caller, name="readout")
        if readout == "moments" and pool in ("mean", "max"):
            raise ValueError(f"{caller}: readout 'moments' needs a template for each component; pool {pool!r} has one.")
        super().__init__(
            dict(
                num_components=num_components,
                dim_in=dim_in,
                dim=dim,
                num_heads=num_heads,
                encoder=encoder,
                num_inducing=num_inducing,
                num_encoder_blocks=num_encoder_blocks,
                pool=pool,
                num_steps=num_steps,
                share=share,
                num_decoder_blocks=num_decoder_blocks,
                readout=readout,
                num_frequencies=num_frequencies,
                canonicalize=canonicalize,
                **options,
            )
        )
        self.dim_in = dim_in
        pools: dict[Pool, Any] = {
            "picaso": lambda: PicasoPool(
                dim, num_templates=num_components, num_heads=num_heads, num_steps=num_steps, share=share, **options
            ),
            "attention": lambda: AttentionPool(dim, num_templates=num_components, num_heads=num_heads, **options),
            "mean": MeanPool,
            "max": MaxPool,
        }
        shown = dim_in * (1 + 2 * num_frequencies)
        encoders = attention_encoders(
            encoder,
            shown,
            dim,
            num_blocks=num_encoder_blocks,
            num_heads=num_heads,
            num_inducing=num_inducing,
            caller=caller,
            **options,
        )
        decoder = nn.Sequential(
            *(SelfAttention(dim, dim, num_heads=num_heads, **options) for _ in range(num_decoder_blocks))
        )
        if pool in ("mean", "max"):
            encoders = [Elementwise(four_layers(shown, dim, dim), shown)] if encoder == "elementwise" else encoders
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
    ) -> Mixture:
        """Predict for every set; ``mask`` is True where an element is present, None means all are.

        With ``coarse``, twice as many sets come back: the estimates, then the coarse estimates of the same sets.
        """
        check_fits(self, elements, mask)
        estimates = self.network(elements, mask)  # (B, K, 2, D + 2), or (B, K, 1, D + 2) where both are one
        return self.mixture(torch.cat([estimates[:, :, 0], estimates[:, :, -1]]) if coarse else estimates[:, :, 0])

    def mixture(self, estimates: Float[Tensor, "B K D_plus_2"]) -> Mixture:
        return Mixture(estimates[..., : self.dim_in], estimates[..., -2:-1].exp(), estimates[..., -1])

    def trace(self, elements: Float[Tensor, "B N D"], mask: Bool[Tensor, "B N"] | None = None) -> Trace:
        """The templates and the attention of every step of the cascade."""
        if self.config["pool"] != "picaso":
            raise ValueError(f"MixtureNetwork.trace: only a cascade has steps; pool is {self.config['pool']!r}.")
        if isinstance(self.network, Canonicalize):
            return Canonicalize(Tracing(self.network.network), keep)(elements, mask)
        return Tracing(self.network)(elements, mask)


@read_large.register
def _(network: MixtureNetwork, large: LargeSet) -> Mixture:
    return network.mixture(read_large(network.network, large)[:, :, 0])


class Estimator(nn.Module):
    """The network itself: mean, logarithm of the variance and logarithm of the weight of each component.

    Shapes:
        returns   (B, K, S, D + 2)    S = 2 with claims: from the moments of what is claimed, then the coarse estimate
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
        self,
        elements: Float[Tensor, "B N D"] | SetBatch,
        mask: Bool[Tensor, "B N"] | None = None,
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
        """What templates say of the set."""
        answers = self.decoder(templates)
        coarse = components(self.coarse(answers))
        if self.claims is None:
            return coarse[:, :, None]
        return torch.stack([moments(self.claims(answers), encoded, elements, mask), coarse], dim=2)

    def encode(self, elements: Float[Tensor, "B N D"], mask: Bool[Tensor, "B N"] | None) -> Float[Tensor, "B N E"]:
        encoded = with_frequencies(elements, self.num_frequencies)
        for encoder in self.encoders:
            encoded = encoder(encoded, mask)
        return encoded


@read_large.register
def _(estimator: Estimator, large: LargeSet) -> Float[Tensor, "B K S D_plus_2"]:
    def add_frequencies(points: Tensor) -> Tensor:
        return with_frequencies(points, estimator.num_frequencies)

    encoded = large.map(add_frequencies)
    for module in estimator.encoders:
        encoded = read_large(module, encoded.keep(reads=num_passes(module)))
    answers = estimator.decoder(read_large(estimator.pool, encoded.keep(reads=num_passes(estimator.pool))))
    coarse = components(estimator.coarse(answers))
    if estimator.claims is None:
        return coarse[:, :, None]
    claimed = moments_of_large(estimator.claims(answers), large, encoded)
    return torch.stack([claimed, coarse], dim=2)


class Tracing(nn.Module):
    """An estimator of which the cascade is asked, not the estimate."""

    def __init__(self, estimator: nn.Module) -> None:
        super().__init__()
        self.estimator = estimator

    def forward(self, elements: Float[Tensor, "B N D"], mask: Bool[Tensor, "B N"] | None = None) -> Trace:
        assert isinstance(self.estimator, Estimator)
        pool = self.estimator.pool
        assert isinstance(pool, PicasoPool)
        return pool.trace(self.estimator.encode(*read_set(self, elements, mask)), mask)


def restore(
    estimates: Float[Tensor, "B K S D_plus_2"], shift: Float[Tensor, "B 1 D"], scale: Float[Tensor, "B 1 1"]
) -> Float[Tensor, "B K S D_plus_2"]:
    """Means move and grow with the data, variances grow with its square, weights stay."""
    means, log_variances, log_weights = estimates[..., :-2], estimates[..., -2:-1], estimates[..., -1:]
    shift, scale = shift[:, :, None], scale[:, :, None]
    return torch.cat([means * scale + shift, log_variances + 2 * scale.log(), log_weights], dim=-1)


def keep(trace: Trace, shift: Tensor, scale: Tensor) -> Trace:
    return trace


class MixtureSteps(NamedTuple):
    """What a cascade found, step by step.

    Shapes:
        mixtures   L + 1 of them, read from the templates before the first step and after each
        attention  (L, B, H, K, N)    what each step looked at
    """

    mixtures: list[Mixture]
    attention: Float[Tensor, "L B H K N"]


def mixture_steps(
    network: MixtureNetwork,
    elements: Float[Tensor, "B N D"],
    mask: Bool[Tensor, "B N"] | None = None,
) -> MixtureSteps:
    """Ask the templates of a network after every step; the last mixture is the network's own.

    Example:
        >>> import torch
        >>> network, points = MixtureNetwork(num_components=3, dim=16, num_steps=2), torch.randn(1, 50, 2)
        >>> steps = mixture_steps(network, points)
        >>> len(steps.mixtures), steps.attention.shape
        (3, torch.Size([2, 1, 4, 3, 50]))
        >>> torch.allclose(steps.mixtures[-1].means, network(points).means, atol=1e-5)
        True
    """
    if network.config["pool"] != "picaso":
        raise ValueError(f"mixture_steps: only a cascade has steps; pool is {network.config['pool']!r}.")
    if isinstance(network.network, Canonicalize):
        found: Said = Canonicalize(AskedEveryStep(network.network.network), restore_all)(elements, mask)
    else:
        found = AskedEveryStep(network.network)(elements, mask)
    return MixtureSteps([network.mixture(estimates[:, :, 0]) for estimates in found.estimates], found.attention)


class Said(NamedTuple):
    """Estimates of every step, each (B, K, S, D + 2), and the attention."""

    estimates: list[Tensor]
    attention: Tensor


class AskedEveryStep(nn.Module):
    """An estimator whose templates are read after every step."""

    def __init__(self, estimator: nn.Module) -> None:
        super().__init__()
        self.estimator = estimator

    def forward(self, elements: Float[Tensor, "B N D"], mask: Bool[Tensor, "B N"] | None = None) -> Said:
        estimator = self.estimator
        assert isinstance(estimator, Estimator)
        assert isinstance(estimator.pool, PicasoPool)
        padded, present = read_set(self, elements, mask)
        encoded = estimator.encode(padded, present)
        trace = estimator.pool.trace(encoded, present)
        return Said(
            [estimator.read(templates, encoded, padded, present) for templates in trace.templates], trace.attention
        )


def restore_all(said: Said, shift: Float[Tensor, "B 1 D"], scale: Float[Tensor, "B 1 1"]) -> Said:
    return Said([restore(estimates, shift, scale) for estimates in said.estimates], said.attention)
