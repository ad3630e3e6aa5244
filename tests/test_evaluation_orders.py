"""Every evaluation order, chunking, merge order and split gives the same answer and the same gradients."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from picaset import AttentionState, MultiheadAttentionBlock, PicasoPool
from picaset.operators.attention import AbsorbedSet, ProjectedSet, cheapest_order
from picaset.operators.state import softmax_over_present
from tests.operators import DIM, HEADS, OUT, TEMPLATES
from tests.random_sets import Sets, sets
from tests.reference import softmax

FORMS = [{"form": "paper"}, {"form": "authors"}, {"form": "authors", "norm": True}, {"residual": False}]
every_form = pytest.mark.parametrize("options", FORMS, ids=str)


def build_pool(**options) -> PicasoPool:
    torch.manual_seed(0)
    return PicasoPool(DIM, num_templates=TEMPLATES, num_heads=HEADS, **options).double()


def pool_in_chunks(pool: PicasoPool, chunks: list, merge_order: list[int]) -> torch.Tensor:
    """Pool a set from its chunks, with states merged in the given order."""
    templates = pool.initial(len(chunks[0][0]))
    for step in range(pool.num_steps):
        states = [pool.summarize(elements, templates, mask, step=step) for elements, mask in chunks]
        merged = AttentionState.empty_like(states[0])
        for index in merge_order:
            merged = merged.merge(states[index])
        templates = pool.finish(merged, templates, step=step)
    return templates


def gradients(output: torch.Tensor, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    return list(
        torch.autograd.grad((output * torch.linspace(-1, 2, output.numel()).reshape(output.shape)).sum(), inputs)
    )


@every_form
@given(data=sets())
def test_projecting_and_absorbing_agree(options: dict, data: Sets):
    elements, mask = data.padded()
    results = []
    for order in ("project", "absorb"):
        pool = build_pool(order=order, **options)
        inputs = [elements.clone().requires_grad_(), *pool.parameters()]
        output = pool(inputs[0], mask)
        results.append((output, gradients(output, inputs)))
    assert_close(results[0], results[1])


@every_form
@given(data=sets(), cuts=st.lists(st.integers(0, 8), max_size=4), seed=st.integers(0, 999))
def test_chunks_of_any_size_merged_in_any_order_pool_like_the_whole_set(options: dict, data: Sets, cuts, seed):
    elements, mask = data.padded()
    elements = elements.requires_grad_()
    bounds = [0, *sorted(min(cut, elements.shape[1]) for cut in cuts), elements.shape[1]]
    chunks = [(elements[:, a:b], mask[:, a:b]) for a, b in pairwise(bounds)]
    order = torch.randperm(len(chunks), generator=torch.Generator().manual_seed(seed)).tolist()
    pool = build_pool(**options)
    inputs = [elements, *pool.parameters()]
    whole, parts = pool(elements, mask), pool_in_chunks(pool, chunks, order)
    assert_close(parts, whole, rtol=1e-12, atol=1e-12)
    assert_close(gradients(parts, inputs), gradients(whole, inputs), rtol=1e-11, atol=1e-11)


def test_chunks_merge_exactly_where_averaging_their_results_would_not():
    torch.manual_seed(0)
    elements = torch.randn(1, 40, DIM, dtype=torch.float64)
    elements[:, :4] *= 10
    pool = build_pool()
    chunks = [(elements[:, :4], None), (elements[:, 4:], None)]
    assert_close(pool_in_chunks(pool, chunks, [1, 0]), pool(elements), rtol=1e-12, atol=1e-12)
    averaged = (pool(elements[:, :4]) + pool(elements[:, 4:])) / 2
    assert (averaged - pool(elements)).abs().max() > 0.1


@given(data=sets())
def test_separate_steps_summarize_and_finish_each_with_its_own_block(data: Sets):
    elements, mask = data.padded()
    pool = build_pool(share=False, num_steps=2)
    assert_close(
        pool_in_chunks(pool, [(elements[:, :1], mask[:, :1]), (elements[:, 1:], mask[:, 1:])], [1, 0]),
        pool(elements, mask),
    )


def random_state(seed: int, largest: float = 0.0) -> AttentionState:
    generator = torch.Generator().manual_seed(seed)
    scores = largest + 10 * torch.randn(2, 3, 4, 5, generator=generator, dtype=torch.float64)
    return AttentionState.of(scores, torch.randn(2, 1, 5, 7, generator=generator, dtype=torch.float64))


def assert_same_state(one: AttentionState, other: AttentionState) -> None:
    assert_close(one.largest, other.largest)
    assert_close(one.total, other.total)
    assert_close(one.weighted, other.weighted)


@given(a=st.integers(0, 99), b=st.integers(0, 99), c=st.integers(0, 99), offset=st.sampled_from([-1e4, 0.0, 1e4]))
def test_merging_states_is_associative_and_commutative(a, b, c, offset):
    one, two, three = random_state(a), random_state(b, offset), random_state(c)
    assert_same_state(one.merge(two), two.merge(one))
    assert_same_state(one.merge(two).merge(three), one.merge(two.merge(three)))


@given(seed=st.integers(0, 99))
def test_the_empty_state_is_neutral(seed):
    state = random_state(seed)
    empty = AttentionState.empty_like(state)
    assert_same_state(state.merge(empty), state)
    assert_same_state(empty.merge(state), state)
    assert_same_state(empty.merge(empty), empty)
    assert (empty.mean() == 0).all()


def test_a_part_without_elements_is_the_empty_state():
    scores, values = torch.zeros(2, 3, 4, 0), torch.zeros(2, 1, 0, 7)
    state = AttentionState.of(scores, values)
    assert_same_state(state, AttentionState.empty_like(state))


def test_states_of_scores_far_apart_merge_without_overflow():
    near, far = random_state(0), random_state(1, largest=1e4)
    merged = near.merge(far)
    assert merged.mean().isfinite().all()
    assert_close(merged.mean(), far.mean())


@pytest.mark.parametrize(
    ("num_queries", "num_steps", "expected"),
    [
        (1, 3, "absorb"),
        (17, 3, "absorb"),
        (18, 3, "project"),
        (51, 1, "absorb"),
        (52, 1, "project"),
        (None, 1, "project"),
    ],
)
def test_the_cheaper_order_is_chosen(num_queries, num_steps, expected):
    # Projecting costs D D + L K (D + 16 H), absorbing L K H D: with D = 128 and H = 4, absorbing wins below L K = 51.2.
    order = cheapest_order(num_queries=num_queries, num_heads=4, dim_elements=128, dim=128, num_steps=num_steps)
    assert order == expected


def test_narrow_elements_are_absorbed_and_wide_ones_projected():
    # Projecting E D + K (D + 16 H), absorbing K H E. With D = 16, H = 4, K = 8: 16 E + 640 against 32 E.
    orders = [cheapest_order(num_queries=8, num_heads=4, dim_elements=width, dim=16) for width in (7, 39, 40, 100)]
    assert orders == ["absorb", "absorb", "project", "project"]


@pytest.mark.parametrize(
    ("num_steps", "share", "expected"), [(3, True, AbsorbedSet), (4, True, ProjectedSet), (4, False, AbsorbedSet)]
)
def test_a_cascade_counts_the_steps_that_share_a_view(num_steps: int, share: bool, expected: type):
    pool = PicasoPool(128, num_templates=14, num_heads=4, num_steps=num_steps, share=share)
    for index in range(num_steps):
        assert isinstance(pool.view(torch.zeros(1, 3, 128), None, index=index), expected)


@pytest.mark.parametrize("share", [True, False])
def test_steps_that_share_a_block_share_its_view(share: bool):
    pool = build_pool(share=share)
    step, views = pool.begin(torch.zeros(1, 3, DIM, dtype=torch.float64), None), []
    for index in range(pool.num_steps):
        step = pool.advance(step, index, with_attention=False)
        views.append(step.inputs[-1])
    assert len({id(view) for view in views}) == (1 if share else pool.num_steps)


@given(data=sets())
def test_a_block_summarizes_and_finishes_like_it_attends(data: Sets):
    torch.manual_seed(0)
    block = MultiheadAttentionBlock(5, DIM, OUT, num_heads=HEADS).double()
    elements, mask = data.padded()
    queries = torch.randn(len(elements), 3, 5, generator=data.generator, dtype=torch.float64)
    assert_close(block.finish(queries, block.summarize(queries, elements, mask)), block(queries, elements, mask))


@pytest.mark.parametrize("present", [None, [1, 1, 1, 1, 1], [1, 0, 1, 1, 0], [0, 0, 0, 0, 0]])
def test_weights_are_the_softmax_over_the_present_elements(present: list[int] | None):
    scores = torch.randn(1, 2, 3, 5, dtype=torch.float64)  # of 3 queries for 5 elements
    mask = None if present is None else torch.tensor([present], dtype=torch.bool)
    chosen = [index for index in range(5) if present is None or present[index]]
    expected = torch.zeros_like(scores)
    expected[..., chosen] = torch.from_numpy(softmax(scores[..., chosen].numpy(), axis=-1)) if chosen else 0.0
    assert_close(softmax_over_present(scores, mask), expected)
