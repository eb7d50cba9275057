"""Packages that make the CPU faster, if they are installed: Numba, OpenCV. Used in context hosts only."""

import functools
import importlib
import importlib.util
import logging
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

__all__ = ["engine", "jit", "optional"]

F = TypeVar("F", bound=Callable[..., Any])

_log = logging.getLogger(__name__)


@functools.cache
def optional(package: str, instead: str) -> ModuleType | None:
    """The package; None, and a warning once, if it is not installed.

    Args:
        package: Name of the module.
        instead: What computes without it.
    """
    if importlib.util.find_spec(package) is None:
        _log.warning(
            "%s is not installed, so %s computes, more slowly: pip install 'callboard[realtime]'", package, instead
        )
        return None
    return importlib.import_module(package)


@functools.cache
def engine(plain: str, compiled: str) -> Any:
    """The module ``compiled``, whose functions :func:`jit` compiles, or ``plain`` without Numba."""
    return importlib.import_module(plain if optional("numba", "NumPy") is None else compiled)


def jit(function: F) -> F:
    """The function compiled by Numba for the types of its first call; what was compiled is kept on disk."""
    import numba

    made: F = numba.njit(cache=True, error_model="numpy", nogil=True)(function)
    return made
