"""Make the networks that look at pictures in `picaset studio` from finished runs: half precision, each with its card.

    picaset train viewpoints-azimuth-pb3-toys --threads 1
    python examples/ship_picture_networks.py runs/viewpoints-azimuth-pb3-toys-quick-seed0 --out picaset/studio/weights/viewpoints_pb3

The card says what the rounded network reaches, measured again, beside what the run recorded. A run on photographs or on
CLEVR is refused: only generated data goes into what is shipped. So is one on other toys or viewpoints than those of
which the studio says that training had them.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from picaset.lab.reports.shipping import arguments_of, bytes_of, command_of, finished, rounded, write_shipped
from picaset.lab.tasks.scenes import SceneObjects
from picaset.lab.tasks.viewpoints import Viewpoints


class Kind(NamedTuple):
    """What a card says of the networks of an experiment."""

    purpose: str
    shown: str
    answer: str
    measured: str
    numbers: Callable[[dict[str, Any]], dict[str, float]]


VIEWPOINTS = Kind(
    "Names the category of a toy: animal, human, airplane, truck or car.",
    "the middle 32 x 32 pixels of a grey image of 48 x 48, normalised, {as_what}",
    "a score for each category; their softmax is its probability",
    "Share of right answers for toys that training never had",
    lambda result: result["accuracy"],
)
SCENES = Kind(
    "Lists the three to ten objects of a scene, each with place, shape, material, colour and size.",
    "an image of {side} x {side} pixels, red green blue",
    "ten vectors of presence, place and properties, between 0 and 1",
    "Average precision on scenes that training never had, by the largest distance that counts",
    lambda result: result["average_precision"],
)

CARD = """# {name}

{purpose} One of the networks of `picaset studio`. For generated pictures only, those that it was trained on.

| | |
|---|---|
| network | `{network}({arguments})`, {parameters} parameters, stored in half precision, {megabytes:.1f} MB; call `.float()` on it |
| input | {shown} |
| output | {answer} |
| data | {data} |
| recipe | `{command}`: seed {seed}, {steps} steps of {batch}, Adam {rate:g} {schedule}; {minutes:.0f} minutes on {hardware} |
| record | `results/runs/{record}` |

{measured}:

| | {columns} |
|---|{rules}
| as trained | {trained} |
| rounded, as shipped | {shipped} |

Trained on generated data only. MIT licence, as the rest of picaset.
"""


def kind_of(task: Any, run: Path, toys: str) -> Kind:
    if isinstance(task, SceneObjects) and task.data == "traced":
        return SCENES._replace(shown=SCENES.shown.format(side=task.image_size))
    if not isinstance(task, Viewpoints) or task.data == "small-norb":
        raise ValueError(f"{run} is not a run on generated toys or scenes; only such networks are shipped.")
    if task.data != toys or task.split != "azimuth":
        raise ValueError(
            f"{run} had {task.data}, tested on novel {task.split}s; the studio tells that its networks had {toys}, and "
            "novel azimuths. Train it so."
        )
    as_what = "as patches of 4 x 4" if task.look().bag else "whole"
    return VIEWPOINTS._replace(shown=VIEWPOINTS.shown.format(as_what=as_what))


def row(values: dict[str, float]) -> str:
    return " | ".join(f"{value:.3f}" for value in values.values())


def ship(run: Path, out: Path, *, toys: str = "toys-small") -> Path:
    """Write the network and its card; nothing is written if the run will not do."""
    record = finished(run)
    task, training = record.experiment.task, record.experiment.training
    kind = kind_of(task, run, toys)
    network = rounded(record)
    trained, shipped = kind.numbers(record.result), kind.numbers(task.evaluate(network))
    card = CARD.format(
        name=out.name,
        purpose=kind.purpose,
        network=type(network).__name__,
        arguments=arguments_of(network),
        parameters=f"{record.result['parameters']:,}".replace(",", " "),
        megabytes=bytes_of(network) / 1e6,
        shown=kind.shown,
        answer=kind.answer,
        data=record.result["data"],
        command=command_of(record),
        seed=training.seed,
        steps=f"{training.steps:,}".replace(",", " "),
        batch=training.batch_size,
        rate=training.learning_rate,
        schedule=training.schedule,
        minutes=record.result["seconds"] / 60,
        hardware=record.environment["hardware"],
        record=run.name,
        measured=kind.measured,
        columns=" | ".join(name.replace("_", ", ") for name in trained),
        rules="---|" * len(trained),
        trained=row(trained),
        shipped=row(shipped),
    )
    write_shipped(network, card, out)
    return out


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a finished run on generated toys or scenes")
    parser.add_argument("--out", type=Path, required=True, help="folder of the network")
    arguments = parser.parse_args()
    try:
        print(f"written: {ship(arguments.run, arguments.out)}")
    except ValueError as error:
        parser.exit(1, f"{error}\n")
