"""New arrays: the functions of the namespace that take no array and therefore need a device."""

import cmath
import math
from collections.abc import Callable
from typing import Any, Generic, Literal

import numpy as np

from callboard.actors.handles import Handle
from callboard.arrays.dtypes import DEFAULTS, NAMES, result_type
from callboard.arrays.elementwise import apply
from callboard.arrays.handles import cast, check_array, check_device, integer, is_scalar, number, submit, view
from callboard.arrays.manipulation import broadcast_to, concat, reshape
from callboard.core.dtype import DType, DTypeLike, as_dtype
from callboard.core.errors import ShapeError
from callboard.core.layout import shape_of
from callboard.core.mode import Mode
from callboard.core.op import Op
from callboard.core.ref import GpuRef
from callboard.core.ref.hostarrays import host_array, told
from callboard.core.ref.tokens import INSTEAD_OF_PICKLING
from callboard.kernel.array import Arange
from callboard.kernel.memory import Copy, Empty, Fill

__all__ = ["Creation", "Shape", "empty_like", "full_like", "meshgrid", "ones_like", "tril", "triu", "zeros_like"]

Shape = int | tuple[int, ...]


class Creation(Handle, Generic[Mode]):
    """Makes arrays on one device. ``device=`` may name that device; any other is refused.

    Args:
        submit: Accepts an op.
        put: Copies a host array to the device.
        device: Name of the device.
    """

    instead_of_pickling = INSTEAD_OF_PICKLING

    def __init__(self, submit: Callable[[Op[Any, Any]], Any], put: Callable[[Any], Any], device: str) -> None:
        self._submit = submit
        self._put = put
        self._device = device

    def asarray(
        self, obj: Any, /, *, dtype: DTypeLike | None = None, device: str | None = None, copy: bool | None = None
    ) -> GpuRef[Mode]:
        """``obj`` as an array.

        Args:
            obj: A ref, a number, nested sequences of them, or what ``numpy.asarray`` takes. Python's numbers become
                bool, int64, float64 or complex128. Refs in a sequence are joined on the device, as by ``xp.stack``.
            dtype: Converted to it.
            device: This one, or None.
            copy: True: always a new array. False: only an array that already has that dtype. None: copy if needed.

        Raises:
            ValueError: ``copy=False``, and it takes one.
            TypeError: No device holds that dtype.
            ShapeError: A sequence holds refs, and not all of its items have one shape.
        """
        check_device(self._device, device)
        to = None if dtype is None else as_dtype(dtype)
        if isinstance(obj, GpuRef):
            if to is not None and obj.dtype is not to:
                if copy is False:
                    raise ValueError(
                        f"xp.asarray: obj is {obj.layout!r}, and in {to} it is a copy; leave out copy=False"
                    )
                return cast(obj, to)
            copied: GpuRef[Mode] = self._submit(Copy(src=obj)) if copy else obj
            return copied
        exports = told("xp.asarray", obj, "__dlpack__", lambda: hasattr(obj, "__dlpack__"))
        if copy is False and not exports:
            raise ValueError("xp.asarray: values of the host are copied to the device; leave out copy=False")
        if isinstance(obj, list | tuple) and _holds_refs(obj):
            joined: GpuRef[Mode] = self._joined(obj, to)
            return joined
        if isinstance(obj, np.ndarray) or not exports:
            obj = host_array(obj, to, "xp.asarray")
        made: GpuRef[Mode] = self._put(obj)
        return made if to is None else cast(made, to)

    def _joined(self, obj: Any, to: DType | None) -> Any:
        leaves: list[Any] = []
        shape = _flattened(obj, leaves)
        refs = [one for one in leaves if isinstance(one, GpuRef)]
        own = refs[0].shape
        if to is None:
            to = result_type(*dict.fromkeys(one.dtype for one in refs), *(one for one in leaves if is_scalar(one)))
        if any((one.shape if isinstance(one, GpuRef) else np.shape(one)) != own for one in leaves):
            raise ShapeError(
                f"xp.asarray: obj is a sequence of refs of several shapes; the first is {refs[0].layout!r}"
            )
        lines = [reshape(cast(self.asarray(one), to), (-1,)) for one in leaves]
        return concat(lines).reshape((*shape, *own))

    def from_dlpack(self, x: Any, /, *, device: str | None = None, copy: bool | None = None) -> GpuRef[Mode]:
        """An array of another package: without a copy if it is on this device, in this process; else copied.

        Raises:
            BufferError, TypeError: It is on another device that this process cannot read.
            ValueError: ``copy=False``, and it takes one.
        """
        check_device(self._device, device)
        if isinstance(x, GpuRef):
            return self.asarray(x, copy=copy)
        if not told("xp.from_dlpack", x, "__dlpack__", lambda: hasattr(x, "__dlpack__")):
            raise TypeError(f"xp.from_dlpack: x is {type(x).__name__}, which has no __dlpack__")
        kind = told("xp.from_dlpack", x, "__dlpack_device__", lambda: int(x.__dlpack_device__()[0]))
        on_host = kind in (1, 3)  # CPU, page-locked memory
        if on_host and copy is False:
            raise ValueError("xp.from_dlpack: x is on the host and is copied to the device; leave out copy=False")
        made: GpuRef[Mode] = self._put(x)
        return self.asarray(made, copy=copy) if copy and not on_host else made

    def empty(self, shape: Shape, *, dtype: DTypeLike | None = None, device: str | None = None) -> GpuRef[Mode]:
        """An array that is not initialised; float64 when ``dtype`` is None."""
        check_device(self._device, device)
        made: GpuRef[Mode] = self._submit(Empty(shape=shape_of(shape), dtype=_float(dtype).name))
        return made

    def zeros(self, shape: Shape, *, dtype: DTypeLike | None = None, device: str | None = None) -> GpuRef[Mode]:
        """An array of zeros; float64 when ``dtype`` is None."""
        return self.full(shape, 0, dtype=_float(dtype), device=device)

    def ones(self, shape: Shape, *, dtype: DTypeLike | None = None, device: str | None = None) -> GpuRef[Mode]:
        """An array of ones; float64 when ``dtype`` is None."""
        return self.full(shape, 1, dtype=_float(dtype), device=device)

    def full(
        self,
        shape: Shape,
        fill_value: complex | GpuRef[Mode],
        *,
        dtype: DTypeLike | None = None,
        device: str | None = None,
    ) -> GpuRef[Mode]:
        """An array of one number; its dtype is that of the number when ``dtype`` is None.

        Args:
            shape: Shape of the array.
            fill_value: A number, or a 0-d array.
            dtype: The dtype of the array; None takes that of ``fill_value``.
            device: This one, or None.

        Raises:
            ShapeError: The dtype does not hold the number.
        """
        check_device(self._device, device)
        if isinstance(fill_value, GpuRef):
            wanted = fill_value.dtype if dtype is None else as_dtype(dtype)
            spread = broadcast_to(cast(fill_value, wanted), shape_of(shape))
            copied: GpuRef[Mode] = self._submit(Copy(src=spread))
            return copied
        fill_value = number("full", "fill_value", fill_value)
        to = _of_number(fill_value) if dtype is None else as_dtype(dtype)
        out = self._submit(Empty(shape=shape_of(shape), dtype=to.name))
        value = int(bool(fill_value)) if to.kind == "bool" else fill_value
        filled: GpuRef[Mode] = self._submit(Fill(out=out, fill_value=value))
        return filled

    def arange(
        self,
        start: float | GpuRef[Mode],
        /,
        stop: float | GpuRef[Mode] | None = None,
        step: float | GpuRef[Mode] = 1,
        *,
        dtype: DTypeLike | None = None,
        device: str | None = None,
    ) -> GpuRef[Mode]:
        """``start``, ``start + step`` … below ``stop``; from 0 if only one number is given.

        int64 if all numbers are integers, else float64, when ``dtype`` is None.

        Raises:
            ShapeError: ``step`` is 0.
        """
        check_device(self._device, device)
        begin, end = (0, start) if stop is None else (start, stop)
        first, last, step = (number("arange", name, n) for name, n in (("start", begin), ("stop", end), ("step", step)))
        if step == 0:
            raise ShapeError("xp.arange: step is 0")
        if any(isinstance(n, complex) or not math.isfinite(n) for n in (first, last, step)):
            raise ShapeError(f"xp.arange: from {first} to {last} by {step}; pass finite real numbers")
        whole = all(isinstance(n, int) for n in (first, last, step))
        to = as_dtype(dtype) if dtype is not None else DEFAULTS["integral" if whole else "real floating"]
        length = max(-((first - last) // step) if whole else math.ceil((last - first) / step), 0)
        if to.is_integer:
            first, step = int(first), int(step)
        made: GpuRef[Mode] = self._submit(Arange(length=int(length), dtype=to.name, start=first, step=step))
        return made

    def linspace(
        self,
        start: complex | GpuRef[Mode],
        stop: complex | GpuRef[Mode],
        /,
        num: int | GpuRef[Mode],
        *,
        dtype: DTypeLike | None = None,
        device: str | None = None,
        endpoint: bool = True,
    ) -> GpuRef[Mode]:
        """``num`` evenly spaced numbers from ``start`` to ``stop``, which is the last one or, without it, the next.

        Raises:
            ShapeError: ``num`` is negative.
        """
        check_device(self._device, device)
        start, stop, num = (
            number("linspace", "start", start),
            number("linspace", "stop", stop),
            integer("linspace", "num", num),
        )
        has_complex = isinstance(start, complex) or isinstance(stop, complex)
        to = as_dtype(dtype) if dtype is not None else DEFAULTS["complex floating" if has_complex else "real floating"]
        if num < 0:
            raise ShapeError(f"xp.linspace: num is {num}; it must be >= 0")
        if cmath.isfinite(start) and cmath.isfinite(stop) and not cmath.isfinite(stop - start):
            half = self.linspace(start / 2, stop / 2, num, dtype=to, device=device, endpoint=endpoint)
            doubled: GpuRef[Mode] = apply("2 * x", x=half)
            return doubled
        parts = num - 1 if endpoint else num
        step = (stop - start) / parts if parts > 0 else 0.0
        wide = DEFAULTS["real floating"] if to.is_integer else to
        made: GpuRef[Mode] = self._submit(Arange(length=num, dtype=wide.name, start=start * 1.0, step=step))
        if endpoint and num > 1:
            last = self._submit(Fill(out=made[num - 1 :], fill_value=stop))
            made = last._view(made.layout, made.offset)
        return cast(made, to)

    def eye(
        self,
        n_rows: int | GpuRef[Mode],
        n_cols: int | GpuRef[Mode] | None = None,
        /,
        *,
        k: int | GpuRef[Mode] = 0,
        dtype: DTypeLike | None = None,
        device: str | None = None,
    ) -> GpuRef[Mode]:
        """Ones on the ``k``-th diagonal (above the main one where ``k`` is positive), else zeros."""
        rows = integer("eye", "n_rows", n_rows)
        cols = rows if n_cols is None else integer("eye", "n_cols", n_cols)
        k = integer("eye", "k", k)
        made = self.zeros((rows, cols), dtype=dtype, device=device)
        length = min(rows + min(k, 0), cols - max(k, 0))
        if length <= 0:
            return made
        first = made[max(-k, 0) :, max(k, 0) :]
        diagonal = view(first, (length,), (cols + 1,))
        written = self._submit(Fill(out=diagonal, fill_value=1))
        ones: GpuRef[Mode] = written._view(made.layout, made.offset)
        return ones


def _holds_refs(obj: Any) -> bool:
    return any(isinstance(one, GpuRef) or (isinstance(one, list | tuple) and _holds_refs(one)) for one in obj)


def _flattened(obj: Any, leaves: list[Any]) -> tuple[int, ...]:
    """The shape of nested sequences, whose items are added to ``leaves`` row by row."""
    if not isinstance(obj, list | tuple):
        leaves.append(obj)
        return ()
    shapes = {_flattened(one, leaves) for one in obj}
    if len(shapes) > 1:
        raise ShapeError(f"xp.asarray: obj is nested sequences of different lengths: {sorted(shapes)}")
    return (len(obj), *(shapes.pop() if shapes else ()))


def _float(dtype: DTypeLike | None) -> DType:
    return DEFAULTS["real floating"] if dtype is None else as_dtype(dtype)


def _of_number(number: Any) -> DType:
    if isinstance(number, bool | np.bool_):
        return NAMES["bool"]
    if isinstance(number, int | np.integer):
        return DEFAULTS["integral"]
    return DEFAULTS["complex floating" if isinstance(number, complex | np.complexfloating) else "real floating"]


# -- like another ------------------------------------------------------------------------------------------------------


def empty_like(x: GpuRef[Mode], /, *, dtype: DTypeLike | None = None, device: str | None = None) -> GpuRef[Mode]:
    """An array of the shape and dtype of ``x``, not initialised."""
    check_array("empty_like", "x", x)
    check_device(x.device, device)
    made: GpuRef[Mode] = submit(x, Empty(shape=x.shape, dtype=(x.dtype if dtype is None else as_dtype(dtype)).name))
    return made


def full_like(
    x: GpuRef[Mode], /, fill_value: complex | GpuRef[Mode], *, dtype: DTypeLike | None = None, device: str | None = None
) -> GpuRef[Mode]:
    """An array of the shape and dtype of ``x``, of one number."""
    check_array("full_like", "x", x)
    to = x.dtype if dtype is None else as_dtype(dtype)
    made: GpuRef[Mode] = x._port.services.xp.full(x.shape, fill_value, dtype=to, device=device)
    return made


def zeros_like(x: GpuRef[Mode], /, *, dtype: DTypeLike | None = None, device: str | None = None) -> GpuRef[Mode]:
    """An array of the shape and dtype of ``x``, of zeros."""
    return full_like(x, 0, dtype=dtype, device=device)


def ones_like(x: GpuRef[Mode], /, *, dtype: DTypeLike | None = None, device: str | None = None) -> GpuRef[Mode]:
    """An array of the shape and dtype of ``x``, of ones."""
    return full_like(x, 1, dtype=dtype, device=device)


def meshgrid(*arrays: GpuRef[Mode], indexing: Literal["xy", "ij"] = "xy") -> tuple[GpuRef[Mode], ...]:
    """For each 1-d array the coordinate that it gives on the grid of all: views, repeated with steps of 0.

    Args:
        arrays: 1-d (or 0-d).
        indexing: ``"xy"``: the first two axes are exchanged, ``"ij"``: they are not.
    """
    if indexing not in ("xy", "ij"):
        raise ShapeError(f"xp.meshgrid: indexing is {indexing!r}; 'xy' or 'ij'")
    lines = []
    for i, x in enumerate(arrays):
        check_array("meshgrid", f"arrays[{i}]", x)
        if x.ndim > 1:
            raise ShapeError(f"xp.meshgrid: arrays[{i}] is {x.layout!r}; it must have 1 axis")
        lines.append(x.reshape(-1))
    order = list(range(len(lines)))
    if indexing == "xy" and len(lines) > 1:
        order[:2] = [1, 0]
    shape = tuple(lines[i].size for i in order)
    grid = []
    for i, x in enumerate(lines):
        own = tuple(x.size if one == i else 1 for one in order)
        grid.append(broadcast_to(x.reshape(own), shape))
    return tuple(grid)


def tril(x: GpuRef[Mode], /, *, k: int = 0) -> GpuRef[Mode]:
    """The lower triangles of matrices, zeros above their ``k``-th diagonals."""
    return _triangle("tril", x, "j - i <= k", k)


def triu(x: GpuRef[Mode], /, *, k: int = 0) -> GpuRef[Mode]:
    """The upper triangles of matrices, zeros below their ``k``-th diagonals."""
    return _triangle("triu", x, "j - i >= k", k)


def _triangle(function: str, x: GpuRef[Mode], inside: str, k: int) -> GpuRef[Mode]:
    check_array(function, "x", x)
    if x.ndim < 2:
        raise ShapeError(f"xp.{function}: x is {x.layout!r}; it must have 2 axes or more")
    xp = x._port.services.xp
    k = integer(function, "k", k)
    i, j = xp.arange(x.shape[-2]).reshape(-1, 1), xp.arange(x.shape[-1])
    text = f"({inside}) & x" if x.dtype.kind == "bool" else f"where({inside}, x, 0)"
    nearest = max(-x.shape[-2], min(k, x.shape[-1]))  # farther diagonals are outside, and need not be an int64
    found: GpuRef[Mode] = apply(text, j=j, i=i, k=nearest, x=x)
    return found
