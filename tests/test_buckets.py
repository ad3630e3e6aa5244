"""Packed sets are padded in few buckets with little padding."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from picaset import SetBatch
from picaset.operators.buckets import MAX_PADDING_FRACTION, NEGLIGIBLE_PADDING, plan, split_into_buckets
from tests.random_sets import with_every_bucket_size

SIZES = st.lists(st.integers(0, 200), min_size=1, max_size=30)


@with_every_bucket_size
@given(sizes=SIZES)
def test_every_set_is_in_exactly_one_bucket(sizes: list[int]):
    planned = plan(torch.tensor(sizes))
    assert sorted(index for bucket in planned for index in bucket.tolist()) == list(range(len(sizes)))


@with_every_bucket_size
@given(sizes=SIZES)
def test_no_bucket_has_more_padding_than_its_share(bucket_sizes: int, sizes: list[int]):
    for bucket in plan(torch.tensor(sizes)):
        in_bucket = [sizes[index] for index in bucket.tolist()]
        assert max(in_bucket) * len(in_bucket) - sum(in_bucket) <= max(
            MAX_PADDING_FRACTION * sum(in_bucket), bucket_sizes
        )


def test_sets_of_a_few_elements_share_one_bucket_by_default():
    assert len(plan(torch.tensor([1, NEGLIGIBLE_PADDING // 2, 0]))) == 1


@with_every_bucket_size
@given(sizes=SIZES)
def test_buckets_hold_the_elements_of_their_sets(sizes: list[int]):
    batch = SetBatch.from_list([torch.randn(size, 3) for size in sizes])
    for bucket in split_into_buckets(batch):
        for row, index in enumerate(bucket.sets.tolist()):
            present = bucket.elements[row] if bucket.mask is None else bucket.elements[row][bucket.mask[row]]
            assert torch.equal(present, batch[index])


def test_one_large_set_among_small_ones_is_not_copied():
    batch = SetBatch.from_list([torch.randn(size, 3) for size in [5, 10_000, *range(1, 100)]])
    first, *others = split_into_buckets(batch)
    assert first.elements.shape == (1, 10_000, 3)
    assert first.elements.data_ptr() == batch[1].data_ptr()
    assert len(others) <= 3
    assert sum(bucket.elements.shape[0] * bucket.elements.shape[1] for bucket in others) < 2 * sum(range(105))


def test_sets_of_one_size_are_one_bucket_and_no_copy():
    batch = SetBatch.from_list([torch.randn(7, 3)] * 5)
    (bucket,) = split_into_buckets(batch)
    assert bucket.mask is None
    assert bucket.elements.data_ptr() == batch.elements.data_ptr()


@with_every_bucket_size
@given(sizes=SIZES)
def test_other_packed_tensors_are_padded_and_written_back(sizes: list[int]):
    batch = SetBatch.from_list([torch.randn(size, 3) for size in sizes])
    values, written = torch.randn(len(batch.elements), 2), torch.full((len(batch.elements), 2), torch.nan)
    for bucket in split_into_buckets(batch):
        padded = bucket.pad(values)
        assert padded.shape == (*bucket.elements.shape[:2], 2)
        assert bucket.slots is None or not padded[~bucket.slots].any()
        assert torch.equal(bucket.unpad(padded), values[bucket.rows])
        bucket.write(padded, written)
    assert torch.equal(written, values)
