"""The kernel of the absorbed order: every way it takes gives the plain equation, with first and second derivatives."""

from functools import partial

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

from picaset.operators import absorbed_attention as absorbed_module
from picaset.operators import kernels
from picaset.operators.absorbed_attention import Absorbed, absorbed_attention, plain_absorbed_attention
from tests.random_sets import draw_sets

WAYS = {  # weights written out up to, rows of a chunk, smallest part of a set, threads
    "written out": (2**20, 8192, 2048, 1),
    "blocked": (0, 8192, 2048, 1),
    "blocked in chunks": (0, 6, 2048, 1),
    "blocked in parts": (0, 8192, 1, 3),
    "blocked in parts and chunks": (0, 2, 1, 2),
}


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    written, rows, part, threads = WAYS[request.param]
    monkeypatch.setattr(absorbed_module, "WRITTEN_OUT", written)
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
    given = [one.requires_grad_() for one in [drawn[0], elements, *drawn[1:]]]
    return given, mask if masked else None


def attention(mask, asked, *absorbed):
    return absorbed_attention(asked, Absorbed(*absorbed), mask, SCALE)[0]


CASES = pytest.mark.parametrize(
    ("sizes", "masked"), [([11], False), ([11], True), ([9, 0, 4], True), ([9, 2], False), ([0], True), ([1], True)]
)


@CASES
@pytest.mark.parametrize("shared", [False, True], ids=["own questions", "one question for all sets"])
def test_every_way_gives_the_plain_equation_over_several_steps(way, sizes, masked, shared):
    given, mask = example(sizes, masked, shared=shared)
    asked, absorbed = given[0], Absorbed(*given[1:])
    plain = given[0]
    for _ in range(3):  # elements and maps are handed on, as a cascade does
        asked, absorbed = absorbed_attention(asked, absorbed, mask, SCALE)
        plain = plain_absorbed_attention(plain, Absorbed(*given[1:]), mask, SCALE)
    assert_close(asked, plain)
    assert_close(torch.autograd.grad(asked.square().sum(), given), torch.autograd.grad(plain.square().sum(), given))


@CASES
def test_every_way_has_right_first_and_second_derivatives(way, sizes, masked):
    given, mask = example(sizes, masked)
    assert gradcheck(partial(attention, mask), given, fast_mode=True)
    assert gradgradcheck(partial(attention, mask), given, fast_mode=True)


@pytest.mark.parametrize("frozen", range(5))
def test_what_needs_no_gradient_takes_none_from_the_others(way, frozen):
    given, mask = example([9, 0, 4], True)
    asked = [one for index, one in enumerate(given) if index != frozen]
    given[frozen] = given[frozen].detach()
    found = torch.autograd.grad(attention(mask, *given).square().sum(), asked)
    expected = torch.autograd.grad(
        plain_absorbed_attention(given[0], Absorbed(*given[1:]), mask, SCALE).square().sum(), asked
    )
    assert_close(found, expected)


def test_what_needs_no_gradient_is_handed_on_as_it_came(way):
    given, mask = example([9, 0, 4], True)
    asked, *others = given
    absorbed = Absorbed(*(one.detach() for one in others))
    _, handed = absorbed_attention(asked, absorbed, mask, SCALE)
    assert not any(part.requires_grad for part in handed)


def test_large_scores_are_no_matter(way):
    given, mask = example([11], True)
    heads = attention(mask, 1e4 * given[0], *given[1:])
    assert heads.isfinite().all()
    assert all(grad.isfinite().all() for grad in torch.autograd.grad(heads.sum(), given))


def test_a_nan_in_a_present_element_is_not_hidden(way):
    (asked, elements, *maps), mask = example([11], True)
    poisoned = elements.detach().clone()
    poisoned[0, int(mask[0].nonzero()[0])] = torch.nan
    assert attention(mask, asked, poisoned, *maps).isnan().any()
