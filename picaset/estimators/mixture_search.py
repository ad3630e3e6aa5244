"""Search for the best Gaussian mixture of each set: number of components, covariance type, and local optimum.

1. Start     Centres by k-means++, one sequence for all numbers of components, in the space of the columns and in
             whitened space, and optionally by a network.
2. Screen    A few steps of expectation-maximization in single precision on a sample, for every covariance type, number
             of components and start; the criterion of each is estimated.
3. Fit       The best few candidates of each set take steps on all points, in double precision, until convergence.
4. Merge     Two components of the best mixture are merged and the result is fitted, as long as the criterion improves.

Columns are standardized first, so the result is equivariant to their shift and scale. All sets get the same random
numbers, so the mixture of a set does not depend on the sets beside it.

k-means++ (Arthur and Vassilvitskii 2007) chooses the first centre at random among the points, and each further centre
with a probability proportional to the squared distance to the nearest centre chosen so far.

A proposal network is a folder with ``config.json`` and ``model.safetensors``. Some are shipped with the library; those
that a user trains are in the folder named by the environment variable ``PICASET_WEIGHTS``, or in ``picaset/weights`` of
the user's data folder.

Dimensions:  B sets   N points (padded)   S starts   C candidates   K components   D coordinates   L = K (+ 1: noise)
"""

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import combinations
from pathlib import Path
from typing import NamedTuple, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from picaset.estimators.batched_em import (
    Covariance,
    FitResult,
    Mixtures,
    Points,
    cholesky,
    fit_mixtures,
    is_axis_aligned,
    m_step,
    point_features,
    statistics_of_mixtures,
    sufficient_statistics,
)
from picaset.networks.mixture_proposer import MixtureProposer
from picaset.operators.buckets import split_into_buckets
from picaset.pretrained import read_description
from picaset.sets import SetBatch

SHIPPED_WEIGHTS = Path(str(resources.files("picaset"))) / "weights"


def kmeans_plus_plus(
    points: Float[Tensor, "B N D"], weights: Float[Tensor, "B N"], uniforms: Float[Tensor, "S K"]
) -> Float[Tensor, "B S K D"]:
    """Draw S sequences of K centres for each set; the first k of a sequence are a draw of k centres."""
    chances = weights[:, None].expand(-1, len(uniforms), -1)
    nearest, centres = torch.full_like(chances, torch.inf), list[Tensor]()
    for uniform in uniforms.T:
        indices = draw_indices(chances, uniform)
        centres.append(points.gather(1, indices[..., None].expand(-1, -1, points.shape[2])))
        distances = torch.cdist(centres[-1], points, compute_mode="donot_use_mm_for_euclid_dist")
        nearest = torch.minimum(nearest, distances.square_())
        chances = nearest * weights[:, None]
    return torch.stack(centres, dim=2)


def draw_indices(weights: Float[Tensor, "B S N"], uniforms: Float[Tensor, " S"]) -> Int[Tensor, "B S"]:
    """Draw one index in proportion to the weights along the last dimension; the first if all weights are zero."""
    cumulative = weights.cumsum(dim=2)
    thresholds = uniforms[None, :, None] * cumulative[..., -1:]
    indices = torch.searchsorted(cumulative, thresholds, right=True)[..., 0]
    # Rounding may exceed the last point that has a weight; padding is last and has none.
    last = (cumulative < cumulative[..., -1:]).sum(dim=2)
    return torch.minimum(indices, last)


def find_proposer(*, dim_in: int, num_components: int) -> MixtureProposer | None:
    """Load the smallest network for ``dim_in`` coordinates and at least ``num_components`` components, if any."""
    return find_proposer_in(user_weights(), dim_in, num_components)


@cache
def find_proposer_in(trained: Path, dim_in: int, num_components: int) -> MixtureProposer | None:
    matches = [
        (config["max_components"], folder)
        for parent in (SHIPPED_WEIGHTS, trained)
        for folder in sorted(path.parent for path in parent.glob("clusterer_*/config.json"))
        if (config := read_config(folder))["dim_in"] == dim_in and config["max_components"] >= num_components
    ]
    return MixtureProposer.from_pretrained(min(matches)[1]) if matches else None


def register_proposer(folder: Path) -> Path:
    """Copy a trained network to the user's weights, replacing one with the same coordinates and components."""
    config = read_config(folder)
    target = user_weights() / f"clusterer_{config['dim_in']}d_{config['max_components']}"
    target.mkdir(parents=True, exist_ok=True)
    network = MixtureProposer.from_pretrained(folder)  # a damaged network raises before anything is replaced
    network.save_pretrained(target)
    find_proposer_in.cache_clear()
    return target


