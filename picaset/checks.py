"""What was expected, what came, what to do: the checks that more than one part makes."""

import torch
from torch import Tensor


def check_floating(elements: Tensor, *, caller: str) -> None:
    if not elements.is_floating_point():
        raise TypeError(
            f"{caller}: elements must be floating-point numbers; got {elements.dtype}. Pass elements.float()."
        )


def check_finite(elements: Tensor, *, caller: str) -> None:
    finite = elements.isfinite()
    if not bool(finite.all()):
        row = int((~finite.all(dim=-1)).nonzero()[0])
        raise ValueError(
            f"{caller}: elements must be finite; element {row} is {elements[row]}. Remove it or fill it in first."
        )


def check_mask(mask: Tensor, elements: Tensor, *, caller: str) -> None:
    if mask.dtype is not torch.bool:
        raise TypeError(
            f"{caller}: mask must be boolean, True where an element is present; got {mask.dtype}. "
            "If yours marks the padding, pass ~mask."
        )
    if mask.shape != elements.shape[:2]:
        raise ValueError(
            f"{caller}: mask must have shape (B, N) = {tuple(elements.shape[:2])} to match "
            f"elements of shape {tuple(elements.shape)}; got {tuple(mask.shape)}."
        )
    if mask.device != elements.device:
        raise ValueError(
            f"{caller}: elements are on {elements.device} and mask on {mask.device}; move one to the other."
        )


def check_divides(num_heads: int, dim: int, *, caller: str) -> None:
    check_positive(caller=caller, num_heads=num_heads, dim=dim)
    if dim % num_heads:
        raise ValueError(f"{caller}: num_heads must divide dim; got num_heads={num_heads} and dim={dim}.")


def check_positive(*, caller: str, **sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{caller}: {name} must be at least 1; got {size}.")


def check_choice(choice: str, choices: tuple[str, ...], *, caller: str, name: str) -> None:
    if choice not in choices:
        raise ValueError(f"{caller}: {name} must be one of {', '.join(map(repr, choices))}; got {choice!r}.")
