"""Helpers of the functions of the namespace: the device of an array, and checks of arguments."""

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from callboard.core.dtype import DType
from callboard.core.errors import DeviceMismatch, ShapeError
from callboard.core.layout import Layout, layout_of
from callboard.core.op import Op
from callboard.core.ref import GpuRef
from callboard.core.ref.hostarrays import refuse_masked
from callboard.kernel.memory import Copy

__all__ = [
    "AxisError",
    "IndexRangeError",
    "Ref",
    "Scalar",
    "axes_of",
    "axis_of",
    "cast",
    "check_array",
    "check_device",
    "dense",
    "device_of",
    "integer",
    "is_scalar",
    "number",
    "numbers_of",
    "submit",
    "view",
]


class AxisError(ShapeError, np.exceptions.AxisError):
    """The array has no such axis. Like NumPy's class it is also an ``IndexError``, which the standard requires."""

    __str__ = Exception.__str__  # NumPy's keeps another text


class IndexRangeError(ShapeError, IndexError):
    """An index is out of range. Of an array on the device it is found out later, and is a ``ShapeError``."""


Ref = GpuRef[Any]
Scalar = bool | int | float | complex
"""A Python number, which takes the dtype of the array beside it."""


def check_array(function: str, name: str, x: Any) -> Ref:
    """``x``, which is an array on a device.

    Raises:
        TypeError: It is not.
    """
    if isinstance(x, GpuRef):
        return x
    cure = "put it on the device first, xp.asarray(array)" if isinstance(x, np.ndarray) else "pass a GpuRef"
    raise TypeError(f"xp.{function}: {name} is {type(x).__name__}; {cure}")


def is_scalar(x: Any) -> bool:
    """True for a number of Python or NumPy."""
    return isinstance(x, bool | int | float | complex | np.number | np.bool_)


def number(function: str, name: str, x: Any) -> Any:
    """The number that a scalar or a 0-d array is, of Python. A ref is read, on a ``cb.sync`` device.

    Raises:
        TypeError: It is not a number, or a ref whose value has to be awaited.
    """
    if type(x) in (int, float, bool, complex):
        return x
    refuse_masked(x, f"xp.{function}")
    found = x.item() if isinstance(x, GpuRef | np.ndarray | np.generic) and x.ndim == 0 else x
    if not isinstance(found, bool | int | float | complex):
        told = x._told() if isinstance(x, GpuRef) else type(x).__name__
        raise TypeError(f"xp.{function}: {name} is {told}; pass a number, or a 0-d array of one")
    return found


def integer(function: str, name: str, x: Any) -> int:
    """The integer that ``x`` is; a 0-d array is one, as in :func:`number`."""
    try:
        return operator.index(number(function, name, x))
    except TypeError as e:
        if isinstance(x, GpuRef) and not x.ndim and not x._port.services.blocking:
            raise
        told = x._told() if isinstance(x, GpuRef) else repr(x) if isinstance(x, float | complex) else type(x).__name__
        raise TypeError(f"xp.{function}: {name} is {told}; pass an int") from e


def device_of(*arrays: Any) -> Any:
    """The namespace of the device that the arrays are on."""
    for x in arrays:
        if isinstance(x, GpuRef):
            return x._port.services.xp
    raise TypeError("no array was given (a GpuRef), so no device; xp.asarray makes one")


def submit(x: Ref, op: Op[Any, Any]) -> Any:
    """Submit an op to the device of ``x``."""
    return x._port.services.xp._submit(op)


def check_device(own: str, device: Any) -> None:
    """``device`` names the device of the namespace, or is None.

    Raises:
        DeviceMismatch: It names another one.
    """
    if device is not None and device != own:
        raise DeviceMismatch(f"device {device!r}: this is the namespace of {own!r}; use that device's own dev.xp")


def view(x: Ref, shape: Sequence[int], strides: Sequence[int], shift: int = 0) -> Ref:
    """The same memory by another shape and other steps, from ``shift`` elements on."""
    layout = layout_of(x.dtype, tuple(shape), tuple(strides))
    return x._view(layout, x.offset + shift * x.dtype.itemsize)


def cast(x: Ref, dtype: DType) -> Ref:
    """``x`` in this dtype; itself if it has it."""
    return x if x.dtype is dtype else x._port.services.xp.astype(x, dtype)


def dense(x: Ref) -> Ref:
    """``x`` row-major without gaps; itself if it is."""
    layout: Layout = x.layout
    return x if layout.contiguous else submit(x, Copy(src=x))


def axis_of(function: str, x: Ref, axis: Any, ndim: int | None = None) -> int:
    """The axis, counted from 0.

    Raises:
        TypeError, AxisError: It is not an integer; there is no such axis.
    """
    axes = x.ndim if ndim is None else ndim
    try:
        number = operator.index(axis)
    except TypeError:
        raise TypeError(f"xp.{function}: axis is {axis!r}; pass an int") from None
    if not -axes <= number < axes:
        raise AxisError(f"xp.{function}: axis is {number}, and x is {x.layout!r}, with {axes} axes")
    return number % axes


def axes_of(function: str, x: Ref, axis: Any) -> tuple[int, ...]:
    """The axes that ``axis`` names: an int, a tuple of them, or None for all."""
    if axis is None:
        return tuple(range(x.ndim))
    axes = tuple(axis_of(function, x, one) for one in (axis if isinstance(axis, tuple | list) else (axis,)))
    if len(set(axes)) < len(axes):
        raise ShapeError(f"xp.{function}: axis is {axis!r}, which names an axis twice")
    return axes


def numbers_of(given: Mapping[str, Any]) -> tuple[tuple[Ref, ...], dict[str, Any]]:
    """The arrays among the arguments of an expression, and the fields of its message that the numbers fill.

    Raises:
        OverflowError: An integer of more than 64 bits.
    """
    operands: list[Ref] = []
    numbers: dict[str, Any] = {}
    for name, x in given.items():
        if isinstance(x, GpuRef):
            operands.append(x)
        else:
            number = numbers[name] = x.item() if isinstance(x, np.generic) else x
            if type(number) is int and not -(2**63) <= number < 2**64:
                raise OverflowError(f"{name} is {number}: an integer combined with an array has at most 64 bits")
    if not numbers:
        return tuple(operands), {}
    bools = tuple(name for name, x in numbers.items() if isinstance(x, bool))
    return tuple(operands), {"scalars": tuple(numbers.values()), "numbers": tuple(numbers), "bools": bools}
