"""Networks and operators that are saved to a folder or to the Hub and loaded from it, without pickle.

    FOLDER/config.json          format, format version, class name, constructor arguments
    FOLDER/model.safetensors    weights

Loading never runs code from the folder, so one from an untrusted source is safe to load: arguments are checked by name,
type and magnitude, the network must not be larger than the weights beside it, and the weights must be finite.

    Configurable         a module that records its constructor arguments as ``config``
    PretrainedNetwork    a configurable module with ``save_pretrained``, ``from_pretrained`` and ``push_to_hub``
    ModuleConfig         a class name and arguments as a value: compared, written as JSON, and built
"""

import inspect
import json
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypedDict, TypeVar, Unpack, cast, get_args, get_origin, get_type_hints

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save  # pyright: ignore[reportUnknownVariableType]
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from picaset.files import (
    atomic_write,
    check_known,
    create_folder,
    describe_type,
    describe_value,
    read_json,
    read_value,
    to_json,
)
from picaset.hub import download, is_hub_name, model_card, upload

MAX_PARAMETERS = 5000
"""Largest number of parameter tensors of a network that a file describes."""
MAX_WEIGHTS = 2**27
"""Largest number of weights of a network that a file describes."""
MAX_STEPS = 1000
"""Largest number of steps or iterations that a file may ask for: they have no weights to be compared with."""

CLASSES: dict[str, type["Configurable"]] = {}
"""Every configurable class by name."""

Module = TypeVar("Module", bound="Configurable")


class Configurable(nn.Module):
    """A module that records the arguments of its constructor.

    ``config`` holds all of them as JSON values, defaults included; a module among the arguments is recorded as its
    class name and its own arguments.

    Example:
        >>> class Scale(Configurable):
        ...     def __init__(self, factor: float, *, bias: bool = False) -> None:
        ...         super().__init__()
        >>> Scale(2.0).config
        {'factor': 2.0, 'bias': False}
    """

    config: dict[str, Any]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        ours = cls.__name__ in CLASSES and CLASSES[cls.__name__].__module__.startswith("picaset.")
        if not ours or cls.__module__.startswith("picaset."):  # a class of a user does not replace one of the package
            CLASSES[cls.__name__] = cls

    def __new__(cls: type[Module], *arguments: Any, **options: Any) -> Module:
        module = super().__new__(cls)  # pyright: ignore[reportArgumentType]
        # Wrong arguments are reported by the constructor; copying and unpickling pass none and restore config later.
        with suppress(TypeError):
            bound = inspect.signature(cls).bind(*arguments, **options)
            bound.apply_defaults()
            module.config = {name: described(value) for name, value in flat(bound).items()}
        return module


def flat(bound: inspect.BoundArguments) -> dict[str, Any]:
    """Return bound arguments by name, those of ``**options`` beside the others."""
    values = dict[str, Any]()
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            values.update(value)
        elif kind is not inspect.Parameter.VAR_POSITIONAL:  # of a class without a constructor
            values[name] = value
    return values


def described(value: Any) -> Any:
    """Return an argument as a JSON value."""
    if isinstance(value, Configurable):
        return {"class": type(value).__name__, "arguments": value.config}
    return to_json(value)


