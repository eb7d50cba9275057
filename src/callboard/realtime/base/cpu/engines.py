"""What makes a CPU faster: Numba and OpenCV, if they are installed, and its cores. Used in context hosts only."""

import functools
import importlib
import importlib.util
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

from callboard.core.backend.machine import cores, workers

__all__ = ["engine", "optional", "spread", "threads"]

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
    """The module ``compiled``, whose functions :func:`.jit` compiles, or ``plain`` without Numba."""
    return importlib.import_module(plain if optional("numba", "NumPy") is None else compiled)


@functools.cache
def threads() -> int:
    """Threads that :func:`spread` uses: the cores of this process, or ``OMP_NUM_THREADS`` if that is less."""
    return min(cores(), workers())


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads() - 1, "callboard-realtime")


def spread(part: Callable[..., Any], count: int, grain: int, *arguments: Any) -> None:
    """Call ``part(first, end, *arguments)`` for consecutive parts of ``range(count)``, on several threads.

    The items must not depend on each other, so that results do not depend on the number of threads.

    Args:
        part: Releases the GIL for most of its time, as functions of :func:`.jit` and OpenCV do.
        grain: Items of a part at least; fewer take less time than a thread needs to begin.
    """
    parts = max(1, min(threads(), count // grain))
    ends = [count * n // parts for n in range(parts + 1)]
    others = [_pool().submit(part, *ends[n : n + 2], *arguments) for n in range(1, parts)]
    try:
        part(*ends[:2], *arguments)
    finally:
        for other in others:
            other.exception()  # arrays of the caller are in use until then
    for other in others:
        other.result()
