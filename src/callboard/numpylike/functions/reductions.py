"""Sums, means, extremes, running ones, and those that leave NaN out."""

import builtins
import math
import operator
from typing import Any

import numpy

from callboard.arrays.elementwise import apply
from callboard.arrays.handles import axes_of, axis_of, cast
from callboard.numpylike.binding import Array, Dtype, Maybe, function


def axes(a: Any, axis: Any) -> tuple[int, ...]:
    """The axes that ``axis`` names, counted from 0."""
    return axes_of("axis", a, axis if axis is None or isinstance(axis, int | tuple) else int(axis))


def _axis(axis: Any) -> Any:
    return axis if axis is None or isinstance(axis, tuple) else operator.index(axis)


def _masked(np: Any, a: Any, where: Any, neutral: Any) -> Any:
    """``a``, with a neutral number where ``where`` does not hold."""
    if where is None or where is True:
        return a
    mask = np.asarray(where, dtype="?")
    if a.dtype.kind == "bool":
        neutral = bool(neutral)
    shape = np.xp.broadcast_shapes(a.shape, mask.shape)
    return np.xp.where(mask, np.xp.broadcast_to(a, shape), neutral)


def _with(np: Any, found: Any, initial: Any, join: str) -> Any:
    return found if initial is None else cast(getattr(np, join)(found, initial), found.dtype)


@function()
def sum(
    np: Any,
    a: Array,
    axis: Any = None,
    dtype: Dtype = None,
    keepdims: Any = None,
    initial: Any = None,
    where: Any = None,
) -> Any:
    """The sum along some axes."""
    found = np.xp.sum(_masked(np, a, where, 0), axis=_axis(axis), dtype=dtype, keepdims=bool(keepdims))
    return _with(np, found, initial, "add")


@function()
def prod(
    np: Any,
    a: Array,
    axis: Any = None,
    dtype: Dtype = None,
    keepdims: Any = None,
    initial: Any = None,
    where: Any = None,
) -> Any:
    """The product along some axes."""
    found = np.xp.prod(_masked(np, a, where, 1), axis=_axis(axis), dtype=dtype, keepdims=bool(keepdims))
    return _with(np, found, initial, "multiply")


def _extreme(np: Any, name: str, a: Any, axis: Any, keepdims: Any, initial: Any, where: Any) -> Any:
    if where is not None and where is not True and initial is None:
        raise ValueError(
            f"reduction operation {name!r} does not have an identity, so to use a where mask pass initial="
        )
    if initial is not None:
        a = _masked(np, a, where, initial)
        first = np.full((1,), initial, dtype=a.dtype)
        if builtins.any(a.shape[one] == 0 for one in axes(a, axis)):
            shape = list(a.shape)
            for one in axes(a, axis):
                shape[one] = 1
            a = np.broadcast_to(first, tuple(shape))
    found = getattr(np.xp, name)(a, axis=_axis(axis), keepdims=bool(keepdims))
    return _with(np, found, initial, f"{name}imum")


@function("", "amax")
def max(np: Any, a: Array, axis: Any = None, keepdims: Any = None, initial: Any = None, where: Any = None) -> Any:
    """The largest element along some axes; NaN if one is."""
    return _extreme(np, "max", a, axis, keepdims, initial, where)


@function("", "amin")
def min(np: Any, a: Array, axis: Any = None, keepdims: Any = None, initial: Any = None, where: Any = None) -> Any:
    """The smallest element along some axes; NaN if one is."""
    return _extreme(np, "min", a, axis, keepdims, initial, where)


@function()
def all(np: Any, a: Array, axis: Any, keepdims: Any, where: Any) -> Any:
    """Whether all elements are true."""
    return np.xp.all(_masked(np, a, where, 1), axis=_axis(axis), keepdims=bool(keepdims))


@function()
def any(np: Any, a: Array, axis: Any, keepdims: Any, where: Any) -> Any:
    """Whether an element is true."""
    return np.xp.any(_masked(np, a, where, 0), axis=_axis(axis), keepdims=bool(keepdims))


@function()
def count_nonzero(np: Any, a: Array, axis: Any, keepdims: bool) -> Any:
    """How many elements are not 0."""
    return np.xp.count_nonzero(a, axis=_axis(axis), keepdims=keepdims)


@function()
def ptp(np: Any, a: Array, axis: Any, keepdims: Any) -> Any:
    """The largest less the smallest element."""
    return max(np, a, axis, keepdims) - min(np, a, axis, keepdims)


