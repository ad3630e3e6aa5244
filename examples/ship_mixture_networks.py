"""Make the networks that `picaset studio` compares from finished runs: half precision, with a card of what each is.

    picaset train clustering-ae32-pb --profile quick --out runs              # ten minutes of one thread each
    picaset train clustering-ae32-pb-canonical --profile quick --out runs
    picaset train clustering-set-transformer --profile quick --out runs
    picaset train clustering-deepset-mean --profile quick --out runs
    python examples/ship_mixture_networks.py --runs runs

Prints, for each, the likelihood of its run beside that of the same network in half precision on the first sets of the
benchmark, moved by 0 and by 12: rounding must not change the picture.
"""

import argparse
import json
from pathlib import Path

import torch

from picaset.lab.data.gaussian_mixtures import Move
from picaset.lab.networks.mixture_network import MixtureNetwork
from picaset.lab.tasks.clustering import MOVES, SHIFTS, Clustering, likelihoods
from picaset.lab.training.run_directory import RunDirectory

WEIGHTS = Path("picaset/studio/weights")
SHIPPED = {
    "mixture_picaso": ("clustering-ae32-pb", "PICASO: two induced encoders and a cascade of two steps (AE32 + PB)"),
    "mixture_picaso_canonical": (
        "clustering-ae32-pb-canonical",
        "PICASO as in mixture_picaso, shown every set at the origin with unit spread, so that its result moves with "
        "the points",
    ),
    "mixture_set_transformer": (
        "clustering-set-transformer",
        "Set Transformer: two induced encoders, attention pooling, self-attention among the answers",
    ),
    "mixture_deep_sets": ("clustering-deepset-mean", "DeepSets: every point by itself, their mean, four layers each"),
}

CARD = """# {name}

{what}. One of the networks that `picaset studio` compares; for clustering in earnest use `AmortizedMixture`.

| | |
|---|---|
| network | `{network}`, {parameters} parameters, stored in half precision, {megabytes:.1f} MB; call `.float()` on it |
| input | a set of points in the plane{place} |
| output | a mixture of four round Gaussians, in one pass |
| data | generated: sets of 75 to 600 points from four Gaussians of deviation 0.3, means uniform in [-4, 4]^2, weights Dirichlet(1) |
| recipe | `picaset train {run} --profile quick`: seed 0, {steps} steps of {batch} sets, Adam {rate:g} one-cycle, gradient norm clipped at {clip:g}, averaged weights; {minutes:.0f} minutes of one busy thread |
| record | `results/runs/{folder}` |

Log-likelihood per point on the benchmark's 1000 sets, moved ({oracle:.3f} is the mixture that the points come from, at every shift):

| shift | {shifts} |
|---|{rules}
| one pass | {alone} |
| and five EM steps | {refined} |

Limits: always four components, whatever the points; round ones only.{lost}

Trained on generated data only. MIT licence, as the rest of picaset.
"""


def card(name: str, what: str, run: str, network: MixtureNetwork, size: int) -> str:
    folder = f"{run}-quick-seed0"
    result = json.loads((Path("results/runs") / folder / "result.json").read_text())
    training = RunDirectory(Path("results/runs") / folder).experiment.training
    moved = {row["shift"]: row for row in result["moves"] if row["scale"] == 1 and not row["degrees"]}
    canonical = network.config["canonicalize"]
    differing = {key: value for key, value in network.config.items() if value != MixtureNetwork().config.get(key)}
    return CARD.format(
        name=name,
        what=what,
        network=f"MixtureNetwork({', '.join(f'{key}={value!r}' for key, value in differing.items())})",
        parameters=f"{result['parameters']:,}".replace(",", " "),
        megabytes=size / 1e6,
        place=", wherever it lies" if canonical else "; trained where means lie in [-4, 4]^2",
        run=run,
        steps=f"{training.steps:,}".replace(",", " "),
        batch=training.batch_size,
        rate=training.learning_rate,
        clip=training.clip,
        minutes=result["seconds"] / 60,
        folder=folder,
        oracle=moved[0]["oracle"],
        shifts=" | ".join(f"{shift:+d}" if shift else "0" for shift in SHIFTS),
        rules="---|" * len(SHIFTS),
        alone=" | ".join(f"{moved[shift]['log_likelihood']['0']:.3f}" for shift in SHIFTS),
        refined=" | ".join(f"{moved[shift]['log_likelihood']['5']:.3f}" for shift in SHIFTS),
        lost="" if canonical else " Points outside of where it was trained are lost, as the table shows.",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="where the finished runs are")
    parser.add_argument("--sets", type=int, default=100, help="sets that half precision is tried on")
    arguments = parser.parse_args()
    for name, (run, what) in SHIPPED.items():
        network = MixtureNetwork.from_pretrained(arguments.runs / f"{run}-quick-seed0/checkpoints/final")
        network.half().save_pretrained(WEIGHTS / name)
        size = (WEIGHTS / name / "model.safetensors").stat().st_size
        (WEIGHTS / name / "README.md").write_text(card(name, what, run, network, size))
        scores = {
            "run": MixtureNetwork.from_pretrained(arguments.runs / f"{run}-quick-seed0/checkpoints/final"),
            "shipped": MixtureNetwork.from_pretrained(WEIGHTS / name).float(),
        }
        for label, scored in scores.items():
            task = Clustering()
            found = [
                likelihoods(scored, move, task.sets(arguments.sets, torch.zeros(())), em_steps=(0,))[0]
                for move in MOVES
                if move in (Move(), Move(shift=12))
            ]
            print(f"{name:26} {label:8}", *(f"{value:9.4f}" for value in found))


if __name__ == "__main__":
    main()
