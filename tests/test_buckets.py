"""Packed sets are padded in buckets of similar size: few, and with little padding."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from picaset import SetBatch
from picaset.operators import buckets
from picaset.operators.buckets import WASTE, in_buckets, plan

SIZES = st.lists(st.integers(0, 200), min_size=1, max_size=30)


@given(sizes=SIZES)
def test_every_set_is_in_exactly_one_bucket(sizes: list[int]):
    planned = plan(torch.tensor(sizes))
    assert sorted(index for bucket in planned for index in bucket.tolist()) == list(range(len(sizes)))


@given(sizes=SIZES)
def test_no_bucket_has_more_padding_than_its_share(sizes: list[int]):
    for bucket in plan(torch.tensor(sizes)):
        held = [sizes[index] for index in bucket.tolist()]
        assert max(held) * len(held) - sum(held) <= WASTE * sum(held)


@given(sizes=SIZES)
def test_buckets_hold_the_elements_of_their_sets(sizes: list[int]):
    batch = SetBatch.from_list([torch.randn(size, 3) for size in sizes])
    for bucket in in_buckets(batch):
        for row, index in enumerate(bucket.sets.tolist()):
            present = bucket.elements[row] if bucket.mask is None else bucket.elements[row][bucket.mask[row]]
            assert torch.equal(present, batch[index])


def test_one_large_set_among_small_ones_is_not_copied(monkeypatch):
    monkeypatch.setattr(buckets, "NEGLIGIBLE", 2048)
    batch = SetBatch.from_list([torch.randn(size, 3) for size in [5, 10_000, *range(1, 100)]])
    first, *others = in_buckets(batch)
    assert first.elements.shape == (1, 10_000, 3)
    assert first.elements.data_ptr() == batch[1].data_ptr()
    assert len(others) <= 3
    assert sum(bucket.elements.shape[0] * bucket.elements.shape[1] for bucket in others) < 2 * sum(range(105))


def test_sets_of_one_size_are_one_bucket_and_no_copy():
    batch = SetBatch.from_list([torch.randn(7, 3)] * 5)
    (bucket,) = in_buckets(batch)
    assert bucket.mask is None
    assert bucket.elements.data_ptr() == batch.elements.data_ptr()
