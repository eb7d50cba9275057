"""What makes a CPU faster: Numba and OpenCV, if they are installed, and its cores. Used in context hosts only."""

import functools
import importlib
import importlib.util
import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any, TypeVar

from callboard.core.backend.announcing import announce

__all__ = ["engine", "jit", "jit_inlined", "optional", "spread", "threads"]

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

    _announced()
    made: F = numba.njit(cache=True, error_model="numpy", nogil=True)(function)
    return made


def jit_inlined(function: F) -> F:
    """As :func:`jit`, for short functions that compiled loops call: a call would count references to its arrays."""
    import numba

    _announced()
    made: F = numba.njit(cache=True, error_model="numpy", nogil=True, forceinline=True)(function)
    return made


@functools.cache
def _announced() -> None:
    """Have Numba say when it compiles a blueprint: what is on disk is loaded without it."""
    from numba.core import event

    class Said(event.Listener):  # type: ignore[misc]  # of Numba, which has no types
        def on_start(self, event: Any) -> None:
            function = event.data["dispatcher"]
            if function.py_func.__module__.startswith("callboard.realtime."):  # some are shared: they name no blueprint
                kept = function.stats.cache_path or "memory only, as no folder can be written"
                announce("real-time loops with Numba", kept)

        def on_end(self, event: Any) -> None:
            pass

    event.register("numba:compile", Said())


@functools.cache
def threads() -> int:
    """Threads that :func:`spread` uses: the cores of this process, or ``OMP_NUM_THREADS`` if that is less."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    said = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return max(1, min(cores, int(said))) if said.isdecimal() and int(said) else cores


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads() - 1, "callboard-realtime")


def spread(part: Callable[..., Any], count: int, grain: int, *arguments: Any) -> None:
    """Call ``part(first, end, *arguments)`` for consecutive parts of ``range(count)``, on several threads.

    The items must not depend on each other, so that results do not depend on the number of threads.

    Args:
        part: Releases the GIL for most of its time, as functions of :func:`jit` and OpenCV do.
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
