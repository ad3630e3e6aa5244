"""Attention kernels: every code path equals the plain equation, with first and second derivatives."""

import subprocess
import sys
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

from picaset.operators import attention as absorbed_module
from picaset.operators import attention as kernels
from picaset.operators.attention import Absorbed, absorbed_attention, plain_absorbed_attention
from tests.random_sets import draw_sets

WAYS = {  # number of weights that are stored, rows of a chunk, smallest part of a set, threads
    "stored weights": (2**20, 8192, 2048, 1),
    "blocked": (0, 8192, 2048, 1),
    "blocked in chunks": (0, 6, 2048, 1),
    "blocked in parts": (0, 8192, 1, 3),
    "blocked in parts and chunks": (0, 2, 1, 2),
}


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    stored, rows, part, threads = WAYS[request.param]
    monkeypatch.setattr(absorbed_module, "MAX_STORED_WEIGHTS", stored)
    monkeypatch.setattr(absorbed_module, "ROWS_IN_CACHE", rows)
    monkeypatch.setattr(kernels, "SMALLEST_PART", part)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    yield request.param
    torch.set_num_threads(before)


SCALE = 0.7


def example(sizes: list[int], masked: bool, *, shared: bool = False) -> tuple[list[Tensor], Tensor | None]:
    """Queries, elements, key map, value map and value bias, of 2 heads each 3 wide; and a mask."""
    elements, mask = draw_sets(sizes, seed=0).padded()
    features = elements.shape[2]
    drawn = [
        torch.randn(shape, dtype=torch.float64)
        for shape in [(1 if shared else len(sizes), 2, 6), (2, 3, features), (2, 3, features), (1, 1, 6)]
    ]
    inputs = [tensor.requires_grad_() for tensor in [drawn[0], elements, *drawn[1:]]]
    return inputs, mask if masked else None


def attention(mask, queries, *absorbed):
    return absorbed_attention(queries, Absorbed(*absorbed), mask, SCALE)[0]


CASES = pytest.mark.parametrize(
    ("sizes", "masked"), [([11], False), ([11], True), ([9, 0, 4], True), ([9, 2], False), ([0], True), ([1], True)]
)


@CASES
@pytest.mark.parametrize("shared", [False, True], ids=["own queries", "shared queries"])
def test_every_way_gives_the_plain_equation_over_several_steps(way, sizes, masked, shared):
    inputs, mask = example(sizes, masked, shared=shared)
    queries, absorbed = inputs[0], Absorbed(*inputs[1:])
    plain = inputs[0]
    for _ in range(3):  # elements and maps are passed on, as a cascade does
        queries, absorbed = absorbed_attention(queries, absorbed, mask, SCALE)
        plain = plain_absorbed_attention(plain, Absorbed(*inputs[1:]), mask, SCALE)
    assert_close(queries, plain)
    assert_close(torch.autograd.grad(queries.square().sum(), inputs), torch.autograd.grad(plain.square().sum(), inputs))


@CASES
def test_every_way_has_right_first_and_second_derivatives(way, sizes, masked):
    inputs, mask = example(sizes, masked)
    assert gradcheck(partial(attention, mask), inputs, fast_mode=True)
    assert gradgradcheck(partial(attention, mask), inputs, fast_mode=True)


@pytest.mark.parametrize("frozen", range(5))
def test_what_needs_no_gradient_takes_none_from_the_others(way, frozen):
    inputs, mask = example([9, 0, 4], True)
    others = [tensor for index, tensor in enumerate(inputs) if index != frozen]
    inputs[frozen] = inputs[frozen].detach()
    plain = plain_absorbed_attention(inputs[0], Absorbed(*inputs[1:]), mask, SCALE)
    expected = torch.autograd.grad(plain.square().sum(), others)
    assert_close(torch.autograd.grad(attention(mask, *inputs).square().sum(), others), expected)


def test_what_needs_no_gradient_is_handed_on_as_it_came(way):
    inputs, mask = example([9, 0, 4], True)
    queries, *others = inputs
    absorbed = Absorbed(*(tensor.detach() for tensor in others))
    _, passed = absorbed_attention(queries, absorbed, mask, SCALE)
    assert not any(part.requires_grad for part in passed)


