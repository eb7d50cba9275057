"""Arrays in other shapes, joined, split, and elements taken out, put in and moved."""

import itertools
from typing import Any

import numpy

from callboard.arrays.handles import AxisError
from callboard.core.ref import GpuRef
from callboard.numpylike.binding import Array, Arrays, Dtype, function


def axis_of(axis: int, ndim: int) -> int:
    """The axis counted from 0."""
    if not -ndim <= axis < ndim:
        raise AxisError(f"axis {axis} is out of bounds for array of dimension {ndim}")
    return int(axis) % ndim


@function()
def reshape(np: Any, a: Array, shape: Any, order: str = "C", copy: Any = None) -> Any:
    """The elements in another shape: a view where the strides allow one, else a copy."""
    if order == "F":
        whole = shape if isinstance(shape, tuple | list) else (shape,)
        return np.transpose(np.xp.reshape(np.transpose(a), tuple(whole)[::-1]))
    return np.xp.reshape(a, shape if isinstance(shape, int) else tuple(int(n) for n in _ints(shape)), copy=copy)


def _ints(shape: Any) -> Any:
    return shape if isinstance(shape, list | tuple) else numpy.atleast_1d(numpy.asarray(shape))


@function()
def ravel(np: Any, a: Array, order: str) -> Any:
    """The elements in a line: a view where that is possible."""
    return np.xp.reshape(np.transpose(a) if order == "F" else a, (-1,)) if a.size else np.xp.reshape(a, (0,))


@function("", "permute_dims")
def transpose(np: Any, a: Array, axes: Any) -> Any:
    """The view with its axes in another order."""
    return a.T if axes is None else np.xp.permute_dims(a, (axes,) if isinstance(axes, int) else tuple(axes))


@function()
def swapaxes(np: Any, a: Array, axis1: int, axis2: int) -> Any:
    """The view with two axes exchanged."""
    order = list(range(a.ndim))
    one, other = axis_of(axis1, a.ndim), axis_of(axis2, a.ndim)
    order[one], order[other] = order[other], order[one]
    return np.xp.permute_dims(a, tuple(order))


@function()
def moveaxis(np: Any, a: Array, source: Any, destination: Any) -> Any:
    """The view with some axes at other places."""
    source, destination = (x if isinstance(x, int) else tuple(x) for x in (source, destination))
    return np.xp.moveaxis(a, source, destination)


@function()
def rollaxis(np: Any, a: Array, axis: int, start: int) -> Any:
    """The view with an axis before another one."""
    axis = axis_of(axis, a.ndim)
    if not -a.ndim <= start <= a.ndim:
        raise AxisError(f"'start' arg requires {-a.ndim} <= start < {a.ndim + 1}, but {start} was passed in")
    start += a.ndim if start < 0 else 0
    return np.xp.moveaxis(a, axis, start - 1 if axis < start else start)


@function("", "linalg.matrix_transpose")
def matrix_transpose(np: Any, x: Array) -> Any:
    """The view with its last two axes exchanged."""
    return np.xp.matrix_transpose(x)


@function()
def expand_dims(np: Any, a: Array, axis: Any) -> Any:
    """The view with axes of extent 1."""
    return np.xp.expand_dims(a, axis=axis if isinstance(axis, int) else tuple(axis))


@function()
def squeeze(np: Any, a: Array, axis: Any) -> Any:
    """The view without axes of extent 1."""
    if axis is None:
        axis = tuple(i for i, n in enumerate(a.shape) if n == 1)
    return np.xp.squeeze(a, axis=axis)


def _atleast(rank: int, places: Any) -> Any:
    def atleast(np: Any, *arys: Array) -> Any:
        found = tuple(x if x.ndim >= rank else places(np, x) for x in arys)
        return found[0] if len(found) == 1 else found

    atleast.__name__, atleast.__doc__ = f"atleast_{rank}d", f"The arrays with at least {rank} axes."
    return function()(atleast)


def _three(np: Any, x: Any) -> Any:
    shape = ((1, 1, 1), (1, -1, 1), (*x.shape, 1))[x.ndim]
    return np.reshape(x, shape)


_atleast(1, lambda np, x: np.reshape(x, (1,)))
_atleast(2, lambda np, x: np.reshape(x, (1, -1)))
_atleast(3, _three)


