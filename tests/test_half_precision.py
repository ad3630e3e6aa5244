"""Half-precision elements are summed in float32: long sums lose no more than their inputs' rounding."""

import copy

import pytest
import torch
from torch.testing import assert_close

from picaset import MeanPool, SumPool
from tests.operators import DIM, OPERATORS, Case

HALVES = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)


@HALVES
@pytest.mark.parametrize("case", OPERATORS, ids=lambda case: case.name)
def test_a_half_precision_operator_agrees_with_the_same_weights_in_float32(case: Case, dtype: torch.dtype):
    half = copy.deepcopy(case.operator(torch.float32)).to(dtype)
    wide = copy.deepcopy(half).float()
    elements = torch.randn(2, 17, DIM, generator=torch.Generator().manual_seed(0)).to(dtype)
    mask = torch.arange(17) < torch.tensor([[17], [11]])
    result = half(elements, mask)
    assert result.dtype is dtype
    tolerance = 32 * torch.finfo(dtype).eps
    assert_close(result.float(), wide(elements.float(), mask), rtol=tolerance, atol=tolerance)


ATTENDING = [
    case for case in OPERATORS if case.name.startswith(("AttentionPool", "PicasoPool", "Gated", "Slot", "SoftK"))
]


@HALVES
@pytest.mark.parametrize("case", ATTENDING, ids=lambda case: case.name)
def test_long_sums_do_not_stall(case: Case, dtype: torch.dtype):
    # In bfloat16 a running sum of ones stops growing at 256: a mean over thousands would be far off.
    half = copy.deepcopy(case.operator(torch.float32)).to(dtype)
    wide = copy.deepcopy(half).float()
    elements = (1 + 0.1 * torch.randn(1, 20_000, DIM, generator=torch.Generator().manual_seed(0))).to(dtype)
    tolerance = 32 * torch.finfo(dtype).eps
    assert_close(half(elements).float(), wide(elements.float()), rtol=tolerance, atol=tolerance)


@HALVES
def test_a_long_mean_and_a_long_sum_are_exact_to_rounding(dtype: torch.dtype):
    ones = torch.ones(1, 20_000, 3, dtype=dtype)
    assert (MeanPool()(ones) == 1).all()
    assert_close(SumPool()(ones).float(), torch.full((1, 1, 3), 20_000.0), rtol=torch.finfo(dtype).eps, atol=0)