def user_weights() -> Path:
    """Return the folder for networks that the user has trained."""
    if folder := os.environ.get("PICASET_WEIGHTS"):
        return Path(folder)
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "picaset" / "weights"


def read_config(folder: Path) -> dict[str, int]:
    return read_description(folder / "config.json")["config"]


CACHE_NUMBERS = 500_000
"""Points times mixtures times components that are processed together, so that they stay in the processor's cache."""
FEATURES_SHARE = 16
"""Number of features of a point that cost as much as one such number, because they are read and not written."""
SCREENING_MIN_VARIANCE = 1e-4
"""Smallest variance while screening; single precision cannot resolve smaller components."""
KMEANS_STEPS = 3
"""Steps of k-means from every sequence of centres."""
SCREENING = ((2, 3), (2, 1))
"""Steps from all starts and how many times the wanted number of them remains, then the same for those that remain.

The best start after two steps is often not the one that becomes the best."""
SCREENING_POINTS = 1024
"""Size of the sample on which mixtures are screened."""
PATIENCE = 2
"""Numbers of components in a row that must not improve the criterion before the search ends."""
HIDING_BACKGROUND = 0.3
"""Weight of the background above which it may hide clusters, so that further components are tried."""
NOISE_FRACTION = 0.15
"""Fraction of the points, with the most distant neighbours, that are excluded as centres and start as noise."""

Model = tuple[Covariance, int]
"""A covariance type and a number of components."""


def num_parameters(model: Model, dim: int, *, noise: bool) -> int:
    """Return the number of free parameters of a mixture."""
    covariance, count = model
    matrix = dim * (dim + 1) // 2
    covariances = {"spherical": count, "diag": count * dim, "tied": matrix, "full": count * matrix}[covariance]
    return count * dim + covariances + count - 1 + noise


def information_criterion(log_likelihood: float, num_parameters: int, penalty: float) -> float:
    """Return minus twice the log-likelihood of all points plus a penalty for each parameter."""
    return float(penalty * num_parameters - 2 * log_likelihood)


def min_component_size(dim: int) -> int:
    """Number of points that a component needs; a few points that are close by chance have a high likelihood, too."""
    return dim + 2


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """Options of the search."""

    covariances: tuple[Covariance, ...]
    component_counts: tuple[int, ...]
    """Numbers of components to try, in ascending order."""
    noise: bool = False
    """Whether there is a uniform background."""
    num_starts: int = 6
    """Number of k-means++ sequences; a third of them is drawn among the whitened points."""
    proposer: MixtureProposer | None = None
    """Network that proposes further starts."""
    num_fits: int = 3
    """Number of candidates that are fitted until convergence."""
    max_steps: int = 100
    tol: float = 3e-4
    """Gain in average log-likelihood per step below which a fit has converged."""
    min_variance: float = 1e-6
    """Smallest variance of a component, relative to the variance of the column."""

    def models(self, count: int) -> list[Model]:
        """Return the models with this number of components; a single tied component is a full one."""
        tied_is_full = count == 1 and "full" in self.covariances
        return [(covariance, count) for covariance in self.covariances if not (covariance == "tied" and tied_is_full)]

    @property
    def starts_per_model(self) -> int:
        """Number of starts of each model that remain after the first steps."""
        return 1 if len(self.covariances) * len(self.component_counts) > 1 else self.num_fits


