"""Turn a finished run on drawn faces into a network for `picaset faces` or the studio, with a model card.

    picaset train odd-one-out-sa-gpb --threads 1
    python examples/ship_odd_faces.py runs/odd-one-out-sa-gpb-quick-seed0 --out picaset/studio/weights/odd_one_out_faces

Weights are rounded to half precision, which halves the file. The card has the scores of the rounded network beside
those of the run. A run on real faces is refused: shipped networks are trained on generated data only.
"""

from pathlib import Path
from typing import Any

from model_card import common_fields, read_finished, round_to_half, run_script, write_network

from picaset.lab.networks.odd_one_out import ODD_FACES
from picaset.lab.reports.records import Record
from picaset.lab.tasks.odd_one_out import OddOneOut
from picaset.pretrained import PretrainedNetwork

CARD = """# {name}

Scores how little each face of a set fits the others: all but one share two attributes, and that one has neither.
{use}. For drawn faces (`picaset.lab.data.drawn_faces`) only: it was never trained on real faces and does not work for
them.

| | |
|---|---|
| network | `OddOneOutNetwork({arguments})`, {parameters} parameters, {megabytes:.1f} MB in half precision |
| input | a set of 3 to 64 images of 64 x 64 pixels, red green blue |
| output | a score for each image; the softmax over the set is the probability of being the odd one |
| data | generated: {data}, three quarters of them for training; {sets} |
| recipe | `{command}`, then `python examples/ship_odd_faces.py`: {recipe} |
| loss | cross-entropy over the images of a set |

On {num_sets} test sets of {size}; their faces are not in the training data:

| | AUROC | AUPR | top 1 |
|---|---|---|---|
| as trained | {trained} |
| rounded, as shipped | {shipped} |
| random guessing | {guessing} |

As shipped, in sets of other sizes ({sets_per_size} sets each):

{by_size}

Trained on generated data only. MIT licence, as the rest of picaset.
"""


def format_scores(scores: dict[str, Any]) -> str:
    return " | ".join(f"{scores[name]:.3f}" for name in ("auroc", "aupr", "top1"))


def table_by_size(rows: list[dict[str, Any]]) -> str:
    lines = [
        ["images per set", *(str(row["set_size"]) for row in rows)],
        ["---"] * (len(rows) + 1),
        ["AUROC", *(f"{row['auroc']:.3f}" for row in rows)],
        ["top 1", *(f"{row['top1']:.3f}" for row in rows)],
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def card(name: str, record: Record, network: PretrainedNetwork, shipped: dict[str, Any]) -> str:
    task, training = record.experiment.task, record.experiment.training
    assert isinstance(task, OddOneOut)
    return CARD.format(
        **common_fields(name, record, network),
        use="Used by `picaset faces`" if name == ODD_FACES.name else "One of the networks of `picaset studio`",
        sets=record.environment["data"].partition("; ")[2],
        recipe=f"seed {training.seed}, {training.steps} steps of {training.batch_size} albums with "
        f"{task.sets_per_album} sets each, Adam {training.learning_rate:g} {training.schedule}, averaged weights; "
        f"{record.result['seconds'] / 60:.0f} minutes on {record.environment['hardware']}",
        num_sets=task.num_test_sets,
        size=task.set_size,
        trained=format_scores(record.result["test"]),
        shipped=format_scores(shipped["test"]),
        guessing=format_scores(record.result["random_guessing"]),
        sets_per_size=shipped["sets_of_a_size"],
        by_size=table_by_size(shipped["by_size"]),
    )


def ship(run: Path, out: Path) -> Path:
    """Write the network and its card; nothing is written if the run is refused."""
    record = read_finished(run)
    task = record.experiment.task
    if not isinstance(task, OddOneOut) or task.data != "drawn":
        raise ValueError(f"{run} is not a run on drawn faces; only networks trained on generated data are shipped.")
    network = round_to_half(record)
    write_network(network, card(out.name, record, network, task.evaluate(network)), out)
    return out


if __name__ == "__main__":
    run_script(__doc__, ship, run_help="a finished run of an odd-one-out experiment on drawn faces", out=ODD_FACES)
