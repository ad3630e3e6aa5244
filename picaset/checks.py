"""Argument checks shared by the package. An error states what was expected, what came, and what to do."""

from typing import Any, cast

import torch
from torch import Tensor


def check_floating(elements: Tensor, *, caller: str) -> None:
    if not elements.is_floating_point():
        raise TypeError(
            f"{caller}: elements must be floating-point numbers; got {elements.dtype}. Pass elements.float()."
        )


def check_finite(elements: Tensor, *, caller: str) -> None:
    """Raise ValueError with the position of the first NaN or infinity."""
    invalid = ~elements.isfinite()
    if bool(invalid.any()):
        row, column = (int(index) for index in invalid.nonzero()[0])
        raise ValueError(
            f"{caller}: elements must be finite; element {row} has {elements[row, column].item()} in feature {column}. "
            "Remove the element or replace the value."
        )


def check_mask(mask: Tensor, elements: Tensor, *, caller: str) -> None:
    """Raise unless the mask is boolean, of shape (B, N), and on the device of the elements."""
    check_tensor(mask, caller=caller, name="mask", hint="Pass torch.as_tensor(mask).")
    if mask.dtype is not torch.bool:
        raise TypeError(
            f"{caller}: mask must be boolean, True where an element is present; got {mask.dtype}. "
            "Pass mask.bool(), or ~mask.bool() if it is True for padding."
        )
    if mask.shape != elements.shape[:2]:
        raise ValueError(
            f"{caller}: mask must have shape (B, N) = {tuple(elements.shape[:2])} to match "
            f"elements of shape {tuple(elements.shape)}; got {tuple(mask.shape)}."
        )
    if mask.device != elements.device:
        raise ValueError(
            f"{caller}: elements are on {elements.device} and mask on {mask.device}; move them to one device."
        )


def check_weights(weights: Tensor, elements: Tensor, *, caller: str) -> None:
    """Raise unless the weights are numbers of the shape of the elements without their features, on the same device."""
    check_tensor(weights, caller=caller, name="weights", hint="Pass torch.as_tensor(weights).")
    if weights.dtype is torch.bool or weights.is_complex():
        raise TypeError(
            f"{caller}: weights must be numbers, w for an element that counts as w copies; got {weights.dtype}. "
            "Pass a boolean tensor as mask."
        )
    if weights.shape != elements.shape[:-1]:
        raise ValueError(
            f"{caller}: weights must have shape {tuple(elements.shape[:-1])} to match elements of shape "
            f"{tuple(elements.shape)}; got {tuple(weights.shape)}."
        )
    if weights.device != elements.device:
        raise ValueError(
            f"{caller}: elements are on {elements.device} and weights on {weights.device}; move them to one device."
        )


def check_tensor(value: object, *, caller: str, name: str, hint: str) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"{caller}: {name} must be a torch tensor; got {type(value).__name__}. {hint}")


def check_num_heads(num_heads: int, dim: int, *, caller: str) -> None:
    check_positive(caller=caller, num_heads=num_heads, dim=dim)
    if dim % num_heads:
        raise ValueError(f"{caller}: num_heads must divide dim; got num_heads={num_heads} and dim={dim}.")


def check_positive(*, caller: str, **sizes: object) -> None:
    """Raise unless every size is an integer of at least 1."""
    for name, size in sizes.items():
        if not isinstance(size, int):
            hint = f" Pass int({name})." if hasattr(size, "__index__") else ""
            raise TypeError(f"{caller}: {name} must be an integer; got {size!r}.{hint}")
        if size < 1:
            raise ValueError(f"{caller}: {name} must be at least 1; got {size}.")


def check_choice(choice: object, choices: tuple[object, ...], *, caller: str, name: str) -> None:
    if choice not in choices:
        raise ValueError(f"{caller}: {name} must be one of {', '.join(map(repr, choices))}; got {choice!r}.")


def has_device(device: object) -> bool:
    """Return whether PyTorch can store numbers on the device; on ``meta`` it stores shapes alone."""
    try:
        zeros = torch.zeros(1, device=cast(Any, device))
    except (RuntimeError, AssertionError, TypeError, ImportError):  # one for each kind of device
        return False
    return zeros.device.type != "meta"


def check_device(device: object, *, caller: str) -> None:
    """Raise unless PyTorch can store numbers on the device."""
    if not has_device(device):
        raise ValueError(
            f"{caller}: device must be one that PyTorch has on this machine, such as 'cpu'; got {device!r}."
        )
