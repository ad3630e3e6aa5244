"""Export of operators and networks to ONNX, for serving without torch.

Dimensions:  B sets   N elements (padded)   D features
"""

import logging
import os
import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from picaset.extras import require
from picaset.files import atomic_write

TOLERANCE = 1e-4
"""Largest difference to the module that the check of an exported file accepts, relative to the largest output."""


def export_onnx(
    module: nn.Module, path: str | os.PathLike[str], *, dim_in: int | None = None, **options: Any
) -> tuple[str, ...]:
    """Export an operator or a network on sets to an ONNX file, and check the file in ONNX Runtime.

    The file has the inputs ``elements`` (B, N, D) and ``mask`` (B, N), boolean and True where an element is present,
    with any B and N of at least 1: ONNX Runtime may crash the process on a batch of no sets. An empty set is a row of
    the mask that is False everywhere. The module is exported in ``eval`` mode; the file is compared with it for other B
    and N than were traced, and for an empty set.

    Args:
        module: Called as ``module(elements, mask)``; returns a tensor, or a tuple of tensors.
        path: File to write.
        dim_in: Features of an element; by default ``module.dim_in``.
        options: Keywords of the module's forward, which the file has as constants.

    Returns:
        The names of the outputs: ``output``, or ``output_0`` and so on, or the fields of a named tuple.

    Raises:
        ValueError: If the module does not take a set, or if ONNX or ONNX Runtime cannot represent it.
        TypeError: If it is not a module.

    Example:
        >>> from picaset import PicasoPool
        >>> export_onnx(PicasoPool(8, num_templates=2, num_heads=2), "pool.onnx")  # doctest: +SKIP
        ('output',)
    """
    require("onnx", extra="onnx", purpose="exporting to ONNX")
    require("onnxscript", extra="onnx", purpose="exporting to ONNX")
    runtime = cast(Any, require("onnxruntime", extra="onnx", purpose="checking an exported file"))
    check_takes_sets(module, options)
    width = dim_in or width_of(module)
    weight = next(module.parameters(), torch.zeros(()))
    training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        with torch.no_grad(), quiet():
            example = example_sets([3, 5], width, like=weight)
            wrapped = WithOptions(module, options)
            names = output_names(wrapped(*example))
            program = cast(Any, torch.onnx).export(
                wrapped,
                example,
                dynamo=True,
                verbose=False,
                input_names=["elements", "mask"],
                output_names=list(names),
                dynamic_shapes=({0: "B", 1: "N"}, {0: "B", 1: "N"}),
            )
            with atomic_write(Path(path)) as unfinished:
                program.save(str(unfinished), external_data=False)
                session = runtime.InferenceSession(str(unfinished), providers=["CPUExecutionProvider"])
                for sizes in ([3, 5], [7, 0, 4], [1]):
                    check_outputs(session, wrapped, example_sets(sizes, width, like=weight))
    except (OSError, MemoryError):
        raise
    except Exception as error:  # the exporter and the runtime have many exceptions without a common base
        raise ValueError(f"{type(module).__name__} cannot be exported to ONNX: {reason_of(error)}") from error
    finally:
        for part in training:
            part.training = True
    return names


class WithOptions(nn.Module):
    """A module with fixed keywords."""

    def __init__(self, module: nn.Module, options: dict[str, Any]) -> None:
        super().__init__()
        self.module = module
        self.options = options

    def forward(self, elements: Tensor, mask: Tensor) -> Any:
        return self.module(elements, mask, **self.options)


def check_takes_sets(module: nn.Module, options: dict[str, Any]) -> None:
    """Raise unless the module is called as ``module(elements, mask, **options)``."""
    if not isinstance(cast(object, module), nn.Module):
        hint = "; pass estimator.network_ of a fitted estimator" if hasattr(module, "network_") else ""
        raise TypeError(f"export_onnx: expected a torch module; got {type(module).__name__}{hint}.")
    parameters = signature(module.forward).parameters
    name = type(module).__name__
    if list(parameters)[:2] != ["elements", "mask"]:
        raise ValueError(
            f"{name} cannot be exported to ONNX: its forward must begin with (elements, mask); "
            f"it takes ({', '.join(parameters)}). Use torch.onnx.export for other inputs than sets of vectors."
        )
    missing = [
        key
        for key, value in list(parameters.items())[2:]
        if value.default is Parameter.empty and value.kind is not Parameter.VAR_KEYWORD and key not in options
    ]
    if missing:
        raise ValueError(
            f"{name} cannot be exported to ONNX without {missing[0]}, which its forward needs; "
            f"pass export_onnx(..., {missing[0]}=...), or --{missing[0].replace('_', '-')} to picaset export."
        )


def width_of(module: nn.Module) -> int:
    """Return the number of features of an element, from the module or the first part that says it."""
    for part in module.modules():
        if isinstance(width := getattr(part, "dim_in", None), int):
            return width
    raise ValueError(
        f"{type(module).__name__} accepts elements of any width; say which: export_onnx(..., dim_in=FEATURES), "
        "or picaset export --dim-in FEATURES."
    )


def example_sets(sizes: Sequence[int], width: int, *, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return random sets of the given sizes, padded, and their mask."""
    generator = torch.Generator().manual_seed(len(sizes))
    elements = torch.randn(len(sizes), max(sizes) + 1, width, generator=generator).to(like)
    mask = torch.arange(elements.shape[1]) < torch.tensor(sizes)[:, None]
    return elements, mask.to(like.device)


def output_names(outputs: Any) -> tuple[str, ...]:
    if isinstance(outputs, Tensor):
        return ("output",)
    return getattr(outputs, "_fields", None) or tuple(f"output_{index}" for index in range(len(outputs)))


def check_outputs(session: Any, module: nn.Module, example: tuple[Tensor, Tensor]) -> None:
    """Raise unless a session of ONNX Runtime returns what the module returns."""
    outputs = module(*example)
    expected = (outputs,) if isinstance(outputs, Tensor) else outputs
    inputs = {name: tensor.cpu().numpy() for name, tensor in zip(("elements", "mask"), example, strict=True)}
    for name, values, targets in zip(output_names(outputs), session.run(None, inputs), expected, strict=True):
        values, targets = torch.as_tensor(values), targets.cpu()
        difference = (
            torch.where(values == targets, 0.0, values - targets).abs().max()
        )  # scores may be -inf where absent
        largest = float(targets.nan_to_num(posinf=0.0, neginf=0.0).abs().max())
        if not difference <= TOLERANCE * max(1.0, largest):
            raise ValueError(f"ONNX Runtime gives another {name}; the largest difference is {float(difference):.2g}")


def reason_of(error: BaseException) -> str:
    """Return the first line of the innermost cause."""
    while error.__cause__ is not None:
        error = error.__cause__
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)


@contextmanager
def quiet() -> Generator[None]:
    """Suppress the notes of the exporter, which concern its own development."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
