"""Laws of cascades: limits, traces and parameters."""

import pytest
import torch
from hypothesis import given
from torch.testing import assert_close

from picaset import AttentionPool, GeneralizedPicaso, Picaso, PicasoPool, SetTransformer, SlotAttention, SoftKMeans
from tests.operators import DIM, HEADS, TEMPLATES
from tests.random_sets import Sets, draw_sets, sets

TRACED = {
    "AttentionPool": lambda: AttentionPool(DIM, num_templates=TEMPLATES, num_heads=HEADS),
    "PicasoPool": lambda: PicasoPool(DIM, num_templates=TEMPLATES, num_heads=HEADS),
    "PicasoPool absorbing": lambda: PicasoPool(DIM, num_templates=TEMPLATES, num_heads=HEADS, order="absorb"),
    "PicasoPool with separate steps": lambda: PicasoPool(DIM, num_templates=TEMPLATES, num_heads=HEADS, share=False),
    "GeneralizedPicaso": lambda: GeneralizedPicaso(DIM, num_templates=TEMPLATES, num_heads=HEADS),
    "SoftKMeans": lambda: SoftKMeans(DIM, num_templates=TEMPLATES),
    "SoftKMeans of points competing": lambda: SoftKMeans(DIM, num_templates=TEMPLATES, compete=False),
    "SlotAttention": lambda: SlotAttention(DIM, num_slots=TEMPLATES),
}
ASSIGNING = {"SoftKMeans", "SlotAttention"}
every_traced = pytest.mark.parametrize("name", TRACED)


def build(name: str):
    torch.manual_seed(0)
    return TRACED[name]().double().eval()


def test_one_step_is_plain_attention_pooling():
    one_step = PicasoPool(DIM, num_templates=TEMPLATES, num_heads=HEADS, num_steps=1)
    plain = AttentionPool(DIM, num_templates=TEMPLATES, num_heads=HEADS)
    plain.load_state_dict(one_step.state_dict())
    elements = torch.randn(2, 7, DIM)
    assert_close(plain(elements), one_step(elements))


def test_separate_steps_with_equal_weights_are_the_shared_cascade():
    shared = PicasoPool(DIM, num_templates=TEMPLATES, num_heads=HEADS)
    separate = PicasoPool(DIM, num_templates=TEMPLATES, num_heads=HEADS, share=False)
    separate.templates = shared.templates
    for block in separate.blocks:
        block.load_state_dict(shared.blocks[0].state_dict())
    elements = torch.randn(2, 7, DIM)
    assert_close(separate(elements), shared(elements))


def count(module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def test_the_number_of_parameters_does_not_depend_on_the_number_of_steps():
    assert len({count(PicasoPool(DIM, num_templates=3, num_heads=2, num_steps=steps)) for steps in (1, 2, 5)}) == 1


def test_picaso_has_as_many_parameters_as_set_transformer():
    assert count(Picaso(2, 5, num_outputs=4)) == count(SetTransformer(2, 5, num_outputs=4))


@every_traced
@given(data=sets())
def test_a_trace_ends_where_the_operator_does(name: str, data: Sets):
    operator, (elements, mask) = build(name), data.padded()
    output = operator(elements, mask)
    trace = operator.trace(elements, mask)
    assert_close(trace.templates[-1], output[0] if isinstance(output, tuple) else output)
    assert trace.templates.shape[:3] == (operator.num_steps + 1, len(elements), TEMPLATES)
    assert trace.attention.shape[-2:] == (TEMPLATES, elements.shape[1])


@every_traced
@given(data=sets())
def test_traced_attention_is_a_distribution_over_the_present_elements_alone(name: str, data: Sets):
    elements, mask = data.padded()
    attention = build(name).trace(elements, mask).attention  # (L, B, H, K, N)
    here = mask[None, :, None, None, :].expand_as(attention)
    assert (attention[~here] == 0).all()
    # The weights of an element sum to one if templates compete; otherwise the weights of a template do.
    totals = attention.sum(dim=-2) if name in ASSIGNING else attention.sum(dim=-1)
    present = here[..., 0, :] if name in ASSIGNING else mask.any(dim=1)[None, :, None, None].expand_as(totals)
    assert_close(totals, present.to(totals.dtype), rtol=1e-6, atol=1e-6)


@every_traced
@given(data=sets())
def test_packed_attention_is_the_padded_one_without_the_padding(name: str, data: Sets):
    elements, mask = data.padded()
    padded, packed = build(name).trace(elements, mask), build(name).trace(data.packed)
    assert_close(packed.templates, padded.templates)
    assert packed.attention.shape[-1] == mask.sum()
    assert_close(packed.attention, padded.attention.permute(0, 2, 3, 1, 4)[..., mask])


def test_the_trace_of_a_network_is_that_of_its_pool():
    network = Picaso(DIM, 5, dim=10, num_heads=2, num_inducing=3, num_outputs=TEMPLATES)
    elements = torch.randn(2, 7, DIM)
    trace = network.trace(elements)
    assert trace.attention.shape == (3, 2, 2, TEMPLATES, 7)
    assert_close(network.decoder(trace.templates[-1]), network(elements))


def test_sampled_slots_are_the_same_in_every_evaluation_and_fresh_in_training():
    slots = SlotAttention(DIM, num_slots=TEMPLATES, initial="sampled")
    elements, _ = draw_sets([7, 5], seed=0, dtype=torch.float32).padded()
    slots.train()
    assert not torch.equal(slots(elements), slots(elements))
    slots.eval()
    assert torch.equal(slots(elements), slots(elements))
    again = SlotAttention(DIM, num_slots=TEMPLATES, initial="sampled").eval()
    again.load_state_dict(slots.state_dict())
    assert torch.equal(again(elements), slots(elements))


def test_slots_tell_elements_apart_before_any_training():
    torch.manual_seed(0)
    slots = SlotAttention(64, num_slots=10, initial="sampled")
    keys, _ = slots.project(torch.randn(8, 256, 64))
    queries = slots.query_map(slots.slot_norm(slots.initial_slots(keys)))
    scores = queries @ keys.transpose(1, 2) / 64**0.5
    assert 0.7 < scores.std().item() < 1.4  # a third of it with torch's own start


def test_sampled_slots_differ_from_each_other():
    slots = SlotAttention(DIM, num_slots=TEMPLATES, initial="sampled").eval()
    first, second, third = slots(torch.randn(1, 7, DIM))[0]
    assert not torch.allclose(first, second)
    assert not torch.allclose(second, third)
