"""Creation of arrays, conversion, and what NumPy reads of a dtype or a shape alone."""

import math
from typing import Any

import numpy

from callboard.core.ref import GpuRef
from callboard.numpylike.binding import Array, Dtype, dtype_of, function


@function()
def array(np: Any, object: Any, dtype: Dtype, copy: Any, ndmin: int) -> Any:
    """A new array of these values, on the device."""
    if copy is False or copy is None:
        return asarray(np, object, dtype, copy)
    made = np.xp.asarray(object, dtype=dtype, copy=True if isinstance(object, GpuRef) else None)
    return made if made.ndim >= ndmin else np.reshape(made, (*(1,) * (ndmin - made.ndim), *made.shape))


@function("", "asanyarray", "ascontiguousarray", "asfortranarray")
def asarray(np: Any, a: Any, dtype: Dtype = None, copy: Any = None) -> Any:
    """The values as an array on the device: a ref itself, anything else copied."""
    return np.xp.asarray(a, dtype=dtype, copy=copy if isinstance(a, GpuRef) else None)


@function()
def copy(np: Any, a: Array) -> Any:
    """A copy, on the device."""
    return np.xp.asarray(a, copy=True)


@function()
def astype(np: Any, x: Array, dtype: Dtype, copy: bool) -> Any:
    """The array converted."""
    return np.xp.astype(x, dtype, copy=copy)


@function()
def empty(np: Any, shape: Any, dtype: Dtype) -> Any:
    """An array that is not initialised."""
    return np.xp.empty(_shape(shape), dtype=dtype)


@function()
def zeros(np: Any, shape: Any, dtype: Dtype) -> Any:
    """An array of zeros."""
    return np.xp.zeros(_shape(shape), dtype=dtype)


@function()
def ones(np: Any, shape: Any, dtype: Dtype) -> Any:
    """An array of ones."""
    return np.xp.ones(_shape(shape), dtype=dtype)


@function()
def full(np: Any, shape: Any, fill_value: Any, dtype: Dtype) -> Any:
    """An array of one value, or of values that broadcast to the shape."""
    if isinstance(fill_value, bool | int | float | complex | numpy.generic):
        to = fill_value.dtype if dtype is None and isinstance(fill_value, numpy.generic) else dtype
        if to is not None and not isinstance(fill_value, complex):
            fill_value = _held(fill_value, to)
        return np.xp.full(_shape(shape), fill_value, dtype=to)
    values = np.asarray(fill_value, dtype=dtype)
    return np.copy(np.broadcast_to(values, _shape(shape)))


def _held(value: Any, dtype: Any) -> Any:
    """The number as the dtype holds it, by NumPy's rule for a single number."""
    named = numpy.dtype(getattr(dtype, "np", dtype))
    return numpy.asarray(value).astype(named).item() if named.kind in "biu" and isinstance(value, float) else value


@function()
def empty_like(np: Any, prototype: Array, dtype: Dtype, shape: Any) -> Any:
    """An array like another one, not initialised."""
    return empty(np, prototype.shape if shape is None else shape, dtype or prototype.dtype)


@function()
def zeros_like(np: Any, a: Array, dtype: Dtype, shape: Any) -> Any:
    """Zeros in the shape of another array."""
    return zeros(np, a.shape if shape is None else shape, dtype or a.dtype)


@function()
def ones_like(np: Any, a: Array, dtype: Dtype, shape: Any) -> Any:
    """Ones in the shape of another array."""
    return ones(np, a.shape if shape is None else shape, dtype or a.dtype)


@function()
def full_like(np: Any, a: Array, fill_value: Any, dtype: Dtype, shape: Any) -> Any:
    """One value in the shape of another array."""
    return full(np, a.shape if shape is None else shape, fill_value, dtype or a.dtype)


def _shape(shape: Any) -> Any:
    if isinstance(shape, list | tuple):
        return tuple(int(n) for n in shape)
    return int(shape) if not isinstance(shape, numpy.ndarray) else tuple(map(int, shape.reshape(-1)))


