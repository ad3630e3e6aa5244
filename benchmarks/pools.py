"""Which pool learns which question about a set, from few sets and from more?

One network, SetPredictor, with each of its pools and everything else equal, on generated questions that each need
something else of the set:

    mean shift   all elements of a positive set are moved a little in one direction
    witness      one element of a positive set lies far out
    count        at least half of the elements lie on one side
    pair         two kinds of rare elements are both in the set, not only one of them

Beside them, without a network: logistic regression on the mean of the elements, and on mean, minimum and maximum.
Every training has the same number of steps; nothing is selected. Reported: AUROC on 1000 other sets, over three seeds.

    python -m benchmarks.pools --steps 300 --sets 100 1000

Prints a table, then one JSON line with commit, versions and hardware; commit it under ``results/``.
"""

import argparse
import statistics

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch.nn.functional import binary_cross_entropy_with_logits

from benchmarks.measure import record
from picaset.networks.set_predictor import POOLS, SetPredictor

FEATURES, SIZE, TEST_SETS, SEEDS, BATCH = 8, 20, 1000, (0, 1, 2), 32
QUESTIONS = ("mean shift", "witness", "count", "pair")


def draw(question: str, count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Return sets (count, SIZE, FEATURES) and a label for each, half of them positive."""
    sets = torch.randn(count, SIZE, FEATURES, generator=generator)
    labels = torch.arange(count) % 2 == 0
    if question == "mean shift":
        sets[labels, :, 0] += 0.35
    elif question == "witness":
        sets[labels, 0, 0] += 4
    elif question == "count":
        share = torch.where(labels, 0.55, 0.45)[:, None]
        side = torch.where(torch.rand(count, SIZE, generator=generator) < share, 1.0, -1.0)
        labels = (side > 0).sum(dim=1) >= SIZE / 2
        sets[..., 0] = 2 * side + 0.3 * sets[..., 0]
    else:
        which = torch.randint(2, (count,), generator=generator)
        sets[torch.arange(count), 0, which] += 4
        sets[torch.arange(count), 1, torch.where(labels, 1 - which, which)] += 4
    return sets, labels.float()


def train(pool: str, sets: torch.Tensor, labels: torch.Tensor, *, steps: int, seed: int) -> SetPredictor:
    torch.manual_seed(seed)
    network = SetPredictor(FEATURES, 1, dim=32, pool=pool, typical_size=SIZE, dropout=0.1)
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3, weight_decay=0.01)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        chosen = torch.randint(len(sets), (BATCH,), generator=generator)
        loss = binary_cross_entropy_with_logits(network(sets[chosen])[:, 0, 0], labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return network.eval()


def statistics_of(sets: torch.Tensor, name: str) -> np.ndarray:
    parts = [sets.mean(dim=1)] if name == "mean" else [sets.mean(dim=1), sets.amin(dim=1), sets.amax(dim=1)]
    return torch.cat(parts, dim=1).numpy()


@torch.no_grad()
def network_scores(network: SetPredictor, sets: torch.Tensor) -> np.ndarray:
    return network(sets)[:, 0, 0].numpy()


def measure(question: str, row: str, *, num_sets: int, steps: int, seed: int) -> float:
    sets, labels = draw(question, num_sets, torch.Generator().manual_seed(seed))
    test_sets, test_labels = draw(question, TEST_SETS, torch.Generator().manual_seed(1000 + seed))
    if row in POOLS:
        scores = network_scores(train(row, sets, labels, steps=steps, seed=seed), test_sets)
    else:
        kind = row.removesuffix(" + logistic regression")
        model = make_pipeline(StandardScaler(), LogisticRegression()).fit(statistics_of(sets, kind), labels)
        scores = model.decision_function(statistics_of(test_sets, kind))
    return float(roc_auc_score(test_labels, scores))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300, help="training steps of every network")
    parser.add_argument("--sets", type=int, nargs="+", default=[100, 1000], help="numbers of training sets")
    arguments = parser.parse_args()
    rows = list[dict[str, object]]()
    for num_sets in arguments.sets:
        print(f"\n{num_sets} training sets: AUROC, mean and standard deviation of {len(SEEDS)} seeds")
        print(f"{'':36}" + "".join(f"{question:>16}" for question in QUESTIONS))
        for row in (*POOLS, "mean + logistic regression", "mean, minimum, maximum + logistic regression"):
            line = list[str]()
            for question in QUESTIONS:
                values = [measure(question, row, num_sets=num_sets, steps=arguments.steps, seed=seed) for seed in SEEDS]
                rows.append(dict(sets=num_sets, question=question, row=row, auroc=values))
                line.append(f"{statistics.mean(values):8.3f} ± {statistics.stdev(values):.3f}")
            print(f"{row:36}" + "".join(line), flush=True)
    record("pools", rows, {})