def _argument(name: str) -> None:
    def argument(np: Any, a: Array, axis: Any, keepdims: Any) -> Any:
        if not a.size and (axis is None or not a.shape[axis]):
            raise ValueError(f"attempt to get {name} of an empty sequence")
        return getattr(np.xp, name)(a, axis=_axis(axis), keepdims=bool(keepdims))

    argument.__name__, argument.__doc__ = name, "The index of the first extreme element along an axis."
    function()(argument)


_argument("argmax")
_argument("argmin")


@function()
def mean(np: Any, a: Array, axis: Any = None, dtype: Dtype = None, keepdims: Any = None, where: Any = None) -> Any:
    """The mean along some axes."""
    if dtype is not None:
        if dtype.is_integer or dtype.kind == "bool":
            return np.xp.astype(mean(np, a, axis, None, keepdims, where), dtype)
        a = np.xp.astype(a, dtype, copy=False)
    if where is None or where is True:
        return np.xp.mean(a, axis=_axis(axis), keepdims=bool(keepdims))
    mask = np.broadcast_to(np.asarray(where, dtype="?"), a.shape)
    total = np.xp.sum(_masked(np, a, mask, 0), axis=_axis(axis), keepdims=bool(keepdims))
    return np.divide(total, np.xp.count_nonzero(mask, axis=_axis(axis), keepdims=bool(keepdims)))


@function()
def var(
    np: Any,
    a: Array,
    axis: Any = None,
    dtype: Dtype = None,
    ddof: Any = 0,
    keepdims: Any = None,
    where: Any = None,
    mean: Maybe = None,
    correction: Any = None,
) -> Any:
    """The variance along some axes."""
    return _spread(np, "var", a, axis, dtype, ddof, keepdims, where, mean, correction)


@function()
def std(
    np: Any,
    a: Array,
    axis: Any = None,
    dtype: Dtype = None,
    ddof: Any = 0,
    keepdims: Any = None,
    where: Any = None,
    mean: Maybe = None,
    correction: Any = None,
) -> Any:
    """The standard deviation along some axes."""
    return _spread(np, "std", a, axis, dtype, ddof, keepdims, where, mean, correction)


def _spread(
    np: Any,
    name: str,
    a: Any,
    axis: Any,
    dtype: Any,
    ddof: Any,
    keepdims: Any,
    where: Any,
    middle: Any,
    correction: Any,
) -> Any:
    if correction is not None:
        if ddof != 0:
            raise ValueError("ddof and correction can't be provided simultaneously.")
        ddof = correction
    if dtype is not None:
        a = np.xp.astype(a, dtype, copy=False)
    if (where is None or where is True) and middle is None:
        return getattr(np.xp, name)(a, axis=_axis(axis), correction=ddof, keepdims=bool(keepdims))
    if middle is None:
        middle = mean(np, a, axis, None, True, where)
    squares = np.square(np.abs(a - middle))
    mask = np.ones(squares.shape, dtype="?") if where is None or where is True else where
    mask = np.broadcast_to(np.asarray(mask, dtype="?"), squares.shape)
    count = np.xp.count_nonzero(mask, axis=_axis(axis), keepdims=bool(keepdims)) - ddof
    total = np.xp.sum(_masked(np, squares, mask, 0), axis=_axis(axis), keepdims=bool(keepdims))
    found = total / np.maximum(count, 0)
    return np.sqrt(found) if name == "std" else found


@function()
def average(np: Any, a: Array, axis: Any, weights: Maybe, returned: bool, keepdims: Any) -> Any:
    """The mean with weights."""
    if weights is None:
        found = mean(np, a, axis, None, keepdims)
        scale: Any = np.full_like(found, a.size / builtins.max(found.size, 1))
        return (found, scale) if returned else found
    if weights.shape != a.shape:
        if axis is None:
            raise TypeError("Axis must be specified when shapes of a and weights differ.")
        places = axes(a, axis)
        if weights.shape != tuple(a.shape[p] for p in places):
            raise ValueError("Shape of weights must be consistent with shape of a along specified axis.")
        order = sorted(range(len(places)), key=lambda i: places[i])
        weights = np.transpose(weights, tuple(order))
        weights = np.reshape(weights, tuple(n if i in places else 1 for i, n in enumerate(a.shape)))
    dtype = np.result_type(a.dtype.np, weights.dtype.np, *(() if a.dtype.is_float or a.dtype.is_complex else ("f8",)))
    scale = np.sum(np.broadcast_to(weights, a.shape), axis=axis, dtype=dtype, keepdims=keepdims)
    if not a._port.services.blocking or not bool(np.any(scale == 0.0)):
        found = np.sum(np.multiply(a, weights, dtype=dtype), axis=axis, keepdims=keepdims) / scale
        return (found, np.copy(np.broadcast_to(scale, found.shape))) if returned else found
    raise ZeroDivisionError("Weights sum to zero, can't be normalized")


