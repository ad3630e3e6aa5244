"""Errors for invalid input, in their exact wording: what was expected, what came, what to do."""

import re

import numpy as np
import pytest
import torch

import picaset
from picaset import (
    AttentionPool,
    DeepSets,
    GatedAttentionPool,
    GeneralizedPicaso,
    InducedSelfAttention,
    JanossyPool,
    MeanPool,
    MultiheadAttentionBlock,
    Picaso,
    PicasoPool,
    SelfAttention,
    SetBatch,
    SetTransformer,
    SimilarSizeBatches,
    SlotAttention,
    SoftKMeans,
    SortPool,
    collate,
    em_step,
    log_likelihood,
)
from tests.operators import DIM, OPERATORS, Case

pytestmark = pytest.mark.as_installed


def pool() -> AttentionPool:
    return AttentionPool(dim=12, num_templates=3, num_heads=2)


def raises(kind: type[Exception], message: str):
    return pytest.raises(kind, match=re.escape(message))


def test_wrong_mask_shape_is_reported_with_both_shapes():
    with raises(
        ValueError,
        "AttentionPool: mask must have shape (B, N) = (2, 5) to match elements of shape (2, 5, 12); got (2, 4).",
    ):
        pool()(torch.zeros(2, 5, 12), torch.ones(2, 4, dtype=torch.bool))


def test_a_mask_of_numbers_is_refused_with_the_polarity():
    with raises(
        TypeError,
        "mask must be boolean, True where an element is present; got torch.float32. Pass mask.bool(), or ~mask.bool() if it is True for padding.",
    ):
        pool()(torch.zeros(2, 5, 12), torch.ones(2, 5))


def test_a_mask_on_another_device_is_refused():
    with raises(ValueError, "AttentionPool: elements are on cpu and mask on meta; move them to one device."):
        pool()(torch.zeros(2, 5, 12), torch.ones(2, 5, dtype=torch.bool, device="meta"))


@pytest.mark.parametrize(
    "case",
    [case for case in OPERATORS if case.name != "MultiheadAttentionBlock of elements"],
    ids=lambda case: case.name,
)
def test_every_operator_refuses_a_single_set_without_its_batch_axis(case: Case):
    with raises(ValueError, "elements must have shape (B, N, D); got (5, 6). Pass a single set as elements[None]."):
        case.operator()(
            torch.zeros(5, DIM, dtype=torch.float64), torch.ones(5, dtype=torch.bool)
        ) if case.name.startswith("em_step") else case.operator()(torch.zeros(5, DIM, dtype=torch.float64))


WITH_A_WIDTH = [
    case
    for case in OPERATORS
    if not case.name.startswith(("MeanPool", "SumPool", "MaxPool", "em_step", "Elementwise", "Canon"))
]


@pytest.mark.parametrize("case", WITH_A_WIDTH, ids=lambda case: case.name)
def test_every_operator_names_the_number_of_features_it_expects(case: Case):
    with raises(ValueError, "elements must have 6 features; got 7, in (2, 5, 7)."):
        case.operator()(torch.zeros(2, 5, 7, dtype=torch.float64))


def test_whole_numbers_are_refused():
    with raises(
        TypeError, "MeanPool: elements must be floating-point numbers; got torch.int64. Pass elements.float()."
    ):
        MeanPool()(torch.zeros(2, 5, 3, dtype=torch.int64))


def test_elements_of_another_dtype_than_the_weights_are_refused():
    with raises(
        TypeError,
        "AttentionPool: elements are torch.float64 and the weights torch.float32; pass elements.to(torch.float32) or convert the module.",
    ):
        pool()(torch.zeros(2, 5, 12, dtype=torch.float64))


def test_elements_on_another_device_than_the_weights_are_refused():
    with raises(ValueError, "AttentionPool: elements are on meta and the weights on cpu; move them to one device."):
        pool()(torch.zeros(2, 5, 12, device="meta"))


