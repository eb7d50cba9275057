"""Plans whose answer is bytes of the host: copied to the device after the stream's work."""

import ctypes
from collections.abc import Sequence
from ctypes import c_int
from typing import TYPE_CHECKING

import numpy as np

from callboard.backends.cuda.nvrtc.calls import attribute
from callboard.backends.cuda.nvrtc.loading import Loaded

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["BytesPlan", "inspection"]

ATTRIBUTES = (0, 1, 2, 3, 4, 5, 6, 8)
"""``CUfunction_attribute`` of each field of :class:`callboard.kernel.nvrtc.KernelAttributes`."""
MULTIPROCESSORS, THREADS_OF_MULTIPROCESSOR = 16, 39


class BytesPlan:
    """Writes the same bytes each time.

    Attributes:
        captures: False: the bytes are in memory of the plan, which a graph may outlive.
    """

    captures = False

    def __init__(self, content: bytes) -> None:
        self._content = ctypes.create_string_buffer(content, max(len(content), 1))
        self._nbytes = len(content)

    def query_size(self, stream: "CudaStream", out: int | None) -> Sequence[Sequence[int]]:
        """The extents of the output, an array of u8."""
        return [[self._nbytes]]

    def __call__(self, stream: "CudaStream", out: int) -> None:
        driver = stream.driver
        driver.check(driver.memcpy_htod(out, self._content, self._nbytes, stream.native), "cuMemcpyHtoDAsync")


def inspection(device: "CudaDevice", loaded: Loaded, threads: int, shared: int) -> BytesPlan:
    """The numbers of :func:`callboard.kernel.nvrtc.compile.inspected`; the kernel is released."""
    function = loaded.function
    driver = device.driver
    blocks, block, grid = c_int(), c_int(), c_int()
    driver.occupancy_blocks(ctypes.byref(blocks), function, threads, shared)
    driver.occupancy_block_size(ctypes.byref(grid), ctypes.byref(block), function, None, shared, 0)
    numbers = [attribute(driver, function, which) for which in ATTRIBUTES]
    numbers += [blocks.value, device.attribute(MULTIPROCESSORS), threads]
    numbers += [device.attribute(THREADS_OF_MULTIPROCESSOR), block.value, grid.value]
    loaded.release()
    return BytesPlan(np.array(numbers, np.int64).tobytes())
