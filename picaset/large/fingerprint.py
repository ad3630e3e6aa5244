"""Whether a source gave the same elements again: a sample of every chunk, compared from pass to pass."""

import zlib
from collections.abc import Sequence

import torch
from torch import Tensor

SAMPLED = 16
"""Elements of a chunk that are looked at."""


class SourceChangedError(RuntimeError):
    """A source gave other elements than in an earlier pass."""


class Fingerprint:
    """What was seen of a source in its first pass.

    Example:
        >>> before = Fingerprint("points")
        >>> before.begin(); before.see(torch.ones(3, 2)); before.end()
        >>> before.begin(); before.see(torch.zeros(3, 2))
        Traceback (most recent call last):
            ...
        picaset.large.fingerprint.SourceChangedError: points changed between passes: elements 0 to 2 are not what they
        were in the first pass. Every pass must give the same elements in the same order.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.first: list[tuple[int, int]] | None = None
        self.now: list[tuple[int, int]] = []
        self.seen = 0

    def begin(self) -> None:
        self.now, self.seen = [], 0

    def see(self, chunk: Tensor) -> None:
        """A chunk of the pass, (n, D)."""
        found = (len(chunk), sample(chunk))
        if self.first is not None and len(self.now) < len(self.first):
            before = self.first[len(self.now)]
            if before[0] == found[0] and before != found:
                raise SourceChangedError(
                    f"{self.name} changed between passes: elements {self.seen} to {self.seen + len(chunk) - 1} are not "
                    "what they were in the first pass. Every pass must give the same elements in the same order."
                )
        self.now.append(found)
        self.seen += len(chunk)

    def end(self) -> None:
        """The pass is over; the first one is remembered."""
        if self.first is None:
            self.first = self.now
        elif (before := count(self.first)) != self.seen:
            hint = (
                "It can be read once only: pass a function that returns a new iterator at every call."
                if self.seen == 0
                else "Every pass must give the same elements in the same order."
            )
            raise SourceChangedError(
                f"{self.name} changed between passes: it had {before} elements, now it has {self.seen}. {hint}"
            )


def count(seen: Sequence[tuple[int, int]]) -> int:
    return sum(size for size, _ in seen)


def sample(chunk: Tensor) -> int:
    """A checksum of the last element and of some spread evenly before it."""
    chosen = torch.cat([chunk[:: max(len(chunk) // SAMPLED, 1)], chunk[-1:]])
    return zlib.crc32(chosen.view(torch.uint8).numpy().tobytes())
