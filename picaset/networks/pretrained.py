"""Networks that are saved to a folder and loaded from it, without pickle.

    FOLDER/config.json          format, format version, class name, constructor arguments
    FOLDER/model.safetensors    weights

Loading never runs code from the folder, so one from an untrusted source is safe to load.
"""

import json
import os
from pathlib import Path
from typing import Any, TypedDict, TypeVar, cast

from safetensors import SafetensorError
from safetensors.torch import load_file, save  # pyright: ignore[reportUnknownVariableType]
from torch import Tensor, nn

from picaset.files import atomic_write, create_folder, read_json
from picaset.networks.configuration import Configurable, ModuleConfig

FORMAT = "picaset-network"
FORMAT_VERSION = 2

Network = TypeVar("Network", bound="PretrainedNetwork")


class Description(TypedDict):
    """Content of ``config.json``."""

    format: str
    format_version: int
    network: str
    config: dict[str, Any]


class PretrainedNetwork(Configurable):
    """A network that can be saved to a folder and loaded from it.

    The constructor arguments are saved beside the weights; see :class:`Configurable`.
    """

    def save_pretrained(self, directory: str | os.PathLike[str]) -> None:
        """Save the network to a folder; each file is replaced atomically."""
        directory = create_folder(Path(directory))
        description = Description(
            format=FORMAT, format_version=FORMAT_VERSION, network=type(self).__name__, config=self.config
        )
        weights = {name: tensor.detach().cpu().contiguous() for name, tensor in self.state_dict().items()}
        with atomic_write(directory / "config.json") as config, atomic_write(directory / "model.safetensors") as model:
            config.write_text(json.dumps(description, indent=2) + "\n")
            model.write_bytes(save(weights))

    @classmethod
    def from_pretrained(cls: type[Network], directory: str | os.PathLike[str]) -> Network:
        """Load a network from a folder, in ``eval`` mode; a folder of another network is an error."""
        directory = Path(directory)
        description = read_description(directory / "config.json")
        name = description["network"]
        if name != cls.__name__:
            raise ValueError(
                f"{cls.__name__}.from_pretrained: {directory} holds a {name}; load it with {name}.from_pretrained."
            )
        weights = read_weights(directory / "model.safetensors")
        try:
            config = description["config"]
            if description["format_version"] < FORMAT_VERSION:
                config, weights = cls.upgrade(config, weights)
            network = cls(**{key: build_argument(value, where=key) for key, value in config.items()})
        except (KeyError, TypeError, ValueError) as error:
            reason = f"the argument {error} is missing" if isinstance(error, KeyError) else str(error)
            raise ValueError(
                f"{cls.__name__}.from_pretrained: {directory / 'config.json'} does not fit the network: {reason}"
            ) from None
        load_weights(network, weights, source=str(directory))
        return network.eval()

    @classmethod
    def upgrade(cls, config: dict[str, Any], weights: dict[str, Tensor]) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Convert the arguments and the weights of a network saved in format version 1 to the current version."""
        return config, weights


def build_argument(argument: Any, *, where: str) -> Any:
    """Return a constructor argument; the description of a module is built."""
    if isinstance(argument, dict) and "class" in argument:
        return ModuleConfig.from_json(argument, where=where).build()
    return cast(Any, argument)


def check_exists(path: Path) -> None:
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"{path.parent} is not a folder; a network is a folder with config.json and model.safetensors."
        )
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist; a network is a folder with config.json and model.safetensors.")


def read_description(path: Path) -> Description:
    check_exists(path)
    values = read_json(path)
    if values.get("format") != FORMAT:
        raise ValueError(f'{path} is not the description of a picaset network: "format" must be "{FORMAT}".')
    if values.get("format_version") not in range(1, FORMAT_VERSION + 1):
        raise ValueError(
            f"{path} has format version {values.get('format_version')}; this picaset reads versions 1 to "
            f"{FORMAT_VERSION}. Install the picaset that wrote it."
        )
    if not isinstance(values.get("network"), str) or not isinstance(values.get("config"), dict):
        raise ValueError(f'{path} must have a "network" name and a "config" object.')
    return cast(Description, values)


def read_weights(path: Path) -> dict[str, Tensor]:
    check_exists(path)
    try:
        return load_file(path)
    except SafetensorError as error:
        raise ValueError(f"{path} is not a whole safetensors file ({error}); was it cut short?") from None


def load_weights(network: nn.Module, weights: dict[str, Tensor], *, source: str) -> None:
    """Load weights into a network; all names and shapes must match."""
    expected = network.state_dict()
    for name in sorted(expected.keys() | weights.keys()):
        ours, theirs = expected.get(name), weights.get(name)
        if ours is None or theirs is None or ours.shape != theirs.shape:
            raise ValueError(
                f"{source} holds the weights of another network: {name} must {describe_shape(ours)}; "
                f"in the file it would {describe_shape(theirs)}."
            )
    precisions = {tensor.dtype for tensor in weights.values() if tensor.is_floating_point()}
    if len(precisions) == 1:
        network.to(precisions.pop())
    network.load_state_dict(weights)


def describe_shape(tensor: Tensor | None) -> str:
    return "be absent" if tensor is None else f"have shape {tuple(tensor.shape)}"
