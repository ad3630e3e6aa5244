"""Number of threads for small problems, which several threads make slower instead of faster."""

from collections.abc import Generator
from contextlib import contextmanager

import torch

SMALL = 2**20
"""Largest number of values per operation for which one thread is used."""


@contextmanager
def few_threads(size: int, *, small: int = SMALL) -> Generator[None]:
    """Let PyTorch use one thread inside the block if ``size`` is at most ``small``, and restore the number afterwards.

    Starting threads costs more than they save if an operation takes microseconds, and on a busy machine the slowest
    thread determines the time.

    Args:
        size: Number of values that a typical operation of the block reads or writes.
        small: Largest size for which one thread is used.

    Example:
        >>> with few_threads(1000):
        ...     torch.get_num_threads()
        1
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1 if size <= small else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
