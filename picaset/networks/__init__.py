"""Operators stacked into networks."""

from picaset.networks.authors_checkpoint import from_authors_checkpoint
from picaset.networks.deep_sets import DeepSets
from picaset.networks.picaso import Picaso
from picaset.networks.set_transformer import SetTransformer

__all__ = ["DeepSets", "Picaso", "SetTransformer", "from_authors_checkpoint"]
