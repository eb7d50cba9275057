"""``cb.xp``: the array API standard 2025.12 as a module, for libraries that are given the name of one.

Functions of arrays compute on the device of their arrays, whichever it is. Functions that make arrays of nothing else
(``asarray``, ``zeros``, ``arange`` …) make them on the default device: ``cb.sync.device("auto")``, or the one that
``CALLBOARD_DEVICE`` names, opened on first use and closed at exit. ``dev.xp`` is the namespace of a device of yours.
"""

import inspect
import os
import threading
from typing import Any

import callboard.sync as sync
from callboard.arrays.introspection.unknown import unknown
from callboard.arrays.namespace import Namespace
from callboard.core.mode import Blocking

__all__ = ["default"]

_lock = threading.Lock()
_opened: sync.Device | None = None


def default() -> Namespace[Blocking]:
    """The namespace of the default device, which is opened now if it is not open.

    Raises:
        BackendUnavailable: ``CALLBOARD_DEVICE`` names a device that cannot be used.
    """
    return _device().xp


def _device() -> sync.Device:
    global _opened
    with _lock:
        if _opened is None or _opened.stopped:
            _opened = sync.device(os.environ.get("CALLBOARD_DEVICE", "auto"))
        return _opened


def __getattr__(name: str) -> Any:
    if name.startswith("_") and name not in ("__array_namespace_info__", "__array_api_version__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        found = inspect.getattr_static(Namespace, name)
    except AttributeError:
        raise unknown("xp", name, dir(Namespace)) from None
    needs_device = inspect.isfunction(found) or hasattr(found, "func")  # a method, or the transforms of a device
    return getattr(default() if needs_device else Namespace, name)


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in dir(Namespace) if not name.startswith("_"))})
