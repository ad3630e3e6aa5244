"""A canonicalized network is equivariant to shift and scale."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

from picaset import Canonicalize, MeanPool, PicasoPool, SelfAttention, SetBatch
from picaset.operators.canonicalize import shift_and_scale
from tests.operators import DIM, move_back
from tests.random_sets import Sets, sets


def build() -> Canonicalize:
    torch.manual_seed(0)
    return Canonicalize(PicasoPool(DIM, num_templates=3, num_heads=2), move_back).double()


@given(data=sets(min_size=2), shift=st.floats(-1e3, 1e3), scale=st.floats(1e-3, 1e3))
def test_the_result_moves_and_grows_with_the_data(data: Sets, shift: float, scale: float):
    network, (elements, mask) = build(), data.padded()
    assert_close(network(scale * elements + shift, mask), scale * network(elements, mask) + shift)


@given(data=sets(min_size=2))
def test_the_network_sees_zero_mean_and_unit_spread(data: Sets):
    elements, mask = data.padded()
    seen = Canonicalize(Remember(), lambda prediction, shift, scale: prediction)(elements, mask)
    seen = seen.masked_fill(~mask[..., None], 0.0)
    sizes = mask.sum(dim=1)
    assert_close(seen.sum(dim=1), torch.zeros(len(seen), DIM, dtype=seen.dtype))
    assert_close(seen.square().sum(dim=(1, 2)), (sizes * DIM).to(seen.dtype))


class Remember(nn.Module):
    def forward(self, elements, mask=None):
        return elements


def test_a_set_of_equal_points_has_scale_one_wherever_it_lies():
    for value in (0.1, 1e8, -3.7e-5):
        shift, scale = shift_and_scale(torch.full((1, 7, DIM), value), None)
        assert (scale == 1).all()
        assert_close(shift, torch.full((1, 1, DIM), value))


@pytest.mark.parametrize("size", [1e-23, 1e-30, 1e25])
def test_sets_of_any_size_are_brought_to_unit_spread(size: float):
    seen = Canonicalize(Remember(), lambda prediction, shift, scale: prediction)(size * torch.randn(1, 50, 2))
    assert_close(seen.square().mean(), torch.tensor(1.0))


def test_a_scale_below_half_precision_gives_no_nan():
    elements = torch.zeros(1, 4000, 1, dtype=torch.float16)
    elements[0, 0] = 6e-8
    network = Canonicalize(MeanPool(), lambda prediction, shift, scale: prediction * scale + shift)
    assert network(elements).isfinite().all()


def test_an_encoder_of_sets_without_slots_returns_none():
    network = Canonicalize(SelfAttention(DIM, 4, num_heads=2), lambda encoded, shift, scale: encoded)
    assert network(torch.zeros(3, 0, DIM)).shape == (3, 0, 4)


def test_an_empty_set_has_shift_zero_and_scale_one():
    shift, scale = shift_and_scale(torch.zeros(1, 3, DIM), torch.zeros(1, 3, dtype=torch.bool))
    assert (shift == 0).all()
    assert (scale == 1).all()


def test_equal_points_have_finite_gradients():
    elements = torch.full((1, 7, DIM), 0.3, dtype=torch.float64, requires_grad=True)
    build()(elements).sum().backward()
    assert elements.grad is not None
    assert elements.grad.isfinite().all()


def test_an_encoder_may_be_canonicalized_too():
    batch = SetBatch.from_list([torch.randn(4, DIM), torch.randn(2, DIM)])
    network = Canonicalize(SelfAttention(DIM, DIM, num_heads=2), lambda encoded, shift, scale: encoded)
    here, there = network(batch), network(batch.with_elements(batch.elements + 5))
    assert_close(there.elements, here.elements, rtol=1e-4, atol=1e-4)


def test_restore_gets_one_shift_and_one_scale_per_set():
    shapes = Canonicalize(MeanPool(), lambda prediction, shift, scale: (shift.shape, scale.shape))(torch.randn(5, 7, 2))
    assert shapes == ((5, 1, 2), (5, 1, 1))
