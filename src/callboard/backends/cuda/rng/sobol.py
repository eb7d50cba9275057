"""Sobol points: tables on the device, and the kernels that make points of them."""

import ctypes
from collections.abc import Callable
from ctypes import addressof, c_int, c_int64, c_uint64, c_void_p
from typing import TYPE_CHECKING

from callboard.backends.cuda.launching import THREADS, linear_grid
from callboard.backends.cuda.rng.arguments import FillArgs, FillPlan, Words, launcher
from callboard.core.layout import Layout
from callboard.kernel.rng.sobol import point_table
from callboard.kernel.rng.streams import KINDS, points_of, words_per_element

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice
    from callboard.backends.cuda.stream import CudaStream
    from callboard.core.backend import Memory

__all__ = ["SobolTables"]


class SobolTables:
    """The tables of points 1, 2, 4 … that plans use, by dimensions and bits.

    Args:
        device: The device; its context is current.
        stream: Stream on which tables are copied.
    """

    def __init__(self, device: "CudaDevice", stream: "CudaStream") -> None:
        self._device = device
        self._stream = stream
        self._tables: dict[tuple[int, int], Memory] = {}

    def words(self, plan: FillPlan, kind: str, layout: Layout) -> Words:
        """``words(stream, out, seed, position)``: coordinates as integers, of 32 or 64 bits as the dtype takes.

        The table of a scrambled sequence is made again in every fill, since the seed is part of the fill.
        """
        bits, dimensions = KINDS[kind].bits, points_of(layout)[1]
        itemsize = 4 * words_per_element(layout.dtype)
        table = self._table(dimensions, bits)
        args = FillArgs(count=layout.size, size=dimensions, bits=bits, shift=8 * itemsize - bits, words=table)
        run = launcher(self._device, "rng_elements", f"sobol_{itemsize}", layout.size, args)
        scramble = self._scrambler(plan, table, dimensions, bits, args) if KINDS[kind].seeded else None

        def words(stream: "CudaStream", out: int, seed: int, position: int) -> None:
            if scramble is not None:
                scramble(stream, seed)
            args.out, args.position = out, position
            run(stream.native)

        return words

    def _scrambler(
        self, plan: FillPlan, table: int, dimensions: int, bits: int, args: FillArgs
    ) -> Callable[["CudaStream", int], None]:
        driver = self._device.driver
        function = self._device.kernels.get("rng_elements", "sobol_scramble")
        own = plan.allocate(8 * dimensions * (bits + 1))
        args.words, args.low = own, 1
        values = (c_void_p(table), c_void_p(own), c_int(bits), c_int64(dimensions), c_uint64())
        params = (c_void_p * 5)(*map(addressof, values))
        grid = linear_grid(dimensions * (bits + 1))

        def scramble(stream: "CudaStream", seed: int) -> None:
            values[4].value = seed
            code = driver.launch_kernel(function, grid, 1, 1, THREADS, 1, 1, 0, stream.native, params, None)
            driver.check(code, "cuLaunchKernel")

        return scramble

    def _table(self, dimensions: int, bits: int) -> int:
        found = self._tables.get((dimensions, bits))
        if found is None:
            table = point_table(dimensions, bits)
            found = self._device.allocate(table.nbytes)
            try:
                image = ctypes.create_string_buffer(table.tobytes(), table.nbytes)
                code = self._device.driver.memcpy_htod(
                    found.address, addressof(image), table.nbytes, self._stream.native
                )
                self._device.driver.check(code, "cuMemcpyHtoDAsync")
                self._stream.synchronize()  # before the image is freed
            except BaseException:  # Ctrl-C, too: nothing else returns the memory
                self._device.release(found)
                raise
            self._tables[dimensions, bits] = found
        return found.address

    def close(self) -> None:
        """Free the tables; nothing uses them."""
        for memory in self._tables.values():
            self._device.release(memory)
        self._tables.clear()