def test_a_mask_beside_a_set_batch_is_refused():
    batch = SetBatch.from_list([torch.zeros(5, 12)])
    with raises(
        TypeError, "AttentionPool: mask must be None for a SetBatch, which has no padding; pass the SetBatch alone."
    ):
        pool()(batch, torch.ones(1, 5, dtype=torch.bool))


def test_an_input_that_is_no_tensor_is_refused_with_a_hint():
    with raises(
        TypeError,
        "AttentionPool: elements must be a torch tensor; got list. Convert a list of sets with SetBatch.from_list(sets).",
    ):
        pool()([torch.zeros(5, 12)])
    with raises(TypeError, "AttentionPool: mask must be a torch tensor; got ndarray. Pass torch.as_tensor(mask)."):
        pool()(torch.zeros(2, 5, 12), np.ones((2, 5), dtype=bool))


def test_a_size_that_is_no_whole_number_is_refused():
    with raises(TypeError, "PicasoPool: num_heads must be an integer; got np.int64(2). Pass int(num_heads)."):
        PicasoPool(dim=8, num_templates=1, num_heads=np.int64(2))
    with raises(TypeError, "PicasoPool: num_heads must be an integer; got 2.0."):
        PicasoPool(12, num_templates=3, num_heads=2.0)


def test_a_network_speaks_in_its_own_name():
    with raises(ValueError, "Picaso: elements must have 2 features; got 3, in (4, 5, 3)."):
        Picaso(2, 3)(torch.zeros(4, 5, 3))
    with raises(ValueError, "DeepSets: elements must have 2 features; got 3, in (5, 3)."):
        DeepSets(2, 3)(SetBatch.from_list([torch.zeros(5, 3)]))


def test_queries_of_another_precision_are_refused():
    with raises(TypeError, "queries are torch.float64 and elements torch.float32; convert them to one dtype."):
        MultiheadAttentionBlock(3, 12, 8, num_heads=2)(torch.zeros(2, 5, 3).double(), torch.zeros(2, 7, 12))


def test_queries_for_another_number_of_sets_are_refused():
    block = MultiheadAttentionBlock(3, 12, 8, num_heads=2)
    with raises(
        ValueError,
        "MultiheadAttentionBlock: queries must have shape (B, K, 3) with B = 2, the number of sets; got (4, 5, 3).",
    ):
        block(torch.zeros(4, 5, 3), torch.zeros(2, 7, 12))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: PicasoPool(10, num_templates=4, num_heads=3), "PicasoPool: num_heads must divide dim; got num_heads=3 and dim=10."),
        (lambda: Picaso(2, 3, dim=10, num_heads=3), "Picaso: num_heads must divide dim; got num_heads=3 and dim=10."),
        (lambda: GeneralizedPicaso(10, num_templates=4, num_heads=3), "GeneralizedPicaso: num_heads must divide dim"),
        (lambda: SelfAttention(2, 10, num_heads=3), "SelfAttention: num_heads must divide dim"),
        (lambda: PicasoPool(10, num_templates=4, num_heads=2, order="projct"), "order must be one of 'project', 'absorb'; got 'projct'."),
        (lambda: PicasoPool(10, num_templates=0, num_heads=2), "PicasoPool: num_templates must be at least 1; got 0."),
        (lambda: PicasoPool(10, num_templates=4, num_heads=2, num_steps=0), "PicasoPool: num_steps must be at least 1; got 0."),
        (lambda: PicasoPool(10, num_templates=4, num_heads=2, form="lee"), "form must be one of 'paper', 'authors'; got 'lee'."),
        (lambda: MultiheadAttentionBlock(0, 3, 4, num_heads=2), "MultiheadAttentionBlock: dim_queries must be at least 1; got 0."),
        (lambda: InducedSelfAttention(2, 4, num_heads=2, num_inducing=-1), "InducedSelfAttention: num_inducing must be at least 1; got -1."),
        (lambda: SoftKMeans(2, num_templates=3, temperature=0.0), "SoftKMeans: temperature must be positive; got 0.0."),
        (lambda: SlotAttention(2, num_slots=3, initial="random"), "SlotAttention: initial must be one of 'learned', 'sampled'; got 'random'."),
        (lambda: JanossyPool(2, order=0), "JanossyPool: order must be at least 1; got 0."),
        (lambda: SortPool(2, num_pieces=0), "SortPool: num_pieces must be at least 1; got 0."),
        (lambda: GatedAttentionPool(2, dim_hidden=0), "GatedAttentionPool: dim_hidden must be at least 1; got 0."),
        (lambda: DeepSets(2, 3, pool="median"), "DeepSets: pool must be one of 'mean', 'sum', 'max'; got 'median'."),
        (lambda: Picaso(2, 3, encoder="none"), "Picaso: encoder must be one of 'induced', 'self', 'elementwise'; got 'none'."),
        (lambda: SetTransformer(2, 3, num_outputs=0), "SetTransformer: num_outputs must be at least 1; got 0."),
        (lambda: SimilarSizeBatches([1, 2], 0), "SimilarSizeBatches: batch_size must be at least 1; got 0."),
        (lambda: SimilarSizeBatches([1, -2], 2), "SimilarSizeBatches: sizes must be one-dimensional and non-negative, one number of elements per set; got shape (2,) with minimum -2."),
    ],
)  # fmt: skip
def test_sizes_and_choices_that_cannot_be_are_refused(build, message: str):
    with raises(ValueError, message):
        build()