@function()
def arange(np: Any, start: Any, stop: Any, step: Any, dtype: Dtype) -> Any:
    """Numbers at equal steps."""
    if start is None and stop is None:
        raise TypeError("np.arange: stop is missing; give the number before which it ends")
    start, end = (0, start) if stop is None else (0 if start is None else start, stop)
    strong = [x.dtype for x in (start, end, step) if isinstance(x, numpy.generic)]
    if dtype is None and strong:
        dtype = dtype_of(numpy.result_type(*(x for x in (start, end, step) if x is not None)))
    start, end, step = (
        x.item() if isinstance(x, numpy.generic) else x for x in (start, end, 1 if step is None else step)
    )
    if step == 0:
        raise ZeroDivisionError("np.arange: step is 0")
    if dtype is not None and dtype.kind == "bool":
        found = np.xp.arange(start, end, step)
        if found.size > 2:
            raise TypeError("np.arange: of bools there are at most two numbers")
        return found.astype(dtype)
    return np.xp.arange(start, end, step, dtype=dtype)


@function()
def linspace(np: Any, start: Any, stop: Any, num: Any, endpoint: bool, retstep: bool, dtype: Dtype, axis: int) -> Any:
    """Evenly spaced numbers, between numbers or between arrays."""
    import operator

    num = operator.index(num)
    if num < 0:
        raise ValueError(f"np.linspace: num is {num}; it must be >= 0")
    parts = num - 1 if endpoint else num
    if _is_number(start) and _is_number(stop):
        start, stop = (x.item() if isinstance(x, numpy.generic) else x for x in (start, stop))
        found = np.xp.linspace(start, stop, num, endpoint=endpoint)
        step: Any = (stop - start) / parts if parts > 0 else math.nan
    else:
        first, last = np.asarray(start) * 1.0, np.asarray(stop) * 1.0
        first, last = np.broadcast_arrays(first, last)
        step = (last - first) / parts if parts > 0 else (last - first) * math.nan
        line = np.xp.arange(num, dtype="f64").reshape((num, *(1,) * first.ndim))
        found = line * step + first if parts > 0 else line * 0 + first
        if endpoint and num > 1:
            found[-1] = last
        found = np.moveaxis(found, 0, axis)
    if dtype is not None and dtype.is_integer:
        found = np.floor(found)
    found = found if dtype is None else np.xp.astype(found, dtype, copy=False)
    return (found, step) if retstep else found


def _is_number(x: Any) -> bool:
    return isinstance(x, bool | int | float | complex | numpy.generic)


@function()
def logspace(np: Any, start: Any, stop: Any, num: int, endpoint: bool, base: Any, dtype: Dtype, axis: int) -> Any:
    """Numbers evenly spaced on a logarithmic scale."""
    powers = np.linspace(start, stop, num, endpoint=endpoint, axis=axis)
    found = np.power(float(base) if _is_number(base) else np.expand_dims(np.asarray(base), axis), powers)
    return found if dtype is None else found.astype(dtype)


@function()
def geomspace(np: Any, start: Any, stop: Any, num: int, endpoint: bool, dtype: Dtype, axis: int) -> Any:
    """Numbers in geometric progression."""
    first, last = numpy.asarray(start), numpy.asarray(stop)
    return np.asarray(numpy.geomspace(first, last, num, endpoint, None if dtype is None else dtype.np, axis))


@function()
def eye(np: Any, N: int, M: Any, k: int, dtype: Dtype) -> Any:
    """Ones on a diagonal."""
    return np.xp.eye(int(N), None if M is None else int(M), k=int(k), dtype=dtype)


@function()
def identity(np: Any, n: int, dtype: Dtype) -> Any:
    """The identity matrix."""
    return np.xp.eye(n, dtype=dtype)


@function()
def tri(np: Any, N: int, M: Any, k: int, dtype: Dtype) -> Any:
    """Ones at and below a diagonal."""
    rows, columns = np.xp.arange(N), np.xp.arange(-k, (N if M is None else M) - k)
    return (rows.reshape((-1, 1)) >= columns).astype(dtype)


@function()
def tril(np: Any, m: Array, k: int) -> Any:
    """The lower triangle."""
    return np.xp.tril(m if m.ndim > 1 else np.broadcast_to(m, (m.shape[0], m.shape[0])), k=k)


@function()
def triu(np: Any, m: Array, k: int) -> Any:
    """The upper triangle."""
    return np.xp.triu(m if m.ndim > 1 else np.broadcast_to(m, (m.shape[0], m.shape[0])), k=k)


