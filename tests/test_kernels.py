"""Attention kernels: every code path equals the plain equation, with first and second derivatives."""

import copy
import subprocess
import sys
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from picaset import InducedSelfAttention, MultiheadAttentionBlock, PicasoPool, SetBatch, stream
from picaset.operators import attention as kernels
from picaset.operators import fused
from picaset.operators.fused import Form, attend_in_steps, plain_steps
from tests.operators import DIM
from tests.random_sets import draw_sets

WAYS = {  # number of weights that are stored, rows of a chunk, smallest part of a set, threads
    "projected": (2**20, 8192, 2048, 1),
    "stored weights": (2**20, 8192, 2048, 1),
    "blocked": (0, 8192, 2048, 1),
    "blocked in chunks": (0, 6, 2048, 1),
    "blocked in parts": (0, 8192, 1, 3),
    "blocked in parts and chunks": (0, 2, 1, 2),
}


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    stored, rows, part, threads = WAYS[request.param]
    monkeypatch.setattr(kernels, "MAX_STORED_WEIGHTS", stored)
    monkeypatch.setattr(kernels, "ROWS_IN_CACHE", rows)
    monkeypatch.setattr(kernels, "SMALLEST_PART", part)
    monkeypatch.setattr(fused, "SMALL_STEP", -1)  # as many threads as the way has
    monkeypatch.setattr(fused, "PROJECTED_PER_QUERY", 1000 if request.param == "projected" else 0)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    yield request.param
    torch.set_num_threads(before)


FORMS = [
    Form(2, steps, 0.7, paper, residual, feed_forward, norm)
    for steps, paper, residual, feed_forward, norm in [
        (3, False, True, True, False),
        (2, True, True, True, True),
        (2, False, False, True, True),
        (2, True, False, False, False),
        (1, True, True, False, True),
        (1, False, False, False, False),
    ]
]
every_form = pytest.mark.parametrize("form", FORMS, ids=lambda form: " ".join(map(str, form)))


def example(
    sizes: list[int], masked: bool, form: Form = FORMS[0], *, shared: bool = False
) -> tuple[list[Tensor], Tensor | None]:
    """Queries, elements and the parameters of all layers; and a mask."""
    elements, mask = draw_sets(sizes, seed=0).padded()
    torch.manual_seed(0)
    block = MultiheadAttentionBlock(
        DIM, DIM, DIM, num_heads=2, form="paper" if form.paper else "authors", norm=form.norm, residual=form.residual,
        feed_forward=form.feed_forward,
    ).double()  # fmt: skip
    parameters = [part for name in form.layers() for part in getattr(block, name).parameters()]
    queries = torch.randn(1 if shared else len(sizes), 2, DIM, dtype=torch.float64)
    inputs = [queries.requires_grad_(), elements.requires_grad_(), *parameters]
    return inputs, mask if masked else None


def attention(form, mask, queries, elements, *parameters):
    return attend_in_steps(queries, elements, mask, parameters, form)


def plain(form, mask, queries, elements, *parameters):
    return plain_steps(queries, elements, mask, parameters, form)


def gradients(output, inputs):
    found = torch.autograd.grad(output.square().sum(), inputs, allow_unused=True)
    return [torch.zeros_like(one) if grad is None else grad for one, grad in zip(inputs, found, strict=True)]


CASES = pytest.mark.parametrize(
    ("sizes", "masked"), [([11], False), ([11], True), ([9, 0, 4], True), ([9, 2], False), ([0], True), ([1], True)]
)


@CASES
@pytest.mark.parametrize("shared", [False, True], ids=["own queries", "shared queries"])
def test_every_way_gives_the_plain_equation_over_several_steps(way, sizes, masked, shared):
    inputs, mask = example(sizes, masked, shared=shared)
    results = [function(FORMS[0], mask, *inputs) for function in (attention, plain)]
    assert_close(*results)
    assert_close(*(gradients(result, inputs) for result in results))


