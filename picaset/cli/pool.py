"""``picaset pool``"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from torch import Tensor

from picaset.checks import check_device
from picaset.files import atomic_write, check_outputs
from picaset.lab.networks.mixture_network import MixtureNetwork
from picaset.large.stream import stream
from picaset.networks.set_networks import DeepSets, Picaso, SetTransformer
from picaset.operators.mixture import Mixture
from picaset.pretrained import PretrainedNetwork, read_description
from picaset.terminal import Terminal, say

NETWORKS: dict[str, type[PretrainedNetwork]] = {
    network.__name__: network for network in (DeepSets, MixtureNetwork, Picaso, SetTransformer)
}


@dataclass(frozen=True, kw_only=True)
class Pool:
    """Apply a network to a file that holds one set, in memory that does not depend on the size of the file.

    The file is .npy or .safetensors with an array of shape (N, D), or .parquet. The network is a folder written by
    save_pretrained.

    Examples:
        picaset pool points.npy --checkpoint network
        picaset pool points.npy --checkpoint network --chunk 100 --out pooled.npy --json
    """

    file: tyro.conf.Positional[Path]
    """File with one element per row."""
    checkpoint: Path
    """Folder of the network, with config.json and model.safetensors."""
    out: Path | None = None
    """Also write the prediction to this .npy file."""
    chunk: int | None = None
    """Number of elements in memory at a time."""
    device: str = "cpu"
    """Device of the network, such as cuda."""
    json: bool = False
    """Print the prediction as one JSON line, and nothing else."""

    @torch.no_grad()
    def run(self) -> int:
        check_device(self.device, caller="picaset pool")
        check_outputs(self.file, out=(self.out, ()))
        network = read_network(self.checkpoint).to(self.device)
        bar = not self.json and Terminal(stderr=True).is_terminal
        try:
            result = stream(network, self.file, self.chunk, transform=self.check_finite, progress=bar)
        except (TypeError, RuntimeError) as error:
            raise ValueError(str(error)) from None
        prediction = to_rows(result).cpu()
        if self.out is not None:
            with atomic_write(self.out) as unfinished, unfinished.open("wb") as written:
                np.save(written, prediction.numpy())
        rows = [[float(value) for value in row] for row in prediction]
        lines = ("  ".join(f"{value: .5g}" for value in row) for row in rows)
        say(json.dumps({"prediction": rows}) if self.json else "\n".join(lines))
        return 0

    def check_finite(self, elements: Tensor) -> Tensor:
        if not bool(elements.isfinite().all()):
            raise ValueError(
                f"{self.file}: elements must be finite; found NaN or infinity. Remove or replace it first."
            )
        return elements


def read_network(directory: Path) -> PretrainedNetwork:
    """Load a network of the class that its folder names."""
    name = read_description(directory / "config.json")["network"]
    if name not in NETWORKS:
        raise ValueError(f"{directory} must hold one of {', '.join(sorted(NETWORKS))}; it holds a {name}.")
    return NETWORKS[name].from_pretrained(directory)


def to_rows(result: Any) -> Tensor:
    """Return the prediction for one set, (K, O); a mixture gives means, variances and log-weights side by side."""
    parts = (
        (result.means, result.variances, result.log_weights[..., None]) if isinstance(result, Mixture) else (result,)
    )
    return torch.cat(parts, dim=-1)[0]