# -- running -----------------------------------------------------------------------------------------------------------


def _running(name: str, xp_name: str, *names: str) -> None:
    def running(np: Any, a: Array, axis: Any, dtype: Dtype) -> Any:
        if axis is None:
            a, axis = np.ravel(a), 0
        return getattr(np.xp, xp_name)(a if a.ndim else np.reshape(a, (1,)), axis=axis, dtype=dtype)

    running.__name__, running.__doc__ = name, "Running results along an axis; of all elements when it is None."
    function()(running)

    def standard(np: Any, x: Array, axis: Any, dtype: Dtype, include_initial: bool) -> Any:
        if axis is None and x.ndim > 1:
            raise ValueError("For arrays which have more than one dimension ``axis`` argument is required.")
        x = x if x.ndim else np.reshape(x, (1,))
        return getattr(np.xp, xp_name)(x, axis=axis, dtype=dtype, include_initial=include_initial)

    standard.__name__, standard.__doc__ = xp_name, running.__doc__
    function()(standard)


_running("cumsum", "cumulative_sum")
_running("cumprod", "cumulative_prod")


@function()
def diff(np: Any, a: Array, n: int, axis: int, prepend: Any, append: Any) -> Any:
    """Differences of neighbours."""
    if n < 0:
        raise ValueError(f"order must be non-negative but got {n}")
    if a.ndim == 0:
        raise ValueError("diff requires input that is at least one dimensional")
    ends = []
    for one in (prepend, append):
        if one is not None:
            one = np.asarray(one)
            if not one.ndim:
                shape = list(a.shape)
                shape[axis_of("diff", a, axis)] = 1
                one = np.broadcast_to(one, tuple(shape))
        ends.append(one)
    return np.xp.diff(a, n=n, axis=axis, prepend=ends[0], append=ends[1])


@function()
def ediff1d(np: Any, ary: Array, to_end: Maybe, to_begin: Maybe) -> Any:
    """Differences of neighbours in a line, with further numbers at its ends."""
    line = np.ravel(ary)
    found = line[1:] - line[:-1]
    for one in (to_begin, to_end):
        if one is not None and not numpy.can_cast(one.dtype.np, line.dtype.np, casting="same_kind"):
            raise TypeError(
                "dtype of `to_end` and `to_begin` must be compatible with input `ary` under the `same_kind` rule."
            )
    parts = [None if to_begin is None else np.ravel(to_begin), found, None if to_end is None else np.ravel(to_end)]
    return np.concatenate([np.xp.astype(x, line.dtype, copy=False) for x in parts if x is not None])


# -- without NaN -------------------------------------------------------------------------------------------------------


def _filled(np: Any, a: Any, by: float) -> Any:
    return np.xp.where(np.xp.isnan(a), by, a) if a.dtype.kind in ("float", "complex") else a


def _without(name: str, base: str, by: float) -> None:
    def without(np: Any, a: Array, axis: Any, dtype: Dtype, keepdims: Any, initial: Any, where: Any) -> Any:
        options = {} if initial is None else {"initial": initial}
        return getattr(np, base)(_filled(np, a, by), axis=axis, dtype=dtype, keepdims=keepdims, where=where, **options)

    without.__name__, without.__doc__ = name, f"``np.{base}`` without NaN."
    function()(without)


_without("nansum", "sum", 0)
_without("nanprod", "prod", 1)


def _without_running(name: str, base: str, by: float) -> None:
    def without(np: Any, a: Array, axis: Any, dtype: Dtype) -> Any:
        return getattr(np, base)(_filled(np, a, by), axis=axis, dtype=dtype)

    without.__name__, without.__doc__ = name, f"``np.{base}`` without NaN."
    function()(without)


_without_running("nancumsum", "cumsum", 0)
_without_running("nancumprod", "cumprod", 1)


