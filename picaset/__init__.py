"""picaset: networks that take sets as input.

Sets are passed as ``(elements, mask)``, with elements (B, N, D) and a mask (B, N) that is True where an element is
present, or as a :class:`SetBatch`, which stores sets of different sizes without padding.
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
    from picaset.estimators.set_features import SetMeanEmbedding, SetStatistics, SetVocabulary
    from picaset.networks.onnx import export_onnx

__version__ = "0.2.0"

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
    "SetMeanEmbedding",
    "SetRegressor",
    "SetStatistics",
    "SetTransformer",
    "SetVocabulary",
    "SimilarSizeBatches",
    "SlotAttention",
    "SoftKMeans",
    "SortPool",
    "SumPool",
    "collate",
    "em_step",
    "export_onnx",
    "log_likelihood",
    "shard",
    "stream",
]

LAZY_MODULES = {
    "AmortizedMixture": "picaset.estimators.amortized_mixture",
    "SetAnomalyDetector": "picaset.estimators.set_anomaly_detector",
    "SetClassifier": "picaset.estimators.set_estimators",
    "SetMeanEmbedding": "picaset.estimators.set_features",
    "SetRegressor": "picaset.estimators.set_estimators",
    "SetStatistics": "picaset.estimators.set_features",
    "SetVocabulary": "picaset.estimators.set_features",
    "export_onnx": "picaset.networks.onnx",
}
"""Modules of the names that need optional dependencies, imported on first use."""


def __getattr__(name: str) -> Any:
    if name not in LAZY_MODULES:
        raise AttributeError(f"module 'picaset' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(LAZY_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
