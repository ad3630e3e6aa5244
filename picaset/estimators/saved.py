"""Fitted estimators as folders: the network as safetensors, the rest as JSON; no pickle, so a stranger's can be read.

DIRECTORY/config.json, model.safetensors    the network; see :class:`PretrainedNetwork`
DIRECTORY/estimator.json                    format, estimator, its parameters, what it learned beside the network
"""

import json
import os
from pathlib import Path
from typing import Any, cast

import numpy as np

from picaset.files import read_json, replacing
from picaset.networks.pretrained import PretrainedNetwork

FILE = "estimator.json"
FORMAT = "picaset-estimator"
PAIRS = "pairs"


def write_estimator(
    directory: str | os.PathLike[str], estimator: Any, network: PretrainedNetwork, learned: dict[str, Any]
) -> None:
    """Write an estimator; ``learned`` is what ``fit`` found beside the network, as JSON values."""
    parameters = dict(estimator.get_params(deep=False))
    if not isinstance(parameters["random_state"], int):  # a generator has no JSON; it is of use in fit alone
        parameters["random_state"] = None
    for name, value in parameters.items():
        if isinstance(value, dict):  # whose keys need not be text
            parameters[name] = {PAIRS: list(cast(dict[Any, Any], value).items())}
    described = dict(format=FORMAT, estimator=type(estimator).__name__, parameters=parameters, learned=learned)
    try:
        text = json.dumps(described, default=plain_number) + "\n"
    except TypeError as error:
        raise ValueError(
            f"{type(estimator).__name__}.save: labels must be text, numbers or truth values: {error}."
        ) from None
    network.save_pretrained(directory)
    with replacing(Path(directory) / FILE) as unfinished:
        unfinished.write_text(text)


def read_estimator(directory: str | os.PathLike[str], *, name: str) -> tuple[dict[str, Any], dict[str, Any], Path]:
    """The parameters of an estimator, what it learned, and the file that says so; refuses a folder of anything else."""
    path = Path(directory) / FILE
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist; {name}.load reads a folder that {name}.save wrote.")
    described = read_json(path)
    if described.get("format") != FORMAT:
        raise ValueError(f'{path} is not the description of an estimator: "format" must be "{FORMAT}".')
    if described.get("estimator") != name:
        found = described.get("estimator")
        raise ValueError(f"{name}.load: {path} describes a {found}; read it with {found}.load.")
    if not all(isinstance(described.get(part), dict) for part in ("parameters", "learned")):
        raise ValueError(f'{path} must give "parameters" and what was "learned".')
    parameters, learned = cast(dict[str, Any], described["parameters"]), cast(dict[str, Any], described["learned"])
    for key, value in parameters.items():
        if isinstance(value, dict) and PAIRS in value:
            parameters[key] = dict(cast(list[tuple[Any, Any]], value[PAIRS]))
    return parameters, learned, path


def plain_number(value: Any) -> Any:
    """What JSON has for a number of NumPy's."""
    if isinstance(value, np.generic):
        return cast(Any, value).item()
    raise TypeError(f"got {value!r}")
