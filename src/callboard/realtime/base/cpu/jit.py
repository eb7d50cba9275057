"""``jit``: functions compiled by Numba, and a line on stderr when that takes time."""

import functools
import logging
from collections.abc import Callable
from typing import Any, TypeVar

from callboard.core.backend.announcing import announce

__all__ = ["jit", "jit_inlined"]

F = TypeVar("F", bound=Callable[..., Any])

_log = logging.getLogger(__name__)


def jit(function: F) -> F:
    """The function compiled by Numba for the types of its first call; what was compiled is kept on disk."""
    return _compiled(function)


def jit_inlined(function: F) -> F:
    """As :func:`jit`, for short functions that compiled loops call: a call would count references to its arrays."""
    return _compiled(function, forceinline=True)


def _compiled(function: F, **options: bool) -> F:
    import numba

    from callboard.realtime.base.cpu.caching import SourcesCache

    _announced()
    made: Any = numba.njit(error_model="numpy", nogil=True, **options)(function)
    try:
        made._cache = SourcesCache(function)  # as cache=True does with Numba's own
    except RuntimeError as error:  # no folder can be written
        _log.debug("%s", error)
    return made  # type: ignore[no-any-return]


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
