"""Turn finished clustering runs into the mixture networks of `picaset studio`, each with a model card.

    picaset train clustering-ae32-pb --profile quick --out runs              # ten minutes each on one thread
    picaset train clustering-ae32-pb-canonical --profile quick --out runs
    picaset train clustering-set-transformer --profile quick --out runs
    picaset train clustering-deepset-mean --profile quick --out runs
    python examples/ship_mixture_networks.py --runs runs

Weights are rounded to half precision. Prints the log-likelihood of each network before and after rounding, on the first
sets of the benchmark, shifted by 0 and by 12; the two should agree.
"""

import argparse
import json
from pathlib import Path

import torch
from model_card import format_arguments

from picaset.lab.data.gaussian_mixtures import Move
from picaset.lab.networks.mixture_network import MixtureNetwork
from picaset.lab.reports.page import group_digits
from picaset.lab.tasks.clustering import MOVES, SHIFTS, Clustering, likelihoods
from picaset.lab.training.run_directory import RunDirectory

WEIGHTS = Path("picaset/studio/weights")
SHIPPED = {
    "mixture_picaso": ("clustering-ae32-pb", "PICASO: two induced encoders and a cascade of two steps (AE32 + PB)"),
    "mixture_picaso_canonical": (
        "clustering-ae32-pb-canonical",
        "PICASO as in mixture_picaso, on sets that are shifted and scaled to the origin and unit spread, so that its "
        "prediction moves with the points",
    ),
    "mixture_set_transformer": (
        "clustering-set-transformer",
        "Set Transformer: two induced encoders, attention pooling, self-attention among the outputs",
    ),
    "mixture_deep_sets": ("clustering-deepset-mean", "DeepSets: four layers per point, a mean, four layers"),
}

CARD = """# {name}

{description}. One of the networks that `picaset studio` compares; to cluster your own data use `AmortizedMixture`.

| | |
|---|---|
| network | `{network}`, {parameters} parameters, stored in half precision, {megabytes:.1f} MB; call `.float()` on it |
| input | a set of points in the plane{place} |
| output | a mixture of four spherical Gaussians, in one pass |
| data | generated: sets of 75 to 600 points from four Gaussians of deviation 0.3, means uniform in [-4, 4]^2, weights Dirichlet(1) |
| recipe | `picaset train {run} --profile quick`: seed 0, {steps} steps of {batch} sets, Adam {rate:g} one-cycle, gradient norm clipped at {clip:g}, averaged weights; {minutes:.0f} minutes on one thread |
| record | `results/runs/{folder}` |

Log-likelihood per point on the benchmark's 1000 sets, shifted (the mixture that generated the points has {oracle:.3f} at every shift):

| shift | {shifts} |
|---|{rules}
| one pass | {alone} |
| and five EM steps | {refined} |

Limits: always four components, all spherical.{limits}

Trained on generated data only. MIT licence, as the rest of picaset.
"""


def card(name: str, description: str, run: str, network: MixtureNetwork, size: int) -> str:
    folder = f"{run}-quick-seed0"
    result = json.loads((Path("results/runs") / folder / "result.json").read_text())
    training = RunDirectory(Path("results/runs") / folder).experiment.training
    by_shift = {row["shift"]: row for row in result["moves"] if row["scale"] == 1 and not row["degrees"]}
    canonical = network.config["canonicalize"]
    differing = {key: value for key, value in network.config.items() if value != MixtureNetwork().config.get(key)}
    return CARD.format(
        name=name,
        description=description,
        network=f"MixtureNetwork({format_arguments(differing)})",
        parameters=group_digits(result["parameters"]),
        megabytes=size / 1e6,
        place=", at any position and scale" if canonical else "; trained with means in [-4, 4]^2",
        run=run,
        steps=group_digits(training.steps),
        batch=training.batch_size,
        rate=training.learning_rate,
        clip=training.clip,
        minutes=result["seconds"] / 60,
        folder=folder,
        oracle=by_shift[0]["oracle"],
        shifts=" | ".join(f"{shift:+d}" if shift else "0" for shift in SHIFTS),
        rules="---|" * len(SHIFTS),
        alone=" | ".join(f"{by_shift[shift]['log_likelihood']['0']:.3f}" for shift in SHIFTS),
        refined=" | ".join(f"{by_shift[shift]['log_likelihood']['5']:.3f}" for shift in SHIFTS),
        limits=""
        if canonical
        else " Predictions are poor for points outside of the training range, as the table shows.",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder of the finished runs")
    parser.add_argument("--sets", type=int, default=100, help="number of sets to evaluate half precision on")
    arguments = parser.parse_args()
    for name, (run, description) in SHIPPED.items():
        network = MixtureNetwork.from_pretrained(arguments.runs / f"{run}-quick-seed0/checkpoints/final")
        network.half().save_pretrained(WEIGHTS / name)
        size = (WEIGHTS / name / "model.safetensors").stat().st_size
        (WEIGHTS / name / "README.md").write_text(card(name, description, run, network, size))
        versions = {
            "run": MixtureNetwork.from_pretrained(arguments.runs / f"{run}-quick-seed0/checkpoints/final"),
            "shipped": MixtureNetwork.from_pretrained(WEIGHTS / name).float(),
        }
        for label, version in versions.items():
            task = Clustering()
            scores = [
                likelihoods(version, move, task.sets(arguments.sets, torch.zeros(())), em_steps=(0,))[0]
                for move in MOVES
                if move in (Move(), Move(shift=12))
            ]
            print(f"{name:26} {label:8}", *(f"{value:9.4f}" for value in scores))


if __name__ == "__main__":
    main()
