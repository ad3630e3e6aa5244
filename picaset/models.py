"""The former name of :mod:`picaset.networks`, kept for code written for version 0.1."""

from picaset.networks import DeepSets, Picaso, SetTransformer, from_authors_checkpoint

__all__ = ["DeepSets", "Picaso", "SetTransformer", "from_authors_checkpoint"]
