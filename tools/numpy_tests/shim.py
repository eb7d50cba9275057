"""The module that NumPy's tests find in place of ``numpy``: the names of ``dev.np``, and helpers of tests."""

import functools
import sys
import types
from typing import Any

import numpy

import callboard as cb
from callboard.core.dtype import DType

__all__ = ["Shim", "nested", "on_host", "shimmed"]

HELPERS = frozenset({"dtype", "dtypes", "errstate", "exceptions", "geterr", "seterr", "testing"})
HELPERS |= {"NINF", "NZERO", "PINF", "PZERO"}
"""Names of NumPy that tests need and that compute nothing."""


MODULES = frozenset({"numpy", "numpy._core", "numpy._core.numeric", "numpy._core.umath"})
"""Modules of NumPy that the shim stands for."""


class Shim(types.ModuleType):
    """``numpy`` for a test.

    Args:
        np: The namespace of a device.
        inner: The module of NumPy that it stands for.
        path: Where it is in the namespace: ``"linalg"``.

    Attributes:
        used: Names of functions of the device that were read since it was cleared.
    """

    def __init__(self, np: Any, inner: Any = numpy, path: str = "", used: set[str] | None = None) -> None:
        super().__init__(inner.__name__)
        self._np, self._inner, self._path = np, inner, path
        self.used: set[str] = set() if used is None else used

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            return getattr(self._inner, name)
        if name in HELPERS:
            return getattr(self._inner if hasattr(self._inner, name) else sys.modules["numpy._core.umath"], name)
        if not self._path and name in ("linalg", "fft"):
            return Shim(getattr(self._np, name), getattr(numpy, name), name, self.used)
        if not self._path and name == "random":
            return Shim(self._np.random, numpy.random, name, self.used)
        found = getattr(self._np, name)
        if not isinstance(found, type) and callable(found):
            self.used.add(f"{self._path}.{name}" if self._path else name)
        return found


def on_host(value: Any) -> Any:
    """A value with its refs as arrays and numbers of the host, for the comparisons of ``numpy.testing``."""
    if isinstance(value, cb.GpuRef):
        found = value.get()
        return found if found.ndim else found[()]
    if isinstance(value, DType):
        return value.np
    if type(value) in (list, tuple):
        return type(value)(map(on_host, value))
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return tuple(map(on_host, value))
    return value


def shimmed(name: str, value: Any, shim: Shim) -> Any:
    """What a test module gets in place of one of its names; the value itself if it has nothing to do with NumPy."""
    if isinstance(value, types.ModuleType):
        section = value.__name__.removeprefix("numpy.")
        if section in ("linalg", "fft", "random"):
            return getattr(shim, section)
        return shim if value.__name__ in MODULES else value
    module = getattr(value, "__module__", None) or ""
    if callable(value) and module.startswith("numpy.testing") and not isinstance(value, type):

        @functools.wraps(value)
        def compared(*args: Any, **kwargs: Any) -> Any:
            return value(*map(on_host, args), **{key: on_host(one) for key, one in kwargs.items()})

        return compared
    if callable(value) and not isinstance(value, type):
        for part, owner in (("", numpy), ("linalg", numpy.linalg), ("fft", numpy.fft), ("random", numpy.random)):
            if getattr(owner, name, None) is value:
                try:
                    return getattr(getattr(shim, part) if part else shim, name)
                except AttributeError:
                    return value
    if isinstance(value, type) and value is numpy.ndarray:
        return cb.GpuRef
    return value


def nested(value: Any, shim: Shim) -> Any:
    """A value with the functions of NumPy that it holds as those of the device."""
    if type(value) in (list, tuple):
        return type(value)(nested(one, shim) for one in value)
    if type(value) is dict:
        return {nested(key, shim): nested(one, shim) for key, one in value.items()}
    return shimmed(getattr(value, "__name__", ""), value, shim)