class FittedMixture(NamedTuple):
    """A fitted mixture of one set.

    Shapes:
        means        (K, D)
        covariances  (K, D) or (K, D, D), (1, D, D) if tied
        log_weights  (L,)
    """

    covariance: Covariance
    means: Float[Tensor, "K D"]
    covariances: Float[Tensor, "..."]
    log_weights: Float[Tensor, " L"]
    log_likelihood: float
    steps: int
    converged: bool
    criterion: float

    @classmethod
    def of(cls, fit: FitResult, row: int, covariance: Covariance, criterion: float = 0.0) -> "FittedMixture":
        """Return the first mixture of one of the sets of a fit."""
        means, covariances, log_weights = (part[row, 0] for part in fit.mixtures)
        likelihood = float(fit.log_likelihood[row, 0])
        steps, converged = int(fit.steps[row]), bool(fit.converged[row])
        return cls(covariance, means, covariances, log_weights, likelihood, steps, converged, criterion)

    @property
    def model(self) -> Model:
        return self.covariance, len(self.means)

    def as_mixtures(self) -> Mixtures:
        """Return a batch of this mixture alone."""
        return Mixtures(self.means[None, None], self.covariances[None, None], self.log_weights[None, None])

    def on_cpu(self) -> "FittedMixture":
        """Return the mixture in the memory of the CPU."""
        return self._replace(
            means=self.means.cpu(), covariances=self.covariances.cpu(), log_weights=self.log_weights.cpu()
        )

    def in_units(
        self, shift: Float[Tensor, "1 D"], scale: Float[Tensor, "1 D"], log_volume: float | None = None
    ) -> "FittedMixture":
        """Transform a mixture of standardized points to the units of the data; the criterion does not change.

        ``log_volume`` is the log of the product of the scales, averaged over the points if values are missing.
        """
        square = scale.square() if is_axis_aligned(self.covariance) else scale.T * scale
        return self._replace(
            means=self.means * scale + shift,
            covariances=self.covariances * square,
            log_likelihood=self.log_likelihood - (float(scale.log().sum()) if log_volume is None else log_volume),
        )


class SearchResult(NamedTuple):
    """Fitted candidates of one set, the best first, and the lowest criterion found for each number of components."""

    candidates: list[FittedMixture]
    criterion_by_count: dict[int, float]

    def on_cpu(self) -> "SearchResult":
        """Return the result with the mixtures in the memory of the CPU."""
        return self._replace(candidates=[candidate.on_cpu() for candidate in self.candidates])

    @property
    def best_criterion(self) -> float:
        return self.candidates[0].criterion if self.candidates else math.inf

    def add_criterion(self, count: int, value: float) -> None:
        self.criterion_by_count[count] = min(value, self.criterion_by_count.get(count, math.inf))

    def in_units(
        self, shift: Float[Tensor, "1 D"], scale: Float[Tensor, "1 D"], log_volume: float, total: float
    ) -> "SearchResult":
        """Transform the result to the units of the data, of which there are ``total`` points."""
        return SearchResult(
            [candidate.in_units(shift, scale, log_volume) for candidate in self.candidates],
            {
                count: value + 2 * total * log_volume
                for count, value in sorted(self.criterion_by_count.items())
                if math.isfinite(value)
            },
        )


class Frame(NamedTuple):
    """Shift and scale of the columns of each set."""

    shift: Float[Tensor, "B 1 D"]
    scale: Float[Tensor, "B 1 D"]


class StandardizedSets(NamedTuple):
    """Padded sets whose columns have mean zero and variance one; constant columns are zero. Padding has weight zero.

    Shapes:
        points           (B, N, D)
        weights          (B, N)
        totals           (B,)         total weights, before any sampling
        log_background   (B,)         log-density of a uniform distribution on the bounding box
        relative_scales  (B, D)       see :class:`Points`
    """

    points: Float[Tensor, "B N D"]
    weights: Float[Tensor, "B N"]
    totals: Float[Tensor, " B"]
    log_background: Float[Tensor, " B"]
    relative_scales: Float[Tensor, "B D"]

    def of_sets(self, sets: Int[Tensor, " b"] | slice) -> "StandardizedSets":
        """Return some of the sets."""
        return StandardizedSets(*(part[sets] for part in self))

    def features(self, covariance: Covariance) -> Points:
        return point_features(
            self.points, self.weights, covariance=covariance,
            log_background=self.log_background, relative_scales=self.relative_scales,
        )  # fmt: skip


def standardize_columns(
    points: Float[Tensor, "B N D"], weights: Float[Tensor, "B N"]
) -> tuple[StandardizedSets, Frame]:
    """Shift and scale the columns of every set."""
    present = (weights > 0)[..., None]
    totals = weights.sum(dim=1)
    shares = (weights / totals[:, None])[..., None]
    first = points[:, :1]  # subtracted first, so that large offsets lose no digits
    centred = torch.where(present, points - first, 0.0)
    mean = (centred * shares).sum(dim=1, keepdim=True)
    constant = (centred == 0).all(dim=1, keepdim=True)
    centred = torch.where(present, centred - mean, 0.0)
    largest = centred.abs().amax(dim=1, keepdim=True)
    largest = torch.where(
        constant | (largest == 0), 1.0, largest
    )  # squares of the quotients neither over- nor underflow
    deviation = largest * ((centred / largest).square() * shares).sum(dim=1, keepdim=True).sqrt()
    scale = torch.where(constant | (deviation == 0), 1.0, deviation)
    points = centred / scale
    log_background = -box_widths(points).log().sum(dim=1)
    squares = (scale / scale.amax(dim=2, keepdim=True))[:, 0].square()
    # A relative scale of zero would be a division by zero; no two columns of data differ that much in a useful way.
    relative_scales = (squares / squares.mean(dim=1, keepdim=True)).clamp(min=1e-200)
    return StandardizedSets(points, weights, totals, log_background, relative_scales), Frame(first + mean, scale)


