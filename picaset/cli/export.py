"""``picaset export``"""

import json
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import cast

import tyro

from picaset.networks.onnx import export_onnx
from picaset.pretrained import CLASSES, PretrainedNetwork, read_description
from picaset.terminal import say

DEFINING_NETWORKS = (
    "picaset.lab.training.experiment",
    "picaset.networks.element_scorer",
    "picaset.networks.set_predictor",
)
"""Modules whose import defines all networks, with those that they import themselves."""


@dataclass(frozen=True, kw_only=True)
class Export:
    """Export a saved network to an ONNX file, and check the file in ONNX Runtime.

    The file takes elements (B, N, D) and a boolean mask (B, N), for at least one set and one element. The network of a
    saved estimator takes standardized elements: (elements - mean) / scale, with the values in its estimator.json; an
    estimator of several networks has them in network_0, network_1 and so on.

    Examples:
        picaset export network network.onnx
        picaset export pool pool.onnx --dim-in 3
        picaset export proposer proposer.onnx --num-components 4
    """

    network: tyro.conf.Positional[Path]
    """Folder of the network, written by save_pretrained or by the save of an estimator."""
    out: tyro.conf.Positional[Path]
    """File to write."""
    dim_in: int | None = None
    """Features of an element; by default those of the network, which a pool without weights does not have."""
    num_components: int | None = None
    """Components of the mixtures, for a MixtureProposer; the file has it as a constant."""
    json: bool = False
    """Print the file and the names of its inputs and outputs as one JSON line, and nothing else."""

    def run(self) -> int:
        network = read_any_network(self.network)
        options = {} if self.num_components is None else {"num_components": self.num_components}
        outputs = export_onnx(network, self.out, dim_in=self.dim_in, **options)
        if self.json:
            say(json.dumps({"file": str(self.out), "inputs": ["elements", "mask"], "outputs": outputs}))
            return 0
        say(f"{self.out}: {type(network).__name__} with inputs elements and mask, outputs {', '.join(outputs)}")
        for described in (self.network / "estimator.json", self.network.parent / "estimator.json"):
            if described.is_file():
                say(f"elements are standardized: (elements - mean) / scale, as in {described}")
        return 0


def read_any_network(directory: Path) -> PretrainedNetwork:
    """Load a network of any class of this package."""
    for module in DEFINING_NETWORKS:
        import_module(module)
    if not (directory / "config.json").is_file() and (members := sorted(directory.glob("network_*"))):
        raise ValueError(f"{directory} holds {len(members)} networks; export one of them, such as {members[0]}.")
    name = read_description(directory / "config.json")["network"]
    if not issubclass(CLASSES.get(name, object), PretrainedNetwork):
        raise ValueError(f"{directory} holds a {name}, which is not a network of picaset; export it with export_onnx.")
    return cast(type[PretrainedNetwork], CLASSES[name]).from_pretrained(directory)
