"""Learned vectors to ask a set with."""

import torch
from torch import nn


def learned_templates(count: int, dim: int) -> nn.Parameter:
    """Templates drawn as Set Transformer draws them (Glorot)."""
    return nn.Parameter(nn.init.xavier_uniform_(torch.empty(count, dim)))
