"""Every operator compiles without a graph break and exports with a dynamic number of elements."""

from typing import Any

import pytest
import torch
from torch.testing import assert_close

from picaset import AttentionPool, Elementwise, InducedSelfAttention, Picaso, PicasoPool, SelfAttention, SetBatch
from picaset.operators import packed_attention
from picaset.operators.fused import rectify
from tests.operators import CODE_PATHS, OPERATORS, Case
from tests.random_sets import draw_sets

pytestmark = pytest.mark.as_installed

every_operator = pytest.mark.parametrize("case", OPERATORS, ids=lambda case: case.name)
BACKENDS = {name: "aot_eager" for names in CODE_PATHS.values() for name in names} | {"InducedSelfAttention": "inductor"}
"""Backends that operators are compiled with; the others are traced by Dynamo alone, and exported."""


def case_named(name: str) -> Case:
    return next(case for case in OPERATORS if case.name == name)


def example(sizes: list[int], seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    elements, mask = draw_sets(sizes, seed).padded()
    return elements.float(), mask


def compiled(case: Case, backend: str):
    torch.compiler.reset()
    return torch.compile(case.operator(torch.float32), fullgraph=True, dynamic=True, backend=backend)


@every_operator
@torch.no_grad()
def test_compiles_whole_with_a_dynamic_number_of_elements(case: Case):
    traced = compiled(case, BACKENDS.get(case.name, "eager"))
    for sizes in ([7, 1, 5], [11, 0, 13]):
        elements, mask = example(sizes)
        assert_close(traced(elements, mask), case.operator(torch.float32)(elements, mask), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("name", "backend"), [("PicasoPool", "inductor"), ("InducedSelfAttention", "aot_eager")])
def test_compiles_with_its_gradients(name: str, backend: str):
    case = case_named(name)
    traced = compiled(case, backend)
    for sizes in ([7, 1, 5], [11, 0, 13]):
        elements, mask = example(sizes)
        elements.requires_grad_()
        result, expected = traced(elements, mask), case.operator(torch.float32)(elements, mask)
        gradients = [torch.autograd.grad(output.square().sum(), elements)[0] for output in (result, expected)]
        assert_close(result, expected, rtol=1e-4, atol=1e-5)
        assert_close(*gradients, rtol=1e-3, atol=1e-4)


# Without a mask, one operator of every code path.
@pytest.mark.parametrize(
    ("case", "masked"),
    [*((case, True) for case in OPERATORS), *((case, False) for case in OPERATORS if case.name in BACKENDS)],
    ids=lambda value: value.name if isinstance(value, Case) else "masked" if value else "unmasked",
)
def test_exports_with_a_dynamic_number_of_elements(case: Case, masked: bool):
    operator = case.operator(torch.float32)
    size = torch.export.Dim("N", min=2, max=4096)

    def arguments(sizes: list[int]) -> tuple:
        elements, mask = example(sizes)
        return (elements, mask) if masked else (elements,)

    dynamic = ({1: size}, {1: size}) if masked else ({1: size},)
    exported = torch.export.export(operator, arguments([7, 1, 5]), dynamic_shapes=dynamic, strict=False)
    assert not any("picaset" in str(node.target) for node in exported.graph.nodes)
    for sizes in ([7, 1, 5], [13, 0, 2]):
        assert_close(exported.module()(*arguments(sizes)), operator(*arguments(sizes)))


@pytest.mark.parametrize(
    ("name", "weighted"),
    [("PicasoPool", False), ("PicasoPool", True), ("AttentionPool", True), ("PicasoPool authors", False)],
)
def test_a_compiled_attention_pool_takes_packed_sets(name: str, weighted: bool):
    operator = case_named(name).operator(torch.float32)
    torch.compiler.reset()
    traced = torch.compile(lambda batch: operator(batch), fullgraph=True, dynamic=True, backend="aot_eager")
    for sizes in ([7, 1, 5], [11, 0, 13, 2]):
        batch = draw_sets(sizes, seed=0, dtype=torch.float32).packed
        elements = batch.elements.requires_grad_()
        batch = batch.with_weights(torch.arange(len(elements)) % 3 if weighted else None)
        results = traced(batch), operator(batch)
        gradients = [torch.autograd.grad(output.square().sum(), elements)[0] for output in results]
        assert_close(*results)
        assert_close(*gradients)


ON_PACKED = {
    "induced": lambda: InducedSelfAttention(6, 10, num_heads=2, num_inducing=4),
    "induced, projected": lambda: InducedSelfAttention(6, 4, num_heads=4, num_inducing=9, norm=True),
    "induced, clean": lambda: InducedSelfAttention(6, 6, num_heads=2, num_inducing=4, residual="clean", norm=True),
    "self": lambda: SelfAttention(6, 8, num_heads=2, form="authors"),
    "elementwise": lambda: Elementwise(torch.nn.Linear(6, 3), 6),
    "network": lambda: Picaso(6, 3, dim=8, num_heads=2, num_inducing=4, num_outputs=2),
}


@pytest.mark.parametrize(
    ("name", "weighted"), [*((name, False) for name in ON_PACKED), ("induced", True), ("self", True)]
)
def test_compiled_encoders_and_networks_take_packed_sets(name: str, weighted: bool):
    torch.manual_seed(0)
    module = ON_PACKED[name]()
    torch.compiler.reset()
    traced = torch.compile(lambda batch: module(batch), fullgraph=True, dynamic=True, backend="aot_eager")
    for sizes in ([7, 1, 5], [11, 0, 13, 2]):
        batch = draw_sets(sizes, seed=0, dtype=torch.float32).packed
        elements = torch.randn(len(batch.elements), 6)
        weights = torch.arange(len(elements)) % 3 if weighted else None
        if weights is not None:
            elements[weights == 0] = torch.nan
        elements.requires_grad_()
        batch = SetBatch(elements, batch.offsets, weights)
        results = [
            result.elements if isinstance(result, SetBatch) else result for result in (traced(batch), module(batch))
        ]
        inputs = [elements, *module.parameters()]
        gradients = [torch.autograd.grad(output.square().sum(), inputs) for output in results]
        assert_close(*results, rtol=1e-4, atol=1e-5)
        assert_close(*gradients, rtol=1e-3, atol=1e-4)


def test_the_backward_pass_of_compiled_packed_sets_does_not_repeat_the_forward_pass(monkeypatch):
    calls = {"forward": 0, "backward": 0}

    def counted(kind: str, kernel: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            calls[kind] += 1
            return kernel(*arguments, **options)

        return call

    for kind, name in (("forward", "blocked_attention"), ("backward", "attention_backward")):
        monkeypatch.setattr(packed_attention, name, counted(kind, getattr(packed_attention, name)))
    encoder = SelfAttention(6, 8, num_heads=2)
    torch.compiler.reset()
    traced = torch.compile(lambda batch: encoder(batch).elements, fullgraph=True, backend="aot_eager")
    traced(draw_sets([7, 1, 5], seed=0, dtype=torch.float32).packed).sum().backward()
    assert calls == {"forward": 1, "backward": 1}


def test_compiled_relu_is_relu_and_keeps_no_boolean_mask():
    saved, values = list[torch.dtype](), torch.tensor([-torch.inf, -1.0, -0.0, 0.0, 2.0, torch.inf, torch.nan])
    values.requires_grad_()
    torch.compiler.reset()
    traced = torch.compile(lambda x: x + rectify(2 * x), fullgraph=True, backend="inductor")

    def remember(tensor: torch.Tensor) -> torch.Tensor:
        saved.append(tensor.dtype)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(remember, lambda tensor: tensor):
        results = traced(values), values + torch.relu(2 * values)
    gradients = [torch.autograd.grad(result[:-1].sum(), values)[0] for result in results]
    assert_close(*results, equal_nan=True)
    assert_close(*gradients)
    assert torch.bool not in saved


@pytest.mark.parametrize("form", ["paper", "authors"])
def test_compiled_sets_of_few_elements_give_the_same(form: Any):
    torch.manual_seed(0)
    encoder = InducedSelfAttention(6, 8, num_heads=2, num_inducing=16, form=form)
    _, mask = example([3, 1, 0])
    inputs = [torch.randn(*mask.shape, 6).requires_grad_(), *encoder.parameters()]
    torch.compiler.reset()
    traced = torch.compile(encoder, fullgraph=True, dynamic=False, backend="aot_eager")
    results = traced(inputs[0], mask), encoder(inputs[0], mask)
    assert_close(*results)
    assert_close(*(torch.autograd.grad(result.square().sum(), inputs) for result in results), rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        assert_close(traced(inputs[0], mask), results[1])


def test_compiled_code_keeps_the_fast_kernels():
    graphs = []

    def remember(graph, inputs):
        graphs.append(graph)
        return graph

    for name in ("PicasoPool", "InducedSelfAttention"):
        torch.compiler.reset()
        torch.compile(case_named(name).operator(torch.float32), fullgraph=True, backend=remember)(
            *example([70_000, 1, 5])
        )
    targets = {str(node.target) for graph in graphs for node in graph.graph.nodes}
    assert {"picaset.steps", "picaset.attention"} <= targets


TRANSFORMED = {
    "pool": lambda: PicasoPool(6, num_templates=3, num_heads=2, num_steps=2),
    "pool of one step": lambda: AttentionPool(6, num_templates=3, num_heads=2),
    "projected pool": lambda: PicasoPool(6, num_templates=3, num_heads=2, num_steps=2, order="project"),
    "induced encoder": lambda: InducedSelfAttention(6, 10, num_heads=2, num_inducing=4),
}


def transformed(transform: str, operator: Any, elements: torch.Tensor) -> Any:
    """Return what a function transform of an operator returns for elements (B, N, D)."""
    if transform == "grad":
        return torch.func.grad(lambda x: operator(x).square().sum())(elements)
    if transform == "jvp":
        return torch.func.jvp(operator, (elements,), (elements.cos(),))
    if transform == "vmap":
        return torch.func.vmap(lambda x: operator(x))(torch.stack([elements, elements.cos()]))
    return torch.func.hessian(lambda x: operator(x).square().sum())(elements[:1])


HESSIANS = ("pool", "induced encoder")  # those take longest, and consist of the other transforms
TRANSFORMS = [(name, transform) for name in TRANSFORMED for transform in ("grad", "jvp", "vmap")]


@pytest.mark.parametrize(("name", "transform"), [*TRANSFORMS, *((name, "hessian") for name in HESSIANS)])
def test_a_function_transform_inside_compiled_code_equals_eager(name: str, transform: str):
    torch.manual_seed(0)
    operator, elements = TRANSFORMED[name](), example([4, 4])[0]

    def call(elements: torch.Tensor) -> Any:
        return transformed(transform, operator, elements)

    torch.compiler.reset()
    results = torch.compile(call, fullgraph=True, backend="aot_eager")(elements), call(elements)
    assert_close(*results, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore")  # tracing scripts is deprecated, and warns of every check of a shape
@pytest.mark.parametrize("name", ["PicasoPool", "InducedSelfAttention"])
def test_a_script_trace_contains_no_operator_of_ours(name: str):
    operator, inputs = case_named(name).operator(torch.float32), example([7, 1, 5])
    traced = torch.jit.trace(operator, inputs)
    assert "picaset::" not in str(traced.inlined_graph)
    assert_close(traced(*inputs), operator(*inputs))