def packed(offsets: list[int], dtype: torch.dtype = torch.int64) -> SetBatch:
    return SetBatch(torch.zeros(5, 2), torch.tensor(offsets, dtype=dtype))


@pytest.mark.parametrize(
    ("build", "kind", "message"),
    [
        (lambda: packed([0, 4, 3, 5]), ValueError, "offsets must not decrease, since set 1 would have a negative size; got 4 followed by 3."),
        (lambda: packed([1, 5]), ValueError, "offsets must run from 0 to the number of elements, 5; got 1 to 5."),
        (lambda: packed([0, 4]), ValueError, "offsets must run from 0 to the number of elements, 5; got 0 to 4."),
        (lambda: packed([0, 5], torch.int32), TypeError, "offsets must be int64; got torch.int32. Pass offsets.long()."),
        (lambda: packed([]), ValueError, "offsets must have shape (B + 1,); got (0,)."),
        (lambda: SetBatch(torch.zeros(5), torch.tensor([0, 5])), ValueError, "elements must have shape (total, D); got (5,)."),
        (lambda: SetBatch(torch.zeros(5, 2, device="meta"), torch.tensor([0, 5])), ValueError, "elements are on meta and offsets on cpu"),
        (lambda: SetBatch.from_list([]), ValueError, "expected at least one set; got an empty list."),
        (lambda: SetBatch.from_list([torch.zeros(2, 3), torch.zeros(2)]), ValueError, "every set must have shape (n, D); set 1 has shape (2,)."),
        (lambda: SetBatch.from_list([torch.zeros(2, 3), torch.zeros(2, 4)]), ValueError, "set 0 has 3, set 1 has 4."),
        (lambda: SetBatch.from_list([torch.zeros(2, 3), torch.zeros(2, 3).double()]), TypeError, "set 0 is torch.float32 on cpu, set 1 is torch.float64 on cpu. Convert them with .to(...)."),
        (lambda: SetBatch.from_list([torch.zeros(2, 3, dtype=torch.int64)]), TypeError, "set 0: elements must be floating-point numbers; got torch.int64."),
        (lambda: SetBatch.from_list([torch.zeros(1, 2), torch.tensor([[0.0, 1.0], [2.0, torch.nan]])]), ValueError, "set 1: elements must be finite; element 1 has nan in feature 1. Remove the element or replace the value."),
        (lambda: SetBatch.from_list([np.array([[np.inf]])]), ValueError, "set 0: elements must be finite; element 0 has inf in feature 0."),
        (lambda: SetBatch.from_padded(torch.zeros(3, 2)), ValueError, "elements must have shape (B, N, D); got (3, 2)."),
        (lambda: SetBatch.from_padded(torch.zeros(3, 2, 4), torch.ones(3, 3, dtype=torch.bool)), ValueError, "mask must have shape (B, N) = (3, 2)"),
        (lambda: SetBatch.from_list([torch.zeros(2, 3)])[1], IndexError, "index 1 is out of range for a batch of 1 sets."),
        (lambda: SetBatch.from_list([torch.zeros(2, 3)])[0:1], TypeError, "the index must be an integer; got slice. Index one set at a time."),
        (lambda: SetBatch.from_list([np.array([["a"]])]), TypeError, "every set must be numeric; set 0 has dtype <U1."),
        (lambda: collate([]), ValueError, "expected at least one sample; got an empty list."),
        (lambda: collate(["abc"]), TypeError, "a sample must be a set (n, D), a tuple that begins with one, or a dictionary; got str."),
        (lambda: collate([{"points": torch.zeros(2, 3)}, {"point": torch.zeros(2, 3)}]), ValueError, "all samples must have the same keys; sample 0 has ['points'], sample 1 has ['point']."),
        (lambda: SetBatch.from_batch_index(torch.zeros(3, 6), torch.tensor([0, 1])), ValueError, "index must have shape (3,), one number for each element; got (2,)."),
        (lambda: SetBatch.from_batch_index(torch.zeros(3, 6), torch.zeros(3)), TypeError, "index must be integers; got torch.float32. Pass index.long()."),
        (lambda: SetBatch.from_batch_index(torch.zeros(3, 6), torch.tensor([0, 1, 2]), 2), ValueError, "index must be from 0 to 1, the number of sets less one; got 0 to 2."),
        (lambda: SetBatch.from_batch_index(torch.zeros(3, 6), torch.tensor([0, -1, 2])), ValueError, "index must be from 0 to 2, the number of sets less one; got -1 to 2."),
        (lambda: SetBatch.from_nested(torch.zeros(2, 3, 6)), ValueError, "expected a jagged nested tensor of shape (B, n, D); got one with layout torch.strided and 3 dimensions. Make one with"),
        (lambda: SetBatch.from_list([torch.zeros(5, 6)]).map(lambda elements: elements[1:]), ValueError, "SetBatch.map: the function must return one row for each of the 5 elements; it returned shape (4, 6)."),
    ],
)  # fmt: skip
def test_sets_that_cannot_be_are_refused(build, kind, message: str):
    with raises(kind, message):
        build()