def box_widths(points: Float[Tensor, "*sets N D"]) -> Float[Tensor, "*sets D"]:
    """Return the width of the bounding box in each column, or one if it is constant."""
    widths = points.amax(dim=-2) - points.amin(dim=-2)
    return torch.where(widths > 0, widths, 1.0)


@torch.inference_mode()
def search_mixtures(
    sets: SetBatch, weights: Float[Tensor, " total"] | None, options: SearchOptions, *, generator: torch.Generator
) -> list[SearchResult]:
    """Search for a mixture of every set."""
    sizes = ((options.num_starts, max(options.component_counts)), (SCREENING_POINTS,))
    uniforms, ranks = (
        torch.rand(size, generator=generator, dtype=torch.float64).to(sets.elements.device) for size in sizes
    )
    weights = torch.ones_like(sets.elements[:, 0]) if weights is None else weights
    batch = sets.with_elements(torch.cat([sets.elements, weights[:, None]], dim=1))  # both are padded with zeros
    results = dict[int, SearchResult]()
    for bucket in split_into_buckets(batch):
        results_of_bucket = search_padded(bucket.elements[..., :-1], bucket.elements[..., -1], options, uniforms, ranks)
        results |= zip(map(int, bucket.sets), results_of_bucket, strict=True)
    return [results[index] for index in range(len(sets))]


def search_padded(
    points: Float[Tensor, "B N D"],
    weights: Float[Tensor, "B N"],
    options: SearchOptions,
    uniforms: Float[Tensor, "S K"],
    ranks: Float[Tensor, " n"],
) -> list[SearchResult]:
    """Search for a mixture of every set in a padded batch."""
    sets, frame = standardize_columns(points, weights)
    features = {is_axis_aligned(covariance): sets.features(covariance) for covariance in options.covariances}
    num_features = max(part.features.shape[1] for part in features.values())
    num_screened, num_mixed = min(points.shape[1], SCREENING_POINTS), options.num_starts * max(options.component_counts)
    screened = [
        candidate
        for part in cached_parts(len(points), num_screened, num_mixed, num_features)
        for candidate in screen(sets.of_sets(part), options, uniforms, ranks, first=part.start)
    ]
    results = [SearchResult([], {}) for _ in points]
    for candidate in screened:
        for index, value in zip(map(int, candidate.sets), map(float, candidate.criterion), strict=True):
            results[index].add_criterion(candidate.model[1], value)
    owners = torch.cat([candidate.sets for candidate in screened])
    criterion = torch.cat([candidate.criterion for candidate in screened])
    sizes = [len(candidate.sets) for candidate in screened]
    chosen = torch.split_with_sizes(smallest_of_each(criterion, owners, options.num_fits), sizes)
    candidates = [candidate.select(part) for candidate, part in zip(screened, chosen, strict=True)]
    while candidates:
        improved = converge(features, sets.totals, candidates, options, results)
        candidates = merged_candidates(features, sets.totals, results, improved, options)
    return [
        result.in_units(shift, scale, float(scale.log().sum()), float(total))
        for result, shift, scale, total in zip(results, *frame, sets.totals, strict=True)
    ]


def converge(
    features: dict[bool, Points],
    totals: Float[Tensor, " B"],
    candidates: "list[Candidates]",
    options: SearchOptions,
    results: list[SearchResult],
) -> list[int]:
    """Fit candidates until convergence and add them to the results; return the sets whose best mixture is new."""
    before = [result.best_criterion for result in results]
    by_model = dict[Model, list[Candidates]]()
    for candidate in candidates:
        by_model.setdefault(candidate.model, []).append(candidate)
    for model, group in by_model.items():
        owners = torch.cat([candidate.sets for candidate in group])
        starts = Mixtures(*(torch.cat(part) for part in zip(*(item.mixtures for item in group), strict=True))).double()
        points = features[is_axis_aligned(model[0])]
        num_features, num_points = points.features.shape[1:]
        for part in cached_parts(len(owners), num_points, 2 * model[1], num_features):
            fit = fit_mixtures(
                points.of_sets(owners[part]), starts.of_sets(part), model[0],
                max_steps=options.max_steps, min_variance=options.min_variance, tol=options.tol,
            )  # fmt: skip
            values = criterion_of(fit.log_likelihood, fit.mixtures, model, totals[owners[part]], options)[:, 0]
            for row, (index, value) in enumerate(zip(map(int, owners[part]), map(float, values), strict=True)):
                results[index].candidates.append(FittedMixture.of(fit, row, model[0], value))
                results[index].add_criterion(model[1], value)
    for result in results:
        result.candidates.sort(key=lambda mixture: mixture.criterion)
    return [index for index, result in enumerate(results) if result.best_criterion < before[index]]


