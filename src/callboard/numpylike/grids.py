"""Objects that are indexed to make arrays: ``np.mgrid``, ``np.ogrid``, ``np.r_``, ``np.c_``."""

from typing import Any

import numpy

from callboard.core.ref import GpuRef

__all__ = ["Columns", "Grid", "Rows"]


class Grid:
    """``np.mgrid`` and ``np.ogrid``: coordinates, computed on the host and copied to the device."""

    def __init__(self, np: Any, *, sparse: bool) -> None:
        self._np, self._of = np, numpy.ogrid if sparse else numpy.mgrid

    def __getitem__(self, key: Any) -> Any:
        found = self._of[key]
        return tuple(map(self._np.xp.asarray, found)) if isinstance(found, tuple) else self._np.xp.asarray(found)


class Rows:
    """``np.r_``: arrays, numbers and slices one behind the other."""

    def __init__(self, np: Any) -> None:
        self._np = np

    def __getitem__(self, key: Any) -> Any:
        np, parts = self._np, key if isinstance(key, tuple) else (key,)
        axis, least, place = 0, 1, -1
        if parts and isinstance(parts[0], str):
            numbers = [int(n) for n in parts[0].split(",") if n.strip().lstrip("-").isdigit()]
            if len(numbers) != len(parts[0].split(",")):
                raise ValueError(f"np.r_: the directive {parts[0]!r} makes a matrix; there are axis, ndmin and place")
            axis, least, place = [*numbers, *(0, 1, -1)[len(numbers) :]]
            parts = parts[1:]
        strong = [x.dtype for x in parts if isinstance(x, GpuRef)]
        return np.concatenate([self._part(x, least, place, strong) for x in parts], axis=axis)

    def _part(self, x: Any, least: int, place: int, strong: list[Any]) -> Any:
        np = self._np
        if isinstance(x, slice):
            start, step = x.start or 0, 1 if x.step is None else x.step
            if isinstance(step, complex):
                found = np.linspace(start, x.stop, int(abs(step)))
            else:
                found = np.arange(start, x.stop, step)
        else:
            found = np.asarray(x)
            if not found.ndim and strong and not isinstance(x, GpuRef | numpy.generic):
                found = found.astype(np.xp.result_type(*strong, x))
        if found.ndim >= least:
            return found
        after = least - found.ndim if place == -1 and found.ndim == 0 else 0
        if place == -1 or not found.ndim:
            return np.reshape(found, (*(1,) * (least - found.ndim - after), *found.shape, *(1,) * after))
        missing = least - found.ndim
        return np.reshape(found, (*(1,) * place, *found.shape, *(1,) * (missing - place)))


class Columns(Rows):
    """``np.c_``: lines as columns."""

    def __getitem__(self, key: Any) -> Any:
        parts = key if isinstance(key, tuple) else (key,)
        return super().__getitem__(("-1,2,0", *parts))
