"""Promises of streaming for hostile numbers; ``docs/reliability.md`` lists the promises.

Files that change or shrink are in ``test_sources.py``, ranks that die in ``test_sharding.py``.
"""

import copy

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from picaset import AttentionPool, MaxPool, MeanPool, PicasoPool, SumPool, stream
from picaset.tables.table import open_large_table

DIM = 4
POOLS = {
    "mean": MeanPool,
    "sum": SumPool,
    "max": MaxPool,
    "attention": lambda: AttentionPool(DIM, num_templates=2, num_heads=2),
    "picaso": lambda: PicasoPool(DIM, num_templates=2, num_heads=2),
}
LARGEST_ERRORS = {"mean": 1e-8, "sum": 1e-7, "max": 0.0, "attention": 3e-3, "picaso": 3e-3}
"""Relative to the largest output in double precision, of a million elements at 1e6 in single precision."""


@pytest.fixture(params=POOLS)
def pool(request):
    torch.manual_seed(0)
    return request.param, POOLS[request.param]()


def test_a_nan_in_the_last_chunk_is_not_hidden(pool):
    name, operator = pool
    elements = torch.randn(1000, DIM)
    elements[-1, 2] = torch.nan
    pooled = stream(operator, elements, 100)
    assert bool(pooled.isnan().any())
    if name in ("mean", "sum", "max"):  # the other features do not depend on it
        assert bool(pooled[..., [0, 1, 3]].isfinite().all())


def test_a_nan_in_the_last_chunk_of_a_file_is_an_error_with_its_row(tmp_path):
    rows = np.zeros((500, 2))
    rows[499, 1] = np.nan
    np.savetxt(tmp_path / "points.csv", rows, delimiter=",", header="x,y", comments="")
    with pytest.raises(ValueError, match=r"(?s)points\.csv.*(row|line) \d+"):
        for _ in open_large_table(tmp_path / "points.csv").chunks():
            pass


def test_a_million_elements_at_one_million_have_the_stated_error_in_single_precision(pool):
    name, operator = pool
    elements = (torch.randn(1_000_000, DIM, dtype=torch.float64) + 1e6).float()
    with torch.no_grad():
        exact = stream(copy.deepcopy(operator).double(), elements.double())
        pooled = stream(operator, elements).double()
    assert float((pooled - exact).abs().max() / exact.abs().max()) <= LARGEST_ERRORS[name]


def test_magnitudes_of_1e30_are_right_or_nan_and_never_finite_and_wrong(pool):
    name, operator = pool
    elements = 1e30 * torch.randn(1000, DIM)
    with torch.no_grad():
        pooled = stream(operator, elements, 100)
        assert_close(pooled, operator(elements[None]), rtol=1e-5, atol=1e25, equal_nan=True)
        exact = stream(copy.deepcopy(operator).double(), elements.double())
    if bool(pooled.isfinite().all()):
        assert_close(pooled.double(), exact, rtol=1e-5, atol=1e25)
    else:  # the second step multiplies templates of 1e30 with elements of 1e30, which single precision does not hold
        assert name == "picaso"
        assert bool(pooled.isnan().all())
