"""Turn finished runs into networks to ship: rounded to half precision, checked for size, with a model card.

The scripts ``examples/ship_*.py`` use it; each has its own text for the card.
"""

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from picaset.files import atomic_write
from picaset.lab.reports.page import group_digits
from picaset.lab.reports.records import Record, read_record, training_command
from picaset.pretrained import PretrainedNetwork

MAX_BYTES = 8_000_000
"""Largest size of the weights of a shipped network."""


def read_finished(run: Path) -> Record:
    record = read_record(run)
    if record is None:
        raise ValueError(f"{run} is not finished; finish it with: picaset train --resume {run}")
    return record


def round_to_half(record: Record) -> PretrainedNetwork:
    """Return the network of a run with weights rounded to half precision, in single precision for evaluation."""
    network = record.experiment.task.read_network(record.path / "checkpoints" / "final").half()
    assert isinstance(network, PretrainedNetwork)
    size = half_precision_bytes(network)
    if size > MAX_BYTES:
        raise ValueError(
            f"The network takes {size} bytes; a shipped one may take at most {MAX_BYTES}. Train a narrower one."
        )
    return network.float().eval()


def half_precision_bytes(network: PretrainedNetwork) -> int:
    return 2 * sum(tensor.numel() for tensor in network.state_dict().values())


def format_arguments(arguments: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value!r}" for key, value in arguments.items())


def common_fields(name: str, record: Record, network: PretrainedNetwork) -> dict[str, Any]:
    """Return the fields that every card has, with their values."""
    return dict(
        name=name,
        arguments=format_arguments(network.config),
        parameters=group_digits(record.result["parameters"]),
        megabytes=half_precision_bytes(network) / 1e6,
        data=record.result["data"],
        command=f"{training_command(record.experiment)} --threads 1",
    )


def write_network(network: PretrainedNetwork, card: str, out: Path) -> None:
    """Write the network in half precision, and its card."""
    network.half().save_pretrained(out)
    with atomic_write(out / "README.md") as unfinished:
        unfinished.write_text(card)


def run_script(description: str | None, ship: Callable[[Path, Path], Path], *, run_help: str, out: Path | None) -> None:
    """Parse the command line of a script that ships one run, and call ``ship(run, out)``."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help=run_help)
    parser.add_argument("--out", type=Path, default=out, required=out is None, help="folder to write the network to")
    arguments = parser.parse_args()
    try:
        print(f"written: {ship(arguments.run, arguments.out)}")
    except ValueError as error:
        parser.exit(1, f"{error}\n")