def merged_candidates(
    features: dict[bool, Points],
    totals: Float[Tensor, " B"],
    results: list[SearchResult],
    indices: list[int],
    options: SearchOptions,
) -> "list[Candidates]":
    """Merge two components of the best mixtures of some sets, the two that leave the lowest criterion.

    An additional component often repairs a poor local optimum; with two others merged, the mixture is a good start for
    the smaller number of components.
    """
    by_model = dict[Model, list[int]]()
    for index in indices:
        by_model.setdefault(results[index].candidates[0].model, []).append(index)
    candidates = list[Candidates]()
    for (covariance, count), members in by_model.items():
        if count - 1 not in options.component_counts:
            continue
        smaller = (covariance, count - 1)
        points = features[is_axis_aligned(covariance)]
        num_features, num_points = points.features.shape[1:]
        for part in cached_parts(len(members), num_points, math.comb(count, 2) * count, num_features):
            owners = torch.tensor(members[part], device=totals.device)
            points_of_owner = points.of_sets(owners)
            best = (results[index].candidates[0].as_mixtures() for index in members[part])
            mixtures = Mixtures(*(torch.cat(parts) for parts in zip(*best, strict=True)))
            starts = merge_pairs(
                mixtures, covariance, points_of_owner.relative_scales, min_variance=options.min_variance
            )
            fit = fit_mixtures(points_of_owner, starts, covariance, max_steps=1, min_variance=options.min_variance)
            criterion = criterion_of(fit.log_likelihood, fit.mixtures, smaller, totals[owners], options)
            lowest = criterion.argmin(dim=1, keepdim=True)
            candidates.append(
                Candidates(smaller, owners, fit.mixtures.select(lowest), criterion.gather(1, lowest)[:, 0])
            )
    return candidates


def merge_pairs(
    mixtures: Mixtures, covariance: Covariance, relative_scales: Float[Tensor, "B D"], *, min_variance: float
) -> Mixtures:
    """Return all mixtures in which two components of the first mixture of each set are merged."""
    statistics = statistics_of_mixtures(mixtures, covariance, min_variance=min_variance)[:, 0]  # (B, L, F)
    count, merged = mixtures.means.shape[2], list[Tensor]()
    for left, right in combinations(range(count), 2):
        others = [index for index in range(statistics.shape[1]) if index not in (left, right)]
        merged_statistics = statistics[:, [left]] + statistics[:, [right]]
        merged.append(torch.cat([merged_statistics, statistics[:, others]], dim=1))
    return m_step(
        torch.stack(merged, dim=1), covariance, relative_scales, num_components=count - 1, min_variance=min_variance
    )


def smallest_of_each(values: Float[Tensor, " C"], owners: Int[Tensor, " C"], number: int) -> Bool[Tensor, " C"]:
    """Mark the ``number`` smallest values of each owner."""
    order = values.argsort(stable=True)
    order = order[owners[order].argsort(stable=True)]  # by owner, then by value
    sorted_owners = owners[order]
    ranks = torch.arange(len(values), device=values.device) - torch.searchsorted(sorted_owners, sorted_owners)
    return torch.zeros_like(values, dtype=torch.bool).index_put((order,), ranks < number)