def test_every_way_reads_elements_of_any_layout_in_memory(way):
    (queries, elements, *parameters), mask = example([9, 0, 4], True)
    inputs = [queries, elements.detach().mT.contiguous().mT.requires_grad_(), *parameters]
    results = [function(FORMS[0], mask, *inputs) for function in (attention, plain)]
    assert_close(*results)
    assert_close(*(gradients(result, inputs) for result in results))


@pytest.mark.parametrize("column_major", range(3), ids=["queries", "keys", "values"])
def test_attention_reads_tensors_of_any_layout_in_memory(column_major):
    inputs = [torch.randn(2, 3, 5, 4, dtype=torch.float64) for _ in range(3)]
    inputs[column_major] = inputs[column_major].mT.contiguous().mT
    inputs = [tensor.requires_grad_() for tensor in inputs]
    results = [function(*inputs, None) for function in (kernels.softmax_attention, kernels.plain_attention)]
    assert_close(*results)
    assert_close(*(gradients(result, inputs) for result in results))


@every_form
@pytest.mark.parametrize("shared", [False, True], ids=["own queries", "shared queries"])
@pytest.mark.parametrize("order", ["project", "absorb"])
@pytest.mark.parametrize("weighted", [False, True])
def test_every_form_gives_the_plain_equation(form, shared, order, weighted):
    (queries, elements, *parameters), mask = example([9, 0, 4], True, form, shared=shared)
    if weighted and mask is not None:
        mask = mask * torch.arange(mask.numel()).view(mask.shape).double() % 3
    inputs = [queries, elements, *parameters]
    results = [attend_in_steps(queries, elements, mask, parameters, form, order), plain(form, mask, *inputs)]
    assert_close(*results)
    assert_close(*(gradients(result, inputs) for result in results))


@pytest.mark.parametrize("count", [5, 60])
def test_heads_of_one_feature_take_masks(count):
    torch.manual_seed(0)
    pool, mask = PicasoPool(4, num_templates=2, num_heads=4, order="absorb"), torch.rand(3, count) < 0.7
    projected = PicasoPool(4, num_templates=2, num_heads=4, order="project")
    projected.load_state_dict(pool.state_dict())
    elements = torch.randn(3, count, 4)
    assert_close(pool(elements, mask), projected(elements, mask))


@pytest.mark.parametrize(("sizes", "projected"), [((3, 12, 2), True), ((3, 13, 2), False), ((0, 3, 2), False)])
def test_sets_of_few_elements_for_their_queries_are_projected(sizes, projected):
    num_sets, count, num_queries = sizes
    queries, elements = torch.zeros(1, num_queries, DIM), torch.zeros(num_sets, count, DIM)
    assert fused.projects_sets(queries, elements, num_heads=2, num_steps=3) is projected
    assert not fused.projects_sets(queries, elements.bfloat16(), num_heads=2, num_steps=3)
    assert not fused.projects_sets(queries.to("meta"), elements.to("meta"), num_heads=2, num_steps=3)


@pytest.mark.parametrize(("count", "threads"), [(8, 1), (512, 2)])
@pytest.mark.parametrize("packed", [False, True])
def test_both_passes_of_a_small_problem_use_one_thread(monkeypatch, count, threads, packed):
    used = list[int]()

    def watched(function):
        def call(*arguments):
            used.append(torch.get_num_threads())
            return function(*arguments)

        return call

    for name in ("forward_steps", "backward_steps"):
        monkeypatch.setattr(fused, name, watched(getattr(fused, name)))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        pool, elements = PicasoPool(64, num_templates=4, num_heads=4), torch.randn(10, count, 64, requires_grad=True)
        sets = SetBatch.from_list(list(elements)) if packed else elements
        with torch.no_grad():
            pool(sets)
        pool(sets).sum().backward()
        assert used == [threads] * 3
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@every_form
@pytest.mark.parametrize("sizes", [[5, 2, 4], [3, 3], [0, 4], [0]], ids=str)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.usefixtures("bucket_sizes")
def test_packed_sets_give_the_plain_equation_of_padded_ones(form, sizes, weighted):
    inputs, _ = example(sizes, True, form)
    batch = draw_sets(sizes, seed=0).packed
    weights = torch.arange(len(batch.elements)).double() % 3 if weighted else None
    batch = SetBatch(batch.elements.requires_grad_(), batch.offsets, weights)
    padded, mask = batch.to_padded()
    mask = mask if weights is None else batch.padded_weights()
    padded, mask = (padded, mask) if padded.shape[1] else (padded.new_zeros(1, 1, DIM), torch.zeros(1, 1).bool())
    inputs[1] = batch.elements
    results = attention(form, None, inputs[0], batch, *inputs[2:]), plain(form, mask, inputs[0], padded, *inputs[2:])
    assert_close(*results)
    assert_close(*(gradients(result, inputs) for result in results))