def _without_extreme(name: str, base: str, by: float) -> None:
    def without(np: Any, a: Array, axis: Any, keepdims: Any, initial: Any, where: Any) -> Any:
        found = _extreme(np, base, _filled(np, a, by), axis, keepdims, initial, where)
        if a.dtype.kind != "float":
            return found
        mask = None if where is None else where
        empty = all(np, np.xp.isnan(a), axis, keepdims, mask)
        return np.xp.where(empty, math.nan, found) if initial is None else found

    without.__name__, without.__doc__ = name, f"``np.{base}`` without NaN; NaN where there is nothing else."
    function()(without)


_without_extreme("nanmax", "max", -math.inf)
_without_extreme("nanmin", "min", math.inf)


def _without_argument(name: str, base: str, by: float) -> None:
    def without(np: Any, a: Array, axis: Any, keepdims: Any) -> Any:
        if (
            a._port.services.blocking
            and a.dtype.kind == "float"
            and bool(any(np, all(np, np.xp.isnan(a), axis, None, None), None, None, None))
        ):
            raise ValueError("All-NaN slice encountered")
        return getattr(np, base)(_filled(np, a, by), axis=axis, keepdims=bool(keepdims))

    without.__name__, without.__doc__ = name, f"``np.{base}`` without NaN."
    function()(without)


_without_argument("nanargmax", "argmax", -math.inf)
_without_argument("nanargmin", "argmin", math.inf)


def _numbers(np: Any, a: Any, where: Any) -> Any:
    """Where the elements are numbers, or None if all are."""
    if a.dtype.kind not in ("float", "complex"):
        return where
    mask = ~np.xp.isnan(a)
    return mask if where is None or where is True else mask & np.asarray(where, dtype="?")


@function()
def nanmean(np: Any, a: Array, axis: Any, dtype: Dtype, keepdims: Any, where: Any) -> Any:
    """The mean without NaN."""
    _inexact("nanmean", a, dtype)
    return mean(np, a, axis, dtype, keepdims, _numbers(np, a, where))


@function()
def nanvar(
    np: Any, a: Array, axis: Any, dtype: Dtype, ddof: Any, keepdims: Any, where: Any, mean: Maybe, correction: Any
) -> Any:
    """The variance without NaN."""
    return _nan_spread(np, "var", a, axis, dtype, ddof, keepdims, where, mean, correction)


@function()
def nanstd(
    np: Any, a: Array, axis: Any, dtype: Dtype, ddof: Any, keepdims: Any, where: Any, mean: Maybe, correction: Any
) -> Any:
    """The standard deviation without NaN."""
    return _nan_spread(np, "std", a, axis, dtype, ddof, keepdims, where, mean, correction)


def _nan_spread(
    np: Any,
    name: str,
    a: Any,
    axis: Any,
    dtype: Any,
    ddof: Any,
    keepdims: Any,
    where: Any,
    middle: Any,
    correction: Any,
) -> Any:
    _inexact(f"nan{name}", a, dtype)
    ddof = ddof if correction is None else correction
    mask = _numbers(np, a, where)
    found = _spread(np, name, a, axis, dtype, ddof, keepdims, mask, middle, None)
    if mask is None or mask is True:
        return found
    count = np.xp.count_nonzero(np.broadcast_to(mask, a.shape), axis=_axis(axis), keepdims=bool(keepdims))
    return np.xp.where(count - ddof > 0, found, math.nan)


def _inexact(name: str, a: Any, dtype: Any) -> None:
    if dtype is not None and dtype.kind not in ("float", "complex") and a.dtype.kind in ("float", "complex"):
        raise TypeError("If a is inexact, then dtype must be inexact")


@function()
def nan_to_num(np: Any, x: Array, copy: bool, nan: Any, posinf: Any, neginf: Any) -> Any:
    """The elements, with numbers in place of NaN and infinities."""
    if x.dtype.kind not in ("float", "complex"):
        return np.copy(x) if copy else x
    if x.dtype.is_complex:
        parts = [nan_to_num(np, getattr(np.xp, part)(x), True, nan, posinf, neginf) for part in ("real", "imag")]
        return apply("complex(a, b)", a=parts[0], b=parts[1])
    most = float(numpy.finfo(x.dtype.np).max)
    high, low = (most if posinf is None else posinf), (-most if neginf is None else neginf)
    text = "where(isnan(x), n, where(x == inf, h, where(x == -inf, l, x)))"
    n, h, low = (one if isinstance(one, float | int) else np.asarray(one) for one in (nan, high, low))
    found = cast(apply(text, x=x, n=n, h=h, l=low), x.dtype)
    if copy:
        return found
    x[...] = found
    return x
