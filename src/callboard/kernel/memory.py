"""``MemoryActor``: allocation, fills, copies.

The methods are those of the device handle itself (``dev.empty``, ``dev.fill``, ``dev.copy`` …).
"""

import math
from typing import Any, ClassVar

import ml_dtypes
import numpy as np

from callboard.core.dtype import DTYPES, DType, DTypeLike, as_dtype
from callboard.core.errors import IntegerRangeError, ShapeError
from callboard.core.layout import Layout, layout_of, rows_of
from callboard.core.op import Op, Outputs
from callboard.core.operand import HostIn, HostOut, In, Number, Operand, Out
from callboard.core.ref import GpuRef

__all__ = ["Copy", "Download", "Empty", "Fill", "MemoryActor", "Upload"]


_finfo: Any = ml_dtypes.finfo  # without types
_LARGEST = {name: float(_finfo(dtype.np).max) for name, dtype in DTYPES.items() if dtype.is_float}
_NO_INFINITY = ("f8_e4m3", "f4_e2m1")


class MemoryActor:
    """Serves the memory messages of a device."""


class Empty(Op["MemoryActor", GpuRef], tag="memory.empty"):
    """A new array, not initialised.

    Args:
        shape: Extents, each >= 0.
        dtype: The dtype of the elements; kept by name.
        out: Left None.
    """

    shape: tuple[int, ...]
    dtype: DTypeLike
    out: Out | None = None

    def infer(self) -> Outputs:
        if any(n < 0 for n in self.shape):
            raise ShapeError(f"memory.empty: shape {self.shape}: extents are >= 0")
        return {"out": layout_of(as_dtype(self.dtype), self.shape)}


class Fill(Op["MemoryActor", GpuRef], tag="memory.fill"):
    """Set every element of ``out`` to ``fill_value``, exactly if its dtype holds it, else rounded.

    Args:
        out: Any dtype, shape and strides.
        fill_value: A number within the dtype's range: an integer for integers, complex for complex arrays only.
            Infinities and NaN for floats that have them. A 0-d array is converted as NumPy converts.
    """

    out: Out
    fill_value: Number = 0.0

    def __post_init__(self) -> None:
        given = self.fill_value
        super().__post_init__()
        dtype = self.out.dtype
        value = given if type(given) is int else self.fill_value  # one of more than 64 bits has become a float
        if type(value) is float and dtype.is_float:  # the common case, and the quick one
            if not abs(value) <= _LARGEST[dtype.name]:
                self._check_float(given, value, dtype)
        elif dtype.is_integer and isinstance(value, int | float):
            bounds = np.iinfo(dtype.np)
            if not bounds.min <= value <= bounds.max or value != int(value):  # nor is NaN
                refused = self._refused(given, f"the integers from {bounds.min} to {bounds.max}")
                raise IntegerRangeError(*refused.args) if type(value) is int else refused
        elif isinstance(value, int) and dtype.is_float:
            self._check_float(given, float(value), dtype)
        elif not isinstance(value, Operand) and dtype.is_complex:
            for part in (complex(value).real, complex(value).imag):
                self._check_float(given, part, dtype.real)

    def _check_float(self, given: Any, value: float, dtype: DType) -> None:
        most = _LARGEST[dtype.name]
        if abs(value) <= most:
            return
        with np.errstate(all="ignore"):
            held = float(dtype.np.type(value))
        if math.isfinite(value):
            fits = math.isfinite(held) and dtype.name not in _NO_INFINITY  # it is rounded to the largest
        else:
            fits = math.isnan(held) if math.isnan(value) else math.isinf(held)
        if not fits:
            raise self._refused(given, f"numbers from {-most:g} to {most:g}")

    def _refused(self, given: Any, held: str) -> ShapeError:
        out = self.out.layout
        return ShapeError(f"memory.fill: fill_value is {given} and out is {out!r}: {out.dtype} holds {held}")

    def infer(self) -> Outputs:
        if isinstance(self.fill_value, complex) and not self.out.dtype.is_complex:
            raise ShapeError(f"memory.fill: fill_value {self.fill_value} is complex and out is {self.out.layout!r}")
        return {"out": self.out.layout}


class Copy(Op["MemoryActor", GpuRef], tag="memory.copy"):
    """``out = src``, element by element, between any strides of one device and one dtype.

    Args:
        src: Any dtype, shape and strides.
        out: Same dtype and shape; a new row-major array when None. Must not overlap ``src``.
    """

    src: In
    out: Out | None = None

    def infer(self) -> Outputs:
        return {"out": layout_of(self.src.dtype, self.src.shape)}


class Upload(Op["MemoryActor", GpuRef], tag="memory.upload"):
    """``out = host``: from a region of an arena to the device, in rows (``dev.put`` sends these).

    Args:
        host: Region of an arena, of any strides that :func:`rows_of <callboard.core.layout.rows_of>` takes with those
            of ``out``.
        out: Same dtype and shape; a new row-major array when None.
    """

    host: HostIn
    out: Out | None = None

    def infer(self) -> Outputs:
        out = layout_of(self.host.dtype, self.host.shape)
        given = self.out
        if given is not None and (given.dtype, given.shape) == (self.host.dtype, self.host.shape):
            out = given.layout
        _check_rows("memory.upload: host", self.host.layout, "out", out)
        return {"out": layout_of(self.host.dtype, self.host.shape)}


class Download(Op["MemoryActor", None], tag="memory.download"):
    """``host = src``: from the device to a region of an arena, in rows (``ref.get`` sends these).

    Args:
        src: Array with strides that :func:`rows_of <callboard.core.layout.rows_of>` accepts together with those of
            ``host``.
        host: Region of an arena, same dtype and shape; its elements do not overlap.
        after: An array that is ready when ``host`` may be written; it is not read.
    """

    returns: ClassVar[tuple[str, ...]] = ()

    src: In
    host: HostOut
    after: In | None = None

    def infer(self) -> Outputs:
        if self.src.dtype is not self.host.dtype or self.src.shape != self.host.shape:
            raise ShapeError(f"memory.download: src is {self.src.layout!r}, host {self.host.layout!r}")
        _check_rows("memory.download: src", self.src.layout, "host", self.host.layout)
        return {}


def _check_rows(src_name: str, src: Layout, out_name: str, out: Layout) -> None:
    if rows_of(src, out) is None:
        raise ShapeError(
            f"{src_name} is {src!r} and {out_name} {out!r}: not a transfer of rows; copy to or from a contiguous "
            "array with dev.copy"
        )
