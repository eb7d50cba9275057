"""``dev.array(...)``: an array of host values."""

from typing import Any

from callboard.core.dtype import DTypeLike, as_dtype
from callboard.core.mode import Mode
from callboard.core.ref import GpuRef
from callboard.core.ref.hostarrays import host_array
from callboard.kernel.api import Api
from callboard.kernel.array.movement import Cast

__all__ = ["Methods"]


class Methods(Api[Mode]):
    """Arrays of a device."""

    __slots__ = ()

    def __call__(self, values: Any, dtype: DTypeLike | None = None) -> GpuRef[Mode]:
        """``dev.array([[1.0, 2.0], [3.0, 4.0]])``: a new array; always a copy.

        Args:
            values: A ref of this device, or whatever ``numpy.asarray`` takes.
            dtype: Converted to it; that of the values when None, for Python's numbers bool, i64, f64 or c128.

        Raises:
            TypeError: No device holds that dtype.
        """
        if isinstance(values, GpuRef):
            to = values.dtype if dtype is None else as_dtype(dtype)
            copied: GpuRef[Mode] = self._submit(Cast(src=values, dtype=to))
            return copied
        made: GpuRef[Mode] = self._put(values if dtype is None else host_array(values, as_dtype(dtype), "array"))
        return made
