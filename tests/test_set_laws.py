"""Laws of all operators: one test per law, for every operator of the list in ``tests/operators.py``.

Hypothesis chooses sizes, masks and orders; all computations are in float64.
"""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck
from torch.func import functional_call
from torch.testing import assert_close

from picaset import SetBatch, SumPool
from tests.operators import DIM, OPERATORS, Case, obeying
from tests.random_sets import Sets, draw_sets, sets, with_every_bucket_size

every_operator = pytest.mark.parametrize("case", OPERATORS, ids=lambda case: case.name)


def outputs_per_set(case: Case, elements, mask) -> list[torch.Tensor]:
    """Return the output of each padded set, without padding."""
    output = case.operator()(elements, mask)
    return (
        [rows[present] for rows, present in zip(output, mask, strict=True)] if case.kind == "encoder" else list(output)
    )


def weighted_sum(output):
    """Return a sum with fixed, uneven weights, so that no terms of its gradient cancel."""
    output = output.elements if isinstance(output, SetBatch) else output
    return (output * torch.linspace(-1, 2, output.numel(), dtype=output.dtype).reshape(output.shape)).sum()


def gradient_of(output, elements):
    (gradient,) = torch.autograd.grad(weighted_sum(output), elements, allow_unused=True)
    return torch.zeros_like(elements) if gradient is None else gradient


@every_operator
@given(data=sets())
def test_the_result_is_the_literal_equation(case: Case, data: Sets):
    for result, one in zip(outputs_per_set(case, *data.padded()), data.sets, strict=True):
        assert_close(result, case.expected(one))


@every_operator
@given(data=sets())
def test_reordering_the_elements_reorders_an_encoders_output_and_changes_no_pool(case: Case, data: Sets):
    elements, mask = data.padded()
    order = torch.randperm(elements.shape[1], generator=data.generator)
    before, after = case.operator()(elements, mask), case.operator()(elements[:, order], mask[:, order])
    assert_close(after, before[:, order] if case.kind == "encoder" else before)


@every_operator
@pytest.mark.parametrize("poison", [torch.nan, torch.inf, -torch.inf])
@given(data=sets())
def test_what_the_padding_holds_is_never_read(case: Case, poison: float, data: Sets):
    elements, mask = data.padded()
    outputs, gradients = [], []
    for values in (elements.clone(), elements.masked_fill(~mask[..., None], poison)):
        inputs = [values.requires_grad_(), *case.operator().parameters()]
        outputs.append(case.operator()(values, mask))
        gradients.append(torch.autograd.grad(weighted_sum(outputs[-1]), inputs, allow_unused=True))
    assert_close(outputs[1], outputs[0])
    assert_close(gradients[1], gradients[0])


@every_operator
@pytest.mark.parametrize("slots", [0, 1, 5])
def test_an_empty_set_has_a_finite_answer_and_finite_gradients(case: Case, slots: int):
    operator = case.operator()
    elements = torch.full((2, slots, DIM), torch.nan, dtype=torch.float64, requires_grad=True)
    output = operator(elements, torch.zeros(2, slots, dtype=torch.bool))
    assert output.isfinite().all()
    assert output.shape[1] == slots or case.kind == "pool"
    inputs = [elements, *operator.parameters()]
    gradients = torch.autograd.grad(output.square().sum(), inputs, allow_unused=True)
    assert all(gradient is None or gradient.isfinite().all() for gradient in gradients)


@every_operator
@pytest.mark.parametrize("packed", [False, True])
def test_the_layout_of_the_elements_in_memory_changes_nothing(case: Case, packed: bool):
    elements = draw_sets(sizes=[9, 4, 0], seed=0).padded()[0]
    column_major = elements.flatten(0, 1).t().contiguous().t()  # as the values of a data frame
    outputs, gradients = [], []
    for values in (elements.flatten(0, 1), column_major):
        values = values.detach().requires_grad_()
        offsets = torch.arange(4) * elements.shape[1]
        output = case.operator()(SetBatch(values, offsets) if packed else values.unflatten(0, elements.shape[:2]))
        outputs.append(output.elements if isinstance(output, SetBatch) else output)
        gradients.append(
            torch.autograd.grad(weighted_sum(output), [values, *case.operator().parameters()], allow_unused=True)
        )
    assert_close(*outputs)
    assert_close(*gradients)


