"""Networks that can be written to a directory and read back, without pickle.

    DIRECTORY/config.json          format, format version, class, arguments of its constructor
    DIRECTORY/model.safetensors    the weights

A directory from a stranger can be read without running their code.
"""

import json
import os
from pathlib import Path
from typing import Any, TypedDict, TypeVar, cast

from safetensors import SafetensorError
from safetensors.torch import load_file, save  # pyright: ignore[reportUnknownVariableType]
from torch import Tensor, nn

from picaset.files import made_folder, read_json, replacing
from picaset.networks.configuration import Configurable, ModuleConfig

FORMAT = "picaset-network"
FORMAT_VERSION = 2

Network = TypeVar("Network", bound="PretrainedNetwork")


class Description(TypedDict):
    """What ``config.json`` holds."""

    format: str
    format_version: int
    network: str
    config: dict[str, Any]


class PretrainedNetwork(Configurable):
    """A network that can be saved to a directory and read back.

    What is saved beside the weights is ``config``, the arguments of its constructor; see :class:`Configurable`.
    """

    def save_pretrained(self, directory: str | os.PathLike[str]) -> None:
        """Write the network to a directory; each file is replaced whole or left as it was."""
        directory = made_folder(Path(directory))
        description = Description(
            format=FORMAT, format_version=FORMAT_VERSION, network=type(self).__name__, config=self.config
        )
        weights = {name: tensor.detach().cpu().contiguous() for name, tensor in self.state_dict().items()}
        with replacing(directory / "config.json") as config, replacing(directory / "model.safetensors") as model:
            config.write_text(json.dumps(description, indent=2) + "\n")
            model.write_bytes(save(weights))

    @classmethod
    def from_pretrained(cls: type[Network], directory: str | os.PathLike[str]) -> Network:
        """Read a network back, in ``eval`` mode; a directory of something else is refused."""
        directory = Path(directory)
        description = read_description(directory / "config.json")
        name = description["network"]
        if name != cls.__name__:
            raise ValueError(
                f"{cls.__name__}.from_pretrained: {directory} holds a {name}; read it with {name}.from_pretrained."
            )
        weights = read_weights(directory / "model.safetensors")
        try:
            config = description["config"]
            if description["format_version"] < FORMAT_VERSION:
                config, weights = cls.upgrade(config, weights)
            network = cls(**{key: built(value, where=key) for key, value in config.items()})
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{cls.__name__}.from_pretrained: {directory / 'config.json'} does not fit the network: {error}"
            ) from None
        load_weights(network, weights, source=str(directory))
        return network.eval()

    @classmethod
    def upgrade(cls, config: dict[str, Any], weights: dict[str, Tensor]) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Convert the arguments and the weights of a network saved by format version 1 to those of today."""
        return config, weights


def built(argument: Any, *, where: str) -> Any:
    """Return an argument of a constructor, building it if it describes a module."""
    if isinstance(argument, dict) and "class" in argument:
        return ModuleConfig.from_json(argument, where=where).build()
    return cast(Any, argument)


def check_exists(path: Path) -> None:
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"{path.parent} is not a folder; a network is one, with config.json and model.safetensors."
        )
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist; a network is config.json and model.safetensors.")


def read_description(path: Path) -> Description:
    check_exists(path)
    described = read_json(path)
    if described.get("format") != FORMAT:
        raise ValueError(f'{path} is not the description of a picaset network: "format" must be "{FORMAT}".')
    if described.get("format_version") not in range(1, FORMAT_VERSION + 1):
        raise ValueError(
            f"{path} has format version {described.get('format_version')}; this picaset reads versions 1 to "
            f"{FORMAT_VERSION}. Install the picaset that wrote it."
        )
    if not isinstance(described.get("network"), str) or not isinstance(described.get("config"), dict):
        raise ValueError(f'{path} must name its "network" and give its "config".')
    return cast(Description, described)


def read_weights(path: Path) -> dict[str, Tensor]:
    check_exists(path)
    try:
        return load_file(path)
    except SafetensorError as error:
        raise ValueError(f"{path} is not a whole safetensors file ({error}); was it cut short?") from None


def load_weights(network: nn.Module, weights: dict[str, Tensor], *, source: str) -> None:
    """Give a network weights that are exactly its own, by name and by shape."""
    expected = network.state_dict()
    for name in sorted(expected.keys() | weights.keys()):
        ours, theirs = expected.get(name), weights.get(name)
        if ours is None or theirs is None or ours.shape != theirs.shape:
            raise ValueError(
                f"{source} holds the weights of another network: {name} must {shape_in_words(ours)}; "
                f"there it would {shape_in_words(theirs)}."
            )
    precisions = {tensor.dtype for tensor in weights.values() if tensor.is_floating_point()}
    if len(precisions) == 1:
        network.to(precisions.pop())
    network.load_state_dict(weights)


def shape_in_words(tensor: Tensor | None) -> str:
    return "be absent" if tensor is None else f"have shape {tuple(tensor.shape)}"
