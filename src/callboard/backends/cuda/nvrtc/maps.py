"""Tensor maps as the driver encodes them, for arrays at addresses."""

import ctypes
from collections.abc import Sequence
from ctypes import c_uint32, c_uint64

from callboard.backends.cuda.driver import Driver
from callboard.core.errors import ShapeError
from callboard.core.layout import Layout
from callboard.kernel.nvrtc.tensormap import DATA_TYPES, FILLS, INTERLEAVES, L2, SWIZZLES, TensorMap

__all__ = ["MAP_BYTES", "Encoder"]

MAP_BYTES = 128
MAP_ALIGNMENT = 64
KNOWN = 64
"""Addresses whose maps are kept for each parameter."""


class Encoder:
    """Encodes one tensor map for arrays of one layout, at any address.

    Args:
        driver: The CUDA driver API.
        layout: Layout of the arrays.
        one: The map.
    """

    def __init__(self, driver: Driver, layout: Layout, one: TensorMap) -> None:
        item = layout.dtype.itemsize
        rank = layout.ndim
        self._driver = driver
        self._rank = rank
        self._type = DATA_TYPES[layout.dtype.name]
        self._unit = 32 if one.interleave == "32B" else 16
        # The driver counts axes from the last one.
        self._extents = (c_uint64 * rank)(*layout.shape[::-1])
        self._strides = (c_uint64 * max(rank - 1, 1))(*(step * item for step in layout.strides[-2::-1]))
        self._box = (c_uint32 * rank)(*one.box[::-1])
        self._steps = (c_uint32 * rank)(*one.steps[::-1])
        self._modes = INTERLEAVES[one.interleave], SWIZZLES[one.swizzle], L2[one.l2], FILLS[one.fill]
        self._room = ctypes.create_string_buffer(MAP_BYTES + MAP_ALIGNMENT)
        self._at = -ctypes.addressof(self._room) % MAP_ALIGNMENT + ctypes.addressof(self._room)
        self._known: dict[int, bytes] = {}

    def __call__(self, address: int) -> bytes:
        """The map of the array at this address.

        Raises:
            ShapeError: It is not aligned.
            DriverError: The driver refuses it.
        """
        found = self._known.get(address)
        if found is not None:
            return found
        if address % self._unit:
            raise ShapeError(f"an array at {address:#x} has no tensor map: {self._unit} bytes do not divide that")
        self._driver.tensor_map_tiled(self._at, self._type, self._rank, address, *self._arrays(), *self._modes)
        if len(self._known) >= KNOWN:
            self._known.clear()
        found = self._known[address] = ctypes.string_at(self._at, MAP_BYTES)
        return found

    def _arrays(self) -> Sequence[object]:
        return self._extents, self._strides, self._box, self._steps
