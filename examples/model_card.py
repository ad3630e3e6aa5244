"""From a finished run to a network that is shipped: rounded to half precision, small enough, measured, with its card.

The scripts ``examples/ship_*.py`` say what stands on the cards.
"""

from pathlib import Path

from picaset.files import replacing
from picaset.lab.reports.records import Record, read_record
from picaset.networks.pretrained import PretrainedNetwork

LARGEST = 8_000_000
"""Bytes that the weights of a shipped network may have."""


def finished(run: Path) -> Record:
    """The record of a run that is finished."""
    record = read_record(run)
    if record is None:
        raise ValueError(f"{run} is not finished; finish it with: picaset train --resume {run}")
    return record


def rounded(record: Record) -> PretrainedNetwork:
    """The network of a run as it will be read once it is shipped: half-precision numbers, held in single precision."""
    network = record.experiment.task.read_network(record.path / "checkpoints" / "final").half()
    assert isinstance(network, PretrainedNetwork)
    size = bytes_of(network)
    if size > LARGEST:
        raise ValueError(
            f"The network takes {size} bytes; a shipped one must have at most {LARGEST}: make it narrower."
        )
    return network.float().eval()


def bytes_of(network: PretrainedNetwork) -> int:
    """Of its weights in half precision."""
    return 2 * sum(tensor.numel() for tensor in network.state_dict().values())


def arguments_of(network: PretrainedNetwork) -> str:
    return ", ".join(f"{key}={value!r}" for key, value in network.config.items())


def command_of(record: Record) -> str:
    """What one types to train it again."""
    training, profile = record.experiment.training, record.experiment.profile
    usual = profile.removesuffix(f"-{training.steps}-steps")
    options = [
        *([f"--profile {usual}"] if usual != "quick" else []),
        *([f"--steps {training.steps}"] if usual != profile else []),
        *([f"--seed {training.seed}"] if training.seed else []),
    ]
    return " ".join(["picaset train", record.experiment.name, *options, "--threads 1"])


def write_shipped(network: PretrainedNetwork, card: str, out: Path) -> None:
    """The network in half precision, and its card."""
    network.half().save_pretrained(out)
    with replacing(out / "README.md") as unfinished:
        unfinished.write_text(card)
