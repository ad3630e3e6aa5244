"""Laws of multiple-instance learning: what a model of bags must not do, whatever its data.

Under the standard assumption a bag is positive if and only if it holds a positive element, so that adding elements can
only turn a negative bag positive. ``benchmarks/bag_laws.py`` has the three tests of Raff and Holt (2023), in which a
model that cannot violate the assumption keeps an AUROC above one half, for all pools.

The pool ``"witness"`` cannot violate the standard assumption, by construction. It passes the first test; the tests of
two concepts are outside what one score per element can express, so no pool is claimed to pass them.
"""

import pytest
import torch

from benchmarks.bag_laws import DIM, auroc
from picaset.networks.set_predictor import POOLS, SetPredictor


@pytest.mark.as_installed  # trains for seconds, and shape checks would double them
def test_a_witness_pool_is_not_poisoned_by_what_negative_bags_hold():
    assert auroc("witness", "presence") > 0.8


@pytest.mark.as_installed  # trains for seconds, and shape checks would double them
@pytest.mark.parametrize("pool", ["picaso", "mean"])
def test_pools_that_see_absence_are_poisoned(pool: str):
    assert auroc(pool, "presence") < 0.5


@pytest.mark.parametrize("dim_out", [1, 2])
def test_adding_elements_can_only_raise_the_score_of_a_witness_pool(dim_out: int):
    torch.manual_seed(0)
    network = SetPredictor(DIM, dim_out, dim=8, pool="witness").eval()
    elements, more = torch.randn(20, 5, DIM), 3 * torch.randn(20, 3, DIM)
    before, after = (network(one)[:, 0, -1] for one in (elements, torch.cat([elements, more], dim=1)))
    assert (after >= before).all()
    assert (after > before).any()


@pytest.mark.parametrize("pool", [pool for pool in POOLS if pool != "witness"])
def test_the_other_pools_do_not_promise_it(pool: str):
    def is_lowered(seed: int) -> bool:
        torch.manual_seed(seed)
        network = SetPredictor(DIM, 2, dim=8, pool=pool).eval()
        elements, more = torch.randn(40, 5, DIM), 3 * torch.randn(40, 3, DIM)
        logits = (network(one)[:, 0] for one in (elements, torch.cat([elements, more], dim=1)))
        before, after = (one[:, 1] - one[:, 0] for one in logits)
        return bool((after < before - 1e-6).any())

    assert any(map(is_lowered, range(5)))


@torch.no_grad()
def test_one_element_decides_in_a_witness_pool():
    torch.manual_seed(0)
    network = SetPredictor(DIM, 2, dim=8, pool="witness").eval()
    elements = torch.randn(1, 6, DIM)
    importance = network.importance(elements)[0]
    alone = network(elements[0, :, None])[:, 0, 1]
    assert importance.argmax() == alone.argmax()
    assert float(importance.max()) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dim_out": 3}, "pool='witness' needs at most 2 outputs and encoder='elementwise'; got 3 and 'elementwise'"),
        ({"dim_out": 2, "encoder": "self"}, "got 2 and 'self'"),
    ],
)
def test_a_witness_pool_refuses_what_would_break_the_law(options, message):
    with pytest.raises(ValueError, match=message):
        SetPredictor(DIM, pool="witness", **options)