@every_operator
@pytest.mark.parametrize("masked", [False, True])
def test_a_batch_of_no_sets_has_an_empty_answer_and_no_gradient(case: Case, masked: bool):
    operator = case.operator()
    elements = torch.zeros(0, 5, DIM, dtype=torch.float64, requires_grad=True)
    output = operator(elements, torch.ones(0, 5, dtype=torch.bool) if masked else None)
    assert len(output) == 0
    assert len(operator(SetBatch.from_padded(elements))) == 0
    gradients = torch.autograd.grad(output.sum(), [elements, *operator.parameters()], allow_unused=True)
    assert all(gradient is None or not gradient.any() for gradient in gradients)


@every_operator
@with_every_bucket_size
@given(data=sets())
def test_packed_padded_and_one_at_a_time_agree(case: Case, data: Sets):
    operator = case.operator()
    padded = outputs_per_set(case, *data.padded())
    packed = list(operator(data.packed))
    for one, from_padded, from_packed in zip(data.sets, padded, packed, strict=True):
        alone = operator(one[None])[0]
        assert_close(from_padded, alone)
        assert_close(from_packed, alone)


@every_operator
@with_every_bucket_size
@given(data=sets())
def test_packed_and_padded_have_the_same_gradients(case: Case, data: Sets):
    elements, mask = data.padded()
    elements = elements.requires_grad_()
    packed = data.packed.with_elements(data.packed.elements.requires_grad_())
    from_packed = gradient_of(case.operator()(packed), packed.elements)
    output = case.operator()(elements, mask)
    output = output[mask] if case.kind == "encoder" else output
    assert_close(gradient_of(output, elements)[mask], from_packed)


@pytest.mark.parametrize("case", obeying("repetition"), ids=lambda case: case.name)
@given(data=sets(), times=st.integers(2, 3))
def test_repeating_every_element_changes_nothing(case: Case, data: Sets, times: int):
    elements, mask = data.padded()
    before = case.operator()(elements, mask)
    after = case.operator()(elements.repeat(1, times, 1), mask.repeat(1, times))
    assert_close(after, before.repeat(1, times, 1) if case.kind == "encoder" else before)


@given(data=sets(), times=st.integers(2, 3))
def test_a_sum_counts_copies(data: Sets, times: int):
    elements, mask = data.padded()
    copies = SumPool()(elements.repeat(1, times, 1), mask.repeat(1, times))
    assert_close(copies, times * SumPool()(elements, mask))


@every_operator
@given(data=sets(min_size=1))
def test_a_nan_in_a_present_element_is_not_hidden(case: Case, data: Sets):
    elements, mask = data.padded()
    victim = int(mask[0].nonzero()[0])
    elements[0, victim] = torch.nan
    output = case.operator()(elements, mask)
    assert output[0].isnan().any()
    assert output[1:].isfinite().all()


@every_operator
def test_large_scores_give_no_infinity_and_no_nan(case: Case):
    elements, mask = draw_sets([7, 1, 5], seed=0).padded()
    elements = (1e4 * elements).float().requires_grad_()
    output = case.operator(torch.float32)(elements, mask)
    assert output.isfinite().all()
    assert gradient_of(output, elements).isfinite().all()


def with_parameters(case: Case, mask):
    """Return the operator as a function of the elements and of all its parameters in one vector, and that vector."""
    operator = case.operator()
    parameters = dict(operator.named_parameters())

    def function(elements, vector):
        values = vector.split([value.numel() for value in parameters.values()])
        named = {name: part.view_as(parameters[name]) for name, part in zip(parameters, values, strict=True)}
        output = functional_call(operator, named, (elements, mask))
        return output[mask] if case.kind == "encoder" else output

    vector = torch.cat([value.detach().flatten() for value in parameters.values()] or [torch.empty(0)])
    return function, vector.double().requires_grad_(bool(parameters))


@every_operator
def test_gradients_are_right_for_elements_and_parameters(case: Case):
    elements, mask = draw_sets([4, 1, 0, 3], seed=1).padded()
    function, vector = with_parameters(case, mask)
    assert gradcheck(function, (elements.requires_grad_(), vector), fast_mode=True)


@every_operator
def test_second_derivatives_are_right(case: Case):
    elements, mask = draw_sets([3, 0, 2], seed=2).padded()
    function, vector = with_parameters(case, mask)
    assert gradgradcheck(function, (elements.requires_grad_(), vector), fast_mode=True)