@CASES
def test_every_way_has_right_first_and_second_derivatives(way, sizes, masked):
    inputs, mask = example(sizes, masked)
    assert gradcheck(partial(attention, FORMS[0], mask), inputs, fast_mode=True)
    assert gradgradcheck(partial(attention, FORMS[0], mask), inputs, fast_mode=True)


def test_packed_sets_have_right_second_derivatives():
    inputs, _ = example([3, 0, 2], True)
    batch = draw_sets([3, 0, 2], seed=0).packed
    inputs[1] = batch.elements.requires_grad_()

    def function(queries, elements, *parameters):
        return attend_in_steps(queries, batch.with_elements(elements), None, parameters, FORMS[0])

    assert gradgradcheck(function, inputs, fast_mode=True)


@pytest.mark.parametrize("frozen", [0, 1, 2, 4])
def test_what_needs_no_gradient_takes_none_from_the_others(way, frozen):
    inputs, mask = example([9, 0, 4], True)
    inputs[frozen] = inputs[frozen].detach()
    others = [tensor for index, tensor in enumerate(inputs) if index != frozen]
    expected = gradients(plain(FORMS[0], mask, *inputs), others)
    assert_close(gradients(attention(FORMS[0], mask, *inputs), others), expected)


def test_a_graph_may_be_differentiated_twice(way):
    inputs, mask = example([9, 0, 4], True)
    output = attention(FORMS[0], mask, *inputs).square().sum()
    first = torch.autograd.grad(output, inputs, retain_graph=True)
    assert_close(torch.autograd.grad(output, inputs), first)


def test_large_scores_are_no_matter(way):
    inputs, mask = example([11], True)
    heads = attention(FORMS[0], mask, 1e4 * inputs[0], *inputs[1:])
    assert heads.isfinite().all()
    assert all(grad.isfinite().all() for grad in torch.autograd.grad(heads.sum(), inputs))


def test_a_nan_in_a_present_element_is_not_hidden(way):
    (queries, elements, *parameters), mask = example([11], True)
    poisoned = elements.detach().clone()
    poisoned[0, int(mask[0].nonzero()[0])] = torch.nan
    assert attention(FORMS[0], mask, queries, poisoned, *parameters).isnan().any()


class Adapter(torch.nn.Module):
    """A layer beside another, whose weight it shows as its own, as adapters of large models do."""

    def __init__(self, layer: torch.nn.Linear) -> None:
        super().__init__()
        self.layer, self.added = layer, torch.nn.Linear(layer.in_features, layer.out_features)
        self.weight, self.bias = layer.weight, layer.bias

    def forward(self, inputs):
        return self.layer(inputs) + self.added(inputs)


@pytest.mark.parametrize("name", [name for name, _ in MultiheadAttentionBlock(4, 4, 4, num_heads=2).named_children()])
@pytest.mark.parametrize("change", ["hook", "other forward", "replaced layer"])
def test_a_block_with_hooks_or_replaced_layers_calls_its_layers(change, name):
    torch.manual_seed(0)
    elements = 3 * torch.randn(2, 50, 4)
    pool = PicasoPool(4, num_templates=1, num_heads=2, order="absorb")
    layer = pool.blocks[0].get_submodule(name)
    before, forward = pool(elements), layer.forward
    if change == "hook":
        layer.register_forward_hook(lambda module, inputs, output: output + inputs[0])
    elif change == "other forward":
        layer.forward = lambda inputs: forward(inputs) + inputs
    elif isinstance(layer, torch.nn.Linear):
        setattr(pool.blocks[0], name, Adapter(layer))
    else:
        pytest.skip("adapters are for linear layers")
    absorbed, packed = pool(elements), pool(SetBatch.from_padded(elements))
    pool.order = "project"  # calls every layer
    projected = pool(elements)
    assert not torch.allclose(projected, before, atol=1e-3)
    assert_close(absorbed, projected)
    assert_close(packed, projected)


