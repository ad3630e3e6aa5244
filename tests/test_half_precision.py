"""Half-precision elements are summed in float32: the error of a long sum is the rounding of its inputs."""

import copy

import pytest
import torch
from torch.testing import assert_close

from picaset import MeanPool, MultiheadAttentionBlock, PicasoPool, SetBatch, SumPool
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


LONG = [
    case
    for case in OPERATORS
    if not case.name.startswith(("Janossy", "SelfAttention", "SumPool", "DeepSets with sum", "SortPool"))
    and case.name not in ("MultiheadAttentionBlock of elements", "Picaso with self-attention")
]
"""All operators except those of quadratic cost, and those whose result overflows half precision."""


@pytest.mark.parametrize("case", LONG, ids=lambda case: case.name)
def test_sums_beyond_half_precision_are_no_matter(case: Case):
    # The sum of these is 100 000, and the largest float16 is 65 504.
    half = copy.deepcopy(case.operator(torch.float32)).to(torch.float16)
    exact = copy.deepcopy(half).double()
    elements = (5 + 0.1 * torch.randn(1, 20_000, DIM, generator=torch.Generator().manual_seed(0))).to(torch.float16)
    tolerance = 16 * torch.finfo(torch.float16).eps
    assert_close(half(elements).double(), exact(elements.double()), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("case", [case for case in OPERATORS if case.name.startswith("SortPool")])
def test_ranks_are_distinguished_beyond_half_precision(case: Case):
    half = copy.deepcopy(case.operator(torch.float32)).to(torch.float16)
    exact = copy.deepcopy(half).double()
    elements = (0.01 * torch.randn(1, 70_000, DIM, generator=torch.Generator().manual_seed(0))).to(torch.float16)
    assert_close(half(elements).double(), exact(elements.double()), rtol=2e-3, atol=0.1)


@HALVES
def test_a_long_mean_and_a_long_sum_are_exact_to_rounding(dtype: torch.dtype):
    ones = torch.ones(1, 20_000, 3, dtype=dtype)
    assert (MeanPool()(ones) == 1).all()
    assert_close(SumPool()(ones).float(), torch.full((1, 1, 3), 20_000.0), rtol=torch.finfo(dtype).eps, atol=0)


def test_a_mean_does_not_overflow_where_the_sum_would():
    fives = torch.full((1, 20_000, 3), 5.0, dtype=torch.float16)  # their sum is beyond float16
    assert (MeanPool()(fives) == 5).all()


@HALVES
@pytest.mark.parametrize("order", ["project", "absorb"])
def test_scores_and_sums_are_taken_in_float32(order, dtype: torch.dtype):
    torch.manual_seed(0)
    block = MultiheadAttentionBlock(DIM, DIM, 8, num_heads=2).to(dtype)
    elements, queries = ((3 * torch.randn(1, size, DIM)).to(dtype) for size in (50, 4))
    view = block.view(elements, None, num_queries=4, order=order)
    asked = block.query_map(queries).float()
    state = block.summarize(queries, elements)
    assert {state.largest.dtype, state.total.dtype, state.weighted.dtype} == {torch.float32}
    assert view.attend(asked).dtype is torch.float32
    if order == "project":
        keys = view.keys.double()
    else:
        keys = (elements.double() @ block.key_map.weight.double().T).reshape(1, 50, 2, 4).transpose(1, 2)
    exact = asked.double().reshape(1, 4, 2, 4).transpose(1, 2) @ keys.transpose(-2, -1) / 2
    assert_close(view.scores(asked).double(), exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("order", ["project", "absorb"])
def test_autocast_does_not_narrow_scores_and_sums(order):
    torch.manual_seed(0)
    block = MultiheadAttentionBlock(DIM, DIM, 8, num_heads=2)
    elements, queries = torch.randn(1, 20_000, DIM), torch.randn(1, 4, DIM)
    expected = block(queries, elements)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        view = block.view(elements, None, num_queries=4, order=order)
        result = block.update(queries, view)
        state = block.summarize(queries, elements)
    assert state.weighted.dtype is torch.float32
    assert_close(result.float(), expected, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("case", OPERATORS, ids=lambda case: case.name)
def test_a_backward_pass_inside_autocast_is_the_one_outside(case: Case, packed: bool):
    operator = case.operator(torch.float32)
    generator = torch.Generator().manual_seed(0)
    elements = torch.randn(2, 17, DIM, generator=generator, requires_grad=True)
    inputs = [elements, *operator.parameters()]

    def loss():
        output = operator(SetBatch.from_padded(elements) if packed else elements)
        return (output.elements if isinstance(output, SetBatch) else output).float().square().sum()

    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = torch.autograd.grad(loss(), inputs, allow_unused=True)
        outside_of = loss()
    outside = torch.autograd.grad(outside_of, inputs, allow_unused=True)
    largest = max(float(gradient.abs().max()) for gradient in outside if gradient is not None)
    for one, other in zip(inside, outside, strict=True):
        assert_close(one, other, rtol=0.05, atol=0.02 * largest)


@pytest.mark.as_installed
def test_compiled_code_trains_in_autocast():
    torch._dynamo.reset()
    pool = PicasoPool(DIM, num_templates=2, num_heads=2, num_steps=1)
    elements = torch.randn(2, 17, DIM, requires_grad=True)
    gradients = []
    for function in (pool, torch.compile(pool, backend="aot_eager", fullgraph=True)):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output = function(elements)
        gradients.append(torch.autograd.grad(output.float().square().sum(), [elements, *pool.parameters()]))
    for one, other in zip(*gradients, strict=True):
        assert_close(one, other, rtol=0.05, atol=0.05)
