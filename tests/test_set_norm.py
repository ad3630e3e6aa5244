"""Set norm and clean residuals (Zhang et al. 2022); test_set_laws.py tests the laws of all operators for them."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

from picaset import InducedSelfAttention, MultiheadAttentionBlock, PicasoPool, SelfAttention, SetTransformer, stream
from picaset.operators.set_norm import SetNorm
from tests import reference
from tests.operators import DIM, HEADS, SET_NORM, weights_of
from tests.random_sets import Sets, draw_sets, sets


@given(data=sets())
def test_set_norm_is_its_equation_for_every_set(data: Sets):
    norm = SetNorm(DIM).double()
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    elements, mask = data.padded()
    normed = norm(elements, mask)
    for one, row, present in zip(data.sets, normed, mask, strict=True):
        expected = reference.set_norm({f"n.{key}": value for key, value in weights_of(norm).items()}, "n", one.numpy())
        assert_close(row[present], torch.from_numpy(expected))
        assert not row[~present].any()


@given(data=sets(min_size=2), shift=st.floats(-100, 100), scale=st.floats(0.5, 50))
def test_set_norm_forgets_where_the_set_lies_and_how_large_it_is(data: Sets, shift: float, scale: float):
    elements, mask = data.padded()
    norm = SetNorm(DIM).double()
    assert_close(norm(shift + scale * elements, mask), norm(elements, mask), rtol=1e-3, atol=1e-3)


def test_set_norm_keeps_the_size_of_an_element_which_layer_norm_forgets():
    elements = torch.randn(1, 2, DIM)
    elements[:, 1] = 3 * elements[:, 0]  # the same direction, three times as long
    layer, whole = nn.LayerNorm(DIM)(elements), SetNorm(DIM)(elements)
    assert_close(layer[:, 0], layer[:, 1], rtol=1e-3, atol=1e-3)
    assert (whole[:, 0] - whole[:, 1]).norm() > 0.5


def test_a_weight_counts_as_copies():
    elements, counts = torch.randn(1, 3, DIM), torch.tensor([[2, 0, 3]])
    copies = elements[0].repeat_interleave(counts[0], dim=0)[None]
    normed = SetNorm(DIM)(elements, counts.float())
    assert_close(SetNorm(DIM)(copies), normed[0].repeat_interleave(counts[0], dim=0)[None])


@pytest.mark.parametrize("form", ["paper", "authors"])
@pytest.mark.parametrize("norm", [False, True, "layer", "set"])
def test_clean_residuals_leave_the_queries_as_they_are_if_nothing_is_added(form, norm):
    block = MultiheadAttentionBlock(DIM, 5, DIM, num_heads=HEADS, form=form, norm=norm, residual="clean")
    for layer in ("value_map", "output_map", "attended_layer", "last_layer"):
        if hasattr(block, layer):
            nn.init.zeros_(getattr(block, layer).weight)
            nn.init.zeros_(getattr(block, layer).bias)
    queries = 100 * torch.randn(3, 4, DIM)
    assert torch.equal(block(queries, torch.randn(3, 7, 5)), queries)


def test_gradients_survive_fifty_clean_blocks_and_not_fifty_normed_ones():
    def gradient(**options) -> float:
        torch.manual_seed(0)
        blocks = nn.Sequential(*(SelfAttention(8, 8, num_heads=2, **options) for _ in range(50)))
        elements = torch.randn(2, 5, 8, requires_grad=True)
        blocks(elements).square().mean().backward()
        assert elements.grad is not None
        return float(elements.grad.norm())

    clean, plain = gradient(**SET_NORM), gradient(norm=True)
    assert clean > 1e3 * plain


def test_layer_norm_by_name_is_layer_norm():
    torch.manual_seed(0)
    first = PicasoPool(DIM, num_templates=2, num_heads=2, norm=True)
    second = PicasoPool(DIM, num_templates=2, num_heads=2, norm="layer")
    second.load_state_dict(first.state_dict())
    elements = torch.randn(2, 5, DIM)
    assert torch.equal(first(elements), second(elements))


def test_a_network_with_set_norm_is_saved_and_loaded(tmp_path):
    network = SetTransformer(3, 2, dim=8, num_heads=2, num_inducing=4, **SET_NORM)
    network.save_pretrained(tmp_path)
    elements = torch.randn(2, 5, 3)
    assert torch.equal(SetTransformer.from_pretrained(tmp_path)(elements), network(elements))


@pytest.mark.parametrize(
    "operator",
    [
        PicasoPool(DIM, num_templates=2, num_heads=2, **SET_NORM),
        InducedSelfAttention(DIM, 8, num_heads=2, num_inducing=3, norm="set"),
    ],
)
def test_set_norm_over_elements_does_not_stream_and_says_what_does(operator):
    with pytest.raises(TypeError, match=r"norm='set' cannot stream: .* Use norm='layer'"):
        stream(operator, draw_sets([50], seed=0).sets[0].float())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"norm": "sets"}, r"norm must be one of .*; got 'sets'"),
        ({"residual": "dirty"}, r"residual must be one of .*; got 'dirty'"),
    ],
)
@pytest.mark.as_installed
def test_an_unknown_norm_or_residual_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        PicasoPool(DIM, num_templates=2, num_heads=2, **options)
