"""From points to the best mixture that can be found in milliseconds: propose, screen, climb.

1. Propose   A network looks at a sample of each set and guesses several mixtures; k-means++ adds or replaces guesses.
2. Screen    A few quick steps of expectation-maximization from all guesses; the best few are kept.
3. Climb     Steps on all points, in double precision, until nothing is gained; the best is the answer.

Everything happens at the origin and at unit spread, so the answer moves and grows with the points.

Dimensions:  B sets   N points (padded)   S starts   K components   D coordinates

How many components a mixture should have: what each further one costs, and when it counts as found.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from picaset.estimators.batched_em import Points, Starts, climb, features
from picaset.estimators.initialization import seeds
from picaset.networks.mixture_proposer import MixtureProposer
from picaset.operators.buckets import in_buckets
from picaset.operators.canonicalize import Place, canonical_of
from picaset.sets import SetBatch


def fewest_held(dim: int) -> int:
    """Points that a component must hold to count as found; any few points that happen to be close are likely ones."""
    return dim + 2


def criterion(log_likelihood: float, num_parameters: int, price: float) -> float:
    """Minus twice the log-likelihood of all points, and a price for every parameter."""
    return float(price * num_parameters - 2 * log_likelihood)


CACHED = 500_000
"""Points times starts times components that are worked on at once."""
TIGHT = 1e-4
"""The smallest variance while screening in single precision, where tighter components would be noise."""

BEYOND = 1e6
"""More than likelihoods can differ by."""
FEW_POINTS = 400
"""Smaller sets get more starts, in proportion."""
MOST_EFFORT = 8


@dataclass(frozen=True, kw_only=True)
class Search:
    """How mixtures are searched for; the defaults are those that measured best."""

    proposer: MixtureProposer | None = None
    """Guesses mixtures; None leaves it to k-means++."""
    num_seeds: int | None = None
    """Starts by k-means++, beside the proposals; None takes as many as there are components."""
    effort: int = 1
    """How many times as many starts are tried, and half as many times kept."""
    screen_steps: int = 3
    screen_points: int = 1024
    """Points of a larger set that starts are screened on."""
    shown_points: int = 256
    """Points of a larger set that the network looks at."""
    max_steps: int = 100
    tol: float = 3e-4
    """Gain in log-likelihood per point and step below which a climb ends."""
    min_variance: float = 1e-6
    """Of a component, in units of the variance of the set."""
    min_held: int = 0
    """Points that every component of a mixture must hold for it to be preferred to any that has a smaller one."""
    diagonal: bool = False
    """One variance for each coordinate of a component, or one for all."""

    def for_sets_of(self, num_points: int) -> "Search":
        """The search for sets of this size: few points have more summits, and starts cost less, so more are tried."""
        return replace(self, effort=max(1, min(MOST_EFFORT, FEW_POINTS // num_points)))

    def num_starts(self, number: int) -> int:
        """Proposals and seeds for a mixture of so many components."""
        return self.proposals(number) + self.seeds(number)

    def proposals(self, number: int) -> int:
        return 0 if self.proposer is None or number == 1 else self.proposer.num_proposals

    def seeds(self, number: int) -> int:
        wanted = self.effort * (number if self.num_seeds is None else self.num_seeds)
        return wanted if self.proposals(number) else max(wanted, 1)

    def num_kept(self, number: int) -> int:
        """Starts that are climbed from to the end: more components have more summits."""
        return min(math.ceil(number / 4) * math.ceil((1 + self.effort) / 2), self.num_starts(number))


class Found(NamedTuple):
    """The best mixture of each set for each number of components; absent components have weight zero.

    Shapes:
        means           (B, C, K, D)                C numbers of components, K the largest of them
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
def find_mixtures(sets: SetBatch, numbers: Sequence[int], search: Search, *, generator: torch.Generator) -> Found:
    """Search for a mixture of every set, with each of these numbers of components."""
    buckets = list(in_buckets(sets))
    found = [
        find_together(
            bucket.elements.double(), bucket.mask, numbers, search.for_sets_of(bucket.elements.shape[1]), generator
        )
        for bucket in buckets
    ]
    back = torch.cat([bucket.sets for bucket in buckets]).argsort()
    return Found(*(torch.cat(parts)[back] for parts in zip(*found, strict=True)))


