"""``cb.scipy``: SciPy's names as a module, over refs. ``dev.scipy`` is the namespace of a device of yours.

Functions compute on the device of their first array, and on the default device of :mod:`callboard.xp` where no argument
is one. They are found by part: ``cb.scipy.signal.fftconvolve(a, b)``.
"""

import operator
from typing import Any

import callboard.np as np
from callboard.scipylike.namespace import SECTIONS, Scipy, names, unknown

__all__ = ["default"]


def default() -> Scipy:
    """The namespace of the default device, which is opened now if it is not open."""
    return Scipy(np.default())


class _Named:
    """A function or a part: looked up on the device of the arrays when it is called."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        found = np.of((*args, *kwargs.values()))
        return operator.attrgetter(self._path)(Scipy(found))(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in names(self._path):
            raise unknown(self._path, name)
        return _Named(f"{self._path}.{name}")

    def __dir__(self) -> list[str]:
        return sorted(names(self._path)) if self._path in SECTIONS else list(super().__dir__())

    def __repr__(self) -> str:
        return f"<cb.scipy.{self._path}>"


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name not in names(""):
        raise unknown("", name)
    return _Named(name)


def __dir__() -> list[str]:
    return sorted({*__all__, *names("")})
