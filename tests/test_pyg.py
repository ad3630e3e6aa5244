"""Set pools as aggregations of PyTorch Geometric."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from picaset import GatedAttentionPool, MaxPool, MeanPool, PicasoPool, SetBatch, SumPool
from tests.operators import DIM
from tests.random_sets import Sets, draw_sets, sets

pytest.importorskip("torch_geometric")

from torch_geometric.nn import SAGEConv, aggr

from picaset.integrations.pyg import SetAggregation

torch.manual_seed(0)
POOLS = [
    MeanPool(),
    MaxPool(),
    GatedAttentionPool(DIM, dim_hidden=5).double(),
    PicasoPool(DIM, num_templates=3, num_heads=2).double(),
]
every_pool = pytest.mark.parametrize("pool", POOLS, ids=lambda pool: type(pool).__name__)


@every_pool
@given(data=sets(), empty_at_the_end=st.integers(0, 2))
def test_an_aggregation_is_the_pool_of_every_group(pool, data: Sets, empty_at_the_end: int):
    batch, generator = data.packed, data.generator
    groups = [*data.sets, *[torch.zeros(0, DIM, dtype=torch.float64)] * empty_at_the_end]
    expected = pool(SetBatch.from_list(groups)).flatten(1)
    aggregation, order = SetAggregation(pool), torch.randperm(len(batch.elements), generator=generator)
    by_index = aggregation(batch.elements[order], batch.owners[order], dim_size=len(groups))
    by_pointer = aggregation(batch.elements, ptr=SetBatch.from_list(groups).offsets)
    assert_close(by_index, expected)
    assert_close(by_pointer, expected)


@every_pool
@pytest.mark.parametrize("dim", [0, 1, 2, -1, -2, -3])
def test_groups_may_lie_along_any_dimension(pool, dim: int):
    index = torch.tensor([1, 0, 1, 3])
    x = torch.randn(5, 4, DIM, dtype=torch.float64)  # four elements with DIM features, five times
    expected = torch.stack([SetAggregation(pool)(part, index) for part in x])
    output = SetAggregation(pool)(x.movedim(1, dim), index, dim=dim)
    assert_close(output.movedim(dim, 1), expected)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(MeanPool(), aggr.MeanAggregation()), (MaxPool(), aggr.MaxAggregation()), (SumPool(), aggr.SumAggregation())],
    ids=["mean", "max", "sum"],
)
@pytest.mark.parametrize("dim", [0, 1, -2])
def test_simple_pools_are_the_aggregations_of_pyg(ours, theirs, dim: int):
    x, index = torch.randn(4, 4, 6), torch.tensor([1, 0, 1, 3])
    assert_close(SetAggregation(ours)(x, index, dim=dim, dim_size=5), theirs(x, index, dim=dim, dim_size=5))


def test_no_index_is_one_group():
    x = torch.randn(4, DIM)
    assert_close(SetAggregation(MeanPool())(x), x.mean(dim=0, keepdim=True))


def test_an_index_beyond_dim_size_is_reported():
    with pytest.raises(ValueError, match="index must be from 0 to 1, the number of sets less one; got 0 to 2"):
        SetAggregation(MeanPool())(torch.zeros(3, DIM), torch.tensor([0, 1, 2]), dim_size=2)


def test_an_aggregation_trains_inside_a_layer_and_is_reset():
    torch.manual_seed(0)
    layer = SAGEConv(DIM, 4, aggr=SetAggregation(PicasoPool(DIM, num_templates=1, num_heads=2)))
    edges = torch.tensor([[0, 1, 2, 2], [1, 0, 0, 3]])
    layer(torch.randn(5, DIM), edges).square().sum().backward()
    templates = layer.aggr_module.pool.templates
    assert templates.grad is not None
    assert templates.grad.abs().sum() > 0
    before = templates.detach().clone()
    layer.reset_parameters()
    assert not torch.equal(templates, before)


def test_changing_one_group_changes_one_row():
    batch = draw_sets([3, 4, 2], seed=0).packed
    aggregation = SetAggregation(POOLS[-1])
    changed = batch.elements.clone()
    changed[3:7] += 1
    before, after = (aggregation(values, batch.owners) for values in (batch.elements, changed))
    assert_close(before[[0, 2]], after[[0, 2]])
    assert not torch.allclose(before[1], after[1])
