"""SetBatch, collate and SimilarSizeBatches."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close
from torch.utils.data import DataLoader

from picaset import Picaso, PicasoPool, SelfAttention, SetBatch, SimilarSizeBatches, collate
from tests.operators import DIM
from tests.random_sets import Sets, draw_sets, sets


@given(data=sets())
def test_padding_and_packing_again_gives_the_same_sets(data: Sets):
    batch = data.packed
    for again in (SetBatch.from_padded(*batch.to_padded()), SetBatch.from_padded(*data.padded())):
        assert torch.equal(again.elements, batch.elements)
        assert torch.equal(again.offsets, batch.offsets)


@given(data=sets())
def test_indexing_and_iterating_give_the_sets_back(data: Sets):
    batch = data.packed
    assert len(batch) == len(data.sets)
    for index, one in enumerate(data.sets):
        assert torch.equal(batch[index], one)
        assert torch.equal(batch[index - len(batch)], one)
    assert all(torch.equal(a, b) for a, b in zip(batch, data.sets, strict=True))


@given(data=sets())
def test_each_element_knows_its_set(data: Sets):
    expected = [index for index, one in enumerate(data.sets) for _ in one]
    assert data.packed.owners.tolist() == expected


def test_sets_of_one_size_are_padded_without_a_copy():
    batch = draw_sets([4, 4], seed=0).packed
    elements, mask = batch.to_padded()
    assert elements.data_ptr() == batch.elements.data_ptr()
    assert mask.all()


def test_unmasked_padded_sets_are_packed_without_a_copy():
    elements = torch.randn(3, 5, DIM)
    assert SetBatch.from_padded(elements).elements.data_ptr() == elements.data_ptr()


def test_gradients_pass_through_packing_and_padding():
    elements = torch.randn(2, 3, DIM, requires_grad=True)
    mask = torch.tensor([[True, False, True], [False, True, False]])
    SetBatch.from_padded(elements, mask).to_padded()[0].sum().backward()
    assert elements.grad is not None
    assert_close(elements.grad, mask[..., None].expand(2, 3, DIM).float())


def test_moving_a_batch_moves_elements_and_offsets():
    batch = draw_sets([2, 3], seed=0).packed
    assert batch.to(torch.float32).elements.dtype is torch.float32
    assert batch.to("meta").offsets.device.type == "meta"


def test_arrays_may_be_packed():
    batch = SetBatch.from_list([one.numpy() for one in draw_sets([2, 3], seed=0).sets])
    assert batch.sizes.tolist() == [2, 3]


@pytest.mark.parametrize(("sizes", "words"), [([7, 0, 5], "3 sets of 0 to 7 elements"), ([3], "1 set of 3 elements")])
def test_a_batch_describes_itself(sizes: list[int], words: str):
    assert repr(draw_sets(sizes, seed=0).packed) == f"SetBatch({words}, 6 features, float64, cpu)"


def test_a_batch_of_no_sets_is_pooled_and_encoded_to_none():
    nothing = SetBatch(torch.zeros(0, DIM), torch.zeros(1, dtype=torch.int64))
    assert PicasoPool(DIM, num_templates=3, num_heads=2)(nothing).shape == (0, 3, DIM)
    assert len(SelfAttention(DIM, 4, num_heads=2)(nothing)) == 0
    assert Picaso(DIM, 5)(nothing).shape == (0, 1, 5)


def test_a_reversed_array_may_be_packed():
    array = draw_sets([3], seed=0).sets[0].numpy()
    assert torch.equal(SetBatch.from_list([array[::-1]])[0], torch.from_numpy(array.copy()).flip(0))


def test_a_data_loader_collates_sets_and_labels():
    samples = [(one, len(one)) for one in draw_sets([3, 1, 4, 1, 5], seed=0).sets]
    batches = list(DataLoader(samples, batch_size=2, collate_fn=collate))
    assert [batch.sizes.tolist() for batch, _ in batches] == [[3, 1], [4, 1], [5]]
    assert [labels.tolist() for _, labels in batches] == [[3, 1], [4, 1], [5]]


def test_a_data_loader_collates_bare_sets():
    loader = DataLoader(draw_sets([3, 1], seed=0).sets, batch_size=2, collate_fn=collate)
    assert next(iter(loader)).sizes.tolist() == [3, 1]


@given(st.lists(st.integers(0, 100), min_size=1, max_size=60), st.integers(1, 7), st.integers(1, 5))
def test_every_set_is_in_exactly_one_batch(sizes: list[int], batch_size: int, pool: int):
    batches = list(sampler := SimilarSizeBatches(sizes, batch_size, pool=pool))
    assert sorted(index for batch in batches for index in batch) == list(range(len(sizes)))
    assert all(len(batch) <= batch_size for batch in batches)
    assert len(batches) == len(sampler)


def padding(sizes: torch.Tensor, batches: list[list[int]]) -> int:
    return sum(int((sizes[batch].max() - sizes[batch]).sum()) for batch in batches)


def test_sets_of_similar_size_share_a_batch():
    sizes = torch.randint(1, 500, (400,), generator=torch.Generator().manual_seed(0))
    grouped, plain = (list(SimilarSizeBatches(sizes, 8, pool=pool)) for pool in (50, 1))
    assert padding(sizes, grouped) < padding(sizes, plain) / 10


def test_every_pass_has_an_order_of_its_own_and_an_epoch_can_be_repeated():
    batches = SimilarSizeBatches(range(100), 7, seed=3)
    first, second = list(batches), list(batches)
    assert second != first
    batches.set_epoch(0)
    assert list(batches) == first


# Conversions


@given(data=sets())
def test_a_list_of_the_sets_packs_to_the_same_batch(data: Sets):
    listed = data.packed.to_list()
    assert len(listed) == len(data.sets)
    assert all(torch.equal(a, b) for a, b in zip(listed, data.sets, strict=True))


@given(data=sets(), empty_at_the_end=st.integers(0, 2))
def test_an_index_of_sets_in_any_order_gives_the_sets_back(data: Sets, empty_at_the_end: int):
    batch = data.packed
    num_sets = len(batch) + empty_at_the_end
    order = torch.randperm(len(batch.elements), generator=data.generator)
    again = SetBatch.from_batch_index(batch.elements, batch.owners.int(), num_sets)
    assert torch.equal(again.elements, batch.elements)
    assert again.sizes.tolist() == [*batch.sizes.tolist(), *[0] * empty_at_the_end]
    shuffled = SetBatch.from_batch_index(batch.elements[order], batch.owners[order], num_sets)
    for index, one in enumerate(data.sets):
        ours = [row for row in order.tolist() if batch.owners[row] == index]  # elements of a set keep their order
        assert torch.equal(shuffled[index], batch.elements[ours])
        assert len(ours) == len(one)


def test_the_largest_index_is_the_last_set_unless_the_number_is_given():
    elements = torch.randn(3, DIM)
    assert SetBatch.from_batch_index(elements, torch.tensor([0, 2, 2])).sizes.tolist() == [1, 0, 2]
    assert len(SetBatch.from_batch_index(elements[:0], torch.zeros(0, dtype=torch.int64))) == 0


@given(data=sets())
def test_nested_tensors_are_packed_and_unpacked_without_a_copy(data: Sets):
    batch = data.packed
    nested = batch.to_nested()
    assert all(torch.equal(a, b) for a, b in zip(nested.unbind(), data.sets, strict=True))
    again = SetBatch.from_nested(nested)
    assert again.elements.data_ptr() == batch.elements.data_ptr()
    assert torch.equal(again.offsets, batch.offsets)


def test_nested_tensors_with_holes_are_packed():
    padded, sizes = torch.randn(3, 5, DIM), torch.tensor([2, 0, 4])
    nested = torch.nested.narrow(padded, 1, torch.zeros(3, dtype=torch.int64), sizes, layout=torch.jagged)
    batch = SetBatch.from_nested(nested)
    assert batch.sizes.tolist() == sizes.tolist()
    assert torch.equal(batch[2], padded[2, :4])


def test_gradients_pass_through_nested_tensors():
    elements = torch.randn(5, DIM, requires_grad=True)
    nested = SetBatch(elements, torch.tensor([0, 2, 5])).to_nested()
    SetBatch.from_nested(nested).elements.sum().backward()
    assert_close(elements.grad, torch.ones(5, DIM))


@given(data=sets())
def test_mapping_applies_a_module_to_every_element(data: Sets):
    linear = torch.nn.Linear(DIM, 3).double()
    mapped = data.packed.map(linear)
    assert torch.equal(mapped.offsets, data.packed.offsets)
    for index, one in enumerate(data.sets):
        assert_close(mapped[index], linear(one))


def test_dictionaries_are_collated_key_by_key():
    samples = [{"points": one, "label": len(one), "name": "a"} for one in draw_sets([3, 1], seed=0).sets]
    batch = next(iter(DataLoader(samples, batch_size=2, collate_fn=collate)))
    assert batch["points"].sizes.tolist() == [3, 1]
    assert batch["label"].tolist() == [3, 1]
    assert batch["name"] == ["a", "a"]
