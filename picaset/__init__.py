"""picaset: networks that take sets as input.

Sets come as ``(elements, mask)``, with elements (B, N, D) and mask (B, N) True where one is
present, or as a :class:`SetBatch`, which holds sets of any sizes packed end to end.
"""

from typing import TYPE_CHECKING, Any

from picaset.large.shard import shard
from picaset.large.stream import stream
from picaset.networks.set_networks import DeepSets, Picaso, SetTransformer
from picaset.operators.attention_pools import AttentionPool, FeaturewiseAttentionPool, GatedAttentionPool
from picaset.operators.block import MultiheadAttentionBlock
from picaset.operators.canonicalize import Canonicalize
from picaset.operators.encoders import Elementwise, InducedSelfAttention, SelfAttention
from picaset.operators.janossy_pool import JanossyPool
from picaset.operators.mixture import Mixture, em_step, log_likelihood
from picaset.operators.picaso import GeneralizedPicaso, PicasoPool
from picaset.operators.simple_pools import MaxPool, MeanPool, SumPool
from picaset.operators.slot_attention import SlotAttention
from picaset.operators.soft_kmeans import SoftKMeans
from picaset.operators.sort_pool import SortPool
from picaset.operators.state import AttentionState
from picaset.sets import SetBatch, SimilarSizeBatches, collate

if TYPE_CHECKING:
    from picaset.estimators.amortized_mixture import AmortizedMixture
    from picaset.estimators.set_anomaly_detector import SetAnomalyDetector
    from picaset.estimators.set_estimators import SetClassifier, SetRegressor

__version__ = "0.1.0"

__all__ = [
    "AmortizedMixture",
    "AttentionPool",
    "AttentionState",
    "Canonicalize",
    "DeepSets",
    "Elementwise",
    "FeaturewiseAttentionPool",
    "GatedAttentionPool",
    "GeneralizedPicaso",
    "InducedSelfAttention",
    "JanossyPool",
    "MaxPool",
    "MeanPool",
    "Mixture",
    "MultiheadAttentionBlock",
    "Picaso",
    "PicasoPool",
    "SelfAttention",
    "SetAnomalyDetector",
    "SetBatch",
    "SetClassifier",
    "SetRegressor",
    "SetTransformer",
    "SimilarSizeBatches",
    "SlotAttention",
    "SoftKMeans",
    "SortPool",
    "SumPool",
    "collate",
    "em_step",
    "log_likelihood",
    "shard",
    "stream",
]

FROM_EXTRAS = {
    "AmortizedMixture": "picaset.estimators.amortized_mixture",
    "SetAnomalyDetector": "picaset.estimators.set_anomaly_detector",
    "SetClassifier": "picaset.estimators.set_estimators",
    "SetRegressor": "picaset.estimators.set_estimators",
}
"""Names that need more than the core, and where they are; loaded on first use."""


def __getattr__(name: str) -> Any:
    if name not in FROM_EXTRAS:
        raise AttributeError(f"module 'picaset' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(FROM_EXTRAS[name]), name)
