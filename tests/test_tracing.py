"""Every operator can be compiled without a graph break and exported with a dynamic number of elements."""

import pytest
import torch
from torch.testing import assert_close

from tests.operators import OPERATORS, Case
from tests.random_sets import draw_sets

pytestmark = pytest.mark.as_installed

every_operator = pytest.mark.parametrize("case", OPERATORS, ids=lambda case: case.name)
INDUCTOR = [case for case in OPERATORS if case.name in ("PicasoPool", "InducedSelfAttention", "Picaso")]


def example(sizes: list[int], seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    elements, mask = draw_sets(sizes, seed).padded()
    return elements.float(), mask


def assert_compiles(case: Case, backend: str) -> None:
    torch.compiler.reset()
    operator = case.operator(torch.float32)
    compiled = torch.compile(operator, fullgraph=True, dynamic=True, backend=backend)
    for sizes in ([7, 1, 5], [11, 0, 13]):
        elements, mask = example(sizes)
        elements.requires_grad_()
        expected, result = operator(elements, mask), compiled(elements, mask)
        assert_close(result, expected, rtol=1e-4, atol=1e-5)
        assert_close(
            torch.autograd.grad(result.square().sum(), elements),
            torch.autograd.grad(expected.square().sum(), elements),
            rtol=1e-3,
            atol=1e-4,
        )


@every_operator
def test_compiles_whole_with_a_dynamic_number_of_elements(case: Case):
    assert_compiles(case, "aot_eager")


@pytest.mark.parametrize("case", INDUCTOR, ids=lambda case: case.name)
def test_compiles_to_native_code(case: Case):
    assert_compiles(case, "inductor")


@every_operator
@pytest.mark.parametrize("masked", [True, False], ids=["masked", "unmasked"])
def test_exports_with_a_dynamic_number_of_elements(case: Case, masked: bool):
    operator = case.operator(torch.float32)
    size = torch.export.Dim("N", min=2, max=4096)

    def arguments(sizes: list[int]) -> tuple:
        elements, mask = example(sizes)
        return (elements, mask) if masked else (elements,)

    dynamic = ({1: size}, {1: size}) if masked else ({1: size},)
    exported = torch.export.export(operator, arguments([7, 1, 5]), dynamic_shapes=dynamic, strict=False)
    for sizes in ([7, 1, 5], [13, 0, 2]):
        assert_close(exported.module()(*arguments(sizes)), operator(*arguments(sizes)))