@function()
def diag(np: Any, v: Array, k: int) -> Any:
    """The diagonal of a matrix, or a matrix with this diagonal."""
    if v.ndim == 2:
        return np.xp.linalg.diagonal(v, offset=k)
    if v.ndim != 1:
        raise ValueError("Input must be 1- or 2-d.")
    n = v.shape[0] + abs(k)
    made = np.xp.zeros((n, n), dtype=v.dtype)
    if v.size:
        made.reshape(-1)[max(k, 0) + n * max(-k, 0) :: n + 1][: v.shape[0]] = v
    return made


@function()
def diagflat(np: Any, v: Array, k: int) -> Any:
    """A matrix with these elements on a diagonal."""
    return diag(np, np.ravel(v), k)


@function()
def fromfunction(np: Any, function: Any, shape: Any, dtype: Dtype, **kwargs: Any) -> Any:
    """What a function makes of the indices of each element."""
    return function(*np.indices(shape, dtype=dtype), **kwargs)


@function()
def indices(np: Any, dimensions: Any, dtype: Dtype, sparse: bool) -> Any:
    """The indices of each element of a grid."""
    lines = [np.xp.arange(n, dtype=dtype) for n in dimensions]
    grid = np.xp.meshgrid(*lines, indexing="ij") if lines else ()
    if sparse:
        rank = len(lines)
        return tuple(x.reshape((*(1,) * i, -1, *(1,) * (rank - i - 1))) for i, x in enumerate(lines))
    return np.xp.stack(grid) if lines else np.xp.empty((0,), dtype=dtype)


@function()
def meshgrid(np: Any, *xi: Array, copy: bool, sparse: bool, indexing: str) -> Any:
    """Coordinates on the grid of several lines."""
    lines = [np.ravel(x) for x in xi]
    found = np.xp.meshgrid(*lines, indexing=indexing)
    if sparse:
        rank = len(lines)
        places = [1, 0, *range(2, rank)] if indexing == "xy" and rank > 1 else list(range(rank))
        found = tuple(
            x.reshape(tuple(-1 if at == place else 1 for at in range(rank)))
            for x, place in zip(lines, places, strict=True)
        )
    return tuple(np.copy(x) for x in found) if copy else tuple(found)


@function()
def vander(np: Any, x: Array, N: Any, increasing: bool) -> Any:
    """Columns of powers."""
    if x.ndim != 1:
        raise ValueError("x must be a one-dimensional array or sequence.")
    n = x.shape[0] if N is None else N
    dtype = np.promote_types(x.dtype, int)
    powers = np.xp.arange(n) if increasing else np.xp.arange(n - 1, -1, -1)
    return np.power(x.astype(dtype).reshape((-1, 1)), powers)


def _window(name: str) -> None:
    def window(np: Any, M: Any) -> Any:
        return np.xp.asarray(getattr(numpy, name)(M))

    window.__name__, window.__doc__ = name, f"The window of ``numpy.{name}``, whose points are computed on the host."
    function()(window)


for _name in ("bartlett", "blackman", "hamming", "hanning"):
    _window(_name)


@function()
def kaiser(np: Any, M: Any, beta: Any) -> Any:
    """Kaiser's window, whose points are computed on the host."""
    return np.xp.asarray(numpy.kaiser(M, beta))


@function()
def fromiter(np: Any, iter: Any, dtype: Dtype, count: int) -> Any:
    """The items of an iterator, as an array."""
    return np.xp.asarray(numpy.fromiter(iter, dtype.np, count))


@function()
def frombuffer(np: Any, buffer: Any, dtype: Dtype, count: int, offset: int) -> Any:
    """The bytes of an object of the host, copied to the device."""
    return np.xp.asarray(numpy.frombuffer(buffer, dtype.np, count, offset))


@function()
def from_dlpack(np: Any, x: Any, copy: Any) -> Any:
    """An array of another package."""
    return np.xp.from_dlpack(x, copy=copy)


@function()
def asarray_chkfinite(np: Any, a: Array, dtype: Dtype) -> Any:
    """The array; refuses infinities and NaN, for which it waits."""
    found = asarray(np, a, dtype)
    if found.dtype.kind in ("float", "complex") and not bool(np.all(np.isfinite(found))):
        raise ValueError("array must not contain infs or NaNs")
    return found