def test_the_em_step_speaks_in_its_own_name():
    mixture = picaset.Mixture(torch.zeros(1, 2, 3), torch.ones(1, 2, 1), torch.zeros(1, 2))
    with raises(ValueError, "em_step: elements must have shape (B, N, D); got (4, 3)."):
        em_step(mixture, torch.zeros(4, 3))
    with raises(
        ValueError, "em_step: means must have shape (B, K, D) with B = 5 and D = 3, like the elements; got (1, 2, 3)."
    ):
        em_step(mixture, torch.zeros(5, 4, 3))
    with raises(
        ValueError,
        "log_likelihood: variances must have shape (1, 2, 1) or (1, 2, 3) to match means of shape (1, 2, 3); got (1, 2, 2).",
    ):
        log_likelihood(mixture._replace(variances=torch.ones(1, 2, 2)), torch.zeros(1, 4, 3))
    with raises(ValueError, "log_weights must have shape (1, 2) to match means of shape (1, 2, 3); got (1, 3)."):
        em_step(mixture._replace(log_weights=torch.zeros(1, 3)), torch.zeros(1, 4, 3))


def test_autocast_may_mix_precisions():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert pool()(torch.randn(2, 5, 12)).isfinite().all()
        assert pool()(torch.randn(2, 5, 12, dtype=torch.bfloat16)).isfinite().all()