@pytest.mark.parametrize("layer", ["key_map", "value_map"])
def test_a_set_cannot_be_read_in_parts_if_a_map_of_it_was_replaced(layer):
    pool = PicasoPool(4, num_templates=1, num_heads=2)
    setattr(pool.blocks[0], layer, Adapter(getattr(pool.blocks[0], layer)))
    with pytest.raises(TypeError, match=r"must be nn\.Linear without hooks; one of them was replaced"):
        stream(pool, torch.randn(50, 4))


@pytest.mark.as_installed
def test_the_operators_of_compiled_code_are_registered_correctly():
    for sizes, offsets in (([9, 0, 4], False), ([5, 2], True)):
        inputs, mask = example(sizes, True)
        queries, elements, *parameters = inputs
        if offsets:
            batch = draw_sets(sizes, seed=0).packed
            arguments = (queries, batch.elements.requires_grad_(), None, batch.offsets, parameters, *FORMS[0])
        else:
            arguments = (queries, elements, mask, None, parameters, *FORMS[0])
        tests = ("test_schema", "test_faketensor", "test_autograd_registration")
        torch.library.opcheck(torch.ops.picaset.steps.default, arguments, test_utils=tests)


@pytest.mark.as_installed
def test_the_operator_of_compiled_code_has_a_vmap_rule():
    inputs, mask = example([4, 0, 3], True)
    queries, elements, *parameters = (tensor.detach() for tensor in inputs)
    several = torch.stack([elements, 2 * elements])
    batched = torch.vmap(lambda one: torch.ops.picaset.steps(queries, one, mask, None, parameters, *FORMS[0])[-1])
    expected = [plain(FORMS[0], mask, queries, one, *parameters).flatten(0, 1) for one in several]
    assert_close(batched(several), torch.stack(expected))


@pytest.mark.as_installed
@pytest.mark.parametrize("masked", [True, False])
def test_the_attention_of_compiled_code_is_registered_correctly(masked):
    inputs, mask = projected_example(masked)
    torch.library.opcheck(torch.ops.picaset.attention.default, (*inputs, mask))
    output, log = torch.ops.picaset.attention(*(part.detach() for part in inputs), mask)
    backward = (output.cos(), *(part.detach() for part in inputs), mask, output, log)
    torch.library.opcheck(torch.ops.picaset.attention_backward.default, backward)


@pytest.mark.as_installed
@pytest.mark.parametrize("masked", [True, False])
def test_the_attention_of_compiled_code_has_a_vmap_rule(masked):
    inputs, mask = projected_example(masked)
    queries, keys, values = (part.detach() for part in inputs)
    several = torch.stack([keys, keys.cos()], dim=1)

    def one(keys):
        output, log = torch.ops.picaset.attention(queries, keys, values, mask)
        return torch.ops.picaset.attention_backward(output.cos(), queries, keys, values, mask, output, log), output

    expected = [one(keys) for keys in several.unbind(1)]
    assert_close(torch.vmap(one, in_dims=1)(several), tree_map(lambda *parts: torch.stack(parts), *expected))


@pytest.fixture
def no_private_operators(monkeypatch):
    monkeypatch.setattr(kernels, "private_operator", lambda name: None)


