"""The kernel of GPUs, in Triton's interpreter: it equals the plain equation, and is not used where it does not.

    TRITON_INTERPRET=1 pytest -m triton tests/test_triton_attention.py
    TRITON_INTERPRET=1 pytest -k PicasoPool tests/test_set_laws.py tests/test_weights.py

In a process with this variable all tests attend to sets by the kernel, so the second line, part of ``make laws``, tests
every law of the operator with it.
"""

import pytest
import torch
from torch.testing import assert_close

from picaset import PicasoPool, SetBatch
from picaset.operators import attention as kernels
from tests.test_kernels import (  # noqa: F401 - laws of every way to attend, collected here with the kernel
    FORMS,
    attention,
    example,
    gradients,
    test_a_graph_may_be_differentiated_twice,
    test_a_nan_in_a_present_element_is_not_hidden,
    test_every_form_gives_the_plain_equation,
    test_every_way_gives_the_plain_equation_over_several_steps,
    test_large_scores_are_no_matter,
    test_what_needs_no_gradient_takes_none_from_the_others,
)

pytestmark = [pytest.mark.triton, pytest.mark.filterwarnings("ignore::RuntimeWarning")]


@pytest.fixture
def way():
    """The kernel instead of the ways of other devices."""


@pytest.fixture
def triton_attention():
    from picaset.operators import triton_attention

    return triton_attention


def plain(queries, elements, mask):
    """Return the mean by the plain equation; elements are padded."""
    return kernels.plain_attention(queries[:, None], elements[:, None], elements[:, None], mask)[:, 0]


