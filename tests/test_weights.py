"""Weighted elements: an element of weight w counts as w copies of it, in every operator that takes weights."""

import pytest
import torch
from hypothesis import given
from torch.autograd import gradcheck
from torch.testing import assert_close

from picaset import Elementwise, JanossyPool, MeanPool, PicasoPool, SetBatch, SortPool, SumPool, stream
from tests.operators import DIM, OPERATORS, Case, obeying
from tests.random_sets import Sets, draw_sets, sets, with_every_bucket_size

weighted_operators = pytest.mark.parametrize("case", obeying("weights"), ids=lambda case: case.name)
COEFFICIENTS = torch.linspace(-1, 2, 97, dtype=torch.float64)
"""Uneven weights of a sum of outputs, so that no terms of its gradient cancel."""


def draw_counts(data: Sets) -> torch.Tensor:
    """Draw how often each element occurs, in packed order: from 0 to 3 times."""
    return torch.randint(0, 4, (len(data.packed.elements),), generator=data.generator)


def repeated(batch: SetBatch, counts: torch.Tensor) -> SetBatch:
    """Return a batch in which every element is repeated as often as its count says."""
    sizes = torch.stack([part.sum() for part in counts.split(batch.sizes.tolist())])
    offsets = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
    return SetBatch(batch.elements.repeat_interleave(counts, dim=0), offsets)


def loss_of(output: torch.Tensor, copies: torch.Tensor | None = None) -> torch.Tensor:
    """Return an uneven sum of outputs; that of an element is taken once per copy."""
    features = COEFFICIENTS[torch.arange(output.shape[-1]) % len(COEFFICIENTS)]
    values = (output * features).sum(dim=-1)
    return (values.square() + values).sum() if copies is None else ((values.square() + values) * copies).sum()