def cached_parts(num_sets: int, num_points: int, num_components: int, num_features: int) -> Iterator[slice]:
    """Split the sets of a batch into parts that stay in the processor's cache; features are read less often."""
    size = max(1, CACHE_NUMBERS // (num_points * (num_components + num_features // FEATURES_SHARE)))
    return (slice(first, first + size) for first in range(0, num_sets, size))


class Candidates(NamedTuple):
    """Mixtures of one model, one for each of some sets, and their approximate criterion."""

    model: Model
    sets: Int[Tensor, " b"]
    mixtures: Mixtures
    criterion: Float[Tensor, " b"]

    def select(self, chosen: Bool[Tensor, " b"]) -> "Candidates":
        """Return some of the candidates."""
        indices = chosen.nonzero()[:, 0]
        return Candidates(self.model, self.sets[indices], self.mixtures.of_sets(indices), self.criterion[indices])


def screen(
    sets: StandardizedSets,
    options: SearchOptions,
    uniforms: Float[Tensor, "S K"],
    ranks: Float[Tensor, " n"],
    *,
    first: int,
) -> list[Candidates]:
    """Return the best starts of each model after a few steps; ``first`` is the index of the first set."""
    points, weights = sample_points(sets.points, sets.weights, ranks)
    sets = StandardizedSets(*(part.float() for part in (points, weights, *sets[2:])))
    centre_weights = sets.weights * ~distant_points(sets) if options.noise else sets.weights
    spaces = starting_spaces(sets.points, centre_weights, uniforms.float())
    features = {is_axis_aligned(covariance): sets.features(covariance) for covariance in options.covariances}
    candidates = list[Candidates]()
    active = torch.arange(len(points), device=points.device)
    best = torch.full_like(active, torch.inf, dtype=torch.float64)
    stale = torch.zeros_like(active)  # numbers of components since the last improvement
    previous = best[:, None].repeat(1, len(options.covariances))
    hopeful = torch.ones_like(previous, dtype=torch.bool)
    for count in options.component_counts:
        assigned = assigned_starts(sets, spaces, centre_weights, count, options)
        if not options.noise:
            assigned = assigned[:, :, :count]
        values, background = torch.full_like(previous, torch.inf), torch.zeros_like(previous)
        for model in options.models(count):
            column = options.covariances.index(model[0])
            rows = hopeful[:, column].nonzero()[:, 0]
            if len(rows) == 0:
                continue
            own_features = features[is_axis_aligned(model[0])]
            own_features = own_features if len(rows) == len(active) else own_features.of_sets(rows)
            mixtures = initial_mixtures(own_features, assigned[rows], model)
            mixtures, criterion = improve_starts(own_features, mixtures, model, sets.totals[rows], options)
            values[rows, column] = criterion.amin(dim=1)
            if options.noise:
                background[rows, column] = mixtures.log_weights[:, :, -1].exp().amax(dim=1).double()
            for start in range(criterion.shape[1]):
                index = torch.full_like(rows[:, None], start)
                candidates.append(Candidates(model, active[rows] + first, mixtures.select(index), criterion[:, start]))
        lowest = values.amin(dim=1)
        # A background that holds many points may hide whole clusters; then the gain of a component says little about
        # that of the next, and nothing ends yet.
        hiding = background > HIDING_BACKGROUND
        stale = torch.where((lowest < best) | hiding.any(dim=1), 0, stale + 1)
        best = torch.minimum(lowest, best)
        hopeful &= hiding | can_catch_up(values, previous, best, count, points.shape[2], sets.totals, options)
        previous = values
        kept = (stale < PATIENCE).nonzero()[:, 0]
        if len(kept) == 0:
            break
        if len(kept) < len(active):
            sets, features = sets.of_sets(kept), {key: part.of_sets(kept) for key, part in features.items()}
            spaces = [StartingSpace(*(part[kept] for part in space)) for space in spaces]
            active, best, stale, previous, hopeful, centre_weights = (
                part[kept] for part in (active, best, stale, previous, hopeful, centre_weights)
            )
    return candidates


def can_catch_up(
    values: Float[Tensor, "B T"],
    previous: Float[Tensor, "B T"],
    best: Float[Tensor, " B"],
    count: int,
    dim: int,
    totals: Float[Tensor, " B"],
    options: SearchOptions,
) -> Bool[Tensor, "B T"]:
    """Return for each covariance type whether more components may make it the best.

    A further component gains less than the one before it, as a rule. A type is hopeless if it stays behind the best
    mixture even if all remaining components gain as much as the last, and the penalty of one more, in case that the
    last was in a poor local optimum.
    """
    parameters = [
        num_parameters((kind, count + 1), dim, noise=False) - num_parameters((kind, count), dim, noise=False)
        for kind in options.covariances
    ]
    slack = totals.new_tensor(parameters, dtype=torch.float64) * totals.double().log()[:, None]
    gains = (previous - values).clamp(min=0) * (options.component_counts[-1] - count)
    return (values - best[:, None] <= gains + slack) | values.isinf() | previous.isinf()


def improve_starts(
    points: Points, starts: Mixtures, model: Model, totals: Float[Tensor, " B"], options: SearchOptions
) -> tuple[Mixtures, Float[Tensor, "B s"]]:
    """Return the best starts after a few steps, and their criterion."""
    min_variance = max(SCREENING_MIN_VARIANCE, options.min_variance)
    criterion = points.features.new_empty(0)
    for steps, factor in SCREENING if model[1] > 1 or options.noise else ((0, 1),):
        keep = min(factor * options.starts_per_model, starts.means.shape[1])
        fit = fit_mixtures(points, starts, model[0], max_steps=steps, min_variance=min_variance)
        criterion = criterion_of(fit.log_likelihood, fit.mixtures, model, totals, options)
        best = criterion.topk(keep, dim=1, largest=False).indices
        starts, criterion = fit.mixtures.select(best), criterion.gather(1, best)
    return starts, criterion


class StartingSpace(NamedTuple):
    """Points in a space in which distances are measured, and sequences of centres drawn there."""

    points: Float[Tensor, "B N D"]
    centres: Float[Tensor, "B S K D"]


def starting_spaces(
    points: Float[Tensor, "B N D"], weights: Float[Tensor, "B N"], uniforms: Float[Tensor, "S K"]
) -> list[StartingSpace]:
    """Draw two thirds of the sequences of centres among the points, the others among the whitened points.

    k-means cuts long clusters that lie side by side across. Whitening with the covariance of all points shortens the
    common direction.
    """
    number = len(uniforms) // 3 if points.shape[2] > 1 else 0
    plain, others = uniforms.tensor_split([len(uniforms) - number])
    spaces = [StartingSpace(points, kmeans_plus_plus(points, weights, plain))]
    if number > 0:
        whitened = whiten(points, weights)
        spaces.append(StartingSpace(whitened, kmeans_plus_plus(whitened, weights, others)))
    return spaces


def whiten(points: Float[Tensor, "B N D"], weights: Float[Tensor, "B N"]) -> Float[Tensor, "B N D"]:
    """Transform points so that their covariance is the identity."""
    shares = (weights / weights.sum(dim=1, keepdim=True))[..., None]
    centred = points - (shares * points).sum(dim=1, keepdim=True)
    covariances = (shares * centred).transpose(1, 2) @ centred
    covariances.diagonal(dim1=1, dim2=2).add_(SCREENING_MIN_VARIANCE)
    columns, factors = points.transpose(1, 2), cholesky(covariances)
    whitened = cast(Tensor, torch.linalg.solve_triangular(factors, columns, upper=False))  # pyright: ignore[reportUnknownMemberType]
    return whitened.transpose(1, 2)


def assigned_starts(
    sets: StandardizedSets,
    spaces: list[StartingSpace],
    weights: Float[Tensor, "B N"],
    count: int,
    options: SearchOptions,
) -> Float[Tensor, "B s L N"]:
    """Assign the points to ``count`` centres: those of k-means in every space, and those that the network proposes."""
    if count == 1:
        return assign(sets.points, spaces[0].centres[:, :1, :1], sets.weights, weights > 0)
    starts = [(points, move_centres(points, centres[:, :, :count], weights)) for points, centres in spaces]
    if options.proposer is not None:
        proposals = options.proposer.propose_canonical(sets.points, sets.weights > 0, count).means
        starts.append((sets.points, proposals.reshape(len(sets.points), -1, *proposals.shape[1:])))
    return torch.cat([assign(points, centres, sets.weights, weights > 0) for points, centres in starts], dim=1)


def move_centres(
    points: Float[Tensor, "B N D"], centres: Float[Tensor, "B S K D"], weights: Float[Tensor, "B N"]
) -> Float[Tensor, "B S K D"]:
    """Take a few steps of k-means: every centre moves to the mean of the points that are nearest to it."""
    for _ in range(KMEANS_STEPS):
        assigned = assign(points, centres, weights, weights > 0)[:, :, :-1]
        sizes = assigned.sum(dim=3, keepdim=True)
        means = (assigned.flatten(1, 2) @ points).view_as(centres) / sizes.clamp(min=1e-30)
        centres = torch.where(sizes > 0, means, centres)
    return centres


def assign(
    points: Float[Tensor, "B N D"],
    centres: Float[Tensor, "B S K D"],
    weights: Float[Tensor, "B N"],
    included: Bool[Tensor, "B N"],
) -> Float[Tensor, "B S L N"]:
    """Return the weights of the points for the nearest centre; excluded points belong to one more component."""
    distances = torch.cdist(centres.flatten(1, 2), points).view(*centres.shape[:3], -1)
    excluded = ~included[:, None, None].expand(-1, centres.shape[1], -1, -1)
    nearest = (distances == distances.amin(dim=2, keepdim=True)) & ~excluded
    return torch.cat([nearest, excluded], dim=2) * weights[:, None, None]


def initial_mixtures(points: Points, assigned: Float[Tensor, "B S L N"], model: Model) -> Mixtures:
    """Return mixtures of the assigned points, whose components share one covariance."""
    covariance, count = model
    pooled = covariance if is_axis_aligned(covariance) else "tied"
    start = m_step(
        sufficient_statistics(points, assigned, pooled, num_components=count), pooled, points.relative_scales,
        num_components=count, min_variance=SCREENING_MIN_VARIANCE,
    )  # fmt: skip
    covariances = start.covariances
    if is_axis_aligned(covariance):
        covariances = (covariances * start.log_weights[:, :, :count, None].softmax(dim=2)).sum(dim=2, keepdim=True)
    if covariance != "tied":
        covariances = covariances.repeat_interleave(count, dim=2)
    return start._replace(covariances=covariances)


def distant_points(sets: StandardizedSets) -> Bool[Tensor, "B N"]:
    """Mark a fraction of the points of each set, those with the most distant neighbours."""
    weights, number = sets.weights, sets.points.shape[1]
    neighbours = min(max(4, sets.points.shape[2] // 2 + 2), number)
    distances = torch.cdist(sets.points, sets.points).masked_fill((weights == 0)[:, None], torch.inf)
    distances, indices = distances.topk(neighbours, dim=2, largest=False)
    # A point of weight two counts as two neighbours.
    reached = weights.gather(1, indices.flatten(1)).view_as(distances).cumsum(dim=2)
    last = (reached < neighbours).sum(dim=2, keepdim=True).clamp(max=neighbours - 1)
    distances = distances.gather(2, last)[..., 0].masked_fill(weights == 0, torch.inf)
    ordered, order = distances.sort(dim=1)
    share = weights.gather(1, order).cumsum(dim=1) / weights.sum(dim=1, keepdim=True)
    threshold = ordered.gather(1, (share < 1 - NOISE_FRACTION).sum(dim=1, keepdim=True).clamp(max=number - 1))
    return distances > threshold


def criterion_of(
    likelihood: Float[Tensor, "B S"],
    mixtures: Mixtures,
    model: Model,
    totals: Float[Tensor, " B"],
    options: SearchOptions,
) -> Float[Tensor, "B S"]:
    """Return the Bayesian information criterion of mixtures, with one change; lower is better.

    A parameter costs the logarithm of the number of points that determine it. For the covariance of a component these
    are the points of the component, not all points. The difference matters in many dimensions, where a covariance has
    most of the parameters.
    """
    (covariance, count), dim, totals = model, mixtures.means.shape[3], totals.double()[:, None]
    own = {"spherical": 1, "diag": dim, "tied": 0, "full": dim * (dim + 1) // 2}[covariance]
    others = num_parameters(model, dim, noise=options.noise) - own * count
    sizes = mixtures.log_weights[:, :, :count].double().exp() * totals[..., None]
    penalty = others * totals.log() + own * sizes.clamp(min=1.0).log().sum(dim=2)
    criterion = penalty - 2 * totals * likelihood.double()
    if len(options.component_counts) > 1 and count > 1:
        criterion = criterion.masked_fill(sizes.amin(dim=2) < min_component_size(dim), torch.inf)
    return criterion


def sample_points(
    points: Float[Tensor, "B N D"], weights: Float[Tensor, "B N"], ranks: Float[Tensor, " n"]
) -> tuple[Float[Tensor, "B s D"], Float[Tensor, "B s"]]:
    """Draw points in proportion to their weights if there are more than n in the batch."""
    size = len(ranks)
    if points.shape[1] <= size:
        return points, weights
    cumulative = weights.cumsum(dim=1)
    strata = (torch.arange(size, device=ranks.device) + ranks) / size  # stratified, so that few points are drawn twice
    indices = torch.searchsorted(cumulative, strata * cumulative[:, -1:], right=True)
    indices = torch.minimum(indices, (cumulative < cumulative[:, -1:]).sum(dim=1, keepdim=True))
    sample = points.gather(1, indices[..., None].expand(-1, -1, points.shape[2]))
    return sample, torch.ones_like(sample[..., 0])
