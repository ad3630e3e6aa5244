"""``picaset pool``"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from rich.console import Console
from torch import Tensor

from picaset.files import replacing
from picaset.lab.networks.mixture_network import MixtureNetwork
from picaset.large.stream import stream
from picaset.networks.pretrained import PretrainedNetwork, read_description
from picaset.networks.set_networks import DeepSets, Picaso, SetTransformer
from picaset.operators.mixture import Mixture

NETWORKS: dict[str, type[PretrainedNetwork]] = {
    network.__name__: network for network in (DeepSets, MixtureNetwork, Picaso, SetTransformer)
}


@dataclass(frozen=True, kw_only=True)
class Pool:
    """Give a file of any size, one set, to a network, in memory that does not depend on its size.

    The file is a .npy or .safetensors of shape (N, D), or a .parquet; the network was written by save_pretrained.

    Examples:
        picaset pool points.npy --checkpoint network
        picaset pool points.npy --checkpoint network --chunk 100 --out pooled.npy --json
    """

    file: tyro.conf.Positional[Path]
    """The set: every row is an element."""
    checkpoint: Path
    """The network: a folder with config.json and model.safetensors."""
    out: Path | None = None
    """Write the prediction as .npy, too."""
    chunk: int | None = None
    """Elements in memory at a time."""
    json: bool = False
    """Print the prediction as one JSON line, and no bar."""

    @torch.no_grad()
    def run(self) -> int:
        network = read_network(self.checkpoint)
        bar = not self.json and Console(stderr=True).is_terminal
        try:
            result = stream(network, self.file, self.chunk, transform=self.finite, progress=bar)
        except (TypeError, RuntimeError) as error:
            raise ValueError(str(error)) from None
        prediction = side_by_side(result)
        if self.out is not None:
            with replacing(self.out) as unfinished, unfinished.open("wb") as written:
                np.save(written, prediction.numpy())
        print(json.dumps({"prediction": rows_of(prediction)}) if self.json else in_lines(prediction))
        return 0

    def finite(self, elements: Tensor) -> Tensor:
        if not bool(elements.isfinite().all()):
            raise ValueError(
                f"{self.file}: elements must be finite; found NaN or infinity. Remove or replace it first."
            )
        return elements


def read_network(directory: Path) -> PretrainedNetwork:
    """A network of whichever class its directory names."""
    name = read_description(directory / "config.json")["network"]
    if name not in NETWORKS:
        raise ValueError(f"{directory} must hold one of {', '.join(sorted(NETWORKS))}; it holds a {name}.")
    return NETWORKS[name].from_pretrained(directory)


def side_by_side(result: Any) -> Tensor:
    """A prediction of one set, (K, O); of a mixture means, variances and logarithms of weights."""
    parts = (
        (result.means, result.variances, result.log_weights[..., None]) if isinstance(result, Mixture) else (result,)
    )
    return torch.cat(parts, dim=-1)[0]


def rows_of(prediction: Tensor) -> list[list[float]]:
    return [[float(value) for value in row] for row in prediction]


def in_lines(prediction: Tensor) -> str:
    return "\n".join("  ".join(f"{value: .5g}" for value in row) for row in rows_of(prediction))
