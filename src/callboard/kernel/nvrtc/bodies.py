"""NumPy bodies of kernels, as bytes that travel to a context host.

A body is sent by value: its module need not be importable there, nor is it imported. In the process that packed it, the
original function is used, with the globals of its module.
"""

import threading
import weakref
from collections.abc import Callable
from typing import Any

__all__ = ["packed", "unpacked"]

Body = Callable[..., Any]

_here: "weakref.WeakValueDictionary[bytes, Any]" = weakref.WeakValueDictionary()
_loaded: dict[bytes, Body] = {}
_lock = threading.Lock()
MOST_BYTES = 1 << 20
MAX_LOADED = 1024
"""Bodies of other processes that are kept."""


def packed(body: Body) -> bytes:
    """The function as bytes.

    Raises:
        TypeError: It refers to something that cannot be sent, or to too much; names it.
    """
    import cloudpickle

    try:
        code: bytes = cloudpickle.dumps(body)
    except Exception as e:  # of the pickling of whatever the function refers to
        raise TypeError(f"{body.__qualname__} cannot be sent to a context host: {type(e).__name__}: {e}") from e
    if len(code) > MOST_BYTES:
        raise TypeError(
            f"{body.__qualname__} has {len(code):,} bytes with all that it refers to, at most {MOST_BYTES:,} are sent; "
            "pass arrays as parameters"
        )
    _here[code] = body
    return code


def unpacked(code: bytes) -> Body:
    """The function of :func:`packed`; only of bytes that our own application has sent."""
    body = _here.get(code)
    if body is not None:
        known: Body = body
        return known
    with _lock:
        loaded = _loaded.get(code)
        if loaded is None:
            import pickle

            if len(_loaded) >= MAX_LOADED:
                _loaded.clear()
            loaded = _loaded[code] = pickle.loads(code)
        return loaded
