"""Which training recipe is best for the rows of Table 2, on validation sets?

Scores the final networks of finished runs by their log-likelihood per point on 200 validation sets, which are not the
test sets. The runs are trained from the configs in ``results/tried/clustering-ROW-search-RECIPE``.

    python -m benchmarks.recipe_search RUN [RUN ...]

Prints a line for each run, then one JSON line, committed as ``results/recipe_search__<hardware>__<year-month>.json``.
"""

import argparse
import json
from pathlib import Path

import torch

from picaset.lab.data.gaussian_mixtures import Move
from picaset.lab.tasks.clustering import VALIDATION_SEED, Clustering, likelihoods
from picaset.lab.training.run_directory import RunDirectory, commit

NUM_SETS = 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="directory of a finished run")
    torch.set_num_threads(1)
    rows = list[dict[str, object]]()
    for path in parser.parse_args().runs:
        experiment = RunDirectory.open(path).experiment
        assert isinstance(experiment.task, Clustering)
        network = experiment.task.read_network(path / "checkpoints" / "final")
        sets = experiment.task.sets(NUM_SETS, next(network.parameters()), seed=VALIDATION_SEED)
        values = likelihoods(network, Move(), sets, em_steps=(0,))
        row = {"name": experiment.name, "profile": experiment.profile, "log_likelihood": round(values[0], 4)}
        rows.append(row | {"oracle": round(values["oracle"], 4)})
        print(*rows[-1].values())
    print(json.dumps({"benchmark": "recipe_search", "commit": commit(), "num_sets": NUM_SETS, "rows": rows}))


if __name__ == "__main__":
    main()