def gradients(loss: torch.Tensor, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    found = torch.autograd.grad(loss, inputs, allow_unused=True)
    return [torch.zeros_like(one) if grad is None else grad for one, grad in zip(inputs, found, strict=True)]


def results(case: Case, elements: torch.Tensor, make_batch, counts: torch.Tensor | None):
    """Return the outputs of a packed batch, and its gradients in the elements and the parameters."""
    leaf = elements.detach().clone().requires_grad_()
    output = case.operator()(make_batch(leaf))
    values = output.elements if case.kind == "encoder" else output
    loss = loss_of(values, counts if case.kind == "encoder" else None)
    return values, gradients(loss, [leaf, *case.operator().parameters()])


@weighted_operators
@with_every_bucket_size
@given(data=sets())
def test_integer_weights_equal_repetition(case: Case, data: Sets):
    batch, counts = data.packed, draw_counts(data)
    weighted, weighted_gradients = results(
        case, batch.elements, lambda leaf: SetBatch(leaf, batch.offsets, counts.double()), counts.double()
    )
    plain, plain_gradients = results(
        case, batch.elements, lambda leaf: repeated(SetBatch(leaf, batch.offsets), counts), None
    )
    assert_close(weighted.repeat_interleave(counts, dim=0) if case.kind == "encoder" else weighted, plain)
    assert_close(weighted_gradients, plain_gradients)


@weighted_operators
@given(data=sets())
def test_weight_zero_equals_absent(case: Case, data: Sets):
    elements, mask = data.padded()
    weights = 3.0 * torch.rand(mask.shape, generator=data.generator, dtype=torch.float64) + 0.1
    absent = torch.rand(mask.shape, generator=data.generator) < 0.4
    zeroed = weights.masked_fill(absent, 0.0)
    poisoned = elements.masked_fill(absent[..., None], torch.nan)
    by_weight = case.operator()(poisoned, mask, zeroed)
    assert_close(by_weight, case.operator()(elements, mask & ~absent, weights))


@weighted_operators
@with_every_bucket_size
@given(data=sets())
def test_weights_of_one_change_nothing_and_packed_equals_padded(case: Case, data: Sets):
    elements, mask = data.padded()
    operator = case.operator()
    assert_close(operator(elements, mask, torch.ones_like(mask, dtype=torch.int64)), operator(elements, mask))
    weights = torch.rand(mask.shape, generator=data.generator, dtype=torch.float64)
    padded, packed = elements.clone().requires_grad_(), data.packed.elements.requires_grad_()
    from_padded = operator(padded, mask, weights)
    from_packed = operator(SetBatch(packed, data.packed.offsets, weights[mask]))
    from_padded = from_padded[mask] if case.kind == "encoder" else from_padded
    from_packed = from_packed.elements if case.kind == "encoder" else from_packed
    assert_close(from_packed, from_padded)
    assert_close(gradients(loss_of(from_packed), [packed])[0], gradients(loss_of(from_padded), [padded])[0][mask])


@pytest.mark.parametrize(
    "case", [case for case in obeying("streaming") if "weights" not in case.exempt], ids=lambda case: case.name
)
@pytest.mark.parametrize("chunk", [2, 100])
def test_a_stream_with_weights_equals_the_whole_set(case: Case, chunk: int):
    elements, mask = draw_sets([7, 0, 5], seed=3).padded()
    weights = torch.randint(0, 4, mask.shape, generator=torch.Generator().manual_seed(0))
    operator = case.operator()
    inputs = [elements.requires_grad_(), *operator.parameters()]
    streamed = stream(operator, elements, chunk, mask=mask, weights=weights)
    whole = operator(elements, mask, weights)
    assert_close(streamed, whole)
    assert_close(gradients(loss_of(streamed), inputs), gradients(loss_of(whole), inputs))


@pytest.mark.parametrize(
    "case",
    [
        case
        for case in OPERATORS
        if case.name in ("PicasoPool projecting", "PicasoPool absorbing", "MeanPool", "Picaso")
    ],
    ids=lambda case: case.name,
)
def test_weights_have_right_gradients(case: Case):
    elements, mask = draw_sets([4, 1, 3], seed=1).padded()
    weights = (0.5 + torch.rand(mask.shape, dtype=torch.float64)).requires_grad_()
    assert gradcheck(lambda one: case.operator()(elements, mask, one), (weights,), fast_mode=True)


def test_a_weighted_sum_counts_copies():
    assert_close(SumPool()(torch.ones(1, 3, 2), None, torch.tensor([[2.0, 0.5, 0.0]])), torch.full((1, 1, 2), 2.5))


def test_the_attention_of_a_trace_includes_all_copies():
    pool = PicasoPool(DIM, num_templates=2, num_heads=2).double()
    elements = torch.randn(1, 3, DIM, dtype=torch.float64)
    weights = torch.tensor([[2, 0, 1]])
    trace = pool.trace(elements, None, weights)
    assert_close(trace.attention.sum(dim=-1), torch.ones_like(trace.attention[..., 0]))
    assert_close(trace.templates[-1], pool(elements, None, weights))
    assert (trace.attention[..., 1] == 0).all()
    packed = pool.trace(SetBatch.from_padded(elements, None, weights))
    assert_close(packed.attention, trace.attention[:, 0])


@pytest.mark.parametrize("pool", [JanossyPool(DIM, order=2), SortPool(DIM)], ids=["JanossyPool", "SortPool"])
def test_operators_that_take_no_weights_refuse_them(pool):
    elements, weights = torch.zeros(1, 2, DIM), torch.ones(1, 2)
    for arguments in ((elements, None, weights), (SetBatch.from_padded(elements, None, weights),)):
        with pytest.raises(TypeError, match="weights are not supported, because here a weight cannot stand for copies"):
            pool(*arguments)


@pytest.mark.as_installed
def test_wrong_weights_are_reported():
    pool, elements = MeanPool(), torch.zeros(2, 3, DIM)
    with pytest.raises(ValueError, match=r"weights must have shape \(2, 3\).*got \(2, 4\)"):
        pool(elements, None, torch.ones(2, 4))
    with pytest.raises(TypeError, match=r"weights must be numbers.*got torch.bool. Pass a boolean tensor as mask"):
        pool(elements, None, torch.ones(2, 3, dtype=torch.bool))
    with pytest.raises(ValueError, match="elements are on cpu and weights on meta"):
        pool(elements, None, torch.ones(2, 3, device="meta"))
    with pytest.raises(TypeError, match="weights must be None for a SetBatch"):
        pool(SetBatch.from_padded(elements), None, torch.ones(2, 3))
    with pytest.raises(TypeError, match="weights require a tensor as source; got weights and ndarray"):
        stream(pool, elements[0].numpy(), weights=torch.ones(3))
    with pytest.raises(TypeError, match="Linear does not take weights"):
        stream(torch.nn.Sequential(torch.nn.Linear(DIM, 2)), elements, weights=torch.ones(2, 3))
    for weights in ([1.0, -1.0], [1.0, torch.inf], [1.0, torch.nan]):
        with pytest.raises(ValueError, match="weights must be finite and not negative"):
            SetBatch.from_list([torch.zeros(2, DIM)]).with_weights(torch.tensor(weights))


def test_a_negative_weight_in_a_padded_set_gives_nan():
    assert (
        PicasoPool(4, num_templates=1, num_heads=2)(torch.zeros(1, 2, 4), None, torch.tensor([[1.0, -1.0]]))
        .isnan()
        .all()
    )


def test_batches_keep_their_weights():
    batch = SetBatch.from_list([torch.zeros(2, 3), torch.ones(1, 3)]).with_weights(torch.tensor([1, 2, 3]))
    assert_close(batch.padded_weights(), torch.tensor([[1, 2], [3, 0]]))
    assert_close(batch.to(torch.float64).weights, torch.tensor([1, 2, 3]))
    assert_close(batch.with_elements(torch.zeros(3, 5)).weights, torch.tensor([1, 2, 3]))
    assert batch.with_weights(None).padded_weights() is None
    elements, mask = batch.to_padded()
    assert_close(SetBatch.from_padded(elements, mask, batch.padded_weights()).weights, torch.tensor([1, 2, 3]))
    assert_close(Elementwise(torch.nn.Identity())(batch).weights, torch.tensor([1, 2, 3]))
