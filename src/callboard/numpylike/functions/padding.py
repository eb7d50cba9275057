"""``np.pad``: an array with a border, in NumPy's modes; the border is made along one axis after the other."""

from collections.abc import Callable
from typing import Any

import numpy

from callboard.arrays.handles import axis_of
from callboard.numpylike.binding import Array, function

__all__ = ["pad"]

KEYWORDS: dict[str, set[str]] = {
    "constant": {"constant_values"},
    "edge": set(),
    "empty": set(),
    "linear_ramp": {"end_values"},
    "maximum": {"stat_length"},
    "mean": {"stat_length"},
    "median": {"stat_length"},
    "minimum": {"stat_length"},
    "reflect": {"reflect_type"},
    "symmetric": {"reflect_type"},
    "wrap": set(),
}
"""The modes, with their keywords."""
STATISTICS = {"maximum": "max", "minimum": "min", "mean": "mean", "median": "median"}


@function()
def pad(np: Any, array: Array, pad_width: Any, mode: Any, **kwargs: Any) -> Any:
    """The array with a border, of one of NumPy's kinds. A function as mode is not supported."""
    if mode not in KEYWORDS:
        raise ValueError(f"mode {mode!r:.60} is not supported; use one of {', '.join(KEYWORDS)}")
    wrong = set(kwargs) - KEYWORDS[mode]
    if wrong:
        raise ValueError(f"unsupported keyword arguments for mode {mode!r}: {wrong}")
    if isinstance(pad_width, dict):
        known = {axis_of("pad", array, a): width for a, width in pad_width.items()}
        pad_width = [known.get(a, (0, 0)) for a in range(array.ndim)]
        pad_width = [(w, w) if isinstance(w, int) else w for w in pad_width]
    given = numpy.asarray(pad_width)
    if given.dtype.kind != "i":
        raise TypeError("`pad_width` must be of integral type.")
    widths = _pairs(given, array.ndim)
    if (numpy.asarray(widths) < 0).any():
        raise ValueError("index can't contain negative values")
    border = _border(np, array, mode, kwargs)
    for axis, (before, after) in enumerate(widths):
        if not array.shape[axis] and (before or after) and mode not in ("constant", "empty"):
            raise ValueError(f"can't extend empty axis {axis} using modes other than 'constant' or 'empty'")
        if before or after:
            array = border(array, axis, int(before), int(after))
    return array


def _pairs(given: Any, rank: int) -> list[Any]:
    found: list[Any] = numpy.broadcast_to(given, (rank, 2)).tolist()
    return found


Border = Callable[[Any, int, int, int], Any]


def _border(np: Any, array: Any, mode: Any, kwargs: dict[str, Any]) -> Border:
    rank = array.ndim
    if mode in ("constant", "empty"):
        values = _pairs(numpy.asarray(kwargs.get("constant_values", 0)), rank)
        return lambda x, axis, before, after: _joined(
            np, x, axis, *(_full(np, x, axis, n, v) for n, v in zip((before, after), values[axis], strict=True))
        )
    if mode == "linear_ramp":
        ends = _pairs(numpy.asarray(kwargs.get("end_values", 0)), rank)
        return lambda x, axis, before, after: _ramp(np, x, axis, (before, after), ends[axis])
    if mode in STATISTICS:
        length = kwargs.get("stat_length")
        lengths: list[Any] = _pairs(numpy.asarray(length), rank) if length is not None else [(None, None)] * rank
        if length is not None and any(n < 0 for pair in lengths for n in pair):
            raise ValueError("index can't contain negative values")
        if length is not None and mode in ("maximum", "minimum") and any(n == 0 for pair in lengths for n in pair):
            raise ValueError("stat_length of 0 yields no value for padding")
        return lambda x, axis, before, after: _statistic(np, x, axis, (before, after), lengths[axis], mode)
    if kwargs.get("reflect_type", "even") == "odd":
        return lambda x, axis, before, after: _odd(np, x, axis, before, after, int(mode == "reflect"))
    return lambda x, axis, before, after: np.xp.take(
        x, np.xp.asarray(numpy.pad(numpy.arange(x.shape[axis]), (before, after), mode).astype("i8")), axis=axis
    )


def _part(x: Any, axis: int, start: int | None, stop: int | None) -> Any:
    return x[(*(slice(None),) * axis, slice(start, stop))]


def _joined(np: Any, x: Any, axis: int, before: Any, after: Any) -> Any:
    return np.xp.concat(
        [np.xp.astype(before, x.dtype, copy=False), x, np.xp.astype(after, x.dtype, copy=False)], axis=axis
    )


def _full(np: Any, x: Any, axis: int, n: int, value: Any) -> Any:
    return np.full((*x.shape[:axis], n, *x.shape[axis + 1 :]), value, dtype=x.dtype)


def _repeated(np: Any, line: Any, axis: int, n: int) -> Any:
    return np.xp.broadcast_to(line, (*line.shape[:axis], n, *line.shape[axis + 1 :]))


def _ramp(np: Any, x: Any, axis: int, widths: tuple[int, int], ends: Any) -> Any:
    sides = []
    for n, end, edge in zip(widths, ends, (_part(x, axis, 0, 1), _part(x, axis, -1, None)), strict=True):
        line = np.linspace(end, np.squeeze(edge, axis), n, endpoint=False, axis=axis)
        sides.append(np.floor(line) if x.dtype.is_integer else line)
    return _joined(np, x, axis, sides[0], np.flip(sides[1], axis))


def _statistic(np: Any, x: Any, axis: int, widths: tuple[int, int], lengths: Any, mode: str) -> Any:
    sides = []
    for side, (n, length) in enumerate(zip(widths, lengths, strict=True)):
        length = x.shape[axis] if length is None else min(length, x.shape[axis])
        region = _part(x, axis, None, length) if side == 0 else _part(x, axis, x.shape[axis] - length, None)
        found = getattr(np, STATISTICS[mode])(region, axis=axis, keepdims=True)
        sides.append(_repeated(np, np.rint(found) if x.dtype.is_integer else found, axis, n))
    return _joined(np, x, axis, *sides)


def _odd(np: Any, x: Any, axis: int, before: int, after: int, skip: int) -> Any:
    """Mirrored at the edges, and turned around their values; several times where the border is wider than the array."""
    while before or after:
        n = x.shape[axis]
        left, right = min(before, n - skip), min(after, n - skip)
        if n == 1 and skip:
            left, right = before, after
            return _joined(np, x, axis, *(_repeated(np, x, axis, w) for w in (left, right)))
        first, last = _part(x, axis, 0, 1), _part(x, axis, n - 1, None)
        low = np.flip(_part(x, axis, skip, skip + left), axis)
        high = np.flip(_part(x, axis, n - skip - right, n - skip), axis)
        x = _joined(np, x, axis, 2 * first - low, 2 * last - high)
        before, after = before - left, after - right
    return x
