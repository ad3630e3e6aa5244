"""Load checkpoints of the public Set Transformer program into a network with the same outputs.

Names in their checkpoints and in our networks:

    enc.0.I, enc.0.mab0, enc.0.mab1    encoders.0.inducing, .gather, .spread        (ISAB)
    enc.0.mab                          encoders.0.block                             (SAB)
    dec.0.S, dec.0.mab                 pool.templates, pool.blocks.0                (PMA)
    dec.1.mab                          decoder.0.block                              (SAB)
    dec.2.weight                       decoder.1.weight                             (nn.Linear)

and within a block fc_q, fc_k, fc_v, fc_o, ln0, ln1. Layers without weights (dropout) leave gaps in their numbering,
which are ignored.
"""

import os
import pickle
import re
import warnings
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from picaset.checks import check_positive
from picaset.files import describe_value
from picaset.networks.set_networks import SetTransformer
from picaset.pretrained import load_weights

BLOCK_NAMES = {
    "fc_q": "query_map",
    "fc_k": "key_map",
    "fc_v": "value_map",
    "fc_o": "last_layer",
    "ln0": "attended_norm",
    "ln1": "last_norm",
}
NAME = re.compile(
    r"(?P<part>enc|dec)\.(?P<number>\d+)\."
    r"(?:(?P<vectors>I|S)|(?P<block>mab[01]?)\.(?P<map>fc_[qkvo]|ln[01])\.(?P<kind>weight|bias)"
    r"|(?P<linear>weight|bias))"
)


def from_authors_checkpoint(path: str | os.PathLike[str], num_heads: int = 4) -> SetTransformer:
    """Load a checkpoint of the public Set Transformer program; the network is in ``eval`` mode.

    Args:
        path: A file written by ``torch.save``: ``{"state_dict": ...}`` or a bare state dict. It is read with
            ``weights_only=True``; a file with anything but tensors is an error.
        num_heads: Attention heads, which the file does not contain.
    """
    check_positive(caller="from_authors_checkpoint", num_heads=num_heads)
    weights = read_state_dict(Path(path))
    layers = {part: layers_of(part, weights, source=path) for part in ("enc", "dec")}
    encoders, decoders = layers["enc"], layers["dec"]
    arguments = infer_arguments(encoders, decoders, source=path)
    if arguments["dim"] % num_heads:
        raise ValueError(
            f"from_authors_checkpoint: num_heads must divide the width of the network in {path}, {arguments['dim']}; "
            f"got {num_heads}."
        )
    network = SetTransformer(num_heads=num_heads, form="authors", **arguments)
    renamed = {
        f"encoders.{index}.{name}": tensor for index, layer in enumerate(encoders) for name, tensor in layer.items()
    }
    renamed |= {f"pool.{name.replace('block.', 'blocks.0.')}": tensor for name, tensor in decoders[0].items()}
    renamed |= {
        f"decoder.{index}.{name}": tensor for index, layer in enumerate(decoders[1:]) for name, tensor in layer.items()
    }
    load_weights(network, renamed, source=str(path))
    return network.eval()


def read_state_dict(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise FileNotFoundError(f"from_authors_checkpoint: {path} does not exist.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of unusual pickles, which are loaded or reported below
            content: Any = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise ValueError(
            f"from_authors_checkpoint: {path} holds more than tensors, and loading it could run code. "
            'Save {"state_dict": model.state_dict()} and try again.'
        ) from None
    except (RuntimeError, EOFError, KeyError, OSError, ValueError):
        raise ValueError(f"from_authors_checkpoint: {path} was not written by torch.save, or was cut short.") from None
    if isinstance(content, dict) and "state_dict" in content:
        content = cast(dict[str, Any], content)["state_dict"]
    if not isinstance(content, dict) or not all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in cast(dict[Any, Any], content).items()
    ):
        raise ValueError(
            f'from_authors_checkpoint: {path} must hold a state dict, or {{"state_dict": ...}}; got '
            f"{describe_content(content)}."
        )
    return {name.removeprefix("module."): tensor for name, tensor in cast(dict[str, Tensor], content).items()}


def describe_content(content: Any) -> str:
    """Return the type of what a file holds instead of a state dict, or the first entry that is no tensor."""
    if not isinstance(content, dict):
        return f"a {type(content).__name__}"
    entries = cast(dict[Any, Any], content).items()
    name, value = next(
        (name, value) for name, value in entries if not (isinstance(name, str) and isinstance(value, Tensor))
    )
    return f"a dict in which {describe_value(name)} is a {type(value).__name__}"


def layers_of(part: str, weights: dict[str, Tensor], *, source: object) -> list[dict[str, Tensor]]:
    """Return the layers of the encoder or the decoder in order, their tensors under our names."""
    numbered: dict[int, dict[str, Tensor]] = {}
    for name, tensor in weights.items():
        match = NAME.fullmatch(name)
        if match is None:
            raise ValueError(
                f"from_authors_checkpoint: {source} is not a checkpoint of the public Set Transformer program, "
                f"which has no {name!r}."
            )
        if match["part"] == part:
            numbered.setdefault(int(match["number"]), {})[our_name(match)] = (
                tensor.squeeze(0) if match["vectors"] else tensor
            )
    return [numbered[number] for number in sorted(numbered)]


def our_name(match: re.Match[str]) -> str:
    if match["vectors"]:
        return {"I": "inducing", "S": "templates"}[match["vectors"]]
    if match["block"]:
        block = {"mab0": "gather", "mab1": "spread", "mab": "block"}[match["block"]]
        return f"{block}.{BLOCK_NAMES[match['map']]}.{match['kind']}"
    return match["linear"]


def infer_arguments(
    encoders: list[dict[str, Tensor]], decoders: list[dict[str, Tensor]], *, source: object
) -> dict[str, Any]:
    """Infer the arguments of the network from the layers of a checkpoint."""
    kinds = {"induced" if "inducing" in layer else "self" for layer in encoders}
    if len(kinds) != 1 or len(decoders) < 2 or "templates" not in decoders[0] or "weight" not in decoders[-1]:
        raise ValueError(
            f"from_authors_checkpoint: {source} must have encoders of one kind (ISAB or SAB), a PMA, SABs and a "
            "last linear layer."
        )
    inducing = {layer["inducing"].shape[0] for layer in encoders if "inducing" in layer}
    if len(inducing) > 1:
        raise ValueError(
            f"from_authors_checkpoint: {source} has encoders of {sorted(inducing)} inducing points; "
            "a SetTransformer needs the same number in all."
        )
    first = encoders[0].get("spread.query_map.weight", encoders[0].get("block.query_map.weight"))
    if first is None:
        raise ValueError(f"from_authors_checkpoint: {source} has no query map in its first encoder.")
    return {
        "dim_in": first.shape[1],
        "dim": first.shape[0],
        "dim_out": decoders[-1]["weight"].shape[0],
        "encoder": kinds.pop(),
        "num_inducing": inducing.pop() if inducing else 1,
        "num_encoder_blocks": len(encoders),
        "num_outputs": decoders[0]["templates"].shape[0],
        "num_decoder_blocks": len(decoders) - 2,
        "norm": "block.attended_norm.weight" in decoders[0],
    }
