"""Search for the most likely Gaussian mixture of each set, for one or several numbers of components.

1. Propose   Initial mixtures by a network that reads a sample of each set, by k-means++, or by both.
2. Screen    A few steps of expectation-maximization in single precision on a sample; the best mixtures are selected.
3. Fit       Steps on all points, in double precision, until convergence; the best mixture is the result.

All steps work on canonical points (zero mean, unit variance), so the result is equivariant to shift and scale. The
number of components is chosen by an information criterion among mixtures without tiny components.

k-means++ (Arthur and Vassilvitskii 2007) chooses the first centre at random among the points, and each further centre
with a probability proportional to the squared distance to the nearest centre chosen so far.

A proposal network is a folder with ``config.json`` and ``model.safetensors``. Some are shipped with the library; those
that a user trains are in the folder named by the environment variable ``PICASET_WEIGHTS``, or in ``picaset/weights`` of
the user's data folder.

Dimensions:  B sets   N points (padded)   S mixtures of a set   C numbers of components   K components   D coordinates
"""

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

from picaset.estimators.batched_em import Mixtures, PointFeatures, fit_mixtures, point_features
from picaset.networks.mixture_proposer import MixtureProposer
from picaset.operators.buckets import split_into_buckets
from picaset.operators.canonicalize import ShiftAndScale, standardize
from picaset.pretrained import read_description
from picaset.sets import SetBatch

SHIPPED_WEIGHTS = Path(str(resources.files("picaset"))) / "weights"


def kmeans_plus_plus(
    points: Float[Tensor, "B N D"],
    mask: Bool[Tensor, "B N"] | None,
    *,
    num_components: int,
    num_mixtures: int,
    generator: torch.Generator,
) -> Mixtures:
    """Return mixtures of equal weights, centred at k-means++ centres, with the variance about the nearest centres."""
    present = torch.ones_like(points[..., 0]) if mask is None else mask.to(points.dtype)
    centres = list[Tensor]()
    nearest = torch.full_like(present, torch.inf)[:, None]  # (B, 1 or S, N): squared distances
    weights = present[:, None].expand(-1, num_mixtures, -1)
    for _ in range(num_components):
        indices = draw_indices(weights, generator)
        centres.append(points.gather(1, indices[..., None].expand(-1, -1, points.shape[2])))
        distances = torch.cdist(centres[-1], points, compute_mode="donot_use_mm_for_euclid_dist")
        nearest = torch.minimum(nearest, distances.square())
        weights = nearest * present[:, None]
    variances = weights.sum(dim=2) / (present.sum(dim=1, keepdim=True) * points.shape[2])  # (B, S)
    means = torch.stack(centres, dim=2)
    variances = variances.clamp(min=1e-4)[..., None, None].expand(-1, -1, num_components, 1)
    return Mixtures(means, variances, means.new_full(means.shape[:3], -math.log(num_components)))


def draw_indices(weights: Float[Tensor, "B S N"], generator: torch.Generator) -> Int[Tensor, "B S"]:
    """Draw one index in proportion to the weights along the last dimension; the first if all weights are zero."""
    cumulative = weights.cumsum(dim=2)
    thresholds = torch.rand(*weights.shape[:2], 1, generator=generator, dtype=weights.dtype) * cumulative[..., -1:]
    return torch.searchsorted(cumulative, thresholds, right=True)[..., 0].clamp(max=weights.shape[2] - 1)


def find_proposer(*, dim_in: int, num_components: int) -> MixtureProposer:
    """Load the smallest network for points with ``dim_in`` coordinates and at least ``num_components`` components."""
    return find_proposer_in(user_weights(), dim_in, num_components)


@cache
def find_proposer_in(trained: Path, dim_in: int, num_components: int) -> MixtureProposer:
    matches = [
        (config["max_components"], folder)
        for parent in (SHIPPED_WEIGHTS, trained)
        for folder in sorted(path.parent for path in parent.glob("clusterer_*/config.json"))
        if (config := read_config(folder))["dim_in"] == dim_in and config["max_components"] >= num_components
    ]
    if not matches:
        raise ValueError(
            f"AmortizedMixture: there is no network for {dim_in} coordinates and {num_components} components. Train "
            f"one with: picaset train-clusterer --coordinates {dim_in} --components {num_components}; or pass "
            "init='k-means++' (on the command line --init k-means++), which needs none."
        )
    return MixtureProposer.from_pretrained(min(matches)[1])


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
SCREENING_MIN_VARIANCE = 1e-4
"""Smallest variance while screening; single precision cannot resolve smaller components."""
SPURIOUS_PENALTY = 1e6
"""Larger than any difference between two log-likelihoods."""
SMALL_SET = 400
"""Number of points below which a set gets more initial mixtures, in inverse proportion to its size."""
MAX_EFFORT = 8


def min_component_size(dim: int) -> int:
    """Number of points that a component needs; a few points that are close by chance have a high likelihood, too."""
    return dim + 2


