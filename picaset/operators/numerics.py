"""Precision: half-precision numbers are multiplied and summed as float32, with or without autocast."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def wide(tensor: Tensor) -> Tensor:
    """Half precision as float32; anything else as it is."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def without_autocast(tensor: Tensor) -> AbstractContextManager[object]:
    """Keep products of wide tensors wide: autocast would narrow them again."""
    kind = tensor.device.type
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()
