"""Turn finished runs on toys or scenes into the image networks of `picaset studio`, each with a model card.

    picaset train viewpoints-azimuth-pb3-toys --threads 1
    python examples/ship_picture_networks.py runs/viewpoints-azimuth-pb3-toys-quick-seed0 --out picaset/studio/weights/viewpoints_pb3

Weights are rounded to half precision. The card has the scores of the rounded network beside those of the run. A run on
photographs or on CLEVR is refused: shipped networks are trained on generated data only. So is a run on other toys or
viewpoints than those that the studio describes.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from model_card import common_fields, read_finished, round_to_half, run_script, write_network

from picaset.lab.reports.page import group_digits
from picaset.lab.tasks.scenes import SceneObjects
from picaset.lab.tasks.viewpoints import Viewpoints


class Kind(NamedTuple):
    """Text on the cards of one kind of network, and the scores of a result."""

    purpose: str
    input: str
    output: str
    measured: str
    scores: Callable[[dict[str, Any]], dict[str, float]]


VIEWPOINTS = Kind(
    "Predicts the category of a toy: animal, human, airplane, truck or car.",
    "the middle 32 x 32 pixels of a grey image of 48 x 48, normalised, {form}",
    "a score for each category; the softmax is its probability",
    "Accuracy on toys that are not in the training data",
    lambda result: result["accuracy"],
)
SCENES = Kind(
    "Predicts the three to ten objects of a scene, each with position, shape, material, colour and size.",
    "an image of {side} x {side} pixels, red green blue",
    "ten vectors of presence, position and properties, between 0 and 1",
    "Average precision on scenes that are not in the training data, by the largest distance that counts as correct",
    lambda result: result["average_precision"],
)

CARD = """# {name}

{purpose} One of the networks of `picaset studio`. For generated pictures like its training data only.

| | |
|---|---|
| network | `{network}({arguments})`, {parameters} parameters, stored in half precision, {megabytes:.1f} MB; call `.float()` on it |
| input | {input} |
| output | {output} |
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


def kind_of_run(task: Any, run: Path, toys: str) -> Kind:
    if isinstance(task, SceneObjects) and task.data == "traced":
        return SCENES._replace(input=SCENES.input.format(side=task.image_size))
    if not isinstance(task, Viewpoints) or task.data == "small-norb":
        raise ValueError(f"{run} is not a run on generated toys or scenes; only such networks are shipped.")
    if task.data != toys or task.split != "azimuth":
        raise ValueError(
            f"{run} was trained on {task.data} and tested on novel {task.split}s; the studio needs {toys} and novel "
            "azimuths. Train it on these."
        )
    form = "as patches of 4 x 4" if task.look().bag else "whole"
    return VIEWPOINTS._replace(input=VIEWPOINTS.input.format(form=form))


def format_scores(scores: dict[str, float]) -> str:
    return " | ".join(f"{score:.3f}" for score in scores.values())


def ship(run: Path, out: Path, *, toys: str = "toys-small") -> Path:
    """Write the network and its card; nothing is written if the run is refused."""
    record = read_finished(run)
    task, training = record.experiment.task, record.experiment.training
    kind = kind_of_run(task, run, toys)
    network = round_to_half(record)
    trained, shipped = kind.scores(record.result), kind.scores(task.evaluate(network))
    card = CARD.format(
        **common_fields(out.name, record, network),
        purpose=kind.purpose,
        network=type(network).__name__,
        input=kind.input,
        output=kind.output,
        seed=training.seed,
        steps=group_digits(training.steps),
        batch=training.batch_size,
        rate=training.learning_rate,
        schedule=training.schedule,
        minutes=record.result["seconds"] / 60,
        hardware=record.environment["hardware"],
        record=run.name,
        measured=kind.measured,
        columns=" | ".join(name.replace("_", ", ") for name in trained),
        rules="---|" * len(trained),
        trained=format_scores(trained),
        shipped=format_scores(shipped),
    )
    write_network(network, card, out)
    return out


if __name__ == "__main__":
    run_script(__doc__, ship, run_help="a finished run on generated toys or scenes", out=None)