@function()
def broadcast_to(np: Any, array: Array, shape: Any) -> Any:
    """The view repeated to a shape."""
    return np.xp.broadcast_to(array, shape if isinstance(shape, int) else tuple(shape))


@function()
def broadcast_arrays(np: Any, *args: Array) -> Any:
    """Views of the arrays, all of one shape."""
    return np.xp.broadcast_arrays(*args) if args else ()


@function()
def broadcast_shapes(np: Any, *args: Any) -> Any:
    """The shape that these broadcast to."""
    return numpy.broadcast_shapes(*args)


# -- joined and split --------------------------------------------------------------------------------------------------


@function("", "concat")
def concatenate(np: Any, arrays: Arrays, axis: Any = 0, dtype: Dtype = None) -> Any:
    """The arrays joined along an axis."""
    if not arrays:
        raise ValueError("need at least one array to concatenate")
    if axis is not None and any(x.ndim == 0 for x in arrays):
        raise ValueError("zero-dimensional arrays cannot be concatenated")
    return np.xp.concat([x if dtype is None else np.xp.astype(x, dtype, copy=False) for x in arrays], axis=axis)


@function()
def stack(np: Any, arrays: Arrays, axis: int, dtype: Dtype) -> Any:
    """The arrays side by side along a new axis."""
    if not arrays:
        raise ValueError("need at least one array to stack")
    if any(x.shape != arrays[0].shape for x in arrays):
        raise ValueError("all input arrays must have the same shape")
    return concatenate(np, [np.xp.expand_dims(x, axis=axis) for x in arrays], axis_of(axis, arrays[0].ndim + 1), dtype)


@function("", "row_stack")
def vstack(np: Any, tup: Arrays, dtype: Dtype = None) -> Any:
    """The arrays one below the other."""
    return concatenate(np, [np.atleast_2d(x) for x in tup], 0, dtype)


@function()
def hstack(np: Any, tup: Arrays, dtype: Dtype) -> Any:
    """The arrays side by side."""
    arrays = [np.atleast_1d(x) for x in tup]
    return concatenate(np, arrays, 0 if arrays and arrays[0].ndim == 1 else 1, dtype)


@function()
def dstack(np: Any, tup: Arrays) -> Any:
    """The arrays joined along the third axis."""
    return concatenate(np, [np.atleast_3d(x) for x in tup], 2)


@function()
def column_stack(np: Any, tup: Arrays) -> Any:
    """Lines as columns of a matrix."""
    return concatenate(np, [np.reshape(x, (-1, 1)) if x.ndim < 2 else x for x in tup], 1)


@function()
def block(np: Any, arrays: Any) -> Any:
    """An array from nested lists of blocks."""
    depth, rank = _depth(arrays), _rank(np, arrays)
    return _block(np, arrays, depth, max(rank, depth), depth)


def _depth(x: Any) -> int:
    if not isinstance(x, list):
        if isinstance(x, tuple):
            raise TypeError("np.block: tuples are not blocks; use lists")
        return 0
    depths = {_depth(one) for one in x}
    if not x or len(depths) > 1:
        raise ValueError("List depths are mismatched, or a list is empty")
    return 1 + depths.pop()


def _rank(np: Any, x: Any) -> int:
    return max(_rank(np, one) for one in x) if isinstance(x, list) else np.asarray(x).ndim


def _block(np: Any, x: Any, depth: int, rank: int, whole: int) -> Any:
    if depth == 0:
        found = np.asarray(x)
        found = np.reshape(found, (*(1,) * (rank - found.ndim), *found.shape))
        return np.copy(found) if whole == 0 else found
    return concatenate(np, [_block(np, one, depth - 1, rank, whole) for one in x], -depth)


def _sections(n: int, given: Any) -> list[tuple[int, int]]:
    """Begin and end of each part of ``n`` lines."""
    if isinstance(given, int | numpy.integer):
        if given <= 0:
            raise ValueError("number sections must be larger than 0.")
        size, more = divmod(n, int(given))
        ends = numpy.cumsum([0] + more * [size + 1] + (int(given) - more) * [size]).tolist()
    else:
        ends = [0, *(int(one) for one in given), n]
    return list(itertools.pairwise(ends))


