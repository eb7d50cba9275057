"""``cb.np``: NumPy's names as a module, over refs. ``dev.np`` is the namespace of a device of yours.

Functions of arrays compute on the device of their first array. Functions that make arrays of nothing else, and
``cb.np.random``, use the default device of :mod:`callboard.xp`.
"""

import operator
from typing import Any

import callboard.xp as xp
from callboard.core.ref import GpuRef
from callboard.numpylike.missing import unknown
from callboard.numpylike.namespace import OF_NUMPY, SECTIONS, Numpy, names

__all__ = ["default", "of"]


def default() -> Numpy:
    """The namespace of the default device, which is opened now if it is not open."""
    device: Any = xp
    found: Numpy = device._device().np
    return found


def of(values: Any) -> Numpy:
    """The namespace of the first array in these values, and in lists of them; else the default device's."""
    ref = _ref_in(values)
    return default() if ref is None else ref._port.services.np


class _Named:
    """A function, a ufunc or a section: looked up on the device of the arrays when it is called."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        np = of((*args, *kwargs.values()))
        return operator.attrgetter(self._path)(np)(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self._path in SECTIONS and name not in names(self._path):
            raise unknown(self._path, name, names(self._path))
        return _Named(f"{self._path}.{name}")

    def __dir__(self) -> list[str]:
        return sorted(names(self._path)) if self._path in SECTIONS else list(super().__dir__())

    def __repr__(self) -> str:
        return f"<cb.np.{self._path}>"


def _ref_in(values: Any) -> Any:
    for value in values:
        found = value if isinstance(value, GpuRef) else _ref_in(value) if isinstance(value, list | tuple) else None
        if found is not None:
            return found
    return None


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in OF_NUMPY or name == "ndarray":
        return getattr(Numpy, name, None) or getattr(__import__("numpy"), name)
    if name in ("random", "mgrid", "ogrid", "r_", "c_"):
        return getattr(default(), name)
    if name not in names(""):
        raise unknown("", name, names(""))
    return _Named(name)


def __dir__() -> list[str]:
    return sorted({*__all__, *names("")})
