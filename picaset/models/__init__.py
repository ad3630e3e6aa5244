"""Operators stacked into networks."""

from picaset.models.authors_checkpoint import from_authors_checkpoint
from picaset.models.deep_sets import DeepSets
from picaset.models.picaso import Picaso
from picaset.models.set_transformer import SetTransformer

__all__ = ["DeepSets", "Picaso", "SetTransformer", "from_authors_checkpoint"]
