"""Turn a finished run on drawn faces into a network that `picaset faces` or the studio uses, with its model card.

    picaset train odd-one-out-sa-gpb --threads 1
    python examples/ship_odd_faces.py runs/odd-one-out-sa-gpb-quick-seed0 --out picaset/studio/weights/odd_one_out_faces

Weights are rounded to half precision, which halves the file; the card says what the rounded network reaches, measured
again, beside what the run recorded. A run on real faces is refused: only generated data goes into what is shipped.
"""

import argparse
from pathlib import Path
from typing import Any

from picaset.lab.networks.odd_one_out import ODD_FACES
from picaset.lab.reports.records import Record
from picaset.lab.reports.shipping import arguments_of, bytes_of, command_of, finished, rounded, write_shipped
from picaset.lab.tasks.odd_one_out import OddOneOut
from picaset.networks.pretrained import PretrainedNetwork

CARD = """# {name}

Scores every face of a set by how little it fits the others: all but one share two attributes, that one has neither.
{use}. For drawn faces only, those of `picaset.lab.data.drawn_faces`; it has never seen a real one
and is of no use for them.

| | |
|---|---|
| network | `OddOneOutNetwork({arguments})`, {parameters} parameters, {megabytes:.1f} MB in half precision |
| input | a set of 3 to 64 images of 64 x 64 pixels, red green blue |
| output | a score for each image; their softmax is the probability of being the odd one |
| data | generated: {data}, three quarters of them for training; {sets} |
| recipe | `{command}`, then `python examples/ship_odd_faces.py`: {recipe} |
| loss | cross-entropy over the images of a set |

On {num_sets} test sets of {size}, whose faces are in no training set:

| | AUROC | AUPR | top 1 |
|---|---|---|---|
| as trained | {trained} |
| rounded, as shipped | {shipped} |
| random guessing | {guessing} |

As shipped, in sets of other sizes ({of_a_size} sets each):

{by_size}

Trained on generated data only. MIT licence, as the rest of picaset.
"""


def numbers(found: dict[str, Any]) -> str:
    return " | ".join(f"{found[name]:.3f}" for name in ("auroc", "aupr", "top1"))


def sizes_table(rows: list[dict[str, Any]]) -> str:
    lines = [
        ["images of a set", *(str(row["set_size"]) for row in rows)],
        ["---"] * (len(rows) + 1),
        ["AUROC", *(f"{row['auroc']:.3f}" for row in rows)],
        ["top 1", *(f"{row['top1']:.3f}" for row in rows)],
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def card(name: str, record: Record, network: PretrainedNetwork, shipped: dict[str, Any]) -> str:
    task, training = record.experiment.task, record.experiment.training
    assert isinstance(task, OddOneOut)
    return CARD.format(
        name=name,
        use="What `picaset faces` uses" if name == ODD_FACES.name else "One of the networks of `picaset studio`",
        arguments=arguments_of(network),
        parameters=f"{record.result['parameters']:,}".replace(",", " "),
        megabytes=bytes_of(network) / 1e6,
        data=record.result["data"],
        sets=record.environment["data"].partition("; ")[2],
        command=command_of(record),
        recipe=f"seed {training.seed}, {training.steps} steps of {training.batch_size} albums with "
        f"{task.sets_per_album} sets each, Adam {training.learning_rate:g} {training.schedule}, averaged weights; "
        f"{record.result['seconds'] / 60:.0f} minutes on {record.environment['hardware']}",
        num_sets=task.num_test_sets,
        size=task.set_size,
        trained=numbers(record.result["test"]),
        shipped=numbers(shipped["test"]),
        guessing=numbers(record.result["random_guessing"]),
        of_a_size=shipped["sets_of_a_size"],
        by_size=sizes_table(shipped["by_size"]),
    )


def ship(run: Path, out: Path) -> Path:
    """Write the network and its card; nothing is written if the run will not do."""
    record = finished(run)
    task = record.experiment.task
    if not isinstance(task, OddOneOut) or task.data != "drawn":
        raise ValueError(f"{run} is not a run on drawn faces; only networks trained on generated data are shipped.")
    network = rounded(record)
    write_shipped(network, card(out.name, record, network, task.evaluate(network)), out)
    return out


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a finished run of an odd-one-out experiment on drawn faces")
    parser.add_argument("--out", type=Path, default=ODD_FACES)
    arguments = parser.parse_args()
    try:
        print(f"written: {ship(arguments.run, arguments.out)}")
    except ValueError as error:
        parser.exit(1, f"{error}\n")
