"""Imports of optional dependencies, with an error that names the extra to install."""

from importlib import import_module
from types import ModuleType


class MissingExtraError(ImportError):
    """A package of an optional extra is not installed."""


def require(module: str, *, extra: str, purpose: str) -> ModuleType:
    """Import a module that belongs to an optional extra.

    Example:
        >>> require("no_such_module", extra="experiments", purpose="this")
        Traceback (most recent call last):
            ...
        picaset.extras.MissingExtraError: this needs no_such_module; install it with: pip install 'picaset[experiments]'
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = module.split(".")[0]
        if error.name is None or error.name.split(".")[0] != package:
            raise
        raise MissingExtraError(f"{purpose} needs {package}; install it with: pip install 'picaset[{extra}]'") from None
