"""``check_kernel``: whether the two bodies of a ``@cb.kernel`` do the same."""

from typing import Any

import numpy as np

import callboard.sync as sync
from callboard.core.dtype import as_dtype
from callboard.core.layout import layout_of
from callboard.core.op import outputs_of
from callboard.core.operand import Placeholder
from callboard.kernel.nvrtc import Kernel, Launch
from callboard.testing.tolerances import Kind, assert_close

__all__ = ["check_kernel"]

Array = np.ndarray[Any, Any]

PATTERNS = 0xFF, 0x01
"""Bytes that outputs hold before: an element that differs between two runs has not been written."""


def check_kernel(
    kernel: Kernel,
    *args: Any,
    device: "str | sync.Device" = "cuda",
    terms: int = 1,
    kind: Kind | None = None,
    **named: Any,
) -> dict[str, Array]:
    """Call a kernel's NumPy body, launch it on a device, and compare their outputs.

    ::

        check_kernel(scaled, np.arange(1000, dtype="f4"), 2.0)

    Each runs twice, with outputs that contained different bytes before. This detects an output that is not written
    completely, which should be declared ``inout``.

    Args:
        kernel: Kernel to check.
        args, named: Arguments of a call, with host arrays for refs, which are not changed. No outputs.
        device: Device to launch on: a name, or an open device.
        terms, kind: Tolerance of the comparison; see :func:`callboard.testing.tolerances.assert_close`.

    Returns:
        The arrays that the device wrote, by parameter.

    Raises:
        AssertionError: They differ, or an output is not written as a whole; names the parameter.
        TypeError, ShapeError: The arguments do not fit.
        BackendUnavailable: There is no such device here.
        LibraryError: A body fails; the compiler's log, if it is that.
    """
    placed = [_placed(arg) for arg in args]
    message = kernel.op(*placed, **{name: _placed(value) for name, value in named.items()})
    outs = {one.name: layout for one, layout in zip(kernel.parameters.outs, outputs_of(message).values(), strict=True)}
    given = dict(zip((one.name for one in kernel.parameters.passed), args, strict=False)) | named
    runs = [_by_numpy(kernel, message, given, outs, pattern) for pattern in PATTERNS]
    if isinstance(device, str):
        with sync.device(device, standby=None) as opened:
            launched = [_by_device(kernel, opened, given, outs, pattern) for pattern in PATTERNS]
    else:
        launched = [_by_device(kernel, device, given, outs, pattern) for pattern in PATTERNS]
    for who, (first, second) in {"the NumPy body": runs, "the device": launched}.items():
        for name in outs:
            if first[name].tobytes() != second[name].tobytes():
                raise AssertionError(f"{kernel.name}: {who} does not write all of {name}; declare it inout")
    for name, want in runs[0].items():
        try:
            assert_close(launched[0][name], want, as_dtype(want.dtype), terms, kind=kind)
        except AssertionError as e:
            raise AssertionError(f"{kernel.name}: {name}: {e}") from None
    return launched[0]


def _placed(value: Any) -> Any:
    """A host array as an operand of the same layout."""
    if not isinstance(value, np.ndarray) or value.ndim == 0:
        return value
    return Placeholder(layout_of(as_dtype(value.dtype), value.shape))


def _by_numpy(
    kernel: Kernel, message: Launch, given: dict[str, Any], outs: dict[str, Any], pattern: int
) -> dict[str, Array]:
    """Arrays that the body writes, by parameter."""
    written = {name: _filled(layout, pattern) for name, layout in outs.items()}
    values: dict[str, Any] = {}
    numbers = iter(message.numbers)
    for one, kind in zip(kernel.parameters.all, message.spec.kinds, strict=True):
        if not one.is_array:
            values[one.name] = as_dtype(kind).np.type(next(numbers))
        elif one.kind == "out":
            values[one.name] = written[one.name]
        else:
            values[one.name] = np.array(given[one.name], order="C")
            if one.kind == "inout":
                written[one.name] = values[one.name]
    with np.errstate(all="ignore"):
        kernel.body(**{name: values[name] for name in message.spec.names if name})
    return written


def _by_device(
    kernel: Kernel, device: sync.Device, given: dict[str, Any], outs: dict[str, Any], pattern: int
) -> dict[str, Array]:
    """Arrays that a launch writes, by parameter."""
    put: dict[str, Any] = {name: device.put(_filled(layout, pattern)) for name, layout in outs.items()}
    for name, value in given.items():
        put[name] = device.put(value) if isinstance(value, np.ndarray) and value.ndim else value
    kernel.answer(device.ask(kernel.op(**put)))
    written = [one.name for one in kernel.parameters.all if one.kind in ("out", "inout")]
    return {name: put[name].get() for name in written}


def _filled(layout: Any, pattern: int) -> Array:
    filled: Array = np.full(layout.nbytes, pattern, np.uint8).view(layout.dtype.np)
    return filled.reshape(layout.shape)
