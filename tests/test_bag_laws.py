"""Laws of multiple-instance learning: what a model of bags must not do, whatever its data.

Under the standard assumption a bag is positive if and only if it holds a positive element, so that adding elements can
only turn a negative bag positive. Raff and Holt ("Reproducibility in Multiple Instance Learning: A Case For
Algorithmic Unit Tests", 2023, arXiv 2310.17867) train models on data in which violating the assumption pays, and test
them where it does not; a model that cannot violate it keeps an AUROC above one half. Their three tests, after the
paper, with our own sizes:

    presence            negative training bags hold a conspicuous element; positive test bags do
    two concepts        the same, and a bag is positive if it holds elements of two kinds
    false frequency     in training, positive bags hold more of one kind; in the test, negative bags do

The pool ``"witness"`` cannot violate the standard assumption, by construction. It passes the first test; the tests of
two concepts are outside what one score per element can express, so no pool is claimed to pass them.
"""

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from picaset import SetClassifier
from picaset.networks.set_predictor import POOLS, SetPredictor

DIM = 4
CONCEPT, OTHER, POISON = 3.0 * np.eye(DIM)[0], 3.0 * np.eye(DIM)[1], -8.0 * np.eye(DIM)[2]


def bags_with(kinds: list[list[np.ndarray]], count: int, generator: np.random.Generator) -> list[np.ndarray]:
    """Draw bags of noise, in each of which the first elements are shifted by the kinds of one of the lists."""
    bags = list[np.ndarray]()
    for index in range(count):
        bag = generator.normal(size=(generator.integers(8, 14), DIM))
        for row, shift in enumerate(kinds[index % len(kinds)]):
            bag[row] += shift
        bags.append(bag)
    return bags


def auroc(pool: str, test: str) -> float:
    """Train on one distribution of bags and return the area under the ROC curve on the other."""
    generator = np.random.default_rng(0)
    negative, positive, new_negative, new_positive = {
        "presence": ([[POISON]], [[CONCEPT]], [[]], [[CONCEPT, POISON]]),
        "two concepts": (
            [[CONCEPT, POISON], [OTHER, POISON]],
            [[CONCEPT, OTHER]],
            [[CONCEPT], [OTHER]],
            [[CONCEPT, OTHER, POISON]],
        ),
        "false frequency": ([[CONCEPT], [OTHER]], [[CONCEPT, OTHER, *[OTHER] * 3]], [[OTHER] * 5], [[CONCEPT, OTHER]]),
    }[test]
    bags = bags_with(negative, 40, generator) + bags_with(positive, 40, generator)
    classifier = SetClassifier(
        pool, method="network", num_networks=1, dim=16, max_iter=40, n_iter_no_change=40, random_state=0
    ).fit(bags, np.repeat([0, 1], 40))
    new = bags_with(new_negative, 40, generator) + bags_with(new_positive, 40, generator)
    return float(roc_auc_score(np.repeat([0, 1], 40), classifier.decision_function(new)))


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