@pytest.mark.usefixtures("no_private_operators")
@CASES
def test_without_private_operators_absorbed_attention_is_the_plain_equation(way, sizes, masked):
    inputs, mask = example(sizes, masked)
    results = [function(FORMS[0], mask, *inputs) for function in (attention, plain)]
    assert_close(*results)
    assert_close(*(gradients(result, inputs) for result in results))


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


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_attention_of_other_devices_is_the_plain_equation(masked, weighted):
    inputs, mask = projected_example(masked)
    if weighted and mask is not None:
        mask = mask * torch.rand(mask.shape, dtype=torch.float64)
    results = [function(*inputs, mask) for function in (kernels.attention_off_the_cpu, kernels.plain_attention)]
    assert_close(*results)
    assert_close(*(torch.autograd.grad(result.square().sum(), inputs) for result in results))


@pytest.mark.parametrize("num_elements", [50, 70_000], ids=["stored weights", "blocked"])
@pytest.mark.parametrize("masked", [True, False])
def test_all_ways_have_the_right_shapes_without_values(num_elements, masked):
    pool = PicasoPool(16, num_templates=2, num_heads=2).to("meta")
    encoder = InducedSelfAttention(16, 16, num_heads=2, num_inducing=3).to("meta")
    elements = torch.empty(2, num_elements, 16, device="meta", requires_grad=True)
    mask = torch.ones(2, num_elements, dtype=torch.bool, device="meta") if masked else None
    pooled = pool(encoder(elements, mask), mask)
    pooled.sum().backward()
    assert pooled.shape == (2, 2, 16)
    assert elements.grad is not None
    assert elements.grad.shape == elements.shape


def test_a_kernel_of_a_device_serves_both_passes(monkeypatch):
    calls = []
    backward = kernels.backward_in_chunks

    def own_forward(queries, elements, mask, offsets):
        assert offsets is None
        calls.append("forward")
        return kernels.blocked_mean(queries, elements, mask)

    def own_backward(*inputs, accumulate, offsets):
        assert offsets is None
        calls.append("backward")
        with monkeypatch.context() as without:
            without.delitem(kernels.DEVICE_KERNELS, "cpu")
            return backward(*inputs, accumulate=accumulate)

    inputs, mask = example([9, 0, 4], True)
    expected = gradients(plain(FORMS[0], mask, *inputs), inputs)
    monkeypatch.setitem(kernels.DEVICE_KERNELS, "cpu", kernels.DeviceKernel(own_forward, own_backward))
    assert_close(gradients(attention(FORMS[0], mask, *inputs), inputs), expected)
    assert calls == ["forward"] * 3 + ["backward"] * 3


@pytest.mark.skipif(not kernels.MULTIPLIES_BFLOAT16, reason="the processor has no products in bfloat16")
@pytest.mark.parametrize("masked", [True, False])
def test_bfloat16_is_within_its_stated_error_of_float32(masked):
    torch.manual_seed(0)
    wide = PicasoPool(32, num_templates=3, num_heads=4, form="authors")
    half = copy.deepcopy(wide).bfloat16()
    wide = copy.deepcopy(half).float()
    elements = torch.randn(2, 5000, 32).bfloat16()
    mask = torch.rand(2, 5000) < 0.7 if masked else None
    results, found = [], []
    for pool, values in ((wide, elements.float()), (half, elements)):
        values = values.requires_grad_()
        results.append(pool(values, mask))
        found.append(torch.autograd.grad(results[-1].float().square().sum(), values)[0].float())
    assert results[1].dtype is torch.bfloat16
    assert (results[1] - results[0]).abs().max() <= 0.01 * results[0].abs().max()
    assert (found[1] - found[0]).norm() <= 0.02 * found[0].norm()


def test_a_batch_is_a_pytree_of_its_tensors():
    batch = SetBatch.from_list([torch.zeros(2, 3), torch.ones(1, 3)]).with_weights(torch.tensor([1, 2, 3]))
    leaves, spec = tree_flatten(batch)
    assert [leaf is part for leaf, part in zip(leaves, (batch.elements, batch.offsets, batch.weights), strict=True)]
    assert_close(tree_unflatten(leaves, spec).elements, batch.elements)
    assert_close(tree_map(lambda tensor: tensor + 1, batch).offsets, batch.offsets + 1)