def test_large_scores_are_no_matter(way):
    inputs, mask = example([11], True)
    heads = attention(mask, 1e4 * inputs[0], *inputs[1:])
    assert heads.isfinite().all()
    assert all(grad.isfinite().all() for grad in torch.autograd.grad(heads.sum(), inputs))


def test_a_nan_in_a_present_element_is_not_hidden(way):
    (queries, elements, *maps), mask = example([11], True)
    poisoned = elements.detach().clone()
    poisoned[0, int(mask[0].nonzero()[0])] = torch.nan
    assert attention(mask, queries, poisoned, *maps).isnan().any()


@pytest.fixture
def no_private_operators(monkeypatch):
    monkeypatch.setattr(kernels, "private_operator", lambda name: None)


@pytest.mark.usefixtures("no_private_operators")
@CASES
def test_without_private_operators_absorbed_attention_is_the_plain_equation(way, sizes, masked):
    inputs, mask = example(sizes, masked)
    plain = plain_absorbed_attention(inputs[0], Absorbed(*inputs[1:]), mask, SCALE)
    heads = attention(mask, *inputs)
    assert_close(heads, plain)
    assert_close(torch.autograd.grad(heads.square().sum(), inputs), torch.autograd.grad(plain.square().sum(), inputs))


def projected_example(masked: bool) -> tuple[list[Tensor], Tensor | None]:
    """Queries, keys and values of 2 heads, each 3 wide; and a mask."""
    _, mask = draw_sets([9, 0, 4], seed=0).padded()
    generator = torch.Generator().manual_seed(0)
    shapes = [(3, 2, 5, 3), *[(3, 2, mask.shape[1], 3)] * 2]
    inputs = [torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True) for shape in shapes]
    return inputs, mask if masked else None


@pytest.mark.parametrize("hidden", [[], [kernels.FLASH_FORWARD], [kernels.FLASH_BACKWARD]], ids=str)
@pytest.mark.parametrize("masked", [True, False])
def test_projected_attention_is_the_plain_equation_with_and_without_private_operators(monkeypatch, hidden, masked):
    found = kernels.private_operator
    monkeypatch.setattr(kernels, "private_operator", lambda name: None if name in hidden else found(name))
    inputs, mask = projected_example(masked)
    output, plain = kernels.softmax_attention(*inputs, mask), kernels.plain_attention(*inputs, mask)
    assert_close(output, plain)
    assert_close(torch.autograd.grad(output.square().sum(), inputs), torch.autograd.grad(plain.square().sum(), inputs))


def test_an_operator_that_torch_does_not_have_is_none():
    assert kernels.private_operator("_no_such_operator") is None


@pytest.mark.parametrize("name", [kernels.FLASH_FORWARD, kernels.FLASH_BACKWARD, kernels.SOFTMAX_BACKWARD])
def test_this_version_of_torch_has_every_private_operator(name: str):
    assert kernels.private_operator(name) is not None


def test_the_package_imports_and_pools_on_a_torch_without_private_operators():
    names = [kernels.FLASH_FORWARD, kernels.FLASH_BACKWARD, kernels.SOFTMAX_BACKWARD]
    code = f"""
import torch
found = type(torch.ops.aten).__getattr__
def without_private(namespace, name):
    if name in {names!r}:
        raise AttributeError(name)
    return found(namespace, name)
type(torch.ops.aten).__getattr__ = without_private
for name in {names!r}:
    torch.ops.aten.__dict__.pop(name, None)
import picaset
from picaset.operators.attention import private_operator
assert [private_operator(name) for name in {names!r}] == [None, None, None]
torch.manual_seed(0)
pools = [picaset.PicasoPool(4, num_templates=2, num_heads=2, order=order) for order in ("project", "absorb")]
pools[1].load_state_dict(pools[0].state_dict())
elements = torch.randn(2, 5, 4, requires_grad=True)
results = [pool(elements) for pool in pools]
gradients = [torch.autograd.grad(result.square().sum(), elements)[0] for result in results]
assert torch.allclose(*results, atol=1e-6)
assert torch.allclose(*gradients, atol=1e-5)
"""
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
