"""Networks made of set operators, and how they are saved and loaded."""

from picaset.networks.authors_checkpoint import from_authors_checkpoint
from picaset.networks.set_networks import DeepSets, Picaso, SetTransformer

__all__ = ["DeepSets", "Picaso", "SetTransformer", "from_authors_checkpoint"]
