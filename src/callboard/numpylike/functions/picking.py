"""Elements picked and written by indices and masks, indices of shapes, functions applied along axes."""

import functools
from typing import Any

import numpy

from callboard.arrays.handles import cast
from callboard.core.ref import GpuRef
from callboard.numpylike.binding import Array, check_cast, function
from callboard.numpylike.functions.shaping import axis_of
from callboard.numpylike.ufuncs import promoted


@function()
def take(np: Any, a: Array, indices: Array, axis: Any, mode: str) -> Any:
    """Elements (lines) at some places."""
    if axis is None:
        a, axis = np.ravel(a), 0
    axis = axis_of(axis, a.ndim)
    if indices.dtype.kind == "bool" or not indices.size:
        indices = np.xp.astype(indices, "i64")
    indices = _in_range(np, indices, a.shape[axis], mode)
    if indices.ndim == 1:
        return np.xp.take(a, indices, axis=axis)
    found = np.xp.take(a, np.ravel(indices), axis=axis)
    return np.reshape(found, (*a.shape[:axis], *indices.shape, *a.shape[axis + 1 :]))


def _in_range(np: Any, indices: Any, n: int, mode: str) -> Any:
    if mode == "wrap":
        return np.mod(indices, n)
    if mode == "clip":
        return np.clip(indices, 0, n - 1)
    if mode != "raise":
        raise ValueError(f"clipmode must be one of 'clip', 'raise', or 'wrap' (got {mode!r})")
    return indices


@function()
def take_along_axis(np: Any, arr: Array, indices: Array, axis: Any) -> Any:
    """An element of each line, or several."""
    if axis is None:
        if indices.ndim != 1:
            raise ValueError("when axis=None, `indices` must have a single dimension.")
        arr, axis = np.ravel(arr), 0
    if indices.dtype.kind not in ("int", "uint"):
        raise IndexError("`indices` must be an integer array")
    if indices.ndim != arr.ndim:
        raise ValueError("`indices` and `arr` must have the same number of dimensions")
    axis = axis_of(axis, arr.ndim)
    shapes = [tuple(1 if i == axis else n for i, n in enumerate(x.shape)) for x in (arr, indices)]
    rest = numpy.broadcast_shapes(*shapes)
    arr, indices = (
        np.xp.broadcast_to(x, tuple(x.shape[axis] if i == axis else n for i, n in enumerate(rest)))
        for x in (arr, indices)
    )
    return np.xp.take_along_axis(arr, indices, axis=axis)