def information_criterion(log_likelihood: float, num_parameters: int, penalty: float) -> float:
    """Return minus twice the log-likelihood of all points plus a penalty for each parameter."""
    return float(penalty * num_parameters - 2 * log_likelihood)


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """Options of the search; the defaults are those with the best measured results."""

    proposer: MixtureProposer | None = None
    """Network that proposes mixtures; None uses k-means++ alone."""
    num_kmeans: int | None = None
    """Initial mixtures by k-means++ in addition to the proposals; None takes the number of components."""
    effort: int = 1
    """Factor on the number of k-means++ mixtures; about half of it on the number selected by screening."""
    screening_steps: int = 3
    screening_points: int = 1024
    """Size of the sample on which mixtures are screened."""
    proposer_points: int = 256
    """Size of the sample that the network reads."""
    max_steps: int = 100
    tol: float = 3e-4
    """Gain in average log-likelihood per step below which a fit has converged."""
    min_variance: float = 1e-6
    """Smallest variance of a component, relative to the variance of the set."""
    min_points: int = 0
    """Mixtures that have a component with fewer points are chosen only if there is no other."""
    diagonal: bool = False
    """Whether a component has one variance per coordinate instead of one variance."""

    def for_set_size(self, num_points: int) -> "SearchOptions":
        """Return the options for sets of this size; small sets have more local optima, and steps on them are cheap."""
        return replace(self, effort=max(1, min(MAX_EFFORT, SMALL_SET // num_points)))

    def num_proposals(self, num_components: int) -> int:
        return 0 if self.proposer is None or num_components == 1 else self.proposer.num_proposals

    def num_kmeans_starts(self, num_components: int) -> int:
        starts = self.effort * (num_components if self.num_kmeans is None else self.num_kmeans)
        return starts if self.num_proposals(num_components) else max(starts, 1)

    def num_starts(self, num_components: int) -> int:
        return self.num_proposals(num_components) + self.num_kmeans_starts(num_components)

    def num_selected(self, num_components: int) -> int:
        """Return how many mixtures are fitted until convergence; more components have more local optima."""
        selected = math.ceil(num_components / 4) * math.ceil((1 + self.effort) / 2)
        return min(selected, self.num_starts(num_components))


class SearchResult(NamedTuple):
    """Best mixture of each set for each number of components; absent components have weight zero.

    Shapes:
        means           (B, C, K, D)                K is the largest number of components
        variances       (B, C, K, 1) or (B, C, K, D)
        log_weights     (B, C, K)
        log_likelihood  (B, C)                      average over the points
        steps           (B,)
        converged       (B,)
    """

    means: Float[Tensor, "B C K D"]
    variances: Float[Tensor, "B C K V"]
    log_weights: Float[Tensor, "B C K"]
    log_likelihood: Float[Tensor, "B C"]
    steps: Int[Tensor, " B"]
    converged: Bool[Tensor, " B"]


@torch.inference_mode()
def search_mixtures(
    sets: SetBatch, component_counts: Sequence[int], options: SearchOptions, *, generator: torch.Generator
) -> SearchResult:
    """Search for a mixture of every set with each of the numbers of components."""
    buckets = list(split_into_buckets(sets))
    results = [
        search_padded(bucket.elements.double(), bucket.mask, component_counts, options, generator) for bucket in buckets
    ]
    original_order = torch.cat([bucket.sets for bucket in buckets]).argsort()
    return SearchResult(*(torch.cat(parts)[original_order] for parts in zip(*results, strict=True)))


def search_padded(
    points: Float[Tensor, "B N D"],
    mask: Bool[Tensor, "B N"] | None,
    component_counts: Sequence[int],
    options: SearchOptions,
    generator: torch.Generator,
) -> SearchResult:
    """Search for a mixture of every set in a padded batch."""
    options = options.for_set_size(points.shape[1])
    canonical, place = standardize(points, mask)
    most_starts = max(map(options.num_starts, component_counts))
    num_selected = list(map(options.num_selected, component_counts))
    screened = [
        screen(canonical[part], mask if mask is None else mask[part], component_counts, options, generator)
        for part in cached_parts(
            len(points), min(points.shape[1], options.screening_points) * most_starts * max(component_counts)
        )
    ]
    starts = Mixtures(*(torch.cat(parts).double() for parts in zip(*screened, strict=True)))
    features = point_features(canonical, mask)
    fits = [
        fit_mixtures(
            features.of_sets(part),
            starts.of_sets(part),
            max_steps=options.max_steps,
            min_variance=options.min_variance,
            tol=options.tol,
        )
        for part in cached_parts(len(points), points.shape[1] * sum(num_selected) * max(component_counts))
    ]
    likelihood = torch.cat([fit.log_likelihood for fit in fits])
    mixtures = Mixtures(*(torch.cat(parts) for parts in zip(*(fit.mixtures for fit in fits), strict=True)))
    scores = penalized_likelihood(likelihood, mixtures, features, options).split_with_sizes(num_selected, dim=1)
    first_indices = torch.tensor([0, *num_selected[:-1]]).cumsum(0)
    best = torch.stack([score.argmax(dim=1) for score in scores], dim=1) + first_indices  # (B, C)
    return SearchResult(
        *restore(mixtures.select(best), place),
        likelihood.gather(1, best) - points.shape[2] * place.scale[:, 0].log(),
        torch.cat([fit.steps for fit in fits]),
        torch.cat([fit.converged for fit in fits]),
    )


def cached_parts(num_sets: int, numbers_per_set: int) -> Iterator[slice]:
    """Split the sets of a batch into parts that stay in the processor's cache."""
    size = max(1, CACHE_NUMBERS // numbers_per_set)
    return (slice(first, first + size) for first in range(0, num_sets, size))


def screen(
    points: Float[Tensor, "B N D"],
    mask: Bool[Tensor, "B N"] | None,
    component_counts: Sequence[int],
    options: SearchOptions,
    generator: torch.Generator,
) -> Mixtures:
    """Return the best mixtures for each number of components after a few steps, concatenated along S."""
    points, mask = sample_points(points.float(), mask, options.screening_points, generator)
    features = point_features(points, mask)
    proposer_input = sample_points(points, mask, options.proposer_points, generator)
    selected = list[Mixtures]()
    for num_components in component_counts:
        starts = concatenate(initial_mixtures(*proposer_input, num_components, options, generator))
        if options.diagonal:
            starts = starts._replace(variances=starts.variances.expand_as(starts.means))
        fit = fit_mixtures(features, starts, max_steps=options.screening_steps, min_variance=SCREENING_MIN_VARIANCE)
        scores = penalized_likelihood(fit.log_likelihood, fit.mixtures, features, options)
        best = scores.topk(options.num_selected(num_components), dim=1).indices
        selected.append(pad_components(fit.mixtures.select(best), max(component_counts)))
    return concatenate(selected)


def penalized_likelihood(
    likelihood: Float[Tensor, "B S"], mixtures: Mixtures, points: PointFeatures, options: SearchOptions
) -> Float[Tensor, "B S"]:
    """Return the likelihood, penalized where a component has too few points."""
    counts = mixtures.log_weights.exp() * points.sizes[:, None, None]  # (B, S, K)
    spurious = ((counts < options.min_points) & (mixtures.log_weights > -torch.inf)).any(dim=2)
    return likelihood - SPURIOUS_PENALTY * spurious


def initial_mixtures(
    points: Float[Tensor, "B N D"],
    mask: Bool[Tensor, "B N"] | None,
    num_components: int,
    options: SearchOptions,
    generator: torch.Generator,
) -> list[Mixtures]:
    """Return the mixtures that the network proposes and those of k-means++."""
    mixtures = list[Mixtures]()
    if options.proposer is not None and options.num_proposals(num_components):
        proposals = options.proposer.propose_canonical(points, mask, num_components)
        mixtures.append(Mixtures(*(part.view(len(points), -1, *part.shape[1:]) for part in proposals)))
    if count := options.num_kmeans_starts(num_components):
        mixtures.append(
            kmeans_plus_plus(points, mask, num_components=num_components, num_mixtures=count, generator=generator)
        )
    return mixtures


def sample_points(
    points: Float[Tensor, "B N D"], mask: Bool[Tensor, "B N"] | None, size: int, generator: torch.Generator
) -> tuple[Float[Tensor, "B n D"], Bool[Tensor, "B n"] | None]:
    """Draw at most ``size`` points of each set without replacement, padding last."""
    if points.shape[1] <= size:
        return points, mask
    keys = torch.rand(points.shape[:2], generator=generator)
    keys = keys if mask is None else keys.masked_fill(~mask, -1.0)
    indices = keys.topk(size, dim=1).indices
    sample = points.gather(1, indices[..., None].expand(-1, -1, points.shape[2]))
    return sample, None if mask is None else mask.gather(1, indices)


def concatenate(mixtures: list[Mixtures]) -> Mixtures:
    """Concatenate the mixtures of each set."""
    return Mixtures(*(torch.cat(parts, dim=1) for parts in zip(*mixtures, strict=True)))


def pad_components(mixtures: Mixtures, num_components: int) -> Mixtures:
    """Add components of weight zero."""
    means, variances, log_weights = mixtures
    missing = num_components - means.shape[2]
    return Mixtures(
        pad(means, (0, 0, 0, missing)),
        pad(variances, (0, 0, 0, missing), value=1.0),
        pad(log_weights, (0, missing), value=-math.inf),
    )


def restore(mixtures: Mixtures, place: ShiftAndScale) -> Mixtures:
    """Transform mixtures of canonical points to the coordinates of the data."""
    shift, scale = place.shift[:, None], place.scale[:, None]  # (B, 1, 1, D), (B, 1, 1, 1)
    return Mixtures(mixtures.means * scale + shift, mixtures.variances * scale.square(), mixtures.log_weights)