@dataclass(frozen=True)
class ModuleConfig:
    """The class of a module and its constructor arguments, as a value.

    Named arguments that are left out are filled in with their defaults; keywords of ``**options`` are not.

    Example:
        >>> from picaset.networks.set_networks import DeepSets
        >>> small = ModuleConfig.of(DeepSets, dim_in=2, dim_out=5, dim=8)
        >>> small.replace(pool="max")["pool"], type(small.build()).__name__
        ('max', 'DeepSets')
        >>> small.replace(pol="max")
        Traceback (most recent call last):
            ...
        ValueError: DeepSets: there is no argument 'pol'; did you mean 'pool'?
    """

    name: str
    arguments: tuple[tuple[str, Any], ...]

    @classmethod
    def of(cls, module: type[Configurable], **arguments: Any) -> "ModuleConfig":
        """Describe a module; arguments are checked by name and by type."""
        return cls.checked(module.__name__, arguments, where=module.__name__)

    @classmethod
    def checked(cls, name: str, arguments: dict[str, Any], *, where: str) -> "ModuleConfig":
        hints, defaults = parameters_of(CLASSES[name])
        values = dict(defaults)
        for key, value in arguments.items():
            check_known(key, hints, where=where, label="argument")
            if isinstance(value, dict):
                value = cls.from_json(value, where=f"{where}, {key}")
            if isinstance(value, cls):
                check_subclass(value.name, hints[key], where=where, name=key)
                values[key] = value
            elif key not in defaults or value != defaults[key]:
                values[key] = read_value(value, hints[key], where=where, name=key)
                check_magnitude(values[key], where=where, name=key)
        missing = [key for key in hints if key not in values and key not in optional(name)]
        if missing:
            raise ValueError(f"{where}: the argument {missing[0]!r} is missing.")
        return cls(name, tuple((key, values[key]) for key in hints if key in values))

    def __getitem__(self, name: str) -> Any:
        return dict(self.arguments)[name]

    def __contains__(self, name: str) -> bool:
        return name in dict(self.arguments)

    def get(self, name: str, default: Any = None) -> Any:
        """Return an argument, or ``default`` if the module has no such argument."""
        return dict(self.arguments).get(name, default)

    def replace(self, **changes: Any) -> "ModuleConfig":
        """Return the description with some arguments changed."""
        return self.checked(self.name, dict(self.arguments) | changes, where=self.name)

    def build(self) -> Any:
        """Build the module, with random weights; one that exceeds the size limits is an error."""
        limit = f"{MAX_PARAMETERS} tensors or {MAX_WEIGHTS} weights, the largest allowed"
        check_size(self.construct, MAX_PARAMETERS, MAX_WEIGHTS, limit=limit)
        return self.construct()

    def construct(self) -> Any:
        values = {key: value.construct() if isinstance(value, ModuleConfig) else value for key, value in self.arguments}
        return CLASSES[self.name](**values)

    def to_json(self) -> dict[str, Any]:
        return {"class": self.name, "arguments": {key: to_json(value) for key, value in self.arguments}}

    @classmethod
    def from_json(cls, values: Any, *, where: str) -> "ModuleConfig":
        """Read a description; an unknown class, an unknown argument or a value of the wrong type is an error."""
        if not isinstance(values, dict) or not isinstance(cast(dict[str, Any], values).get("class"), str):
            raise ValueError(f'{where} must be an object with "class" and "arguments"; got {describe_value(values)}.')
        name, arguments = cast(str, values["class"]), cast(dict[str, Any], values).get("arguments", {})
        check_known(name, CLASSES, where=where, label="module")
        if not isinstance(arguments, dict):
            raise ValueError(f"{where}: arguments must be an object; got {describe_value(arguments)}.")
        return cls.checked(name, cast(dict[str, Any], arguments), where=where)


def check_magnitude(value: Any, *, where: str, name: str) -> None:
    """Raise an error if an argument from a file exceeds the largest number of steps."""
    if isinstance(value, int) and value > MAX_STEPS and name.endswith(("steps", "iterations")):
        raise ValueError(f"{where}: {name} must be at most {MAX_STEPS}; got {value}.")