def _grid(np: Any, indices: Any, axis: int, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Indices of each axis of a shape, of which one is given."""
    rank = len(shape)
    lines = (np.xp.arange(n).reshape(tuple(-1 if i == a else 1 for i in range(rank))) for a, n in enumerate(shape))
    return tuple(indices if a == axis else line for a, line in enumerate(lines))


@function()
def put_along_axis(np: Any, arr: Any, indices: Array, values: Any, axis: Any) -> None:
    """Write an element of each line, or several."""
    if axis is None:
        arr, axis = np.ravel(arr), 0
    if indices.ndim != arr.ndim:
        raise ValueError("`indices` and `arr` must have the same number of dimensions")
    arr[_grid(np, indices, axis_of(axis, arr.ndim), arr.shape)] = values


@function()
def put(np: Any, a: Any, ind: Array, v: Any, mode: str) -> None:
    """Write elements at places of the line of all."""
    flat = a.reshape(-1)
    ind = np.ravel(_in_range(np, ind, flat.shape[0], mode))
    values = np.ravel(np.asarray(v))
    if not values.size:
        return
    if values.size != ind.size:
        values = np.resize(values, (ind.size,))
    flat[ind] = values


@function()
def place(np: Any, arr: Any, mask: Array, vals: Any) -> None:
    """Write values one after the other where a mask holds."""
    values = np.ravel(np.asarray(vals))
    count = int(np.count_nonzero(mask))
    if not values.size:
        if count:
            raise ValueError("Cannot insert from an empty array!")
        return
    arr[np.asarray(mask, dtype="?")] = np.resize(values, (count,))


@function()
def putmask(np: Any, a: Any, mask: Array, values: Any) -> None:
    """Write the values of the same places where a mask holds."""
    given, mask = np.asarray(values), np.asarray(mask, dtype="?")
    if mask.size != a.size:
        raise ValueError(f"np.putmask: the mask is {mask.layout!r}, and the array has {a.size} elements; give as many")
    given = given if given.shape == a.shape else np.reshape(np.resize(np.ravel(given), (a.size,)), a.shape)
    copyto(np, a, given, "unsafe", np.reshape(mask, a.shape))


@function()
def copyto(np: Any, dst: Any, src: Any, casting: str = "same_kind", where: Any = True) -> None:
    """Write an array into another one."""
    source = np.asarray(src) if not isinstance(src, bool | int | float | complex) else src
    if isinstance(source, GpuRef):
        check_cast(source.dtype, dst.dtype, casting)
    if where is True:
        dst[...] = source
        return
    mask = np.broadcast_to(np.asarray(where, dtype="?"), dst.shape)
    value = cast(source, dst.dtype) if isinstance(source, GpuRef) else source
    dst[...] = np.xp.where(mask, value, dst)


@function()
def compress(np: Any, condition: Array, a: Array, axis: Any) -> Any:
    """The elements (lines) of a condition."""
    if condition.ndim != 1:
        raise ValueError("condition must be a 1-d array")
    if axis is None:
        a, axis = np.ravel(a), 0
    return np.xp.take(a, np.flatnonzero(condition), axis=axis_of(axis, a.ndim))


@function()
def extract(np: Any, condition: Array, arr: Array) -> Any:
    """The elements where a condition holds."""
    return np.xp.take(np.ravel(arr), np.flatnonzero(condition))


@function()
def choose(np: Any, a: Array, choices: Any, mode: str) -> Any:
    """Each element of the array that an index names."""
    lines = promoted(np, *choices)
    a = np.xp.astype(a, "i64") if a.dtype.kind == "bool" else a
    a = _in_range(np, a, len(lines), mode)
    shape = numpy.broadcast_shapes(a.shape, *(x.shape for x in lines))
    stacked = np.stack([np.broadcast_to(x, shape) for x in lines])
    index = np.reshape(np.broadcast_to(a, shape), (1, *shape))
    return np.xp.take_along_axis(stacked, index, axis=0)[0]


@function()
def select(np: Any, condlist: Any, choicelist: Any, default: Any) -> Any:
    """Each element of the first choice whose condition holds."""
    if len(condlist) != len(choicelist):
        raise ValueError("list of cases must be same length as list of conditions")
    if not len(condlist):
        raise ValueError("select with an empty condition list is not possible")
    conditions = [np.asarray(one) for one in condlist]
    for i, one in enumerate(conditions):
        if one.dtype.kind != "bool":
            raise TypeError(f"invalid entry {i} in condlist: should be boolean ndarray")
    *choices, found = promoted(np, *choicelist, default)
    shape = numpy.broadcast_shapes(*(x.shape for x in (*conditions, *choices, found)))
    for condition, choice in zip(reversed(conditions), reversed(choices), strict=True):
        found = np.xp.where(condition, choice, found)
    return np.copy(np.broadcast_to(found, shape)) if found.shape != shape else found


@function()
def piecewise(np: Any, x: Array, condlist: Any, funclist: Any, *args: Any, **kw: Any) -> Any:
    """Functions, each where its condition holds; every one is computed for all elements."""
    conditions = [
        np.asarray(one, dtype="?") for one in (condlist if isinstance(condlist, list | tuple) else [condlist])
    ]
    if isinstance(condlist, list) and condlist and isinstance(condlist[0], bool) and x.ndim:
        conditions = [np.asarray(condlist, dtype="?")]
    if len(funclist) == len(conditions) + 1:
        conditions.append(~functools.reduce(lambda a, b: a | b, conditions))
    if len(funclist) != len(conditions):
        raise ValueError(
            f"with {len(conditions)} condition(s), either {len(conditions)} or {len(conditions) + 1} functions are "
            "expected"
        )
    found = np.zeros_like(x)
    for condition, each in zip(conditions, funclist, strict=True):
        value = each(x, *args, **kw) if callable(each) else each
        found = np.where(condition, cast(value, x.dtype) if isinstance(value, GpuRef) else value, found)
    return found if found.dtype is x.dtype else found.astype(x.dtype)


@function()
def fill_diagonal(np: Any, a: Any, val: Any, wrap: bool) -> None:
    """Write the main diagonal, in place."""
    if a.ndim < 2:
        raise ValueError("array must be at least 2-d")
    if a.ndim > 2 and len(set(a.shape)) > 1:
        raise ValueError("All dimensions of input must be of equal length")
    step = a.shape[1] + 1 if a.ndim == 2 else 1 + sum(int(numpy.prod(a.shape[i:])) for i in range(1, a.ndim))
    end = a.shape[1] * a.shape[1] if a.ndim == 2 and not wrap else None
    line = a.reshape(-1)[slice(0, end, step)]
    values = np.ravel(np.asarray(val))
    line[...] = np.resize(values, line.shape) if values.size > 1 else values[0]


# -- indices -----------------------------------------------------------------------------------------------------------


def _host(name: str, *more: str) -> None:
    """A function of shapes alone, whose indices NumPy computes on the host."""

    def indices(np: Any, *args: Any, **kwargs: Any) -> Any:
        given = [x.get() if isinstance(x, GpuRef) else x for x in args]
        return _put(
            np, getattr(numpy, name)(*given, **{k: x.get() if isinstance(x, GpuRef) else x for k, x in kwargs.items()})
        )

    indices.__name__, indices.__doc__ = name, f"``numpy.{name}``, computed on the host and copied to the device."
    HOST[name] = indices


HOST: dict[str, Any] = {}


def _put(np: Any, found: Any) -> Any:
    if isinstance(found, tuple):
        return tuple(_put(np, x) for x in found)
    return np.xp.asarray(found) if isinstance(found, numpy.ndarray) and found.dtype.kind in "biufc" else found


for _name in [
    "tril_indices",
    "triu_indices",
    "diag_indices",
    "mask_indices",
    "tril_indices_from",
    "triu_indices_from",
    "diag_indices_from",
]:
    _host(_name)


@function()
def ix_(np: Any, *args: Any) -> Any:
    """Lines of indices that span a grid."""
    found = []
    for at, one in enumerate(args):
        line = np.asarray(one)
        if line.ndim != 1:
            raise ValueError("Cross index must be 1 dimensional")
        if not line.size and not isinstance(one, GpuRef | numpy.ndarray):
            line = np.zeros((0,), dtype="i8")
        line = np.flatnonzero(line) if line.dtype.kind == "bool" else line
        found.append(
            np.reshape(
                line,
                tuple(-1 if i == at else 1 for i in range(len(args)))
                if line.size
                else tuple(0 if i == at else 1 for i in range(len(args))),
            )
        )
    return tuple(found)


@function()
def unravel_index(np: Any, indices: Any, shape: Any, order: Any) -> Any:
    """The indices of each axis, of places in the line of all."""
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    if not isinstance(indices, GpuRef):
        return _put(np, tuple(numpy.asarray(x) for x in numpy.unravel_index(indices, shape, order)))
    found, rest = [], indices
    for n in shape if order == "F" else shape[::-1]:
        found.append(np.mod(rest, n))
        rest = np.floor_divide(rest, n)
    return tuple(found if order == "F" else found[::-1])


@function()
def ravel_multi_index(np: Any, multi_index: Any, dims: Any, mode: Any, order: Any) -> Any:
    """Places in the line of all, of indices of each axis."""
    if not any(isinstance(x, GpuRef) for x in multi_index):
        return _put(np, numpy.asarray(numpy.ravel_multi_index(multi_index, dims, mode, order)))
    modes = (mode,) * len(dims) if isinstance(mode, str) else mode
    lines = [_in_range(np, np.asarray(x), n, m) for x, n, m in zip(multi_index, dims, modes, strict=True)]
    pairs = list(zip(lines, dims, strict=True))
    found: Any = 0
    for line, n in pairs[::-1] if order == "F" else pairs:
        found = found * n + line
    return found


# -- along axes --------------------------------------------------------------------------------------------------------


@function()
def apply_along_axis(np: Any, func1d: Any, axis: int, arr: Array, *args: Any, **kwargs: Any) -> Any:
    """A function of each line: one call each."""
    axis = axis_of(axis, arr.ndim)
    lines = np.moveaxis(arr, axis, -1)
    shape = lines.shape[:-1]
    if not all(shape):
        raise ValueError("Cannot apply_along_axis when any iteration dimensions are 0")
    found = [np.asarray(func1d(lines[at], *args, **kwargs)) for at in numpy.ndindex(*shape)]
    stacked = np.reshape(np.stack(found), (*shape, *found[0].shape))
    own = found[0].ndim
    return (
        np.moveaxis(stacked, tuple(range(len(shape), len(shape) + own)), tuple(range(axis, axis + own)))
        if own
        else stacked
    )


@function()
def apply_over_axes(np: Any, func: Any, a: Array, axes: Any) -> Any:
    """A function along one axis after the other."""
    found = a
    for axis in (axes,) if isinstance(axes, int) else axes:
        result = func(found, axis_of(axis, a.ndim))
        found = result if result.ndim == found.ndim else np.expand_dims(result, axis_of(axis, a.ndim))
        if found.ndim != a.ndim:
            raise ValueError("function is not returning an array of the correct shape")
    return found
