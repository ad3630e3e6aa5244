"""Which pools keep the assumption of multiple-instance learning: that only positive elements make a bag positive?

Raff and Holt ("Reproducibility in Multiple Instance Learning: A Case For Algorithmic Unit Tests", 2023, arXiv
2310.17867) train models on bags in which violating the assumption pays, and test them where it does not; a model that
cannot violate it keeps an AUROC above one half. Their three tests, after the paper, with our own sizes:

    presence            negative training bags hold a conspicuous element; positive test bags do
    two concepts        the same, and a bag is positive if it holds elements of two kinds
    false frequency     in training, positive bags hold more of one kind; in the test, negative bags do

Expected: ``"witness"``, whose score cannot fall when elements are added, passes the first; one score per element cannot
say that two kinds occur together, so no pool passes the others reliably.

    OMP_NUM_THREADS=1 python -m benchmarks.bag_laws

Prints the AUROC of one network for each pool and test, the mean over seeds, then one JSON line; commit it under
``results/``.
"""

import argparse

import numpy as np
import torch
from sklearn.metrics import roc_auc_score

from benchmarks.measure import machine_limits, record
from picaset import SetClassifier
from picaset.networks.set_predictor import POOLS

DIM = 4
CONCEPT, OTHER, POISON = 3.0 * np.eye(DIM)[0], 3.0 * np.eye(DIM)[1], -8.0 * np.eye(DIM)[2]
NUM_BAGS = 40
"""Number of bags of each class, in training and in the test."""
TESTS = {
    "presence": ([[POISON]], [[CONCEPT]], [[]], [[CONCEPT, POISON]]),
    "two concepts": (
        [[CONCEPT, POISON], [OTHER, POISON]],
        [[CONCEPT, OTHER]],
        [[CONCEPT], [OTHER]],
        [[CONCEPT, OTHER, POISON]],
    ),
    "false frequency": ([[CONCEPT], [OTHER]], [[CONCEPT, OTHER, *[OTHER] * 3]], [[OTHER] * 5], [[CONCEPT, OTHER]]),
}
"""Kinds of elements in the negative and in the positive bags, in training and in the test."""


def bags_with(kinds: list[list[np.ndarray]], count: int, generator: np.random.Generator) -> list[np.ndarray]:
    """Draw bags of noise, in each of which the first elements are shifted by the kinds of one of the lists."""
    bags = list[np.ndarray]()
    for index in range(count):
        bag = generator.normal(size=(generator.integers(8, 14), DIM))
        for row, shift in enumerate(kinds[index % len(kinds)]):
            bag[row] += shift
        bags.append(bag)
    return bags


def auroc(pool: str, test: str, *, seed: int = 0) -> float:
    """Train on one distribution of bags and return the area under the ROC curve on the other."""
    generator = np.random.default_rng(seed)
    negative, positive, new_negative, new_positive = TESTS[test]
    bags = bags_with(negative, NUM_BAGS, generator) + bags_with(positive, NUM_BAGS, generator)
    labels = np.repeat([0, 1], NUM_BAGS)
    classifier = SetClassifier(
        pool, method="network", num_networks=1, dim=16, max_iter=40, n_iter_no_change=40, random_state=seed
    ).fit(bags, labels)
    new = bags_with(new_negative, NUM_BAGS, generator) + bags_with(new_positive, NUM_BAGS, generator)
    return float(roc_auc_score(labels, classifier.decision_function(new)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = list[dict[str, object]]()
    print(f"{'':12}" + "".join(f"{test:>18}" for test in TESTS))
    for pool in POOLS:
        cells = list[str]()
        for test in TESTS:
            values = [auroc(pool, test, seed=seed) for seed in range(arguments.seeds)]
            rows.append({"pool": pool, "test": test, "auroc": values})
            cells.append(f"{np.mean(values):18.2f}")
        print(f"{pool:12}" + "".join(cells), flush=True)
    record("bag_laws", rows, machine_limits())
