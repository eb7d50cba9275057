"""``Scipy``: SciPy's names over the refs of one device (``dev.scipy``)."""

import importlib
from typing import Any

from callboard.actors.handles import Handle
from callboard.core.ref.suggestions import unknown_name
from callboard.core.ref.tokens import INSTEAD_OF_PICKLING
from callboard.scipylike.missing import left_out
from callboard.scipylike.table import TABLE, bound

__all__ = ["SECTIONS", "Scipy", "names", "unknown"]

SECTIONS = ("signal", "ndimage", "special", "stats", "stats.norm")
"""The parts of the namespace."""
for _module in ("components", "filtering", "ndimage", "significance", "special", "spectra", "stats"):
    importlib.import_module(f"callboard.scipylike.{_module}")


def names(section: str) -> set[str]:
    """The names of a part of the namespace: of ``"signal"``, or of ``""``, the namespace itself."""
    start = f"{section}." if section else ""
    return {path.removeprefix(start).partition(".")[0] for path in TABLE if path.startswith(start)}


def unknown(section: str, name: str) -> AttributeError:
    """The error for a name that a part lacks: the reason and what to use instead, or the nearest name."""
    found = left_out().get(f"{section}.{name}".lstrip("."))
    own = f"scipy.{section}" if section else "dev.scipy"
    if found is None:
        return unknown_name(f"{own} has no {name!r} on a device", name, names(section))
    return AttributeError(f"{own} has no {name!r} on a device ({found[0]}); use {found[1]}", name=name)


class Section(Handle):
    """A part of the namespace: ``dev.scipy.signal``.

    Args:
        np: NumPy's names of the device.
        name: Of the part: ``"signal"``; empty for the namespace itself.
    """

    instead_of_pickling = INSTEAD_OF_PICKLING

    def __init__(self, np: Any, name: str) -> None:
        self._np, self._name = np, name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        path = f"{self._name}.{name}".lstrip(".")
        if path not in SECTIONS and path not in TABLE:
            raise unknown(self._name, name)
        found = self.__dict__[name] = Section(self._np, path) if path in SECTIONS else bound(self._np, path)
        return found

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *names(self._name)})

    def __repr__(self) -> str:
        return f"<{'scipy.' + self._name if self._name else 'SciPy' + chr(39) + 's names'} of {self._np.xp._device}>"


class Scipy(Section):
    """SciPy's names and parameters over the refs of one device: ``dev.scipy.signal.fftconvolve(a, b)``.

    Functions take arrays of the device, and what makes one: numbers, lists, arrays of the host, which are copied to the
    device. Results are refs, returned at once, but for ``ndimage.label`` and the ``pvalue`` of tests, which wait. See
    docs/guides/from-numpy.md.

    Args:
        np: NumPy's names of the device, of which it is made.
    """

    def __init__(self, np: Any) -> None:
        super().__init__(np, "")
