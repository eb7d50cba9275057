"""``LocalRegion``: host memory of this process as the operand of an upload or a download."""

from typing import Any

import numpy as np

from callboard.core.dtype import as_dtype
from callboard.core.layout import layout_of
from callboard.core.operand import Operand

__all__ = ["LocalRegion"]


class _Never:
    """Stands in for a buffer's owner."""

    freed = False
    id = 0


class LocalRegion(Operand):
    """A row-major NumPy array.

    Attributes:
        address: Address of its first byte.
        array: Kept as long as the op is.
    """

    __slots__ = ("_port", "address", "array", "layout")

    allocation = _Never()
    offset = 0

    def __init__(self, port: Any, array: "np.ndarray[Any, Any]") -> None:
        self._port = port
        self.array = array
        self.address = array.ctypes.data
        self.layout = layout_of(as_dtype(array.dtype), array.shape)