@function()
def array_split(np: Any, ary: Array, indices_or_sections: Any, axis: int = 0) -> Any:
    """Views of parts along an axis."""
    axis = axis_of(axis, ary.ndim)
    front = (slice(None),) * axis
    return [ary[(*front, slice(a, b))] for a, b in _sections(ary.shape[axis], indices_or_sections)]


@function()
def split(np: Any, ary: Array, indices_or_sections: Any, axis: int = 0) -> Any:
    """Views of parts along an axis, of equal extents where their number is given."""
    axis = axis_of(axis, ary.ndim)
    if isinstance(indices_or_sections, int) and ary.shape[axis] % indices_or_sections:
        raise ValueError("array split does not result in an equal division")
    return array_split(np, ary, indices_or_sections, axis)


def _splits(name: str, least: int, axis: Any) -> None:
    def splits(np: Any, ary: Array, indices_or_sections: Any) -> Any:
        if ary.ndim < least:
            raise ValueError(f"{name} only works on arrays of {least} or more dimensions")
        return split(np, ary, indices_or_sections, axis(ary))

    splits.__name__, splits.__doc__ = name, "Views of parts."
    function()(splits)


_splits("hsplit", 1, lambda a: 0 if a.ndim == 1 else 1)
_splits("vsplit", 2, lambda a: 0)
_splits("dsplit", 3, lambda a: 2)


@function()
def unstack(np: Any, x: Array, axis: int) -> Any:
    """Views along an axis."""
    if x.ndim == 0:
        raise ValueError("Input array must be at least 1-d.")
    return np.xp.unstack(x, axis=axis)


# -- repeated and turned -----------------------------------------------------------------------------------------------


@function()
def repeat(np: Any, a: Array, repeats: Any, axis: Any) -> Any:
    """Each element several times in a row."""
    return np.xp.repeat(a, repeats, axis=axis)


@function()
def tile(np: Any, A: Array, reps: Any) -> Any:
    """Several copies side by side."""
    times = tuple(int(n) for n in _ints(reps))
    return np.xp.tile(A, times)


@function()
def flip(np: Any, m: Array, axis: Any = None) -> Any:
    """The view backwards."""
    return np.xp.flip(m, axis=axis)


@function()
def flipud(np: Any, m: Array) -> Any:
    """The view with its rows backwards."""
    if m.ndim < 1:
        raise ValueError("Input must be >= 1-d.")
    return flip(np, m, 0)


@function()
def fliplr(np: Any, m: Array) -> Any:
    """The view with its columns backwards."""
    if m.ndim < 2:
        raise ValueError("Input must be >= 2-d.")
    return flip(np, m, 1)


@function()
def rot90(np: Any, m: Array, k: int, axes: Any) -> Any:
    """Turned by right angles, in the plane of two axes."""
    axes = tuple(axes)
    if len(axes) != 2:
        raise ValueError("len(axes) must be 2.")
    if any(not -m.ndim <= a < m.ndim for a in axes):
        raise ValueError(f"Axes={axes} out of range for array of ndim={m.ndim}.")
    if axes[0] == axes[1] or abs(axes[0] - axes[1]) == m.ndim:
        raise ValueError("Axes must be different.")
    k %= 4
    if k in (0, 2):
        return m[...] if k == 0 else flip(np, m, axes)
    turned = flip(np, m, axes[1]) if k == 1 else m
    found = swapaxes(np, turned, *axes)
    return found if k == 1 else flip(np, found, axes[1])


@function()
def roll(np: Any, a: Array, shift: Any, axis: Any) -> Any:
    """The elements shifted around."""
    if axis is None and not isinstance(shift, int | numpy.integer):
        return np.reshape(np.xp.roll(np.ravel(a), sum(int(n) for n in _ints(shift)), axis=0), a.shape)
    if axis is not None and isinstance(shift, list | tuple | numpy.ndarray):
        shift = tuple(int(n) for n in _ints(shift))
        if not isinstance(axis, int):
            axis = tuple(axis)
            shift = shift * len(axis) if len(shift) == 1 else shift
            axis = axis * len(shift) if len(axis) == 1 else axis
        else:
            axis = (axis,) * len(shift)
    elif axis is not None and not isinstance(axis, int):
        axis = tuple(axis)
    return np.xp.roll(a, shift if isinstance(shift, tuple) else int(shift), axis=axis)