def check_size(build: Callable[[], nn.Module], num_parameters: int, num_weights: int, *, limit: str) -> None:
    """Raise an error as soon as a network that is being built exceeds a size; nothing is allocated for it."""
    thread, parameters, weights = threading.get_ident(), 0, 0

    def count(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        nonlocal parameters, weights
        if parameter is None or threading.get_ident() != thread:
            return
        parameters, weights = parameters + 1, weights + parameter.numel()
        if parameters > num_parameters or weights > num_weights:
            raise ValueError(f"it describes a network of more than {limit}; was it changed?")

    hook = register_module_parameter_registration_hook(count)
    try:
        with torch.device("meta"):
            build()
    except (RuntimeError, MemoryError, OverflowError) as error:  # sizes whose product is no number of bytes
        raise ValueError(f"it describes a network that cannot be built ({str(error).splitlines()[0]})") from None
    finally:
        hook.remove()


def check_subclass(described: str, hint: Any, *, where: str, name: str) -> None:
    """Raise an error if the class that is described for an argument is not of the annotated type."""
    if hint is not Any and not (isinstance(hint, type) and issubclass(CLASSES[described], hint)):
        raise ValueError(f"{where}: {name} must be {describe_type(hint)}; got a description of {described}.")


@cache
def parameters_of(module: type[Configurable]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the types and the defaults of a constructor's parameters by name, those of ``**options`` included."""
    hints, defaults = dict[str, Any](), dict[str, Any]()
    annotations = get_type_hints(module.__init__)
    for name, parameter in inspect.signature(module).parameters.items():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            continue
        hint = annotations.get(name, Any)
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            options = get_args(hint)[0] if get_origin(hint) is Unpack else None
            hints.update(get_type_hints(options) if options is not None else {})
            continue
        hints[name] = hint
        if parameter.default is not inspect.Parameter.empty:
            defaults[name] = parameter.default
    return hints, defaults


def optional(name: str) -> set[str]:
    """Return the names of the keywords that a constructor takes as ``**options``."""
    return set(parameters_of(CLASSES[name])[0]) - set(inspect.signature(CLASSES[name]).parameters)


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
    """A network or an operator that can be saved to a folder or to the Hugging Face Hub, and loaded from it.

    The constructor arguments are saved beside the weights; see :class:`Configurable`.
    """

    def save_pretrained(self, directory: str | os.PathLike[str]) -> None:
        """Save the network to a folder; each file is replaced atomically."""
        for name, value in self.config.items():
            if not is_json(value):
                raise ValueError(
                    f"{type(self).__name__}.save_pretrained: the argument {name} is a {type(value).__name__}, which "
                    "has no form in config.json; save the weights with safetensors, and build the module in code."
                )
        directory = create_folder(Path(directory))
        description = Description(
            format=FORMAT, format_version=FORMAT_VERSION, network=type(self).__name__, config=self.config
        )
        weights = {name: tensor.detach().cpu().contiguous() for name, tensor in self.state_dict().items()}
        with atomic_write(directory / "config.json") as config, atomic_write(directory / "model.safetensors") as model:
            config.write_text(json.dumps(description, indent=2) + "\n")
            model.write_bytes(save(weights))

    def push_to_hub(
        self,
        repo_id: str,
        *,
        commit_message: str = "Upload a module of picaset",
        private: bool | None = None,
        token: str | None = None,
        branch: str | None = None,
        create_pr: bool | None = None,
    ) -> str:
        """Push the network to a repository of the Hugging Face Hub, created if needed; return the commit's address.

        A model card is written if the repository has none.

        Args:
            repo_id: Name of the repository, such as ``"org/name"``.
            commit_message: Message of the commit.
            private: Whether a repository that is created is private; by default as the organization has it.
            token: Token that may write; by default that of ``hf auth login``.
            branch: Branch to push to, created if needed; by default the main one.
            create_pr: Whether to open a pull request instead of committing to the branch.
        """
        with TemporaryDirectory() as folder:
            self.save_pretrained(folder)
            card = model_card(
                type(self).__name__,
                type(self).__module__,
                self.config,
                name=repo_id,
                num_parameters=sum(parameter.numel() for parameter in self.parameters()),
            )
            return upload(
                Path(folder), repo_id, card=card, commit_message=commit_message, private=private, token=token,
                branch=branch, create_pr=create_pr,
            )  # fmt: skip

    @classmethod
    def from_pretrained(
        cls: type[Network],
        directory: str | os.PathLike[str],
        *,
        force_download: bool = False,
        token: str | bool | None = None,
        cache_dir: str | Path | None = None,
        local_files_only: bool = False,
        revision: str | None = None,
    ) -> Network:
        """Load a network, in ``eval`` mode; a folder of another network is an error.

        Args:
            directory: Folder, or the name of a repository of the Hugging Face Hub, such as ``"org/name"``. The other
                arguments are for a repository.
            force_download: Whether to download files again that are in the cache.
            token: Token for a private repository; by default that of ``hf auth login``.
            cache_dir: Folder of the cache; by default that of ``huggingface_hub``.
            local_files_only: Whether to look into the cache alone.
            revision: Branch, tag or commit of the repository; a commit pins the weights.
        """
        if is_hub_name(str(directory)):
            directory = download(
                str(directory), revision=revision, token=token, cache_dir=cache_dir,
                local_files_only=local_files_only, force_download=force_download,
            )  # fmt: skip
        elif revision is not None:
            raise ValueError(
                f"{cls.__name__}.from_pretrained: revision needs the name of a repository of the Hub; "
                f"{directory} is a folder."
            )
        directory = Path(directory)
        description = read_description(directory / "config.json")
        name = description["network"]
        if name != cls.__name__:
            raise ValueError(
                f"{cls.__name__}.from_pretrained: {directory} holds a {describe_value(name)[1:-1]}; load it with "
                f"{describe_value(name)[1:-1]}.from_pretrained."
            )
        weights = read_weights(directory / "model.safetensors")
        try:
            config = description["config"]
            if description["format_version"] < FORMAT_VERSION:
                config, weights = cls.upgrade(config, weights)
            module = ModuleConfig.checked(name, config, where=name)
            # A network a little larger than its weights may be built: load_weights says which of them differs.
            num_weights = sum(tensor.numel() for tensor in weights.values())
            limit = f"twice the {num_weights} weights in model.safetensors"
            check_size(module.construct, 2 * len(weights) + 100, 2 * num_weights + 1_000_000, limit=limit)
            network = module.construct()
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
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


def is_json(value: Any) -> bool:
    """Return whether a value can be written as JSON."""
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True


def check_exists(path: Path) -> None:
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"{path.parent} is not a folder; a network is a folder with config.json and model.safetensors."
        )
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist; a network is a folder with config.json and model.safetensors.")
    # The cache of the Hugging Face hub keeps files in blobs/ beside snapshots/, and a snapshot is a folder of links.
    folder, target = path.parent.resolve(), path.resolve()
    if target.parent not in (folder, folder.parent.parent / "blobs"):
        raise ValueError(f"{path} is a symbolic link out of its folder, to {target}; replace it by a copy.")


def read_description(path: Path) -> Description:
    check_exists(path)
    values = read_json(path)
    if values.get("format") != FORMAT:
        raise ValueError(f'{path} is not the description of a picaset network: "format" must be "{FORMAT}".')
    if values.get("format_version") not in range(1, FORMAT_VERSION + 1):
        raise ValueError(
            f"{path} has format version {describe_value(values.get('format_version'))}; this picaset reads versions 1 "
            f"to {FORMAT_VERSION}. Install the picaset that wrote it."
        )
    if not isinstance(values.get("network"), str) or not isinstance(values.get("config"), dict):
        raise ValueError(f'{path} must have a "network" name and a "config" object.')
    return cast(Description, values)


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file."""
    check_exists(path)
    try:
        return load_file(path)
    except (SafetensorError, LookupError, TypeError, ValueError, RuntimeError, OverflowError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"{path} is not a whole safetensors file ({reason}); was it cut short?") from None


def load_weights(network: nn.Module, weights: dict[str, Tensor], *, source: str) -> None:
    """Load weights into a network; all names and shapes must match, and all numbers be finite."""
    expected = network.state_dict()
    for name in sorted(expected.keys() | weights.keys()):
        parameter, tensor = expected.get(name), weights.get(name)
        if parameter is None or tensor is None or parameter.shape != tensor.shape:
            expected_shape = "be absent" if parameter is None else f"have shape {tuple(parameter.shape)}"
            shape = "is absent" if tensor is None else f"has shape {tuple(tensor.shape)}"
            raise ValueError(
                f"{source} holds the weights of another network: {name} must {expected_shape}; in the file it {shape}."
            )
        if parameter.is_floating_point() != (tensor.dtype in PRECISIONS):
            raise ValueError(f"{source}: {name} must be {parameter.dtype}; got {tensor.dtype}.")
        if not bool(tensor.isfinite().all()) and bool(parameter.isfinite().all()):
            raise ValueError(f"{source}: {name} holds NaN or infinity; the file is damaged, or its training diverged.")
    precisions = {tensor.dtype for tensor in weights.values() if tensor.is_floating_point()}
    if len(precisions) == 1:
        network.to(precisions.pop())
    network.load_state_dict(weights)


PRECISIONS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