def find_together(
    points: Float[Tensor, "B N D"],
    mask: Bool[Tensor, "B N"] | None,
    numbers: Sequence[int],
    search: Search,
    generator: torch.Generator,
) -> Found:
    """The same for sets that are padded together, in parts that stay in the processor's cache."""
    canonical, place = canonical_of(points, mask)
    tried, kept = ([count(number) for number in numbers] for count in (search.num_starts, search.num_kept))
    screened = [
        screen(canonical[part], mask if mask is None else mask[part], numbers, search, generator)
        for part in parts_of(points, min(points.shape[1], search.screen_points) * max(tried) * max(numbers))
    ]
    starts = Starts(*(torch.cat(parts).double() for parts in zip(*screened, strict=True)))
    looked_at = features(canonical, mask)
    climbed = [
        climb(
            Points(*(one[part] for one in looked_at)),
            Starts(*(one[part] for one in starts)),
            steps=search.max_steps,
            min_variance=search.min_variance,
            tol=search.tol,
        )
        for part in parts_of(points, points.shape[1] * sum(kept) * max(numbers))
    ]
    likelihood = torch.cat([part.log_likelihood for part in climbed])
    ends = Starts(*(torch.cat(parts) for parts in zip(*(part.starts for part in climbed), strict=True)))
    preferred = preference(likelihood, ends, looked_at, search).split_with_sizes(kept, dim=1)
    firsts = torch.tensor([0, *kept[:-1]]).cumsum(0)
    best = torch.stack([one.argmax(dim=1) for one in preferred], dim=1) + firsts  # (B, C)
    return Found(
        *in_place(ends.best(best), place),
        likelihood.gather(1, best) - points.shape[2] * place.scale[:, 0].log(),
        torch.cat([part.steps for part in climbed]),
        torch.cat([part.converged for part in climbed]),
    )


def parts_of(points: Float[Tensor, "B N D"], work: int) -> Iterator[slice]:
    """Some sets after the other: as many at once as stay in the cache, if each takes so many numbers."""
    at_once = max(1, CACHED // work)
    return (slice(first, first + at_once) for first in range(0, len(points), at_once))


def screen(
    points: Float[Tensor, "B N D"],
    mask: Bool[Tensor, "B N"] | None,
    numbers: Sequence[int],
    search: Search,
    generator: torch.Generator,
) -> Starts:
    """The best few starts for each number of components, next to each other, after a few steps."""
    points, mask = sample(points.float(), mask, search.screen_points, generator)
    looked_at = features(points, mask)
    shown = sample(points, mask, search.shown_points, generator)
    chosen = list[Starts]()
    for number in numbers:
        starts = side_by_side(propose(*shown, number, search, generator))
        if search.diagonal:
            starts = starts._replace(variances=starts.variances.expand_as(starts.means))
        climbed = climb(looked_at, starts, steps=search.screen_steps, min_variance=TIGHT)
        preferred = preference(climbed.log_likelihood, climbed.starts, looked_at, search)
        best = preferred.topk(search.num_kept(number), dim=1).indices
        chosen.append(with_absent(climbed.starts.best(best), max(numbers)))
    return side_by_side(chosen)


def preference(
    likelihood: Float[Tensor, "B S"], starts: Starts, points: Points, search: Search
) -> Float[Tensor, "B S"]:
    """The likelihood, lowered beyond all others where a component holds too few points, perhaps but a close pair."""
    held = starts.log_weights.exp() * points.sizes[:, None, None]  # (B, S, K)
    spurious = ((held < search.min_held) & (starts.log_weights > -torch.inf)).any(dim=2)
    return likelihood - BEYOND * spurious


def propose(
    points: Float[Tensor, "B N D"],
    mask: Bool[Tensor, "B N"] | None,
    number: int,
    search: Search,
    generator: torch.Generator,
) -> list[Starts]:
    """Where to start from, by the network and by k-means++."""
    starts = list[Starts]()
    if search.proposer is not None and search.proposals(number):
        proposals = search.proposer.propose(points, mask, number)
        starts.append(Starts(*(part.view(len(points), -1, *part.shape[1:]) for part in proposals)))
    if num_seeds := search.seeds(number):
        starts.append(seeds(points, mask, num_components=number, num_starts=num_seeds, generator=generator))
    return starts


def sample(
    points: Float[Tensor, "B N D"], mask: Bool[Tensor, "B N"] | None, most: int, generator: torch.Generator
) -> tuple[Float[Tensor, "B n D"], Bool[Tensor, "B n"] | None]:
    """At most so many points of each set, at random, absent ones last."""
    if points.shape[1] <= most:
        return points, mask
    lots = torch.rand(points.shape[:2], generator=generator)
    lots = lots if mask is None else lots.masked_fill(~mask, -1.0)
    chosen = lots.topk(most, dim=1).indices
    taken = points.gather(1, chosen[..., None].expand(-1, -1, points.shape[2]))
    return taken, None if mask is None else mask.gather(1, chosen)


def side_by_side(starts: list[Starts]) -> Starts:
    return Starts(*(torch.cat(parts, dim=1) for parts in zip(*starts, strict=True)))


def with_absent(starts: Starts, number: int) -> Starts:
    """The same mixtures with as many components as asked for, the further ones of weight zero."""
    means, variances, log_weights = starts
    missing = number - means.shape[2]
    return Starts(
        torch.nn.functional.pad(means, (0, 0, 0, missing)),
        torch.nn.functional.pad(variances, (0, 0, 0, missing), value=1.0),
        torch.nn.functional.pad(log_weights, (0, missing), value=-math.inf),
    )


def in_place(starts: Starts, place: Place) -> Starts:
    """Where the points really lie, and as wide as they really are."""
    shift, scale = place.shift[:, None], place.scale[:, None]  # (B, 1, 1, D), (B, 1, 1, 1)
    return Starts(starts.means * scale + shift, starts.variances * scale.square(), starts.log_weights)