@function()
def resize(np: Any, a: Array, new_shape: Any) -> Any:
    """The elements, repeated as often as the new shape needs."""
    shape = tuple(int(n) for n in _ints(new_shape))
    if any(n < 0 for n in shape):
        raise ValueError("all elements of `new_shape` must be non-negative")
    size = int(numpy.prod(shape))
    flat = np.ravel(a)
    if not flat.size or not size:
        return np.zeros(shape, dtype=a.dtype)
    return np.reshape(np.copy(np.tile(flat, -(-size // flat.size))[:size]), shape)


# -- elements taken out, put in ----------------------------------------------------------------------------------------


@function()
def append(np: Any, arr: Array, values: Array, axis: Any) -> Any:
    """The values behind the array."""
    if axis is None:
        return concatenate(np, [np.ravel(arr), np.ravel(values)])
    return concatenate(np, [arr, values], axis)


def _places(np: Any, obj: Any, n: int) -> Any:
    """The places on the host that an index along an axis of ``n`` names."""
    if isinstance(obj, GpuRef):
        obj = obj.get()
    if isinstance(obj, slice):
        return numpy.arange(n)[obj]
    found = numpy.asarray(obj)
    if not found.size and not isinstance(obj, numpy.ndarray):
        found = found.astype(int)
    return found


@function()
def delete(np: Any, arr: Array, obj: Any, axis: Any) -> Any:
    """The array without some lines."""
    if axis is None:
        arr, axis = np.ravel(arr), 0
    axis = axis_of(axis, arr.ndim)
    kept = numpy.delete(numpy.arange(arr.shape[axis]), _places(np, obj, arr.shape[axis]))
    return np.xp.take(arr, np.xp.asarray(kept.astype("i8")), axis=axis)


@function()
def insert(np: Any, arr: Array, obj: Any, values: Array, axis: Any) -> Any:
    """The array with further lines before some places."""
    if axis is None:
        arr, axis = np.ravel(arr), 0
    axis = axis_of(axis, arr.ndim)
    n = arr.shape[axis]
    places = _places(np, obj, n)
    if places.size == 1 and places.dtype.kind != "b":  # several lines may come before one place
        values = np.reshape(values, (*(1,) * (arr.ndim - values.ndim), *values.shape))
        values = np.moveaxis(values, 0, axis) if not places.ndim else values
        place = int(places.reshape(()))
        if not -n <= place <= n:
            raise IndexError(f"index {obj} is out of bounds for axis {axis} with size {n}")
        places = numpy.full(values.shape[axis], place)
    order = numpy.insert(numpy.arange(n), places, numpy.arange(n, n + len(places)) if places.dtype.kind != "b" else n)
    shape = (*arr.shape[:axis], len(order) - n, *arr.shape[axis + 1 :])
    given = np.broadcast_to(np.xp.astype(values, arr.dtype) if values.dtype != arr.dtype else values, shape)
    return np.xp.take(np.xp.concat([arr, given], axis=axis), np.xp.asarray(order.astype("i8")), axis=axis)


@function()
def trim_zeros(np: Any, filt: Any, trim: str, axis: Any = None) -> Any:
    """A line without zeros at its ends, for which it waits."""
    x = np.asarray(filt)
    if not x.ndim:
        return x
    places = np.xp.nonzero(x)
    bounds = [
        (int(np.min(one)), int(np.max(one)) + 1) if one.shape[0] else (n, n)
        for one, n in zip(places, x.shape, strict=True)
    ]
    chosen = range(x.ndim) if axis is None else [a % x.ndim for a in ([axis] if isinstance(axis, int) else axis)]
    if not all(one.shape[0] for one in places):
        return x[tuple(slice(0, 0) if a in chosen else slice(None) for a in range(x.ndim))]
    sides = trim.lower()
    return x[
        tuple(
            slice(low if "f" in sides else 0, high if "b" in sides else None) if a in chosen else slice(None)
            for a, (low, high) in enumerate(bounds)
        )
    ]