def draw(sets: int, count: int, num_queries: int, features: int, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    shapes = [(sets, num_queries, features), (sets, count, features), (sets, num_queries, features)]
    return [torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes]


def both_passes(triton_attention, queries, elements, mask, grad, offsets=None):
    mean, log = triton_attention.forward(queries, elements, mask, offsets)
    grad_elements = torch.ones_like(elements)
    arguments = (queries, elements, mask, mean, log, grad, grad_elements)
    grad_queries = triton_attention.backward(*arguments, accumulate=True, offsets=offsets)
    return mean, grad_queries, grad_elements - 1


@pytest.mark.parametrize(
    ("sets", "count", "num_queries", "features"),
    [(1, 300, 3, 5), (3, 70, 1, 17), (1, 40, 18, 300), (5, 1, 2, 3)],
    ids=["many parts", "several sets", "wide elements and blocks of queries", "one element"],
)
@pytest.mark.parametrize("presence", ["all", "mask", "weights"])
def test_both_passes_are_the_plain_equation(triton_attention, sets, count, num_queries, features, presence):
    queries, elements, grad = draw(sets, count, num_queries, features)
    mask = None if presence == "all" else torch.arange(sets * count).view(sets, count) % 3 > 0
    mask = mask.double() * 1.7 if presence == "weights" else mask
    inputs = [queries.requires_grad_(), elements.requires_grad_()]
    expected = plain(*inputs, mask)
    expected = (expected, *torch.autograd.grad(expected, inputs, grad))
    with torch.no_grad():
        assert_close(both_passes(triton_attention, queries, elements, mask, grad), expected)


def test_products_of_float32_are_exact(triton_attention):
    queries, elements, _ = draw(1, 200, 4, 32)
    expected = plain(queries, elements, None)
    mean, _ = triton_attention.forward(queries.float(), elements.float(), None)
    # Rounding in float32 gives 2e-6, in the plain equation too; products in TF32 would give 2e-3.
    assert_close(mean.double(), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("weighted", [False, True])
def test_packed_sets_are_read_as_they_are(triton_attention, weighted):
    sizes = [0, 130, 1, 0, 64, 65]
    queries, elements, grad = draw(len(sizes), sum(sizes), 3, 5)
    elements = elements[0]
    offsets = torch.tensor([0, *sizes]).cumsum(0)
    weights = (torch.arange(len(elements)) % 4).double() if weighted else None
    batch = SetBatch(elements.clone().requires_grad_(), offsets, weights)
    padded, mask = batch.to_padded()
    inputs = [queries.clone().requires_grad_(), batch.elements]
    expected = plain(inputs[0], padded, mask if weights is None else batch.padded_weights())
    expected = (expected, *torch.autograd.grad(expected, inputs, grad))
    assert_close(both_passes(triton_attention, queries, elements, weights, grad, offsets), expected)


def test_absent_elements_are_not_read(triton_attention):
    queries, elements, grad = draw(2, 40, 2, 4)
    mask = torch.arange(40) < torch.tensor([[40], [0]])
    expected = both_passes(triton_attention, queries, elements, mask, grad)
    poisoned = elements.masked_fill(~mask[..., None], torch.nan)
    assert_close(both_passes(triton_attention, queries, poisoned, mask, grad), expected)
    assert_close(expected[0][1], torch.zeros(2, 4, dtype=torch.float64))


def test_strides_are_no_matter(triton_attention):
    queries, elements, grad = draw(3, 20, 2, 4)
    weights = torch.arange(60).view(3, 20).double() % 3
    chunk = elements[:, 5:6].contiguous(), weights[:, 5:6].contiguous()
    expected = both_passes(triton_attention, queries, *chunk, grad)
    assert_close(both_passes(triton_attention, queries, elements[:, 5:6], weights[:, 5:6], grad), expected)
    expected = both_passes(triton_attention, queries, elements, weights, grad)
    strided = elements.transpose(0, 1).contiguous().transpose(0, 1)
    assert_close(both_passes(triton_attention, queries, strided, weights, grad), expected)


def test_a_pool_of_packed_sets_pads_nothing(monkeypatch):
    from picaset.operators import fused

    monkeypatch.setattr(fused, "split_into_buckets", lambda batch: pytest.fail("the sets were padded"))
    pool = PicasoPool(8, num_templates=2, num_heads=2).double()
    sets = [torch.randn(size, 8, dtype=torch.float64) for size in (5, 0, 3)]
    assert_close(pool(SetBatch.from_list(sets)), torch.cat([pool(one[None]) for one in sets]))


def test_the_kernel_is_checked_against_the_plain_equation_at_its_first_use(triton_attention):
    triton_attention.passes_check.cache_clear()
    assert triton_attention.serves(torch.zeros(1, 2, 7))
    assert triton_attention.passes_check.cache_info().misses == 1
    assert triton_attention.serves(torch.zeros(5, 7, 16))
    assert triton_attention.passes_check.cache_info().misses == 1


@pytest.mark.parametrize("failure", ["wrong result", "no compiler"])
def test_a_kernel_that_fails_its_check_is_not_used(triton_attention, monkeypatch, failure):
    def forward(queries, elements, mask, offsets=None):
        if failure == "no compiler":
            raise RuntimeError("Failed to find C compiler")
        return torch.zeros_like(queries), torch.zeros_like(queries[..., 0])

    triton_attention.passes_check.cache_clear()
    monkeypatch.setattr(triton_attention, "forward", forward)
    reason = "differs from the plain equation" if failure == "wrong result" else "Failed to find C compiler"
    inputs, mask = example([9, 0, 4], True)
    expected = gradients(attention_without_kernel(inputs, mask, monkeypatch), inputs)
    with pytest.warns(UserWarning, match=f"Triton kernel for torch.float64 on cpu is not used: .*{reason}"):
        assert kernels.device_kernel(inputs[1], 1, 1) is None
    assert_close(gradients(attention(FORMS[0], mask, *inputs), inputs), expected)
    triton_attention.passes_check.cache_clear()


def attention_without_kernel(inputs, mask, monkeypatch):
    with monkeypatch.context() as without:
        without.delitem(kernels.DEVICE_KERNELS, "cpu")
        return attention(FORMS[0], mask, *inputs)


@pytest.mark.parametrize("elements", [torch.zeros(1, 2, 600), torch.zeros(1, 2, 8).half()], ids=["wide", "half"])
def test_elements_that_do_not_fit_are_left_to_other_kernels(triton_attention, elements):
    assert not triton_attention.serves(elements)
