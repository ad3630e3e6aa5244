"""The kernel of the absorbed order: every way it takes gives the plain equation, with first and second derivatives."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

from picaset.operators import kernels, softmax_mean
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
    monkeypatch.setattr(softmax_mean, "WRITTEN_OUT", written)
    monkeypatch.setattr(softmax_mean, "ROWS_IN_CACHE", rows)
    monkeypatch.setattr(kernels, "SMALLEST_PART", part)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    yield request.param
    torch.set_num_threads(before)


def example(sizes: list[int], masked: bool):
    elements, mask = draw_sets(sizes, seed=0).padded()
    queries = torch.randn(len(sizes), 4, elements.shape[2], dtype=torch.float64).requires_grad_()
    return queries, elements.requires_grad_(), mask if masked else None


CASES = pytest.mark.parametrize(
    ("sizes", "masked"), [([11], False), ([11], True), ([9, 0, 4], True), ([9, 2], False), ([0], True), ([1], True)]
)


@CASES
def test_every_way_gives_the_plain_equation_over_several_steps(way, sizes, masked):
    queries, elements, mask = example(sizes, masked)
    results = []
    for one_step in (softmax_mean.softmax_mean, lambda q, x, m: (softmax_mean.plain_mean(q, x, m), x)):
        asked, passed = queries, elements
        for _ in range(3):  # the elements are handed on, as a cascade does
            asked, passed = one_step(asked, passed, mask)
        results.append((asked, torch.autograd.grad(asked.square().sum(), (queries, elements))))
    assert_close(results[0], results[1])


@CASES
def test_every_way_has_right_first_and_second_derivatives(way, sizes, masked):
    queries, elements, mask = example(sizes, masked)

    def mean(asked, given):
        return softmax_mean.softmax_mean(asked, given, mask)[0]

    assert gradcheck(mean, (queries, elements), fast_mode=True)
    assert gradgradcheck(mean, (queries, elements), fast_mode=True)


def test_large_scores_are_no_matter(way):
    queries, elements, mask = example([11], True)
    mean, _ = softmax_mean.softmax_mean(1e4 * queries, elements, mask)
    assert mean.isfinite().all()
    assert all(grad.isfinite().all() for grad in torch.autograd.grad(mean.sum(), (queries, elements)))


def test_a_nan_in_a_present_element_is_not_hidden(way):
    queries, elements, mask = example([11], True)
    poisoned = elements.detach().clone()
    poisoned[0, int(mask[0].nonzero()[0])] = torch.nan
    assert softmax_mean.softmax_mean(queries, poisoned, mask)[0].isnan().any()
